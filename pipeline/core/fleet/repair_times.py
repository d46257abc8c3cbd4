"""How long repairs take, with those that are still open, and whether they helped."""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Final

from msgspec import Struct

from pipeline.core.fleet.answers import RepairStep, RepairTime, RepeatRow
from pipeline.core.fleet.records import Fleet, Repair
from pipeline.core.fleet.repairs import Stage, repeats, waits_hours
from pipeline.core.fleet.survival import kaplan_meier

STAGES: Final[tuple[tuple[RepairStep, Stage], ...]] = (
    ("drain", "drained"),
    ("repair", "ended"),
    ("trusted", "trusted"),
)


class _Waits(Struct, frozen=True):
    hours: list[float]
    came: list[bool]


def repair_times(fleet: Fleet) -> list[RepairTime]:
    """Hours from failure to drain, to the end of the repair, and until the unit was trusted again."""
    return [_time(step, _waits(fleet, stage)) for step, stage in STAGES if _is_told(fleet.repairs, stage)]


def repeat_rows(fleet: Fleet) -> list[RepeatRow]:
    """By action, how many units failed again within 7 and 28 days of their repair, of those long enough ago to say."""
    week, month = (repeats(fleet.repairs, fleet.failures, days, until_ns=fleet.to_ns) for days in (7, 28))
    return [
        RepeatRow(
            action=short.action,
            repairs=short.repairs + short.too_recent,
            judged_7_days=short.repairs,
            within_7_days=short.repeated,
            judged_28_days=long.repairs,
            within_28_days=long.repeated,
        )
        for short, long in zip(week, month, strict=True)
    ]


def _waits(fleet: Fleet, stage: Stage) -> _Waits:
    """A stage that never came because a later one did is not open: nobody waits for it any more."""
    waiting = [one for one in fleet.repairs if _at(one, stage) is not None or not _is_past(one, stage)]
    return _Waits(*waits_hours(waiting, stage, fleet.to_ns))


def _time(step: RepairStep, waits: _Waits) -> RepairTime:
    closed = [hours for hours, came in zip(waits.hours, waits.came, strict=True) if came]
    curve = kaplan_meier(waits.hours, waits.came)
    return RepairTime(
        step=step,
        n=len(waits.hours),
        still_open=len(waits.hours) - len(closed),
        median_hours=curve.median(),
        restricted_mean_hours=curve.restricted_mean(curve.last),
        horizon_hours=curve.last,
        closed_mean_hours=fmean(closed) if closed else None,
        closed_median_hours=median(closed) if closed else None,
    )


def _is_told(made: Sequence[Repair], stage: Stage) -> bool:
    return any(_at(one, stage) is not None for one in made)


def _at(repair: Repair, stage: Stage) -> int | None:
    match stage:
        case "drained":
            return repair.drained_ns
        case "ended":
            return repair.ended_ns
        case "trusted":
            return repair.trusted_ns


def _is_past(repair: Repair, stage: Stage) -> bool:
    match stage:
        case "drained":
            return repair.begun_ns is not None or repair.ended_ns is not None or repair.trusted_ns is not None
        case "ended":
            return repair.trusted_ns is not None
        case "trusted":
            return False
