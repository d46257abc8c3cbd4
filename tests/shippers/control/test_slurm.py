"""What a live slurmctld 22.05 printed, snapshot after snapshot (recorded_slurm/), and what is told of it."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from schemas.records import Attempt, Span, Topology
from shippers.control.hostlist import expand
from shippers.control.kube_nodes import Head
from shippers.control.settings import SlurmSettings
from shippers.control.slurm import Commands, Look, SlurmAbsentError, SlurmError, SlurmWatcher, slurm_ns
from shippers.control.slurm_looks import Jobs, Nodes, Reservations, Switches, exit_code, leaves_of
from shippers.control.table import Table
from shippers.control.told import Line, Outlet
from shippers.pieces import Told
from tests.shippers.fakes import eventually

RECORDED = Path(__file__).parent / "recorded_slurm"
STEPS = ("1-running", "2-preempted", "3-drained", "4-down", "5-end")
HEAD = Head(run="live", run_id="live", cluster="pool", reporter="control")
NOW_NS = slurm_ns("2026-12-01T01:05:00")


def asked(step: str, program: str, arguments: tuple[str, ...]) -> str:
    """What the program printed at that step."""
    kind = "jobs" if program == "squeue" else {"node": "nodes"}.get(arguments[-1], arguments[-1])
    kind = "reservations" if kind == "reservation" else kind
    return (RECORDED / f"{step}.{kind}.txt").read_text()


def told(look: Look, steps: tuple[str, ...] = STEPS, now_ns: int = NOW_NS) -> list[Line | Told]:
    memory: dict[str, str] = {}
    found: list[Line | Told] = []
    for step in steps:
        found += look.look(partial(asked, step), memory, 0, now_ns)
    return found


def texts(found: list[Line | Told]) -> list[str]:
    return [each.body for each in found if isinstance(each, Line)]


def test_jobs_tell_how_they_ended_with_reason_user_and_nodes() -> None:
    lines = texts(told(Jobs(HEAD)))
    assert (
        "2026-12-01T01:02:36Z sacct: JobID=14, User=root, Partition=low, State=PREEMPTED, ExitCode=0:15, Restarts=0, "
        "Reason=None, NodeList=gpu03"
    ) in lines
    assert any("JobID=12," in line and "State=NODE_FAIL" in line and "NodeList=gpu02" in line for line in lines)
    assert any("JobID=16," in line and "State=FAILED, ExitCode=3:0" in line for line in lines)
    assert any(line.startswith("2026-12-01T01:02:33Z squeue: JOBID=13,") and "ST=R" in line for line in lines)


def test_a_requeued_job_says_so_where_it_ran_and_of_which_attempt() -> None:
    (line,) = [each for each in told(Jobs(HEAD)) if isinstance(each, Line) and "slurm.requeued job=13" in each.text]
    assert line.body == "2026-12-01T01:02:36Z rootrank: slurm.requeued job=13 user=root restarts=1 reason=BeginTime"
    assert line.attributes == {"jobs": "13", "attempt": "0", "node": "gpu01", "user": "root"}


def test_each_change_is_told_once_and_under_one_name_whoever_asks_when() -> None:
    every = [each for each in told(Jobs(HEAD)) if isinstance(each, Line)]
    later = [each for each in told(Jobs(HEAD), STEPS[2:]) if isinstance(each, Line)]
    names = [(line.generation, line.offset, line.body) for line in every]
    assert len(names) == len(set(names))
    ends = {(line.generation, line.offset, line.body) for line in later if "sacct:" in line.text}
    assert ends <= set(names)


def test_attempts_of_jobs_are_records_with_their_outcome() -> None:
    attempts = [each for each in told(Jobs(HEAD)) if isinstance(each, Attempt)]
    ended = {(each.job_id, each.attempt): each.outcome for each in attempts if each.end_unix_nano}
    assert ended[("14", 0)] == "preempted"
    assert ended[("12", 0)] == "node_fail"


def test_a_drain_is_told_with_reason_and_who_and_its_end_with_the_time() -> None:
    found = told(Nodes(HEAD))
    lines = texts(found)
    assert lines[0] == (
        "2026-12-01T01:02:38Z sinfo: REASON=Xid 79 on GPU 3: replace, USER=root, TIMESTAMP=2026-12-01T01:02:38, "
        "STATE=drain, NODELIST=gpu03"
    )
    assert "2026-12-01T01:05:00Z Node gpu03 returned to service" in lines
    assert "2026-12-01T01:03:14Z error: Nodes gpu02 not responding, setting DOWN" in lines
    spans = [(s.node, s.kind, s.end_unix_nano) for s in found if isinstance(s, Span)]
    assert sorted(spans, key=str) == [("gpu02", "drain", None), ("gpu03", "drain", NOW_NS), ("gpu03", "drain", None)]


def test_a_maintenance_reservation_is_a_span_of_each_node_once_it_has_begun() -> None:
    steps = ("3-drained",)
    assert told(Reservations(HEAD), steps) == []
    begun = slurm_ns("2026-12-01T02:30:00")
    lines = texts(told(Reservations(HEAD), steps, begun))
    assert len(lines) == 2
    assert "rootrank: span kind=maintenance node=gpu01 start=2026-12-01T02:02:38Z end=2026-12-01T04:02:38Z" in lines[0]
    over = texts(told(Reservations(HEAD), ("3-drained", "5-end"), begun))
    assert over[-1].endswith("node=gpu02 start=2026-12-01T02:02:38Z end=2026-12-01T02:30:00Z")


def test_the_switch_of_each_node_is_a_record_once() -> None:
    found = told(Switches(HEAD))
    hung = {each.node: each.leaf_switch for each in found if isinstance(each, Topology)}
    assert hung == {"gpu01": "leaf1", "gpu02": "leaf1", "gpu03": "leaf2", "gpu04": "leaf2"}
    assert len(found) == 4


def test_a_topology_conf_is_read_as_the_controller_reads_it() -> None:
    text = "SwitchName=s0 Nodes=dev[0-1] # rack 4\nSwitchname=s1 nodes=dev7\nSwitchName=s2 Switches=s[0-1]\n"
    assert leaves_of(text) == {"dev0": "s0", "dev1": "s0", "dev7": "s1"}


def test_a_table_of_racks_tells_what_changed(tmp_path: Path) -> None:
    path, memory = tmp_path / "hung.csv", dict[str, str]()
    path.write_text("node,rack,power_feed\ngpu01,r1,a\ngpu02,r1,b\n")
    table = Table(HEAD, path)
    first = [each for each in table.look(no_program, memory, 0, 10) if isinstance(each, Topology)]
    assert [(t.node, t.rack, t.power_feed) for t in first] == [("gpu01", "r1", "a"), ("gpu02", "r1", "b")]
    path.write_text("node,rack,power_feed\ngpu01,r2,a\ngpu02,r1,b\n")
    second = [each for each in table.look(no_program, memory, 0, 20) if isinstance(each, Topology)]
    assert [(t.node, t.rack, t.start_unix_nano, t.end_unix_nano) for t in second] == [
        ("gpu01", "r1", 10, 20), ("gpu01", "r2", 20, None),
    ]  # fmt: skip


def test_a_table_without_columns_says_which_it_needs(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("host,shelf\na,b\n")
    with pytest.raises(SlurmError, match="columns node and some of rack, nvlink_domain, leaf_switch, power_feed"):
        list(Table(HEAD, tmp_path / "t.csv").look(no_program, {}, 0, 10))


def no_program(program: str, arguments: tuple[str, ...]) -> str:
    raise AssertionError(program)


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_programs_are_asked_in_utc_with_a_deadline_and_their_failure_is_said(tmp_path: Path) -> None:
    settings = SlurmSettings(scontrol=str(tmp_path / "scontrol"), timeout_s=0.3)
    program(tmp_path, "scontrol", 'echo "$TZ $*"')
    assert Commands(settings).ask("scontrol", ("show", "node")) == "UTC show node\n"
    program(tmp_path, "scontrol", "echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(SlurmError, match=r"scontrol show node failed \(1\): .*Unable to contact slurm controller"):
        Commands(settings).ask("scontrol", ("show", "node"))
    program(tmp_path, "scontrol", "exec sleep 20")
    with pytest.raises(SlurmError, match=r"scontrol has not answered for 0\.3 s"):
        Commands(settings).ask("scontrol", ("show", "node"))
    with pytest.raises(SlurmAbsentError, match="is not on PATH"):
        Commands(SlurmSettings()).ask("no-such-program-of-slurm", ())


class Stepped:
    """A Slurm that answers or does not, as a test says."""

    def __init__(self) -> None:
        self.step = "1-running"
        self.problem = ""

    def __call__(self, program: str, arguments: tuple[str, ...]) -> str:
        if self.problem:
            raise SlurmError(self.problem)
        return asked(self.step, program, arguments)


@pytest.fixture
def stepped() -> Iterator[tuple[Stepped, Outlet]]:
    slurm, outlet = Stepped(), Outlet("slurm/nodes")
    watcher = SlurmWatcher("slurm/nodes", Nodes(HEAD), slurm, every_s=0.02, age_ns=None, now_ns=lambda: NOW_NS)
    thread = threading.Thread(target=watcher.run, args=("", outlet), daemon=True)
    thread.start()
    yield slurm, outlet
    outlet.stopping.set()
    thread.join(5)


def test_a_controller_that_does_not_answer_is_refused_and_asked_again(stepped: tuple[Stepped, Outlet]) -> None:
    slurm, outlet = stepped
    assert eventually(lambda: outlet.state == "on", "an answer")
    slurm.problem = "scontrol has not answered for 10 s"
    assert eventually(lambda: (outlet.state, outlet.reason) == ("refused", slurm.problem), "the refusal")
    slurm.step, slurm.problem = "3-drained", ""
    found = eventually(lambda: [line for step in outlet.take(100) for line in step.lines], "the drain")
    assert [line.attributes["node"] for line in found] == ["gpu03"]


class TornOnce:
    """A squeue whose first answer ends in a row that is none."""

    def __init__(self) -> None:
        self.is_torn = True

    def __call__(self, program: str, arguments: tuple[str, ...]) -> str:
        whole = asked("5-end", program, arguments)
        torn, self.is_torn = self.is_torn, False
        return whole + "squeue: error: no more of it\n" if torn else whole


def test_what_stood_before_a_row_that_is_none_is_told_with_the_next_answer() -> None:
    expected = [each.body for each in told(Jobs(HEAD), ("5-end",)) if isinstance(each, Line)]
    outlet = Outlet("slurm/jobs")
    watcher = SlurmWatcher("slurm/jobs", Jobs(HEAD), TornOnce(), every_s=0.02, age_ns=None, now_ns=lambda: NOW_NS)
    thread = threading.Thread(target=watcher.run, args=("", outlet), daemon=True)
    thread.start()
    eventually(lambda: outlet.state == "on", "the second answer")
    outlet.stopping.set()
    thread.join(5)

    assert [line.body for step in outlet.take(1000) for line in step.lines] == expected
    assert expected


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu[01-03,07],login1", ["gpu01", "gpu02", "gpu03", "gpu07", "login1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu[1", []),
        ("gpu[3-1]", []),
        ("gpu[1-99999999]", []),
        ("", []),
    ],
)
def test_lists_of_hosts(text: str, hosts: list[str]) -> None:
    assert expand(text) == hosts


@pytest.mark.parametrize(
    ("text", "said"), [("768", "3:0"), ("15", "0:15"), ("36608", "143:0"), ("3:0", "3:0"), ("?", "0:0")]
)
def test_exit_codes(text: str, said: str) -> None:
    assert exit_code(text) == said
