"""`diagnose` over the corpus: the right class and culprit, whatever order the records of the nodes arrive in."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.diagnose import diagnose
from pipeline.engine import Engine
from pipeline.folder import plan
from pipeline.reader import Keyed, records
from schemas.records import DELIVERY_FIELDS, Incident, RawBatch
from tests.corpus_cases import CASES, CORPUS, agrees, diagnosed, expected, jobs, loud, words


@pytest.mark.parametrize("case", loud())
def test_the_first_incident_has_the_right_class(case: str) -> None:
    diagnosis = diagnosed(case)
    assert diagnosis.incidents
    assert diagnosis.incidents[0].class_ == expected(case).class_


@pytest.mark.parametrize("case", loud())
def test_one_fault_is_one_incident(case: str) -> None:
    assert len(diagnosed(case).incidents) == expected(case).incidents


@pytest.mark.parametrize("case", loud())
def test_the_culprit_carries_every_identifier_that_the_logs_give(case: str) -> None:
    wants, culprits = expected(case), diagnosed(case).incidents[0].culprits
    if wants.either:
        assert culprits
        assert all(any(agrees(culprit, wanted) for wanted in wants.either) for culprit in culprits)
        return

    assert len(culprits) == len(wants.culprits)
    for wanted in wants.culprits:
        said = [{name: getattr(culprit, name) for name in wanted} for culprit in culprits]
        assert wanted in said


@pytest.mark.parametrize("case", CASES)
def test_no_incident_concludes_what_is_forbidden(case: str) -> None:
    classes = [incident.class_ for incident in diagnosed(case).incidents]
    assert not [class_ for class_ in classes if expected(case).forbids(class_)]


@pytest.mark.parametrize("case", [case for case in CASES if not expected(case).class_])
def test_a_quiet_ending_is_no_incident(case: str) -> None:
    assert not diagnosed(case).incidents


@pytest.mark.parametrize("case", [case for case in CASES if expected(case).notes])
def test_an_ending_that_is_no_incident_is_noted(case: str) -> None:
    assert set(expected(case).notes) <= {note.class_ for note in diagnosed(case).notes}


def test_a_line_of_a_node_is_noted_once_for_all_jobs_that_run_there(tmp_path: Path) -> None:
    node, remapped = tmp_path / "fox-3", "Row Remapper: New row (0x00000000b1c20000) marked for remapping, reset gpu to"
    node.mkdir()
    (node / "kern.log").write_text(
        "2026-05-06T07:05:00.000000+00:00 fox-3 kernel: NVRM: Xid (PCI:0000:41:00): 63, pid=91, name=python, "
        f"{remapped} activate.\n"
    )
    for job, bus in ((31, "41"), (32, "1b")):
        init = (
            f"fox-3:{job}:{job} [0] NCCL INFO comm 0x{job} rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId {bus}000 "
            "commId 0x5 - Init COMPLETE"
        )
        steps = [f"[rank0]: [2026-05-06 07:0{minute}:00] step {minute}0 loss 2.5" for minute in range(10)]
        (node / f"slurm-{job}.out").write_text("\n".join([init, *steps]) + "\n")
    (note,) = diagnose([tmp_path]).notes
    assert (note.class_, note.source, note.line_no) == ("benign/gpu_row_remap", "fox-3/kern.log", 1)


@pytest.mark.parametrize("case", [case for case in loud() if expected(case).interruption])
def test_the_incident_says_how_the_job_was_interrupted(case: str) -> None:
    assert diagnosed(case).incidents[0].interruption == expected(case).interruption


@pytest.mark.parametrize("case", loud())
def test_the_chain_shows_the_evidence(case: str) -> None:
    texts = [step.evidence.text for step in diagnosed(case).incidents[0].chain]
    missing = [wanted for wanted in expected(case).chain if not any(wanted in text for text in texts)]
    assert not missing


@pytest.mark.parametrize("case", [case for case in loud() if expected(case).said])
def test_what_lines_say_beside_each_other_is_said(case: str) -> None:
    said = words(diagnosed(case).incidents)
    assert not [wanted for wanted in expected(case).said if not any(wanted in text for text in said)]


@pytest.mark.parametrize("case", [case for case in loud() if expected(case).jobs is not None])
def test_an_incident_names_the_jobs_that_it_concerns(case: str) -> None:
    assert jobs(diagnosed(case).incidents) == expected(case).jobs


@pytest.mark.parametrize("case", loud())
def test_a_chain_is_a_proof(case: str) -> None:
    for incident in diagnosed(case).incidents:
        _assert_proof(incident)


def _assert_proof(incident: Incident) -> None:
    numbers = [step.step for step in incident.chain]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) <= 30
    # What only stands before a step says to which it leads; it explains nothing.
    context = {step.step for step in incident.chain if step.role == "context"}
    explained = {edge.from_ if edge.from_ in context else edge.to for edge in incident.edges}
    # Where no cause is known there is no root: the first line of the stall hangs on nothing.
    is_unknown = incident.class_.startswith("unknown/")
    anchors = [step.step for step in incident.chain if step.role != "context"][:1] if is_unknown else []
    unexplained = [step.step for step in incident.chain if step.role != "root" and step.step not in explained]
    assert unexplained == anchors
    assert all(edge.from_ in numbers and edge.to in numbers and edge.from_ != edge.to for edge in incident.edges)
    # What leads to a step is printed above it.
    assert not [(edge.from_, edge.to) for edge in incident.edges if edge.from_ > edge.to]
    roots = [step for step in incident.chain if step.role == "root"]
    assert len(roots) == (0 if anchors else max(1, len(incident.culprits)))
    assert anchors or roots[0].step == next(step.step for step in incident.chain if step.role != "context")


@pytest.mark.parametrize("case", loud())
def test_only_nodes_of_the_logs_are_counted_and_named(case: str) -> None:
    names = {node for culprit in expected(case).culprits for node in [culprit.get("node")] if node}
    incident = diagnosed(case).incidents[0]
    everything = "\n".join(path.read_text() for path in (CORPUS / case / "logs").rglob("*") if path.is_file())
    for coverage in incident.coverage.values():
        names.update(coverage.silent)
    assert not {name for name in names if str(name) not in everything and not _in_a_folder_name(case, str(name))}
    nodes = {node.reporter for node in plan([CORPUS / case / "logs"]).nodes if not node.reporter.startswith("file:")}
    assert nodes <= {name for name in nodes if name in everything or _in_a_folder_name(case, name)}

    assert not nodes & {"torchrun", "trainer", "agent", "rank", "logs"}


def _in_a_folder_name(case: str, name: str) -> bool:
    return any(name in path.name for path in (CORPUS / case / "logs").rglob("*"))


# --- arrival orders -----------------------------------------------------------------------------------------------


def _by_node(case: str) -> dict[bytes, list[Keyed]]:
    nodes: dict[bytes, list[Keyed]] = {}
    for keyed in records(plan([CORPUS / case / "logs"])):
        nodes.setdefault(keyed.key, []).append(keyed)
    return nodes


def _orders(case: str) -> Iterator[list[Keyed]]:
    """Node after node, backwards, one record of each in turn, and two shuffles: order inside a node is kept."""
    nodes = _by_node(case)
    yield [keyed for key in sorted(nodes) for keyed in nodes[key]]
    yield [keyed for key in sorted(nodes, reverse=True) for keyed in nodes[key]]
    for seed in range(3):
        picks = [key for key, of_node in nodes.items() for _ in of_node]
        random.Random(seed).shuffle(picks)
        left = {key: iter(of_node) for key, of_node in nodes.items()}
        yield [next(left[key]) for key in picks]


def _final(order: list[Keyed]) -> str:
    engine = Engine()
    for keyed in order:
        engine.feed(keyed.key, keyed.record)
    shapes = [msgspec.to_builtins(incident) for incident in engine.incidents()]
    for shape in shapes:
        for name in DELIVERY_FIELDS:
            shape.pop(name)
    return json.dumps(shapes, indent=1)


@pytest.mark.parametrize("case", CASES)
def test_the_incident_is_the_same_in_every_arrival_order(case: str) -> None:

    first, *others = [_final(order) for order in _orders(case)]
    for other in others:
        assert other == first


def _sources_reordered(of_node: list[Keyed], seed: int) -> list[Keyed]:
    """The same lines, the sources of a node read in another order; lines of one source stay in order."""
    by_source: dict[str, list[RawBatch]] = {}
    rest = []
    for keyed in of_node:
        if isinstance(keyed.record, RawBatch) and keyed.record.records:
            by_source.setdefault(keyed.record.records[0].source, []).append(keyed.record)
        else:
            rest.append(keyed)
    names = sorted(by_source, reverse=seed == 0)
    if seed:
        random.Random(seed).shuffle(names)
    batches = [batch for name in names for batch in by_source[name]]
    numbered = [msgspec.structs.replace(batch, batch_seq=seq) for seq, batch in enumerate(batches, 1)]
    return [*(Keyed(key=of_node[0].key, record=batch) for batch in numbered), *rest]


@pytest.mark.parametrize("case", CASES)
def test_the_incident_is_the_same_whichever_file_of_a_node_is_read_first(case: str) -> None:
    nodes = _by_node(case)
    first = _final([keyed for key in sorted(nodes) for keyed in nodes[key]])
    for seed in range(3):
        assert _final([k for key in sorted(nodes) for k in _sources_reordered(nodes[key], seed)]) == first


@pytest.mark.parametrize("case", loud())
def test_what_the_engine_says_of_any_order_is_what_diagnose_says(case: str) -> None:
    shapes: list[dict[str, Any]] = [msgspec.to_builtins(incident) for incident in diagnosed(case).incidents]
    for shape in shapes:
        for name in DELIVERY_FIELDS:
            shape.pop(name)
    assert json.dumps(shapes, indent=1) == _final(next(_orders(case)))


@pytest.mark.parametrize("case", loud())
def test_every_verdict_settles_at_the_end_of_the_input(case: str) -> None:
    assert {incident.verdict for incident in diagnosed(case).incidents} == {"settled"}


# --- the command --------------------------------------------------------------------------------------------------


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "diagnose", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_command_exits_1_on_an_incident_and_prints_the_culprit() -> None:
    done = _run(str(CORPUS / "c17_cuda_oom_one_rank" / "logs"))
    assert done.returncode == 1
    assert "tr-blue2" in done.stdout
    assert "rank 6" in done.stdout


def test_the_command_exits_0_where_nothing_failed() -> None:
    done = _run("--json", str(CORPUS / "quiet_only_noise" / "logs"))
    assert done.returncode == 0
    assert json.loads(done.stdout)["incidents"] == []


def test_the_command_exits_3_on_a_path_that_is_not_there() -> None:
    done = _run(str(CORPUS / "no-such-folder"))
    assert done.returncode == 3
    assert "no-such-folder" in done.stderr


def test_json_goes_to_standard_output_and_nothing_else_does() -> None:
    done = _run("--json", str(CORPUS / "c01_aer_then_xid79_skewed_clocks" / "logs"))
    shape = json.loads(done.stdout)
    assert set(shape) == {"incidents", "notes", "gaps", "clocks"}
    assert shape["incidents"][0]["class"] == "hardware/gpu_xid_79"


def test_of_a_rank_that_aborts_without_its_name_it_is_said_that_the_lines_of_the_abort_may_be_its() -> None:
    why = diagnosed("real_cpp_exception_ends_one_rank").incidents[0].why_unknown or ""
    assert "SIGABRT" in why
    assert "while it hung" not in why


# --- a job that runs again ----------------------------------------------------------------------------------------

_RAN_OUT = """\
11:02:10.250000 gx4 [rank0]: step 40 loss 3.02
11:02:19.750000 gx4 [rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 1 has a total capacity of 79.15 GiB of which 0.84 GiB is free. Process 5120 has 78.3 GiB memory in use.
11:02:20.500000 gx4 E0507 11:02:20.500000 5001 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 5120) of binary: /opt/py/bin/python
11:02:21.000000 gx4 W0507 11:02:21.000000 5001 torch/distributed/elastic/agent/server/api.py:900] [default] Worker group FAILED. 2/3 attempts left; will restart worker group
"""  # noqa: E501 - lines as they are printed
_SET_UP = "11:02:33.000000 gx4 [rank0]: loading checkpoint from /ckpt/run3 at iteration 36\n"
_STEPS = "11:03:05.000000 gx4 [rank0]: step 37 loss 3.05\n11:03:15.000000 gx4 [rank0]: step 47 loss 3.01\n"
_LONGER = "".join(
    f"11:{minute:02}:05.000000 gx4 [rank{rank}]: step {minute} loss 3.0\n" for minute in range(4, 30) for rank in (0, 1)
)
_AGAIN = """\
11:04:19.750000 gx4 [rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.50 GiB. GPU 1 has a total capacity of 79.15 GiB of which 0.84 GiB is free. Process 5344 has 78.3 GiB memory in use.
11:04:20.500000 gx4 E0507 11:04:20.500000 5001 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1 (pid: 5344) of binary: /opt/py/bin/python
"""  # noqa: E501 - lines as they are printed


@pytest.mark.parametrize(
    ("after", "state"),
    [
        ("", "open"),
        (_SET_UP, "open"),
        # The ranks that did not fail do a few more steps until they are stopped.
        (_STEPS, "open"),
        (_SET_UP + _STEPS, "resolved"),
        (_SET_UP + _STEPS + _LONGER, "resolved"),
        (_SET_UP + _STEPS + _AGAIN, "open"),
    ],
    ids=["nothing", "set up only", "steps only", "set up and steps", "trains for long", "fails again"],
)
def test_an_incident_is_resolved_once_the_job_was_set_up_anew_and_trains(
    tmp_path: Path, after: str, state: str
) -> None:
    text = "".join(f"2026-05-07T{line}\n" for line in (_RAN_OUT + after).splitlines())
    (tmp_path / "job.log").write_text(text.replace(" gx4", "+00:00 gx4"))

    (incident,) = diagnose([tmp_path]).incidents

    assert (incident.class_, incident.state) == ("software/cuda_oom", state)
