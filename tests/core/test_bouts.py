"""Failures that are told apart: two of one GPU, a fault beside a quiet ending, ranks that fail in the same second."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.align import NodeFold
from pipeline.core.episodes import Episode, bouts, of_events
from pipeline.core.investigation import BOUT_NS, Investigation
from pipeline.core.keys import node_key
from pipeline.engine import Engine
from pipeline.rules import load_rules
from schemas import signals
from schemas.records import ClockReading, Event, Incident, Verdict
from tests.strategies import (
    CLUSTER,
    INIT,
    SECOND,
    T0,
    XID_79,
    application,
    batches,
    event,
    event_batch,
    incident_of,
    kernel,
    key,
    lost_gpu,
    node_progress,
    raw_batch,
    raw_lines,
    raw_progress,
    verdicts,
)

RULES = load_rules()
DAY = 86_400 * SECOND
NODE_KEY = node_key("", CLUSTER, "beta", "boot-beta")
FIRST_DAY, LATER_DAY = "2026-03-04", "2026-03-25"


# --- two failures of one GPU in one boot --------------------------------------------------------------------------


def _feed_live(engine: Engine, seq: int, day: str, at_ns: int) -> None:
    """The Xid line of one day as a live agent reads it, and progress until the verdict settles."""
    clock = ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=at_ns)
    lines = raw_lines("kern", [f"{day}T05:06:07.000000+00:00 beta kernel: {XID_79}"], first=seq * 100)
    record = raw_batch("beta", seq, lines, attributes={"kern": kernel("beta")}, run="live", clock=clock)
    engine.feed(key("beta"), record, now_ns=at_ns)
    for later_s in range(0, 120, 10):
        now_ns = at_ns + later_s * SECOND
        progress = raw_progress("beta", through_ns=now_ns, wall_ns=now_ns, run="live", kinds={"kernel": "on"})
        engine.feed(key("beta"), progress, now_ns=now_ns)


def test_a_gpu_that_is_lost_twice_three_weeks_apart_in_one_boot_is_two_incidents() -> None:
    engine = Engine(RULES)
    _feed_live(engine, 1, FIRST_DAY, T0)
    (first,) = engine.incidents()
    _feed_live(engine, 2, LATER_DAY, T0 + 21 * DAY)
    after = {incident.incident_id: incident for incident in engine.incidents()}
    assert len(after) == 2
    assert after.pop(first.incident_id) == first, "the old incident is neither renamed nor revised"
    (second,) = after.values()
    assert (second.class_, second.verdict, second.revision) == ("hardware/gpu_xid_79", "settled", 2)
    assert (first.started_at or "", second.started_at or "") == (
        "2026-03-04T05:06:07.000500Z",
        "2026-03-25T05:06:07.000500Z",
    )


def test_two_faults_of_a_node_within_the_hour_are_told_as_one_story() -> None:
    engine = Engine(RULES)
    _feed_live(engine, 1, FIRST_DAY, T0)
    _feed_live(engine, 2, FIRST_DAY, T0 + 600 * SECOND)
    assert len(engine.incidents()) == 1


def _found(*parts: Sequence[Event]) -> dict[str, Incident]:
    """The verdicts of a node's investigation that stand at the end."""
    investigation, said = Investigation.new(RULES, "test", NODE_KEY), list[Verdict]()
    for seq, part in enumerate(parts, 1):
        now_ns = T0 + seq * 60 * SECOND
        said += verdicts(investigation.apply(event_batch("beta", seq, part, job_key=NODE_KEY), now_ns=now_ns))
    last = node_progress("beta", T0 + 90 * DAY, ended=True, job_key=NODE_KEY)
    said += verdicts(investigation.apply(last, now_ns=T0 + DAY))
    standing: dict[str, Incident] = {}
    for verdict in said:
        standing.pop(verdict.verdict_id, None)
        if not verdict.withdrawn:
            standing[verdict.verdict_id] = incident_of(verdict)
    return standing


def _at(number: int, at_ns: int) -> Event:
    return msgspec.structs.replace(lost_gpu("beta", at_ns=at_ns), offset=1_000 * number, event_id=f"line-{number}")


@given(st.permutations([_at(number, T0 + day * DAY) for number, day in enumerate((0, 3, 21, 60))]))
def test_the_incidents_of_a_node_do_not_depend_on_the_order_in_which_its_failures_are_read(order: list[Event]) -> None:
    expected = _found([_at(number, T0 + day * DAY) for number, day in enumerate((0, 3, 21, 60))])
    assert len(expected) == 4
    assert _found(*([one] for one in order)) == expected


def test_the_same_line_at_the_same_place_of_two_files_is_two_incidents() -> None:
    first = lost_gpu("beta", at_ns=T0)
    again = msgspec.structs.replace(lost_gpu("beta", at_ns=T0 + 21 * DAY), generation="1", event_id="rotated")
    assert len(_found([first, again])) == 2


# --- bouts --------------------------------------------------------------------------------------------------------


def _starts(groups: list[list[Episode]]) -> list[list[int]]:
    return [[episode.start_ns for episode in group] for group in groups]


def _episodes(*starts_s: int) -> list[Episode]:
    timed = [
        event("gpu.xid", at_ns=T0 + at_s * SECOND, offset=at_s, attributes={"xid": str(at_s)}) for at_s in starts_s
    ]
    return of_events(timed, RULES.coalescing)


@pytest.mark.parametrize(("quiet_s", "number"), [(3_599, 1), (3_600, 1), (3_601, 2)])
def test_an_hour_of_quiet_ends_a_bout(quiet_s: int, number: int) -> None:
    assert BOUT_NS == 3_600 * SECOND
    assert len(bouts(_episodes(0, quiet_s), BOUT_NS)) == number


def test_a_long_episode_is_not_quiet() -> None:
    lines = [event("gpu.xid", at_ns=T0 + at_s * SECOND, offset=at_s) for at_s in range(0, 7_200, 500)]
    long = of_events(lines, RULES.coalescing)
    assert len(long) == 1
    assert len(bouts([*long, *_episodes(9_000)], BOUT_NS)) == 1


def test_what_has_no_time_is_in_the_first_bout() -> None:
    timeless = of_events([event("cuda.error", at_ns=None)], RULES.coalescing)
    assert _starts(bouts([*_episodes(0, 9_000), *timeless], BOUT_NS)) == [[-1, T0], [T0 + 9_000 * SECOND]]
    assert _starts(bouts(timeless, BOUT_NS)) == [[-1]]
    assert bouts([], BOUT_NS) == []


@given(st.permutations(_episodes(0, 100, 5_000, 5_100, 20_000)))
def test_bouts_do_not_depend_on_order(episodes: list[Episode]) -> None:
    second = [[0, 100], [5_000, 5_100], [20_000]]
    assert _starts(bouts(episodes, BOUT_NS)) == [[T0 + at_s * SECOND for at_s in group] for group in second]


# --- a quiet ending hides no fault --------------------------------------------------------------------------------

STEP_LINE = "[2026-03-04 05:05:00] step 10 loss 2.5"
TIME_LIMIT = "slurmstepd: error: *** STEP 88.0 ON beta CANCELLED AT 2026-03-04T05:06:57 DUE TO TIME LIMIT ***"


@pytest.mark.parametrize("kernel_first", [True, False])
def test_a_job_that_reached_its_time_limit_does_not_hide_the_lost_gpu_of_its_node(kernel_first: bool) -> None:
    init = INIT.format(node="beta", pid=800, rank=0, world=1, bus="1b")
    fault = raw_lines("kern", [f"2026-03-04T05:06:07.000000+00:00 beta kernel: {XID_79}"])
    stop = raw_lines("rank0", [init, STEP_LINE, TIME_LIMIT])
    sources = {"kern": kernel("beta"), "rank0": application("beta", rank=0)}
    engine = Engine(RULES)
    for seq, lines in enumerate([fault, stop] if kernel_first else [stop, fault], 1):
        engine.feed(key("beta"), raw_batch("beta", seq, lines, attributes=sources), now_ns=T0 + seq * SECOND)
    engine.feed(key("beta"), raw_progress("beta", ended=True), now_ns=T0 + 60 * SECOND)
    told = [(incident.class_, incident.culprits[0].node) for incident in engine.incidents()]
    assert ("hardware/gpu_xid_79", "beta") in told


# --- one second, one log, many ranks ------------------------------------------------------------------------------

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB."


def _job_log(ranks: Sequence[int]) -> list[str]:
    return [f"{rank}: [2026-03-04 05:06:07] [rank{rank}]: {OOM}" for rank in ranks]


@pytest.mark.parametrize("size", [1, 3, 12])
def test_ranks_that_run_out_of_memory_in_one_second_of_one_shared_log_are_all_seen(size: int) -> None:
    fold = NodeFold(signals.load())
    lines = raw_lines("job", _job_log([3, 1, 2, 3]))
    events: list[Event] = []
    for seq, start in enumerate(range(0, len(lines), size), 1):
        record = raw_batch("login", seq, lines[start : start + size], attributes={"job": application("")})
        events += [one for batch in batches(fold.apply(record, now_ns=T0)) for one in batch.events]
    counts: dict[int | None, int] = {}
    for one in events:
        assert one.name == "cuda.oom"
        counts[one.subject.rank] = counts.get(one.subject.rank, 0) + one.count
    assert counts == {1: 1, 2: 1, 3: 2}


def test_three_ranks_that_fail_alike_in_one_second_are_not_blamed_on_one() -> None:
    failed = "[2026-03-04 05:06:30] torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    engine = Engine(RULES)
    record = raw_batch(
        "login", 1, raw_lines("job", [*_job_log([3, 1, 2]), failed]), attributes={"job": application("")}
    )
    engine.feed(key("login"), record)
    engine.feed(key("login"), raw_progress("login", ended=True))
    found = engine.incidents()
    blamed = {culprit.rank for incident in found for culprit in incident.culprits}
    assert blamed in (set(), {1, 2, 3})
    assert "software/cuda_oom" in {incident.class_ for incident in found}


# --- telemetry never pauses ---------------------------------------------------------------------------------------


def test_telemetry_joins_no_two_failures_and_stands_with_the_last() -> None:
    readings = [
        event("gpu.telemetry", node="beta", source="smi", offset=minute, bus="0000:5e:00.0", role="context",
              at_ns=T0 + 60 * minute * SECOND, attributes={"sm_clock_mhz": "1950"})
        for minute in range(600)
    ]  # fmt: skip
    readings = [msgspec.structs.replace(one, label="context/telemetry") for one in readings]
    lost = [lost_gpu("beta"), msgspec.structs.replace(lost_gpu("beta"), offset=9_000,
            aligned_time_unix_nano=T0 + 8 * 3_600 * SECOND)]  # fmt: skip
    groups = bouts(of_events([*readings, *lost], RULES.coalescing), BOUT_NS)
    assert [[episode.name for episode in group] for group in groups] == [["gpu.xid"], ["gpu.xid", "gpu.telemetry"]]
    assert [[e.name for e in group] for group in bouts(of_events(readings, RULES.coalescing), BOUT_NS)] == [
        ["gpu.telemetry"]
    ]
