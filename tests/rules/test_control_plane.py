"""What another reporter tells of the control plane decides what an exit code means, whenever it arrives."""

import itertools
from collections.abc import Iterable

import pytest

from pipeline.engine import Engine
from schemas.records import ClockReading, Incident, Progress, RawBatch, RawLine, SourceProgress
from schemas.topics import key_of

NOW_NS = 1_772_600_767 * 10**9  # 2026-03-04T05:06:07Z
SECOND_NS = 10**9
READING = ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=NOW_NS)
KILLED = (
    "E0304 05:06:08.400000 790 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) "
    "local_rank: 0 (pid: 800) of binary: /usr/bin/python3"
)
ENDED = (
    "E0304 05:06:08.400000 790 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -15) "
    "local_rank: 0 (pid: 800) of binary: /usr/bin/python3"
)
CONTAINER = (
    "2026-03-04T05:06:09Z rootrank: container.exited namespace=ml pod=train-1 container=main node=beta exitcode={code} "
    "reason=Error"
)
EVENT = (
    "2026-03-04T05:06:05Z kubectl events: LASTSEEN=0s, TYPE=Warning, REASON=Preempted, OBJECT=pod/train-1, "
    "MESSAGE=Preempted by pod 7c1d on node beta"
)
# Control plane lines, and what a job is told that printed that a rank of it was killed.
CASES = {
    "preempted by the scheduler": (EVENT, "scheduler/preempted"),
    "disrupted by the scheduler": (
        "2026-03-04T05:06:05Z rootrank: pod.disrupted namespace=ml pod=train-1 node=beta reason=PreemptionByScheduler",
        "scheduler/preempted",
    ),
    "preempted by Kueue": (
        "2026-03-04T05:06:05Z workloads ml/job-train EvictedDueToPreempted: Preempted to accommodate a workload "
        "(UID: 0a1b) due to prioritization in the ClusterQueue",
        "scheduler/preempted",
    ),
    "evicted": (
        "2026-03-04T05:06:05Z Pod ml/train-1 on beta failed: Evicted: The node was low on resource: memory. Threshold "
        "quantity: 100Mi, available: 52Mi.",
        "infra/pod_evicted",
    ),
    "evicted by the API": (
        "2026-03-04T05:06:05Z rootrank: pod.disrupted namespace=ml pod=train-1 node=beta reason=EvictionByEvictionAPI",
        "infra/pod_evicted",
    ),
    "shut down with its node": (
        "2026-03-04T05:06:05Z Pod ml/train-1 on beta failed: Terminated: Pod was terminated in response to imminent "
        "node shutdown.",
        "infra/node_failure",
    ),
    "preempted by Slurm": (
        "2026-03-04T05:06:05Z sacct: JobID=4711, User=mara, Partition=low, State=PREEMPTED, ExitCode=0:15, Restarts=0, "
        "Reason=None, NodeList=beta",
        "scheduler/preempted",
    ),
    "requeued by Slurm": (
        "2026-03-04T05:06:05Z rootrank: slurm.requeued job=4711 user=mara restarts=1 reason=BeginTime",
        "scheduler/preempted",
    ),
}  # fmt: skip


class Play:
    """A job 4711 of two nodes, and the agent of the control plane."""

    def __init__(self) -> None:
        self.engine = Engine()
        self._seqs = itertools.count(1)

    def lines(
        self, reporter: str, lines: Iterable[str], attributes: dict[str, str], now_ns: int, **of_line: str
    ) -> None:
        source = "kubernetes/events" if attributes["kind"] == "control" else "rank.log"
        batch = RawBatch(
            run="live", run_id="live", cluster="pool", reporter=reporter, boot_id=f"boot-{reporter}",
            shipper_id=reporter, batch_seq=next(self._seqs), clock=READING, source_attributes={source: attributes},
            records=[
                RawLine(
                    seq=n, source=source, generation=line[:60], offset=n, body=line, attributes=of_line,
                    observed_time_unix_nano=NOW_NS,
                )
                for n, line in enumerate(lines, 1)
            ],
        )  # fmt: skip
        self.engine.feed(key_of("live", "live", "pool", reporter), batch, now_ns=now_ns)

    def job(self, node: str, lines: Iterable[str], now_ns: int, job_id: str = "4711") -> None:
        attributes = {"kind": "application", "job.id": job_id, "time.zone": "+00:00", "time.year": "2026"}
        self.lines(node, lines, attributes, now_ns)

    def control(self, lines: Iterable[str], now_ns: int, jobs: str = "4711") -> None:
        self.lines("control", lines, {"kind": "control", "node": ""}, now_ns, node="beta", jobs=jobs)

    def progress(self, through_ns: int, *, ended: bool = False) -> None:
        for node in ("alpha", "beta"):
            record = Progress(
                run="live", run_id="live", cluster="pool", reporter=node, boot_id=f"boot-{node}", shipper_id=node,
                last_batch_seq=0, ended=ended,
                clock=ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=through_ns),
                sources=[SourceProgress(source="rank.log", state="on", read_through_unix_nano=through_ns, at_end=True)],
            )  # fmt: skip
            self.engine.feed(key_of("live", "live", "pool", node), record, now_ns=through_ns)

    def of_job(self, job_id: str = "4711") -> list[Incident]:
        found = [*self.engine.incidents(), *self.engine.notes()]
        return [each for each in found if any(job.job_id == job_id for job in each.jobs)]

    def classes(self, job_id: str = "4711") -> list[str]:
        return [each.class_ for each in self.of_job(job_id)]


@pytest.mark.parametrize("order", ["control first", "job first", "control a minute late"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("line", "code"), [(KILLED, 137), (ENDED, 143)])
def test_an_exit_inside_a_preemption_or_eviction_is_that(order: str, case: str, line: str, code: int) -> None:
    told, wanted = CASES[case]
    play = Play()
    control = [told] if "Slurm" in case else [told, CONTAINER.format(code=code)]
    if order == "control first":
        play.control(control, NOW_NS)
    play.job("alpha", ["05:06:00 step 100 loss 2.0"], NOW_NS)
    play.job("beta", [line], NOW_NS + SECOND_NS)
    play.progress(NOW_NS + 2 * SECOND_NS)
    late_ns = NOW_NS + (62 if order == "control a minute late" else 3) * SECOND_NS
    if order != "control first":
        if order == "control a minute late":
            play.progress(NOW_NS + 60 * SECOND_NS)
            assert wanted not in play.classes()
        play.control(control, late_ns)
    play.progress(late_ns + 100 * SECOND_NS)
    assert play.classes() == [wanted], play.of_job()


@pytest.mark.parametrize("order", ["control first", "job first"])
def test_a_container_that_was_killed_and_nobody_says_why_is_a_killed_process(order: str) -> None:
    play = Play()
    if order == "control first":
        play.control([CONTAINER.format(code=137)], NOW_NS)
    play.job("beta", ["05:06:00 step 100 loss 2.0"], NOW_NS)
    if order == "job first":
        play.control([CONTAINER.format(code=137)], NOW_NS + SECOND_NS)
    play.progress(NOW_NS + 100 * SECOND_NS)
    assert play.classes() == ["infra/process_killed"]


def test_the_preemption_of_another_job_on_the_same_node_excuses_nobody() -> None:
    play = Play()
    play.job("beta", ["05:06:00 step 100 loss 2.0"], NOW_NS, job_id="4712")
    play.job("beta", [KILLED], NOW_NS)
    play.control([CASES["preempted by the scheduler"][0]], NOW_NS + SECOND_NS, jobs="4712")
    play.progress(NOW_NS + 100 * SECOND_NS)
    assert play.classes() == ["infra/process_killed"]


def test_a_job_that_bears_another_name_here_is_found_where_it_is_the_only_one() -> None:
    play = Play()
    play.job("beta", [KILLED], NOW_NS)
    play.control([CASES["preempted by the scheduler"][0]], NOW_NS + SECOND_NS, jobs="uid-1,train")
    play.progress(NOW_NS + 100 * SECOND_NS)
    assert play.classes() == ["scheduler/preempted"]


def test_what_two_agents_of_one_control_plane_tell_counts_once() -> None:
    play = Play()
    play.job("beta", [KILLED], NOW_NS)
    told = [CASES["evicted"][0], CONTAINER.format(code=137)]
    play.control(told, NOW_NS + SECOND_NS)
    play.progress(NOW_NS + 100 * SECOND_NS)
    before = play.of_job()
    play.control(told, NOW_NS + 101 * SECOND_NS)
    play.progress(NOW_NS + 200 * SECOND_NS)
    assert play.of_job() == before
    assert {step.count for step in before[0].chain} == {1}


def test_only_lines_of_a_control_plane_are_handed_to_other_nodes() -> None:
    play = Play()
    play.job("beta", ["05:06:00 step 100 loss 2.0"], NOW_NS)
    xid = "2026-03-04T05:06:05Z beta kernel: [   90.5] NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
    play.lines("evil", [xid], {"kind": "kernel", "node": "beta"}, NOW_NS, node="beta", jobs="4711")
    play.progress(NOW_NS + 100 * SECOND_NS)
    assert play.classes() == []


def test_a_node_that_is_lost_fails_the_job_that_ran_on_it() -> None:
    play = Play()
    play.job("alpha", ["05:06:00 step 100 loss 2.0", "RuntimeError: Connection closed by peer [10.0.0.2]:5000"], NOW_NS)
    play.job("beta", ["05:06:00 step 100 loss 2.0"], NOW_NS)
    play.control(["2026-03-04T05:06:50Z Node beta status is now: NodeNotReady"], NOW_NS + 60 * SECOND_NS, jobs="")
    play.progress(NOW_NS + 200 * SECOND_NS)
    assert "infra/node_failure" in play.classes()


FORGED = (
    "rootrank: pod.disrupted namespace=ml pod=train-1 node=beta reason=PreemptionByScheduler",
    "rootrank: pod.disrupted namespace=ml pod=train-1 node=beta reason=EvictionByEvictionAPI",
    "rootrank: slurm.requeued job=4711 user=mara restarts=1 reason=BeginTime",
    "rootrank: node.tainted node=beta key=node.kubernetes.io/out-of-service effect=NoExecute",
)


@pytest.mark.parametrize("line", FORGED)
def test_a_rank_log_does_not_speak_for_the_control_plane(line: str) -> None:
    play = Play()
    play.job("alpha", ["05:06:00 step 100 loss 2.0"], NOW_NS)
    play.job("beta", [line, f"2026-03-04T05:06:05Z {line}", KILLED], NOW_NS + SECOND_NS)
    play.progress(NOW_NS + 102 * SECOND_NS)
    assert play.classes() == ["infra/process_killed"]
