"""A hang that prints nothing becomes an incident: live as the nodes are read on, and after the fact."""

from collections.abc import Sequence
from typing import Final

import msgspec
import pytest

from pipeline import VERSION
from pipeline.core.investigation import Investigation
from pipeline.core.keys import node_key
from pipeline.engine import Engine
from pipeline.rules import load_rules
from schemas.records import DELIVERY_FIELDS, Annotation, ClockReading, Incident, Progress, SourceProgress
from schemas.topics import key_of
from schemas.vocabulary import Run
from tests.strategies import (
    CLUSTER,
    JOB,
    JOB_KEY,
    SECOND,
    T0,
    application,
    event,
    event_batch,
    kernel,
    node_progress,
    raw_batch,
    raw_lines,
)
from tests.test_any_order import Restarting

RULES: Final = load_rules()
INIT = (
    "{node}:{pid}:{pid} [0] NCCL INFO comm 0x5{rank} rank {rank} nranks 4 cudaDev {dev} nvmlDev {dev} busId {bus}000 "
    "commId 0x77aa - Init COMPLETE"
)
XID = "NVRM: Xid (PCI:0000:43:00): 79, pid=803, name=python, GPU has fallen off the bus."
WATCHDOG = (
    "[rank{rank}]:[E304 {at}.500000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600040 "
    "milliseconds before timing out."
)
# A line: s after the start, node, source, text.
Said = tuple[float, str, str, str]


def _clock(at_s: float) -> str:
    """The time of day, s after T0."""
    seconds = 5 * 3600 + 6 * 60 + 7 + int(at_s)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _stamp(at_s: float) -> str:
    return f"2026-03-04 {_clock(at_s)}"


def _trains(until_s: int, *, odd: int | None = None) -> list[Said]:
    """Four ranks on two nodes print a step every 10 s; one of them misses the last step."""
    said: list[Said] = []
    for rank in range(4):
        node, source = _place(rank)
        init = INIT.format(node=node, pid=800 + rank, rank=rank, dev=rank % 2, bus=("1b", "43")[rank % 2])
        said.append((0, node, source, init))
        for at_s in range(10, until_s + (0 if rank == odd else 1), 10):
            said.append((at_s, node, source, f"[{_stamp(at_s)}] step {at_s} loss 2.31"))
    return said


def _place(rank: int) -> tuple[str, str]:
    return ("alpha", "beta")[rank // 2], f"rank{rank}"


def _line(at_s: float, rank: int, text: str) -> Said:
    return (at_s, *_place(rank), f"[{_stamp(at_s)}] {text}")


class Fleet:
    """Two nodes whose lines and progress reach the folds as shippers send them. `dead`: nodes whose shipper is gone."""

    def __init__(self, run: Run = "live") -> None:
        self.engine = Engine(RULES)
        self.dead: set[str] = set()
        self._run: Run = run
        self._seq = dict.fromkeys(("alpha", "beta"), 0)
        self._seen: dict[str, list[str]] = {node: [f"kern-{node}"] for node in self._seq}
        self._offsets: dict[str, int] = {}
        self.revisions: list[Incident] = []

    def say(self, said: Sequence[Said], at_s: float) -> None:
        """Lines that were just written."""
        now_ns = T0 + int(at_s * SECOND)
        for _, node, source, text in said:
            if node in self.dead:
                continue
            self._seq[node] += 1
            number = self._offsets[source] = self._offsets.get(source, 0) + 1
            (line,) = raw_lines(source, [text], first=number)
            if self._run == "live":
                line = msgspec.structs.replace(line, observed_time_unix_nano=now_ns)
            if source not in self._seen[node]:
                self._seen[node].append(source)
            batch = raw_batch(
                node, self._seq[node], [line], attributes={source: self._of(node, source)}, run=self._run,
                clock=ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=now_ns if self._run == "live" else 0),
            )  # fmt: skip
            self._feed(node, batch, now_ns)

    def read(self, at_s: float, *, ended: bool = False) -> None:
        """All shippers that live say how far they have read."""
        now_ns = T0 + int(at_s * SECOND)
        for node in self._seq:
            if node in self.dead:
                continue
            through_ns = now_ns if self._run == "live" and not ended else 0
            sources = [
                SourceProgress(
                    source=name, state="on", kind="kernel" if name.startswith("kern") else "application",
                    read_through_unix_nano=through_ns, at_end=True, attributes=self._of(node, name),
                )
                for name in self._seen[node]
            ]  # fmt: skip
            progress = Progress(
                run=self._run, run_id="", cluster=CLUSTER, reporter=node, boot_id=f"boot-{node}", shipper_id="s1",
                last_batch_seq=self._seq[node], sources=sources, ended=ended,
                clock=ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=now_ns if self._run == "live" else 0),
            )  # fmt: skip
            self._feed(node, progress, now_ns)

    def annotate(self, at_s: float, step: int | None, phase: str | None = None) -> None:
        """A mark that the job sends as a record."""
        record = {
            "run": "live", "run_id": "", "cluster": CLUSTER, "reporter": "alpha", "node": "alpha", "kind": "step",
            "job_id": JOB, "start_unix_nano": T0 + int(at_s * SECOND), "rank": 0, "step": step, "phase": phase,
        }  # fmt: skip
        self._feed("alpha", msgspec.convert(record, Annotation), T0 + int(at_s * SECOND))

    def live(self, said: Sequence[Said], until_s: int) -> "Fleet":
        """Play lines as they are written, with a progress record every second from each node."""
        waiting = sorted(said, key=lambda line: line[0])
        for second in range(until_s + 1):
            now = [line for line in waiting if line[0] <= second]
            waiting = waiting[len(now) :]
            self.say(now, second)
            self.read(second + 0.5)
        return self

    def _feed(self, node: str, record: msgspec.Struct, now_ns: int) -> None:
        before = {i.incident_id: i.revision for i in self.engine.incidents()}
        self.engine.feed(key_of(self._run, "", CLUSTER, node), record, now_ns=now_ns)
        self.revisions += [i for i in self.engine.incidents() if before.get(i.incident_id) != i.revision]

    def _of(self, node: str, source: str) -> dict[str, str]:
        if source.startswith("kern"):
            return kernel(node)
        return application(node, rank=int(source[4:]) if source.startswith("rank") else None)

    @property
    def main(self) -> Incident:
        """The first incident."""
        return self.engine.incidents()[0]


def _first_known_s(said: Sequence[Said], until_s: int) -> float:
    fleet = Fleet().live(said, until_s)
    detected = fleet.revisions[0].detected_at
    assert detected is not None
    minute, second = detected[14:16], detected[17:26]
    return int(detected[11:13]) * 3600 + int(minute) * 60 + float(second) - (5 * 3600 + 6 * 60 + 7)


def _content(incidents: Sequence[Incident]) -> list[dict[str, object]]:
    shapes = [msgspec.to_builtins(incident) for incident in incidents]
    return [{name: value for name, value in shape.items() if name not in DELIVERY_FIELDS} for shape in shapes]


def _post_mortem(said: Sequence[Said]) -> Engine:
    fleet = Fleet("post_mortem")
    fleet.say(said, 0)
    fleet.read(0, ended=True)
    return fleet.engine


# --- live -----------------------------------------------------------------------------------------------------------


def test_a_hang_that_prints_nothing_is_an_incident_a_minute_after_the_limit_at_most() -> None:
    fleet = Fleet().live(_trains(300), 500)
    (incident,) = fleet.engine.incidents()
    assert (incident.class_, incident.interruption, incident.state) == ("unknown/collective_timeout", "hang", "open")
    assert incident.started_at == incident.stall_started_at == "2026-03-04T05:11:07.000000Z"
    assert [step.event for step in incident.chain] == ["train.stalled"]
    assert incident.chain[0].evidence.text.endswith("step 300 loss 2.31")
    assert "no progress since step 300" in incident.explanation
    assert "ended without a line" in (incident.why_unknown or "")
    assert _first_known_s(_trains(300), 500) <= 300 + 120 + 60


def test_the_rank_whose_marks_stopped_first_is_named() -> None:
    incident = Fleet().live(_trains(300, odd=2), 500).main
    assert incident.class_ == "unknown/silent_rank"
    assert [(culprit.node, culprit.rank) for culprit in incident.culprits] == [("beta", 2)]
    assert "rank 2 stopped before all others" in incident.explanation
    assert [step.evidence.text.partition("] ")[2] for step in incident.chain] == [
        f"step {n} loss 2.31" for n in (300, 290)
    ]


def test_a_rank_whose_rarer_marks_stand_still_is_not_named() -> None:
    """Rank 0 prints a summary every fifth step, which some other line of its prefix is of."""
    rarer = [
        (at_s + 0.2, "alpha", "rank0", f"0: [{_stamp(at_s)}] step {at_s - 1} tokens/s 118000")
        for at_s in range(50, 300, 50)
    ]  # fmt: skip
    assert Fleet().live([*_trains(300), *rarer], 500).main.class_ == "unknown/collective_timeout"


def test_a_fault_elsewhere_after_the_hang_stands_beside_it() -> None:
    text = "Memory cgroup out of memory: Killed process 6911 (jupyter-lab) total-vm:92274688kB, anon-rss:46137344kB"
    late = (500.0, "beta", "kern-beta", f"{_stamp(500).replace(' ', 'T')}.100000+00:00 beta kernel: {text}")
    found = Fleet().live([*_trains(300), late], 620).engine.incidents()
    assert found[0].class_ == "unknown/collective_timeout"
    assert "resource/cgroup_oom" in [incident.class_ for incident in found[1:]]


def test_nothing_more_is_published_while_the_job_goes_on_hanging() -> None:
    fleet = Fleet().live(_trains(300), 900)
    assert len(fleet.revisions) == 1


def test_a_fault_of_a_node_before_the_hang_is_its_root() -> None:
    fault = (302.0, "beta", "kern-beta", f"{_stamp(302).replace(' ', 'T')}.100000+00:00 beta kernel: {XID}")
    incident = Fleet().live([*_trains(300), fault], 600).main
    assert incident.class_ == "hardware/gpu_xid_79"
    assert [(culprit.node, culprit.rank) for culprit in incident.culprits] == [("beta", 3)]
    assert "train.stalled" in [step.event for step in incident.chain]


def test_a_file_server_that_does_not_answer_is_its_root_and_not_without_the_hang() -> None:
    text = "beta kernel: nfs: server store-a not responding, still trying"
    lost = (240.0, "beta", "kern-beta", f"{_stamp(240).replace(' ', 'T')}.100000+00:00 {text}")
    assert Fleet().live([*_trains(300), lost], 600).main.class_ == "storage/nfs_unresponsive"
    assert Fleet().live([*_trains(600), lost], 620).engine.incidents() == []


def test_time_outs_that_come_later_revise_the_incident() -> None:
    late = [(905.0, *_place(rank), WATCHDOG.format(rank=rank, at=_clock(905))) for rank in (0, 1, 3)]
    fleet = Fleet().live([*_trains(300), *late], 1_000)
    first, last = fleet.revisions[0], fleet.main
    assert len(fleet.engine.incidents()) == 1
    assert last.incident_id == first.incident_id
    assert (first.class_, last.class_) == ("unknown/collective_timeout", "unknown/silent_rank")
    # From the last mark of progress to the beginning of the collective that timed out: 5 s.
    assert (first.started_at, last.started_at) == (first.stall_started_at, last.stall_started_at)
    assert first.started_at is not None
    assert last.started_at is not None
    assert first.started_at[:16] == last.started_at[:16]
    assert last.revision > first.revision
    assert [(culprit.node, culprit.rank) for culprit in last.culprits] == [("beta", 2)]


RAN_OUT = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 1 has a total capacity of "
    "79.15 GiB of which 0.31 GiB is free. Process 803 has 78.8 GiB memory in use."
)
ENDED = (
    "E0304 05:11:13.500000 5001 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) "
    "local_rank: 1 (pid: 803) of binary: /opt/py/bin/python"
)


def test_a_job_that_was_started_anew_and_trains_tells_nothing_more_until_it_stands_still() -> None:
    failed = [
        _line(305, 3, RAN_OUT),
        _line(306, 3, ENDED),
        _line(330, 0, "loading checkpoint from /ckpt/a at iteration 9"),
    ]
    again = [_line(at_s, rank, f"step {at_s} loss 2.2") for at_s in range(340, 700, 10) for rank in range(4)]
    fleet = Fleet().live([*_trains(300), *failed, *again], 690)
    said = len(fleet.revisions)
    assert [(i.class_, i.state, i.verdict) for i in fleet.engine.incidents()] == [
        ("software/cuda_oom", "resolved", "settled")
    ]
    assert fleet.main.ended_at == "2026-03-04T05:11:13.500000Z"
    assert said <= 6
    for second in range(691, 900):
        fleet.read(second + 0.5)
    assert [(i.class_, i.state) for i in fleet.engine.incidents()] == [("software/cuda_oom", "open")]


def test_a_job_that_goes_on_takes_its_incident_back() -> None:
    goes_on = [_line(at_s, 0, f"step {at_s} loss 2.2") for at_s in range(610, 700, 10)]
    fleet = Fleet().live([*_trains(300), *goes_on], 650)
    assert fleet.revisions[0].state == "open"
    assert fleet.engine.incidents() == []


@pytest.mark.parametrize("last", ["Training finished.", "`Trainer.fit` stopped: `max_steps=300` reached."])
def test_a_job_that_ends_is_no_hang(last: str) -> None:
    assert Fleet().live([*_trains(300), _line(304, 0, last)], 2_400).revisions == []


def test_a_job_that_is_cancelled_is_no_hang_and_one_that_was_cancelled_as_it_hung_is() -> None:
    cancel = "slurmstepd: error: *** JOB 7001 ON alpha CANCELLED AT {at} ***"
    soon = (330.0, "alpha", "rank0", cancel.format(at=_stamp(330).replace(" ", "T")))
    late = (900.0, "alpha", "rank0", cancel.format(at=_stamp(900).replace(" ", "T")))
    assert Fleet().live([*_trains(300), soon], 900).revisions == []
    assert Fleet().live([*_trains(300), late], 1_000).main.class_ == "unknown/collective_timeout"


def test_shippers_that_die_are_no_hang_of_the_job() -> None:
    fleet = Fleet().live(_trains(300), 320)
    fleet.dead = {"alpha", "beta"}
    fleet.live([], 900)
    assert fleet.revisions == []


def test_a_shipper_that_dies_hides_no_hang_on_the_other_nodes() -> None:
    fleet = Fleet().live(_trains(300), 320)
    fleet.dead = {"beta"}
    for second in range(320, 600):
        fleet.read(second + 0.5)
    assert fleet.main.class_ == "unknown/collective_timeout"


def test_marks_that_come_as_records_stop_too_and_a_phase_gives_them_time() -> None:
    fleet = Fleet()
    fleet.say([(0, "alpha", "rank0", f"[{_stamp(0)}] starting training")], 0)
    for at_s in range(0, 300, 10):
        fleet.annotate(at_s, at_s)
        fleet.read(at_s + 0.5)
    fleet.annotate(300, None, "checkpoint_save")
    for second in range(300, 2_080):
        fleet.read(second + 0.5)
    assert fleet.revisions == []
    for second in range(2_080, 2_160):
        fleet.read(second + 0.5)
    assert fleet.main.class_ == "unknown/collective_timeout"
    assert fleet.main.chain[0].evidence.source == "annotation"


def test_application_lines_without_a_job_stall_nothing() -> None:
    """Nobody knows which job they are of, or whether it still runs."""
    marks = [
        event("train.step", at_ns=T0 + at_s * SECOND, offset=at_s, attributes={"step": str(at_s)}, role="context")
        for at_s in range(0, 300, 10)
    ]  # fmt: skip
    for key, told in ((JOB_KEY, 1), (node_key("", CLUSTER, "alpha", "boot-alpha"), 0)):
        investigation = Investigation.new(RULES, VERSION, key)
        investigation.apply(event_batch("alpha", 1, marks, job_key=key), now_ns=T0 + 300 * SECOND)
        progress = node_progress("alpha", T0 + 900 * SECOND, job_key=key)
        assert len(list(investigation.apply(progress, now_ns=T0 + 900 * SECOND))) == told


def test_a_worker_that_restarts_at_any_time_says_the_same() -> None:
    said = _trains(300, odd=2)
    restarting = Fleet()
    restarting.engine = Restarting(RULES)
    assert _content([restarting.live(said, 450).main]) == _content([Fleet().live(said, 450).main])


# --- after the fact -------------------------------------------------------------------------------------------------


def test_logs_that_end_are_no_hang() -> None:
    assert _post_mortem(_trains(300)).incidents() == []


@pytest.mark.parametrize(
    "told",
    [
        (900.0, "alpha", "job", "slurmstepd: error: *** JOB 7001 ON alpha CANCELLED AT 2026-03-04T05:21:07 ***"),
        (900.0, "alpha", "rank1", f"[{_stamp(900)}] rootrank: step=300"),
        (
            900.0, "beta", "kern-beta",
            "2026-03-04T05:21:07.100000+00:00 beta kernel: INFO: task python:803 blocked for more than 122 seconds.",
        ),
    ],
    ids=["the scheduler", "another line of a rank", "the kernel"],
)  # fmt: skip
def test_logs_that_end_while_others_go_on_are_one(told: Said) -> None:
    stalled = _post_mortem([*_trains(300), told]).incidents()
    assert stalled
    assert stalled[0].interruption == "hang"
    assert "train.stalled" in [step.event for step in stalled[0].chain]


def test_live_and_after_the_fact_the_incident_is_the_same() -> None:
    fault = (302.0, "beta", "kern-beta", f"{_stamp(302).replace(' ', 'T')}.100000+00:00 beta kernel: {XID}")
    cancel = (900.0, "alpha", "rank0", "slurmstepd: error: *** JOB 7001 ON alpha CANCELLED AT 2026-03-04T05:21:07 ***")
    for said in ([*_trains(300, odd=1), cancel], [*_trains(300), fault, cancel]):
        fleet = Fleet().live(said, 1_000)
        fleet.read(1_001, ended=True)
        assert _content(fleet.engine.incidents()) == _content(_post_mortem(said).incidents())
        assert fleet.engine.incidents()
