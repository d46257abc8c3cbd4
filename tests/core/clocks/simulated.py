"""An invented node: true time, its clocks, and the records that an agent on it sends."""

from bisect import bisect_right
from random import Random

from pipeline.core.align import NodeFold
from pipeline.core.outputs import Output
from schemas import signals
from schemas.records import (
    ClockReading,
    ClockSample,
    ClockSegment,
    Event,
    EventBatch,
    Progress,
    RawBatch,
    RawLine,
    SourceProgress,
)

S = 1_000_000_000
MS = 1_000_000
# True time, which is what the broker's clock shows.
T0 = 1_772_600_000 * S
SIGNALS = signals.load()


class Simulated:
    """A node whose raw clock drifts, whose wall clock is stepped, and whose kernel log has a clock of its own.

    `wall` lists (true time of the step, how far the wall clock is ahead of true time from then on). All in ns.
    """

    def __init__(
        self, *, raw_ppm: float = 12.0, kernel_ppm: float = 18.0, wall: tuple[tuple[int, int], ...] = ((0, 0),),
        boot: str = "b1", seed: int = 1, beacons: bool = True,
    ) -> None:  # fmt: skip
        self.raw_ppm, self.kernel_ppm, self.steps, self.boot = raw_ppm, kernel_ppm, wall, boot
        self.random = Random(seed)
        self.beacons = beacons
        self.slept_ns = 0
        self.up_ns = 90_000 * S
        self.fold = NodeFold(SIGNALS)
        self.seq = self.lines = 0
        self.pending: list[RawLine] = []
        self.written: dict[int, int] = {}
        self.events: list[Event] = []
        self.segments: list[ClockSegment] = []
        self.kept: list[RawBatch | Progress] | None = None

    def raw(self, true_ns: int) -> int:
        since = true_ns - T0
        return self.up_ns + since + round(since * self.raw_ppm * 1e-6) - self.slept_ns

    def wall(self, true_ns: int) -> int:
        return true_ns + self.steps[bisect_right([at for at, _ in self.steps], true_ns - T0) - 1][1]

    def kernel(self, true_ns: int) -> int:
        """Since boot; it has lost 4 s on the raw clock in the days since."""
        since = true_ns - T0
        return self.up_ns - 4 * S + since + round(since * self.kernel_ppm * 1e-6)

    def reading(self, true_ns: int) -> ClockReading:
        raw = self.raw(true_ns)
        return ClockReading(
            raw_ns=raw, mono_ns=raw, boottime_ns=raw + self.slept_ns, wall_ns=self.wall(true_ns + 500), width_ns=2_000
        )

    def sample(self, true_ns: int) -> ClockSample:
        true_ns += self.random.randrange(5 * MS)
        there = 200_000 + round(self.random.expovariate(1 / 150_000))
        back = 200_000 + round(self.random.expovariate(1 / 150_000))
        return ClockSample(
            t0_ns=self.raw(true_ns), t1_ns=self.raw(true_ns + there + back), broker_time_ms=(true_ns + there) // MS,
            broker_id=1, leader_epoch=0,
        )  # fmt: skip

    def write(self, true_ns: int, body: str = "", *, kernel: bool = False) -> None:
        """A line is written; the next second brings it."""
        self.lines += 1
        self.written[self.lines] = true_ns
        stamp = self.wall(true_ns)
        text = body or f"NCCL WARN Call to connect returned Connection refused, attempt {self.lines}"
        if kernel:
            read_ns = true_ns + self.random.randrange(900 * MS)
            self.pending.append(
                RawLine(
                    seq=self.lines,
                    source="kmsg",
                    generation=self.boot,
                    offset=self.lines,
                    body=f"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, line {self.lines}",
                    kernel_time_ns=self.kernel(true_ns) // 1000 * 1000,
                    observed_time_unix_nano=self.wall(read_ns),
                )
            )
            return
        self.pending.append(
            RawLine(
                seq=self.lines,
                source="rank0",
                generation="0",
                offset=self.lines * 100,
                body=text,
                time_unix_nano=stamp // 1000 * 1000,
                observed_time_unix_nano=self.wall(true_ns + 100 * MS),
            )
        )

    def second(self, true_ns: int) -> None:
        """What the agent sends in a second that ends now."""
        samples = [self.sample(true_ns - 400 * MS)] if self.beacons else []
        if samples or self.pending:
            self.seq += 1
            self.take(
                RawBatch(
                    run="live", run_id="", cluster="c", reporter="n1", boot_id=self.boot, shipper_id="s",
                    batch_seq=self.seq, clock=self.reading(true_ns), clock_samples=samples, records=self.pending,
                    source_attributes={
                        "rank0": {"kind": "application", "node": "n1", "job.id": "j", "rank": "0"},
                        "kmsg": {"kind": "kernel", "node": "n1"},
                    },
                ),
                true_ns,
            )  # fmt: skip
            self.pending = []
        self.take(
            Progress(
                run="live", run_id="", cluster="c", reporter="n1", boot_id=self.boot, shipper_id="s",
                last_batch_seq=self.seq, clock=self.reading(true_ns + MS),
                sources=[
                    SourceProgress(
                        source="kmsg", state="on", kind="kernel", at_end=True,
                        read_through_unix_nano=self.wall(true_ns),
                    )
                ],
            ),
            true_ns,
        )  # fmt: skip

    def take(self, record: RawBatch | Progress, true_ns: int) -> None:
        """The worker reads a record; while some are kept back, it does not."""
        if self.kept is not None:
            self.kept.append(record)
            return
        outputs: list[Output] = list(self.fold.apply(record, now_ns=true_ns))
        for output in outputs:
            if isinstance(output.record, EventBatch):
                self.events += output.record.events
            elif isinstance(output.record, ClockSegment):
                self.segments.append(output.record)

    def off(self, event: Event) -> tuple[int, int, int]:
        """Bounds and best value of an event minus the truth, in ns."""
        true_ns = self.written[event.seq]
        assert event.aligned_time_unix_nano is not None
        return (
            event.lo_unix_nano - true_ns, event.aligned_time_unix_nano - true_ns, event.hi_unix_nano - true_ns,
        )  # fmt: skip
