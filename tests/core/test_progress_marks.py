"""Marks of progress: a hang shows in marks that stop, and nothing that is normal does."""

import random
from collections.abc import Iterable

import msgspec
import pytest

from pipeline.core.marks import LEAST_NS, UNKNOWN_NS
from pipeline.core.progress_marks import ProgressMarks, Reader, Stall
from schemas.records import Entity, Event
from tests.core.simulated_marks import Job, Line, any_job, event_of, lines_of, read_until
from tests.strategies import SECOND, T0, event

SMOOTH = Job(
    ranks=4, step_s=2.0, jitter=0.05, buffer_s=0, save_every_s=1e12, save_s=0, evaluate_every_s=1e12, evaluate_s=0,
    epoch_marks=10**9, epoch_pause_s=0, announces=True,
)  # fmt: skip


def _mark(at_s: float, step: int | None, rank: int = 0, name: str = "train.step", **gives: str) -> Event:
    said = gives if step is None else {"step": str(step), **gives}
    return event(
        name, at_ns=T0 + int(at_s * SECOND), node=f"n{rank}", source="out.log", offset=int(at_s * 10), rank=rank,
        attributes=said, role="context",
    )  # fmt: skip


def _said(at_s: float, name: str, rank: int = 0, phase: str = "") -> Event:
    return _mark(at_s, None, rank, name, **({"phase": phase} if phase else {}))


def _steps(until_s: int, every_s: int = 10, rank: int = 0) -> list[Event]:
    return [_mark(at_s, number, rank) for number, at_s in enumerate(range(0, until_s + 1, every_s), 1)]


def _taken(events: Iterable[Event]) -> ProgressMarks:
    marks = ProgressMarks()
    for one in events:
        marks.take(one, one.node)
    return marks


def _read(marks: ProgressMarks, at_s: float, **others: Reader) -> Stall | None:
    """What is known once all who carry marks are read up to a time, but for `others`."""
    through_ns = T0 + int(at_s * SECOND)
    readers = {name: Reader(through_ns, ended=False, is_out=False) for name in marks.carriers}
    return marks.stall(readers | others)


def _ended(marks: ProgressMarks) -> Stall | None:
    return marks.stall({name: Reader(0, ended=True, is_out=False) for name in marks.carriers})


# --- how soon, and how seldom wrongly -----------------------------------------------------------------------------


@pytest.mark.slow
def test_in_a_thousand_hours_of_normal_pauses_at_most_one_stall_is_told() -> None:
    """Pauses that a job does not announce stay below the least limit: 120 s; all others are longer than that."""
    told = 0
    for seed in range(100):
        chance = random.Random(seed)
        marks, stands = ProgressMarks(), False
        lines = lines_of(any_job(chance), 10.0, chance)
        for number, line in enumerate(lines):
            now = read_until(marks, line.read_s) is not None
            told += now and not stands
            stands = now
            one = event_of(line, number)
            marks.take(one, one.node)
        told += read_until(marks, lines[-1].read_s + 7_200) is not None
    assert told <= 1


def _hung(lines: list[Line]) -> tuple[ProgressMarks, float]:
    """The marks of lines that stop, and how long after the last one (s) the stall is known."""
    marks = ProgressMarks()
    for number, line in enumerate(lines):
        one = event_of(line, number)
        marks.take(one, one.node)
    last_s = max(line.written_s for line in lines)
    return marks, next(after for after in range(10_000) if read_until(marks, last_s + after) is not None)


def _limit_s(lines: list[Line]) -> float:
    """max(3 times the slow-step time, 120 s): the step time that one in a hundred exceeds."""
    before: dict[int, float] = {}
    gaps = []
    for line in lines:
        if line.event == "train.step" and line.rank in before:
            gaps.append(line.written_s - before[line.rank])
        before[line.rank] = line.written_s
    return max(3 * sorted(gaps)[len(gaps) * 99 // 100], 120.0)


@pytest.mark.parametrize("seed", range(40))
def test_a_hang_is_known_a_minute_after_the_limit_at_most(seed: int) -> None:
    chance = random.Random(seed)
    job = any_job(chance)._replace(buffer_s=0, save_every_s=1e12, evaluate_every_s=1e12, step_s=chance.uniform(0.5, 90))
    lines = lines_of(job, 4.0, chance, ends=False)
    _, after_s = _hung(lines[: chance.randrange(len(lines) // 2, len(lines))])
    assert after_s <= _limit_s(lines) + 60


@pytest.mark.parametrize("step_s", [1.0, 10.0, 40.0])
def test_where_slow_steps_take_up_to_forty_seconds_it_is_known_within_three_minutes(step_s: float) -> None:
    chance = random.Random(7)
    _, after_s = _hung(lines_of(SMOOTH._replace(step_s=step_s, jitter=0.02), 3.0, chance, ends=False))
    assert after_s <= 180


def test_the_limit_is_three_slow_steps_and_at_least_two_minutes() -> None:
    assert _read(_taken(_steps(600)), 719) is None
    assert _read(_taken(_steps(600)), 720) is not None
    slow = _taken(_steps(6_000, every_s=100))
    assert _read(slow, 6_299) is None
    assert _read(slow, 6_340) is not None


# --- what a stall says ----------------------------------------------------------------------------------------------


def test_a_stall_is_the_last_mark_with_bounds_up_to_the_limit() -> None:
    stall = _read(_taken(_steps(600)), 800)
    assert stall is not None
    said = stall.event
    assert (said.name, said.role, said.source, said.offset) == ("train.stalled", "symptom", "out.log", 6_000)
    assert said.attributes == {"limit_s": "120", "last_step": "61"}
    assert (said.raw_ns, said.resolution_ns) == (T0 + 600 * SECOND, LEAST_NS)
    assert said.subject == Entity()


def test_the_rank_that_missed_a_mark_stopped_first() -> None:
    events = [*_steps(600, rank=0), *_steps(590, rank=1), *_steps(600, rank=2), *_steps(600, rank=3)]
    stall = _read(_taken(events), 900)
    assert stall is not None
    assert [name.split("\x1f")[2] for name in stall.stopped_first] == ["1"]


def test_of_two_ranks_nobody_is_the_odd_one_nor_of_ranks_that_stop_together() -> None:
    two = _read(_taken([*_steps(600, rank=0), *_steps(590, rank=1)]), 900)
    together = _read(_taken([one for rank in range(4) for one in _steps(600, rank=rank)]), 900)
    assert two is not None
    assert together is not None
    assert two.stopped_first == together.stopped_first == frozenset()


def test_a_rank_that_prints_every_tenth_step_only_is_not_behind() -> None:
    sparse = [_mark(at_s, at_s // 10 + 1, 1) for at_s in range(0, 600, 100)]
    stall = _read(_taken([*_steps(590, rank=0), *sparse, *_steps(590, rank=2), *_steps(590, rank=3)]), 900)
    assert stall is not None
    assert stall.stopped_first == frozenset()


def test_a_rank_that_stopped_printing_long_before_the_others_is_not_the_one() -> None:
    stall = _read(_taken([*_steps(3_000, rank=0), *_steps(2_800, rank=1), *_steps(3_000, rank=2)]), 4_000)
    assert stall is not None
    assert stall.stopped_first == frozenset()


# --- what is no stall -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["train.end", "slurm.cancelled", "elastic.failed", "nccl.end", "launcher.done", "nccl.watchdog.timeout"]
)
def test_a_job_that_says_that_it_ends_does_not_stall(name: str) -> None:
    marks = _taken([*_steps(600), _said(650, name)])
    assert _read(marks, 9_000) is None


def test_an_end_behind_the_limit_does_not_hide_the_stall() -> None:
    assert _read(_taken([*_steps(600), _said(2_000, "slurm.cancelled")]), 9_000) is not None


def test_a_job_that_starts_again_has_half_an_hour() -> None:
    again = [_said(630, "elastic.failed"), _said(640, "elastic.rendezvous")]
    marks = _taken([*_steps(600), *again])
    assert _read(marks, 640 + 1_799) is None
    assert _read(marks, 640 + 1_800) is not None


def test_a_full_bar_is_waited_for_by_nobody() -> None:
    marks = _taken([*_steps(600), _mark(605, 62, total="62")])
    assert _read(marks, 9_000) is None


def test_a_line_that_repeats_its_step_is_no_progress() -> None:
    beats = [_mark(at_s, 61) for at_s in range(610, 1_200, 10)]
    marks = _taken([*_steps(600), *beats])
    stall = _read(marks, 1_200)
    assert stall is not None
    assert stall.event.attributes["last_step"] == "61"


def test_the_same_step_of_the_next_epoch_is_progress() -> None:
    epochs = [_mark(at_s, 100, epoch=str(at_s)) for at_s in range(0, 1_200, 100)]
    assert _read(_taken(epochs), 1_210) is None


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("checkpoint.started", ""), ("train.phase", "evaluation"), ("train.phase", "compile"),
        ("train.mark", "checkpoint_load"),
    ],
)  # fmt: skip
def test_a_phase_of_which_nothing_is_known_has_half_an_hour(name: str, phase: str) -> None:
    marks = _taken([*_steps(600), _said(601, name, phase=phase)])
    assert _read(marks, 600 + 1_700) is None
    stall = _read(marks, 602 + UNKNOWN_NS // SECOND)
    assert stall is not None
    assert stall.event.attributes["phase"] == (phase or "checkpoint_save")


def test_a_phase_that_was_seen_has_three_times_its_usual_time() -> None:
    events, at_s, step = [], 0, 0
    for _ in range(5):
        for _ in range(30):
            step, at_s = step + 1, at_s + 10
            events.append(_mark(at_s, step))
        events.append(_said(at_s + 1, "checkpoint.started"))
        at_s += 200
    marks = _taken(events)
    started_s = at_s - 199
    assert _read(marks, started_s + 590) is None
    assert _read(marks, started_s + 700) is not None


def test_others_run_on_a_little_while_one_saves() -> None:
    ranks = [one for rank in range(1, 4) for one in _steps(600, rank=rank)]
    marks = _taken([*_steps(600), _said(600.5, "checkpoint.started"), *ranks, _mark(604, 62, 1)])
    assert _read(marks, 1_500) is None


def test_a_pause_from_which_the_job_came_back_is_not_taken_for_a_hang_again() -> None:
    marks = _taken(_steps(600))
    assert _read(marks, 900) is not None
    for one in (_mark(at_s, 62 + (at_s - 901) // 10) for at_s in range(901, 1_500, 10)):
        marks.take(one, one.node)
    assert _read(marks, 1_492 + 300) is None
    assert _read(marks, 1_492 + 600) is not None


def test_a_new_mark_takes_the_stall_back() -> None:
    marks = _taken(_steps(600))
    assert _read(marks, 900) is not None
    marks.take(_mark(905, 62), "n0")
    assert _read(marks, 910) is None


def test_what_was_there_before_the_agent_opens_nothing_but_teaches_the_pace() -> None:
    old = [msgspec.structs.replace(one, alerts=False) for one in _steps(6_000, every_s=600)]
    assert _read(_taken(old), 90_000) is None
    marks = _taken([*old, _mark(6_600, 12)])
    assert _read(marks, 6_600 + 1_700) is None
    assert _read(marks, 6_600 + 2_000) is not None


def test_few_marks_are_given_half_an_hour_and_one_alone_tells_nothing() -> None:
    assert _read(_taken(_steps(0)), 90_000) is None
    assert _read(_taken(_steps(20)), 1_800) is None
    assert _read(_taken(_steps(20)), 1_821) is not None


# --- who is read ----------------------------------------------------------------------------------------------------


def test_a_dead_shipper_is_no_stall_of_the_job() -> None:
    marks = _taken(_steps(600))
    assert _read(marks, 9_000, n0=Reader(T0 + 610 * SECOND, ended=False, is_out=True)) is None


def test_who_is_behind_is_waited_for_and_who_is_out_is_not() -> None:
    marks = _taken([*_steps(600, rank=0), *_steps(600, rank=1)])
    assert _read(marks, 9_000, n1=Reader(T0 + 610 * SECOND, ended=False, is_out=False)) is None
    assert _read(marks, 9_000, n1=Reader(T0 + 610 * SECOND, ended=False, is_out=True)) is not None


def test_a_file_that_is_gone_stalls_nothing() -> None:
    marks = _taken(_steps(600))
    marks.hear("n0", ["kern.log"])
    assert _read(marks, 9_000) is None
    marks.hear("n0", ["kern.log", "out.log"])
    assert _read(marks, 9_000) is not None


def test_a_log_that_ends_is_no_hang_unless_another_line_of_the_job_stands_behind_the_limit() -> None:
    assert _ended(_taken(_steps(600))) is None
    beside = _said(700, "env.variable", rank=3)
    assert _ended(_taken([*_steps(600), beside])) is None
    assert _ended(_taken([*_steps(600), _said(800, "env.variable", rank=3)])) is not None


def test_of_the_node_only_a_process_that_hangs_proves_that_the_job_was_there() -> None:
    fault = msgspec.structs.replace(_said(900, "gpu.xid"), source_kind="kernel", role="cause")
    hangs = msgspec.structs.replace(_said(900, "host.hung_task"), source_kind="kernel", role="intermediate")
    assert _ended(_taken([*_steps(600), fault])) is None
    assert _ended(_taken([*_steps(600), hangs])) is not None


def test_of_an_excerpt_with_few_marks_nothing_is_concluded() -> None:
    assert _ended(_taken([*_steps(30), _said(9_000, "slurm.cancelled")])) is None
    assert _ended(_taken([*_steps(50), _said(9_000, "slurm.cancelled")])) is not None


def test_of_a_large_file_some_marks_are_read_and_the_pace_is_right() -> None:
    places = (10_000, 21_000, 33_000, 46_000, 60_000)
    some = [*_steps(100), *(_mark(at_s, at_s // 10 + 1) for at_s in places)]
    some += [_mark(60_000 + 10 * number, 6_001 + number) for number in range(1, 10)]
    marks = _taken([*some, _said(70_000, "env.variable")])
    assert _read(marks, 60_090 + 121) is not None


# --- order, restarts, size --------------------------------------------------------------------------------------------


def _story(seed: int) -> list[Event]:
    chance = random.Random(seed)
    job = any_job(chance)._replace(ranks=4, save_every_s=600, evaluate_every_s=1_500, save_s=60, step_s=12)
    lines = lines_of(job, 2.0, chance, ends=False)
    return [event_of(line, number) for number, line in enumerate(lines)]


def _verdict(marks: ProgressMarks, at_s: float) -> tuple[object, ...]:
    stall = read_until(marks, at_s)
    return (stall, marks.deadline, marks.told_ns, marks.newest_ns)


@pytest.mark.parametrize("seed", range(6))
def test_the_order_in_which_sources_arrive_does_not_matter(seed: int) -> None:
    events = _story(seed)
    by_source: dict[str, list[Event]] = {}
    for one in events:
        by_source.setdefault(one.source, []).append(one)
    one_by_one = _verdict(_taken(events), 90_000)
    names = sorted(by_source)
    random.Random(seed).shuffle(names)
    assert _verdict(_taken(one for name in names for one in by_source[name]), 90_000) == one_by_one
    assert one_by_one[0] is not None


def test_a_restart_after_any_event_changes_nothing() -> None:
    events = _story(11)
    marks = ProgressMarks()
    for one in events[-400:]:
        marks.take(one, one.node)
        marks = msgspec.json.decode(msgspec.json.encode(marks), type=ProgressMarks)
    assert _verdict(marks, 90_000) == _verdict(_taken(events[-400:]), 90_000)


def test_the_state_does_not_grow_with_marks() -> None:
    few, many = _taken(_steps(3_000)), _taken(_steps(300_000))
    assert len(msgspec.json.encode(many)) < len(msgspec.json.encode(few)) + 100
