"""Jobs that train, as the marks they print: with the pauses that are normal, and with hangs. Seeded; for tests."""

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from pipeline.core.progress_marks import ProgressMarks, Reader, Stall
from schemas.records import Entity, Event, Printer

SECOND: Final = 1_000_000_000
START_NS: Final = 1_772_600_767 * SECOND
# What the watermark lags behind: the clock's default bound, and a progress record a second.
BEHIND_S: Final = 6.0


class Line(NamedTuple):
    """A line: when it was written and when it was read (s since the start), its event, and what it gives."""

    written_s: float
    read_s: float
    event: str
    rank: int
    gives: dict[str, str]


class Job(NamedTuple):
    """A job's habits. Times in s; `step_s` is between two marks of a rank."""

    ranks: int
    step_s: float
    jitter: float
    buffer_s: float
    save_every_s: float
    save_s: float
    evaluate_every_s: float
    evaluate_s: float
    epoch_marks: int
    epoch_pause_s: float
    announces: bool


def any_job(chance: Random) -> Job:
    """Habits as jobs have them."""
    return Job(
        ranks=chance.choice([1, 1, 1, 2, 4]),
        step_s=min(chance.lognormvariate(2.2, 1.0), 120.0),
        jitter=chance.choice([0.02, 0.1, 0.25]),
        buffer_s=chance.choice([0, 0, 0, 10, 60, 240]),
        save_every_s=chance.uniform(900, 5400),
        save_s=min(chance.lognormvariate(3.5, 1.2), 1500.0),
        evaluate_every_s=chance.choice([1e12, 1800, 7200]),
        evaluate_s=min(chance.lognormvariate(4.5, 1.0), 1500.0),
        epoch_marks=chance.choice([10**9, 60, 500]),
        epoch_pause_s=chance.uniform(5, 65),
        announces=chance.random() < 0.9,
    )


def lines_of(job: Job, hours: float, chance: Random, *, ends: bool = True) -> list[Line]:
    """What the ranks of a job print in so many hours, in the order in which it is read."""
    told = list(_told(job, hours * 3600, chance))
    if ends:
        told.append(Line(told[-1].written_s + 5, 0, "train.end", 0, {}))
    read = [_read(line, job, chance) for line in told]
    return sorted(read, key=lambda line: (line.read_s, line.written_s, line.rank))


def _read(line: Line, job: Job, chance: Random) -> Line:
    """A buffered writer's lines come when its buffer is full, which is at times of its own."""
    at_s = line.written_s
    if job.buffer_s:
        phase = job.buffer_s * line.rank / 7
        at_s = ((line.written_s + phase) // job.buffer_s + 1) * job.buffer_s - phase
    return line._replace(read_s=at_s + 0.5)


def _told(job: Job, until_s: float, chance: Random) -> Iterator[Line]:
    at_s, step = chance.uniform(60, 600), 0
    yield Line(at_s, 0, "train.start", 0, {})
    # The first step compiles, the second one often again.
    at_s += chance.uniform(5, 1_500)
    yield from _marks(job, at_s, step := step + 1, chance)
    at_s += chance.choice([job.step_s, chance.uniform(60, 900)])
    saved_s = evaluated_s = at_s
    while at_s < until_s:
        yield from _marks(job, at_s, step := step + 1, chance)
        at_s += job.step_s * max(0.3, chance.gauss(1, job.jitter))
        if chance.random() < 0.002:
            # A step that takes three times as long, a collection of garbage.
            at_s += chance.choice([2 * job.step_s, chance.uniform(0.5, 6)])
        if step % job.epoch_marks == 0:
            at_s += job.epoch_pause_s * chance.uniform(0.7, 1.3)
        if at_s - saved_s > job.save_every_s:
            yield from _phase(job, at_s, "checkpoint.started", {"step": str(step)})
            at_s += job.save_s * chance.lognormvariate(0, 0.25) if job.announces else min(job.save_s, 60)
            saved_s = at_s
            yield Line(at_s, 0, "checkpoint.saved", 0, {"step": str(step)})
            at_s += 1
        if at_s - evaluated_s > job.evaluate_every_s:
            yield from _phase(job, at_s, "train.phase", {"phase": "evaluation", "state": "running"})
            at_s += job.evaluate_s * chance.lognormvariate(0, 0.2) if job.announces else min(job.evaluate_s, 60)
            evaluated_s = at_s


def _phase(job: Job, at_s: float, event: str, gives: dict[str, str]) -> Iterator[Line]:
    if job.announces:
        yield Line(at_s + 0.01, 0, event, 0, gives)


def _marks(job: Job, at_s: float, step: int, chance: Random) -> Iterator[Line]:
    for rank in range(job.ranks):
        yield Line(at_s + chance.uniform(0, 0.3), 0, "train.step", rank, {"step": str(step)})


def event_of(line: Line, number: int) -> Event:
    """The event that Align makes of a line with a stamp, on a node that holds two ranks."""
    at_ns, node = START_NS + int(line.written_s * SECOND), f"node{line.rank // 2}"
    return Event(
        event_id=str(number), name=line.event, node=node, source=f"rank{line.rank}.log", generation="0", offset=number,
        body=f"{line.event} {line.gives}", clock_id=f"{node}/wall", raw_ns=at_ns, aligned_time_unix_nano=at_ns,
        lo_unix_nano=at_ns - 5 * SECOND, hi_unix_nano=at_ns + 5 * SECOND, quality="holdover",
        observed_time_unix_nano=START_NS + int(line.read_s * SECOND), role="context", label="context/progress",
        subject=Entity(node=node, rank=line.rank), printer=Printer(node=node, rank=line.rank), attributes=line.gives,
    )  # fmt: skip


def read_until(marks: ProgressMarks, read_s: float) -> Stall | None:
    """What the marks say once all nodes are read up to a time (s since the start)."""
    through_ns = START_NS + int((read_s - BEHIND_S) * SECOND)
    if not marks.may_be_due(through_ns):
        return None
    return marks.stall({name: Reader(through_ns, ended=False, is_out=False) for name in marks.carriers})
