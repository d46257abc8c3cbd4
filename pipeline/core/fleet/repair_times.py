"""How long repairs take, with those that are still open, and whether they helped."""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Final

from pipeline.core.fleet.answers import RepairStep, RepairTime, RepeatRow
from pipeline.core.fleet.records import Fleet, Repair
from pipeline.core.fleet.repairs import Stage, Wait, repeats, waits
from pipeline.core.fleet.survival import kaplan_meier

STAGES: Final[tuple[tuple[RepairStep, Stage], ...]] = (
    ("drain", "drained"),
    ("repair", "ended"),
    ("trusted", "trusted"),
)


def repair_times(fleet: Fleet) -> list[RepairTime]:
    """Hours from failure to drain, to the end of the repair, and until the unit was trusted again.

    Repairs from before the window are at risk from its begin on: of those, only the long ones can be seen in it.
    """
    told = [(step, stage) for step, stage in STAGES if _is_told(fleet, stage)]
    return [_time(step, seen) for step, stage in told if (seen := _waits(fleet, stage))]


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


def _waits(fleet: Fleet, stage: Stage) -> list[Wait]:
    """A stage that never came because a later one did is not open: nobody waits for it any more. Nobody knows how long
    a drain was waited for that no failure led to.
    """
    waiting = [
        one
        for one in fleet.repairs
        if (_at(one, stage) is not None or not _is_past(one, stage)) and (one.has_failure or stage != "drained")
    ]
    return waits(waiting, stage, fleet.from_ns, fleet.to_ns)


def _time(step: RepairStep, seen: Sequence[Wait]) -> RepairTime:
    closed = [wait.hours for wait in seen if wait.came]
    curve = kaplan_meier([w.hours for w in seen], [w.came for w in seen], [w.entered for w in seen])
    return RepairTime(
        step=step,
        n=len(seen),
        still_open=len(seen) - len(closed),
        median_hours=curve.median(),
        restricted_mean_hours=curve.restricted_mean(curve.last),
        horizon_hours=curve.last,
        closed_mean_hours=fmean(closed) if closed else None,
        closed_median_hours=median(closed) if closed else None,
    )


def _is_told(fleet: Fleet, stage: Stage) -> bool:
    return any(_at(one, stage) is not None and (one.has_failure or stage != "drained") for one in fleet.repairs)


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
