"""The corpus as a whole: every class has its cases, a missing file makes nobody else guilty, and two jobs stay two."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.diagnose import diagnose
from pipeline.folder import plan
from pipeline.manifest import MANIFEST
from pipeline.rules import load_rules
from schemas.records import Incident
from tests.corpus_cases import CASES, CORPUS, diagnosed, expected, not_borne_out

RULES = sorted(rule.class_ for rule in load_rules().rules)


# --- what is covered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("class_", RULES)
def test_every_class_with_a_rule_is_concluded_in_some_case(class_: str) -> None:
    assert [case for case in CASES if class_ in (expected(case).class_, *expected(case).notes)]


@pytest.mark.parametrize("class_", RULES)
def test_every_class_with_a_rule_has_a_case_that_only_resembles_it(class_: str) -> None:
    assert [case for case in CASES if class_ in expected(case).near]


# --- missing files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_missing_file_makes_nobody_else_guilty(case: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(CORPUS / case / "logs", logs)
    files = sorted(path for path in logs.rglob("*") if path.is_file())
    wrong = []
    for file in files:
        hidden = file.rename(tmp_path / "hidden")
        wrong += [
            f"without {file.relative_to(logs)}: {problem}"
            for incident in diagnose([logs]).incidents
            for problem in not_borne_out(case, incident)
        ]
        hidden.rename(file)
    assert not wrong


# --- two jobs in one folder ---------------------------------------------------------------------------------------


def _with_lines_on_every_node() -> list[str]:
    """The cases in which each node has a log of the job, and no line or name says which job it is."""
    cases = []
    for case in CASES:
        nodes = plan([CORPUS / case / "logs"]).nodes
        has_job = all(any(source.kind == "application" for source in node.sources) for node in nodes)
        named = {source.attributes.get("job.id") for node in nodes for source in node.sources} - {None}
        if has_job and named <= {case} and not (CORPUS / case / "logs" / MANIFEST).exists():
            cases.append(case)
    return cases


PLACED = _with_lines_on_every_node()


@pytest.mark.parametrize(("one", "other"), list(pairwise((*PLACED[::2], *PLACED[1::2]))))
def test_two_unrelated_jobs_are_not_mixed(one: str, other: str, tmp_path: Path) -> None:
    for job, case in (("job_50010", one), ("job_60020", other)):
        shutil.copytree(CORPUS / case / "logs", tmp_path / "logs" / job)
    together = diagnose([tmp_path / "logs"]).incidents
    alone = [incident for case in (one, other) for incident in diagnosed(case).incidents]
    assert sorted(map(_verdict, together)) == sorted(map(_verdict, alone))
    for incident in together:
        (folder,) = {step.evidence.source.split("/")[0] for step in incident.chain}
        assert [job.job_id for job in incident.jobs] == [folder.removeprefix("job_")]


def _verdict(incident: Incident) -> str:
    """What an incident says, apart from its identity and what only stands beside the proof."""
    evidence = [(step.role, step.event, step.evidence.text) for step in incident.chain if step.role != "context"]
    return f"{incident.class_} {incident.culprits} {evidence}"
