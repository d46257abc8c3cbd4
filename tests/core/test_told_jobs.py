"""What schedulers and processes tell the agent of jobs: attempts, placement, marks, and whose the other lines are."""

from collections.abc import Iterable

import msgspec

from pipeline.core.align import NodeFold
from pipeline.core.outputs import Output
from pipeline.core.placement import Facts, PlacementMap
from schemas import signals, topics
from schemas.records import Event, Placement, PlacementSpan, RawBatch, RawLine
from tests.strategies import CLUSTER, T0, batches, kernel, raw_batch, raw_lines

SIGNALS = signals.load()
TELEMETRY = {"kind": "telemetry"}
START = "2026-03-04T05:00:00Z rootrank: job.start job=4711 attempt=0 scheduler=slurm user=alice nodes=1 gpus=0,1"
END = "2026-03-04T06:00:00Z rootrank: job.end job=4711 attempt=0 scheduler=slurm exit=0:0"
RANK = (
    "2026-03-04T05:00:0{rank}Z rootrank: job.rank job=4711 attempt=0 rank={rank} local_rank={rank} world=2 "
    "pid={pid} scheduler=slurm user=alice"
)
XID = "2026-03-04T05:{minute}:07.000000+00:00 beta kernel: NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."


def _told(seq: int, *bodies: str, source: str = "jobs") -> RawBatch:
    lines = [msgspec.structs.replace(line, generation="g") for line in raw_lines(source, bodies, first=seq * 100)]
    return raw_batch("beta", seq, lines, attributes={source: TELEMETRY})


def _kernel(seq: int, minute: str) -> RawBatch:
    lines = raw_lines("kern", [XID.format(minute=minute)], first=seq * 100)
    return raw_batch("beta", seq, lines, attributes={"kern": kernel("beta")})


def _uses(seq: int, pid: int) -> RawBatch:
    """A process uses a GPU."""
    body = f"rootrank: gpu.process gpu=5 uuid=GPU-12345678-1234-1234-1234-123456789abc pid={pid}"
    row = RawLine(seq=0, source="nvml", generation="g", offset=0, body=body)
    return msgspec.structs.replace(_told(seq), records=[row], source_attributes={"nvml": TELEMETRY})


def _apply(fold: NodeFold, *records: msgspec.Struct, now_ns: int = T0) -> list[Output]:
    return [output for record in records for output in fold.apply(record, now_ns=now_ns)]


def _events(outputs: Iterable[Output], key: str) -> list[Event]:
    return [event for batch in batches(outputs) if batch.job_key == key for event in batch.events]


def _spans(outputs: Iterable[Output]) -> list[PlacementSpan]:
    """The last list that was published."""
    records = [o.record for o in outputs if o.topic == topics.PLACEMENT.name and isinstance(o.record, Placement)]
    return records[-1].spans if records else []


KEY = f"{CLUSTER}/4711/0"


def test_prolog_ranks_and_epilog_become_spans_with_begin_and_end() -> None:
    fold = NodeFold(SIGNALS)
    outputs = _apply(fold, _told(1, START, *(RANK.format(rank=rank, pid=900 + rank) for rank in (0, 1))))
    spans = {span.rank: span for span in _spans(outputs)}
    assert set(spans) == {None, 0, 1}
    assert (spans[None].owner, spans[None].scheduler, spans[None].end_unix_nano) == ("alice", "slurm", None)
    assert [(spans[r].pid, spans[r].local_rank, spans[r].world_size) for r in (0, 1)] == [(900, 0, 2), (901, 1, 2)]
    ended = _spans(_apply(fold, _told(2, END)))
    assert {span.end_unix_nano for span in ended} == {1_772_604_000 * 10**9}


def test_a_batch_that_comes_again_tells_nothing_twice() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _told(1, START))
    assert _apply(fold, _told(1, START)) == []


def test_faults_of_the_node_go_to_the_job_that_the_scheduler_says_is_there_and_to_no_other() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _told(1, START))
    during = _apply(fold, _kernel(2, "30"))
    assert [event.name for event in _events(during, KEY)] == ["gpu.xid"]
    _apply(fold, _told(3, END.replace("06:00", "05:40")))
    after = _apply(fold, _kernel(4, "50"))
    assert _events(after, KEY) == []
    assert [batch.job_key.split(":")[0] for batch in batches(after)] == ["node"]


def test_lines_of_an_application_belong_to_the_only_job_that_is_there() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _told(1, START))
    line = "[2026-03-04 05:05:00] RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB."
    told = raw_batch("beta", 2, raw_lines("out", [line]), attributes={"out": {"kind": "application"}})
    assert len(_events(_apply(fold, told), KEY)) == 1


def test_of_two_jobs_on_a_node_none_gets_the_lines_that_name_no_job() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _told(1, START, START.replace("4711", "4712")))
    line = "[2026-03-04 05:05:00] RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB."
    told = raw_batch("beta", 2, raw_lines("out", [line]), attributes={"out": {"kind": "application"}})
    _apply(fold, told)
    assert fold.state.sources["out"].job is None


def test_a_file_that_the_next_job_goes_on_with_belongs_to_that_job_from_then_on() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _told(1, START, END, START.replace("4711", "4712").replace("05:00", "07:00")))
    first, second = (
        f"[2026-03-04 {at}:00] RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB."
        for at in ("05:05", "07:05")
    )
    lines = raw_lines("out", [first, second])
    outputs = _apply(fold, raw_batch("beta", 2, lines, attributes={"out": {"kind": "application"}}))
    assert [event.offset for event in _events(outputs, KEY)] == [lines[0].offset]
    assert [event.offset for event in _events(outputs, f"{CLUSTER}/4712/0")] == [lines[1].offset]


def test_a_requeued_job_is_its_next_attempt_where_the_prolog_does_not_say() -> None:
    fold = NodeFold(SIGNALS)
    bare = START.replace(" attempt=0", "")
    _apply(fold, _told(1, bare, END.replace(" attempt=0", ""), bare.replace("05:00", "06:10")))
    jobs = {job.attempt: job for job in fold.state.here.jobs.values()}
    assert set(jobs) == {0, 1}
    assert not jobs[0].runs
    assert jobs[1].runs


def test_a_rank_corrects_the_attempt_that_a_prolog_on_a_fresh_node_could_not_know() -> None:
    fold = NodeFold(SIGNALS)
    _apply(
        fold, _told(1, START.replace(" attempt=0", ""), RANK.format(rank=0, pid=9).replace("attempt=0", "attempt=2"))
    )
    jobs = {job.attempt: job for job in fold.state.here.jobs.values()}
    assert jobs[2].runs
    assert not jobs[0].runs


def test_a_rank_that_ended_and_began_again_has_two_spans() -> None:
    fold = NodeFold(SIGNALS)
    gone = "2026-03-04T05:10:00Z rootrank: job.rank_end job=4711 attempt=0 rank=0 pid=900"
    again = RANK.format(rank=0, pid=950).replace("05:00:00", "05:11:00")
    outputs = _apply(fold, _told(1, RANK.format(rank=0, pid=900)), _told(2, gone), _told(3, again))
    assert sorted((span.pid, span.end_unix_nano is None) for span in _spans(outputs)) == [(900, False), (950, True)]


def test_a_line_that_a_program_prints_into_its_log_is_not_believed() -> None:
    fold = NodeFold(SIGNALS)
    told = raw_batch("beta", 1, raw_lines("out", [START, END]), attributes={"out": {"kind": "application"}})
    assert [b for b in batches(_apply(fold, told)) if b.events] == []
    assert fold.state.here.jobs == {}


def test_marks_of_two_jobs_in_one_second_stay_two() -> None:
    fold = NodeFold(SIGNALS)
    mark = "2026-03-04T05:00:09Z rootrank: job.mark job={job} attempt=0 rank=0 step=7 phase=train"
    outputs = _apply(fold, _told(1, mark.format(job=4711), mark.format(job=4712)))
    for job in ("4711", "4712"):
        (event,) = _events(outputs, f"{CLUSTER}/{job}/0")
        assert (event.name, event.attributes["step"], event.subject.rank) == ("train.mark", "7", 0)


def test_the_gpu_of_a_process_becomes_the_gpu_of_its_rank_in_either_order() -> None:
    uses = _uses(2, 900)
    rank = _told(1, RANK.format(rank=0, pid=900))
    for first, second in (
        (rank, uses),
        (msgspec.structs.replace(uses, batch_seq=1), _told(2, RANK.format(rank=0, pid=900))),
    ):
        fold = NodeFold(SIGNALS)
        (span,) = _spans(_apply(fold, first, second))
        assert (span.rank, span.gpu_index, span.gpu_uuid) == (0, 5, "GPU-12345678-1234-1234-1234-123456789abc")


def test_an_investigation_joins_rank_process_and_gpu() -> None:
    uses = _uses(2, 901)
    outputs = _apply(NodeFold(SIGNALS), _told(1, *(RANK.format(rank=r, pid=900 + r) for r in (0, 1))), uses)
    facts = Facts()
    for event in _events(outputs, KEY):
        facts.learn(event)
    known = PlacementMap(facts).ranks[1]
    assert (known.node, known.pid, known.local_rank) == ("beta", 901, 1)
    assert (known.gpu_uuid, known.gpu_index) == ("GPU-12345678-1234-1234-1234-123456789abc", 5)


def test_after_a_restart_of_the_node_a_process_of_the_same_number_is_another_one() -> None:
    fold = NodeFold(SIGNALS)
    after = msgspec.structs.replace(_told(2, RANK.format(rank=0, pid=900)), boot_id="boot-2")
    (span,) = _spans(_apply(fold, _uses(1, 900), after))
    assert (span.pid, span.gpu_uuid) == (900, None)
