"""Every Xid, and every SXid, gives its meaning and what to do."""

import re
from typing import get_args

import pytest

from schemas import signals, sxid, xid
from schemas.vocabulary import LABELS, ROLES, SCOPES, SEVERITIES

KNOWN = {*range(1, 178), 185}
ACTIONS = {
    "CHECK_MECHANICALS", "CHECK_UVM", "CONTACT_SUPPORT", "IGNORE", "NOT_PUBLISHED", "RESET_GPU", "RESTART_APP",
    "RESTART_BM", "RESTART_VM", "UPDATE_SWFW", "WORKFLOW_NVLINK5_ERR", "WORKFLOW_NVLINK_ERR", "WORKFLOW_XID_45",
    "WORKFLOW_XID_48", "XID_154",
}  # fmt: skip
# What a person must do for the numbers of a bucket of the vendor's catalogue.
BUCKETS = {
    "IGNORE": [14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 157, 160, 161],
    "RESTART_APP": [8, 11, 13, 25, 31, 32, *range(39, 42), 60, *range(68, 73), *range(75, 78), 80, *range(82, 87), 88,
                    89, 94, *range(96, 106), *range(126, 136), 139],
    "RESET_GPU": [46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158],
    "RESTART_BM": [79], "RESTART_VM": [151], "CHECK_MECHANICALS": [54], "UPDATE_SWFW": [78], "CHECK_UVM": [159],
    "WORKFLOW_XID_48": [48], "WORKFLOW_XID_45": [45], "WORKFLOW_NVLINK_ERR": [74],
    "WORKFLOW_NVLINK5_ERR": [*range(144, 151)], "XID_154": [154], "NOT_PUBLISHED": [*range(162, 178), 185],
}  # fmt: skip
ALWAYS_FATAL = [10003, 12020, 22003, 22011, *range(23001, 23018)]
SINGLE_BIT_LIMITS = [
    11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062, 19065, 19068, 19071,
    24001, 24002, 24003, 11004, 12028, 19084, 22013,
]  # fmt: skip


def test_exactly_the_published_numbers_are_known() -> None:
    assert set(xid.meanings()) == KNOWN


@pytest.mark.parametrize("number", sorted(KNOWN))
def test_an_xid_has_a_meaning_an_action_and_a_place_in_the_vocabulary(number: int) -> None:
    told = xid.meaning_of(number)
    assert told is not None
    assert len(told.meaning) > 10
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]+", name) for name in told.name.split("/"))
    assert told.action in ACTIONS
    assert told.app_fault in get_args(xid.AppFault)
    assert told.label in LABELS
    assert told.role in ROLES
    assert told.severity in SEVERITIES
    assert told.scope in SCOPES
    assert told.source


def test_a_number_that_is_not_known_has_no_meaning() -> None:
    assert xid.meaning_of(178) is None
    assert xid.meaning_of(0) is None


@pytest.mark.parametrize(("action", "numbers"), BUCKETS.items())
def test_numbers_of_a_bucket_ask_for_its_action(action: str, numbers: list[int]) -> None:
    assert [n for n in numbers if (told := xid.meaning_of(n)) is None or told.action != action] == []


@pytest.mark.parametrize(
    ("number", "meaning", "severity", "app_fault"),
    [
        (13, "kernel", "error", "yes"),
        (31, "page fault", "error", "yes"),
        (43, "GPU stays healthy", "error", "yes"),
        (48, "Uncorrectable", "critical", "no"),
        (63, "remap", "info", "no"),
        (79, "no longer answers on PCIe", "fatal", "no"),
        (109, "Context switch", "critical", "maybe"),
        (119, "GSP", "critical", "no"),
        (185, "sparing", "info", "no"),
    ],
)
def test_well_known_numbers_mean_what_they_mean(number: int, meaning: str, severity: str, app_fault: str) -> None:
    told = xid.meaning_of(number)
    assert told is not None
    assert meaning in told.meaning
    assert (told.severity, told.app_fault) == (severity, app_fault)


@pytest.mark.parametrize("number", sorted(KNOWN - set(range(144, 151))))
def test_the_event_of_an_xid_is_what_the_table_says(number: int) -> None:
    told, match = xid.meaning_of(number), signals.load().match(f"NVRM: Xid (PCI:0000:5d:00): {number}, text")
    assert told is not None
    assert match is not None
    assert (match.role, match.label, match.severity, match.scope) == (told.role, told.label, told.severity, told.scope)


@pytest.mark.parametrize("number", ALWAYS_FATAL)
def test_an_sxid_that_is_always_fatal_is_fatal_without_the_word(number: int) -> None:
    told = sxid.meaning_of(number)
    match = signals.load().match(f"nvidia-nvswitch1: SXid (PCI:0000:07:00.0): {number}, Link 03 text")
    assert told is not None
    assert match is not None
    assert (told.role, told.severity) == (match.role, match.severity) == ("cause", "fatal")


@pytest.mark.parametrize("number", SINGLE_BIT_LIMITS)
def test_a_limit_of_single_bit_errors_never_is_a_cause(number: int) -> None:
    match = signals.load().match(f"nvidia-nvswitch1: SXid (PCI:0000:07:00.0): {number}, Non-fatal, Link 03 text")
    assert match is not None
    assert (match.role, match.severity) == ("context", "warning")


def test_an_sxid_that_is_not_known_has_the_meaning_of_its_family() -> None:
    told = sxid.meaning_of(20033)
    assert told is not None
    assert "data link" in told.meaning
    assert not told.name
    assert sxid.meaning_of(99_999) is None


@pytest.mark.parametrize("number", range(10, 31))
def test_every_family_of_sxid_has_a_meaning(number: int) -> None:
    assert number in sxid.meanings()
