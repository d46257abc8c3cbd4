"""What may come of a broken or hostile node: records out of order, absurd values, very many of them."""

from itertools import pairwise
from time import gmtime, strftime

import msgspec
import pytest

from pipeline.core.align import NodeFold
from pipeline.core.clocks.history import KEPT, History
from pipeline.core.clocks.node import TRACKS, NodeClock
from schemas import codec
from schemas.records import TIME_MAX_NS, ClockReading, ClockSample, EventBatch, Progress, RawBatch, RawLine
from tests.core.clocks.simulated import MS, SIGNALS, T0, S, Simulated

RAW = 90_000 * S


class Away(Simulated):
    """Kafka is away for a while: batches are kept, and come behind a progress record of the moment."""

    def run(self, seconds: int, away: range) -> None:
        kept: list[RawBatch] = []
        for second in range(1, seconds):
            at_ns = T0 + second * S
            if second in away:
                self.seq += 1
                self.write(at_ns - 300 * MS)
                kept.append(self.batch(at_ns))
                self.pending = []
                continue
            for batch in kept:
                self.progress(at_ns)
                self.take(batch, at_ns)
            kept = []
            self.second(at_ns)

    def batch(self, true_ns: int) -> RawBatch:
        return RawBatch(
            run="live", run_id="", cluster="c", reporter="n1", boot_id=self.boot, shipper_id="s", batch_seq=self.seq,
            clock=self.reading(true_ns), records=self.pending,
            source_attributes={"rank0": {"kind": "application", "node": "n1", "job.id": "j", "rank": "0"}},
        )  # fmt: skip

    def progress(self, true_ns: int) -> None:
        self.take(
            Progress(
                run="live", run_id="", cluster="c", reporter="n1", boot_id=self.boot, shipper_id="s",
                last_batch_seq=0, clock=self.reading(true_ns), sources=[],
            ),
            true_ns,
        )  # fmt: skip


@pytest.mark.parametrize("back_s", [0, 60])
@pytest.mark.parametrize("ahead_ns", [-3_600 * S, -3 * S, -1 * S, -20 * MS, 20 * MS, 3 * S, 3_600 * S])
def test_a_wall_clock_that_was_elsewhere_while_kafka_was_away_misplaces_no_line(ahead_ns: int, back_s: int) -> None:
    node = Away(wall=((0, 0), (200 * S, ahead_ns), ((300 + back_s) * S, 0 if back_s else ahead_ns // 2)))
    node.run(450, range(120, 400))
    assert len(node.events) == 280
    for event in node.events:
        lo_ns, _, hi_ns = node.off(event)
        assert lo_ns <= 0 <= hi_ns


def test_a_wall_clock_that_is_slewed_fast_while_kafka_is_away_misplaces_no_line() -> None:
    steps = tuple((200 * S + k * 100 * MS, min(k, 400 - k) * 8_333_300) for k in range(400))
    node = Away(wall=((0, 0), *steps, (240 * S, 0)))
    node.run(450, range(120, 400))
    for event in node.events:
        lo_ns, _, hi_ns = node.off(event)
        assert lo_ns <= 0 <= hi_ns


def test_a_stamp_from_a_time_that_is_no_longer_kept_has_bounds_that_hold_it() -> None:
    steps = tuple((150 * S + k * S, 3_600 * S + k % 2 * 2 * MS) for k in range(2 * KEPT))
    node = Simulated(wall=((0, 0), (100 * S, 3_600 * S), *steps))
    late: list[RawLine] = []
    for second in range(1, 700):
        at_ns = T0 + second * S
        if second == 50:
            node.write(at_ns - 300 * MS)
            late, node.pending = node.pending, []
        if second == 690:
            node.pending = late + node.pending
        node.second(at_ns)
    (event,) = node.events
    lo_ns, _, hi_ns = node.off(event)
    assert lo_ns <= 0 <= hi_ns


def test_late_readings_never_make_the_history_longer_than_is_kept() -> None:
    history = History()
    history.note(1, 1_700_000_000 * S)
    history.note(100_000 * S, 1_700_100_000 * S)
    for second in range(1, 5_000):
        history.note(second * 20 * S, 1_700_000_000 * S + second % 7 * 3_600 * S)
        assert len(history.stretches) <= KEPT
        assert all(a.to_ns == b.from_ns and a.top_ns <= b.top_ns for a, b in pairwise(history.stretches))


def sample(raw_ns: int, broker_ms: int, *, broker: int = 1, rtt_ns: int = MS) -> ClockSample:
    return ClockSample(
        t0_ns=raw_ns, t1_ns=raw_ns + rtt_ns, broker_time_ms=broker_ms, broker_id=broker, leader_epoch=0
    )  # fmt: skip


def reading(raw_ns: int, wall_ns: int = T0, width_ns: int = 0) -> ClockReading:
    return ClockReading(raw_ns=raw_ns, mono_ns=raw_ns, boottime_ns=raw_ns, wall_ns=wall_ns, width_ns=width_ns)


def test_brokers_without_end_are_not_all_kept() -> None:
    clock = NodeClock()
    for broker in range(1_000):
        at = RAW + broker * S
        clock.hear("b", reading(at), [sample(at - 2 * MS, T0 // MS + broker * 1_000, broker=broker)])
    assert set(clock.boots[0].tracks) == set(range(1_000 - TRACKS, 1_000))
    assert len(msgspec.json.encode(clock)) < TRACKS * 8_192


ABSURD = [-(2**63), -1, 0, 1, S, 2**58 - 1, 2**58, 2**62, 2**63 - 1, T0]


@pytest.mark.parametrize("raw_ns", ABSURD)
@pytest.mark.parametrize("wall_ns", ABSURD)
@pytest.mark.parametrize("broker_ms", [0, 2, TIME_MAX_NS // MS - 1, 8_999_999_999_999, 2**60])
def test_absurd_clocks_give_records_that_can_be_sent(raw_ns: int, wall_ns: int, broker_ms: int) -> None:
    fold = NodeFold(SIGNALS)
    line = RawLine(
        seq=1, source="r", generation="0", offset=1, body="NCCL WARN Call to connect returned Connection refused",
        time_unix_nano=T0, observed_time_unix_nano=T0,
    )  # fmt: skip
    records = [
        (RAW, T0, [sample(RAW - 2 * MS, T0 // MS), sample(RAW - 2 * MS, 3, broker=-1)]),
        (raw_ns, wall_ns, [sample(min(max(raw_ns, -(2**62)), 2**62), broker_ms)]),
        (RAW + 40 * S, T0 + 40 * S, [sample(RAW + 39 * S, T0 // MS + 39_000)]),
        (RAW + 80 * S, T0 + 80 * S, [sample(RAW + 79 * S, broker_ms)]),
        (RAW + 120 * S, T0 + 120 * S, []),
    ]
    for seq, (raw, wall, samples) in enumerate(records):
        batch = RawBatch(
            run="live", run_id="", cluster="c", reporter="n1", boot_id="b", shipper_id="s", batch_seq=seq + 1,
            clock=reading(raw, wall), clock_samples=samples,
            records=[msgspec.structs.replace(line, seq=seq, offset=seq, body=f"{line.body} {seq}")],
            source_attributes={"r": {"kind": "application", "node": "n1", "job.id": "j", "rank": "0"}},
        )  # fmt: skip
        for output in fold.apply(batch, now_ns=T0 + seq * S):
            codec.encode(output.record)
            if isinstance(output.record, EventBatch):
                for event in output.record.events:
                    assert 0 <= event.lo_unix_nano <= event.hi_unix_nano <= TIME_MAX_NS
        kept = fold.snapshot()
        assert NodeFold.restore(SIGNALS, kept).snapshot() == kept


@pytest.mark.parametrize("boot", ["", "fixed"])
@pytest.mark.parametrize("ahead_ns", [-3_600 * S, 0, 3_600 * S])
def test_a_reboot_under_the_same_name_is_noticed(boot: str, ahead_ns: int) -> None:
    """No boot id can be read, or the settings state one; the wall clock is set right by the boot."""
    node = Simulated(boot=boot, wall=((0, ahead_ns), (300 * S, 0)))
    for second in range(1, 500):
        at_ns = T0 + second * S
        if 300 <= second < 330:
            node.up_ns = -290 * S
            continue
        if second > 340 or second < 300:
            node.write(at_ns - 300 * MS)
            if second > 5:
                node.write(at_ns - 600 * MS, kernel=True)
        node.second(at_ns)
    assert len(node.events) > 800
    for event in node.events:
        lo_ns, _, hi_ns = node.off(event)
        assert lo_ns <= 0 <= hi_ns


@pytest.mark.parametrize("step_ns", [-3_600 * S, -3 * S, -S, -10 * MS, 10 * MS, S, 5 * S])
def test_a_stamp_of_whole_seconds_in_the_second_of_a_step_has_bounds_that_hold_it(step_ns: int) -> None:
    """The step lies between what the stamp says and what it leaves out."""
    node = Simulated(wall=((0, 0), (60 * S + 333 * MS, step_ns)))
    for second in range(1, 130):
        at_ns = T0 + second * S
        for before_ms in (900, 660, 400, 100):
            node.write(at_ns - before_ms * MS)
            line = node.pending.pop()
            stamp = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(node.wall(at_ns - before_ms * MS) // S))
            node.pending.append(msgspec.structs.replace(line, time_unix_nano=None, body=f"{stamp} {line.body}"))
        node.second(at_ns)
    assert len(node.events) == 516
    for event in node.events:
        lo_ns, _, hi_ns = node.off(event)
        assert lo_ns <= 0 <= hi_ns
