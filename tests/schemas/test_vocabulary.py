"""The closed vocabularies are well formed and fit together."""

import re
from typing import get_args

import msgspec

from schemas.records import DELIVERY_FIELDS, TIME_MAX_NS, Incident
from schemas.vocabulary import (
    CLASSES,
    LABELS,
    QUIET_CLASSES,
    ROLES,
    SCOPES,
    SEVERITIES,
    SEVERITY_NUMBER,
    Phase,
    Run,
)

DOMAINS = {
    "hardware", "network", "software", "storage", "resource", "infra", "unknown", "scheduler", "operator", "external",
    "benign",
}  # fmt: skip


def test_a_class_is_a_domain_and_a_name() -> None:
    assert all(re.fullmatch(r"[a-z]+/[a-z0-9_]+", name) for name in CLASSES)
    assert {name.split("/")[0] for name in CLASSES} == DOMAINS


def test_a_label_is_a_layer_and_a_name() -> None:
    assert all(re.fullmatch(r"[a-z]+/[a-z0-9_]+", name) for name in LABELS)


def test_quiet_classes_are_classes_and_no_fault_of_hardware_is_quiet() -> None:
    assert QUIET_CLASSES < CLASSES
    assert not {name for name in QUIET_CLASSES if name.startswith("hardware/")}


def test_no_cause_found_has_classes_of_its_own() -> None:
    assert {"unknown/silent_rank", "unknown/collective_timeout"} <= CLASSES - QUIET_CLASSES


def test_severities_have_opentelemetry_numbers_that_grow_with_them() -> None:
    assert SEVERITY_NUMBER.keys() == SEVERITIES
    order = ["trace", "debug", "info", "warning", "error", "critical", "fatal"]
    assert sorted(SEVERITY_NUMBER, key=SEVERITY_NUMBER.__getitem__) == order
    assert all(1 <= number <= 24 for number in SEVERITY_NUMBER.values())


def test_roles_and_scopes_are_those_that_rules_reason_over() -> None:
    assert sorted(ROLES) == ["cause", "context", "intermediate", "noise", "symptom"]
    assert {"gpu", "node", "nic", "link", "rank", "job"} <= SCOPES


def test_runs_that_must_never_mix_have_names_of_their_own() -> None:
    assert set(get_args(Run)) == {"live", "replay", "drill", "post_mortem"}


def test_a_phase_can_be_unknown() -> None:
    assert "unknown" in get_args(Phase)


def test_delivery_fields_are_fields_of_the_incident() -> None:
    assert {f.encode_name for f in msgspec.structs.fields(Incident)} >= DELIVERY_FIELDS


def test_the_widest_time_fits_a_signed_64_bit_column() -> None:
    assert TIME_MAX_NS < 2**63
