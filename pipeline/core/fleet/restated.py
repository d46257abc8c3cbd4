"""What a report says today that it did not say when it was issued, and why."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pipeline.core.fleet.answers import FleetReport, RateRow
from pipeline.core.fleet.records import Failure, Fleet

# The figure that is a count, and how its name ends.
COUNT: Final = "failures"
_CLOSE: Final = 1e-9


class Changes(Struct, frozen=True, kw_only=True):
    """What happened since. `builds`: cluster and why a day was built again; `corrections`: by cluster and incident."""

    builds: Sequence[tuple[str, str]] = ()
    corrections: Mapping[tuple[str, str], str] = {}


class Restatement(Struct, frozen=True, kw_only=True):
    """One figure that changed. None: there was no such figure."""

    figure: str
    old: float | None
    new: float | None
    why: list[str]


def restatements(
    old: FleetReport, new: FleetReport, before: Fleet, after: Fleet, changes: Changes
) -> list[Restatement]:  # fmt: skip
    """Every count, exposure and rate that differs, in the order of the report; reports are of one window."""
    of_old, of_new = ({_key(row): row for row in report.rates} for report in (old, new))
    changed = _changed(before.failures, after.failures)
    found = []
    for key in dict.fromkeys((*of_new, *of_old)):
        was, now = of_old.get(key), of_new.get(key)
        reasons = _why(was or now, changed, changes)
        for name, old_value, new_value in zip(_names(was or now), _figures(was), _figures(now), strict=True):
            if not _same(old_value, new_value):
                found.append(Restatement(figure=f"{_label(key)}: {name}", old=old_value, new=new_value, why=reasons))
    if not _same(old.unknown_share, new.unknown_share):
        why = sorted({reason for one in changed for reason in one.why(changes)})
        found.append(
            Restatement(figure="share of unknown cause", old=old.unknown_share, new=new.unknown_share, why=why)
        )
    return found


def _key(row: RateRow) -> tuple[str, str, str]:
    return row.category, row.by, row.value


def _label(key: tuple[str, str, str]) -> str:
    category, by, value = key
    return category if by == "all" else f"{category}, {by} {value or 'not known'}"


def _names(row: RateRow | None) -> tuple[str, str, str]:
    unit = row.unit_kind if row else "unit"
    return COUNT, f"{unit}-hours at risk", f"per 1,000 {unit}-days"


def _figures(row: RateRow | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if row is None else (row.n, row.exposure_hours, row.rate.value)


def _same(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return old is new
    return abs(old - new) <= _CLOSE * max(abs(old), abs(new))


class _Change(Struct, frozen=True, kw_only=True):
    """An incident as it was counted and as it is; None: not at all."""

    old: Failure | None
    new: Failure | None

    def touches(self, row: RateRow) -> bool:
        """Whether it may have moved the figures of this row."""
        return any(_counts(failure, row) for failure in (self.old, self.new) if failure is not None)

    def why(self, changes: Changes) -> list[str]:
        """What became of it, in the words of who corrected it where somebody did."""
        one = self.new or self.old
        if one is None:
            return []
        said = changes.corrections.get((one.cluster, one.incident_id))
        return [f"incident {one.incident_id} {self._what()}{f': {said}' if said else ''}"]

    def _what(self) -> str:
        if self.old is None:
            return "is new"
        if self.new is None:
            return "is not counted any more"
        moved = [f"{name} {a or 'none'} to {b or 'none'}" for name, a, b in _sides(self.old, self.new) if a != b]
        return f"changed ({', '.join(moved)})"


def _sides(old: Failure, new: Failure) -> list[tuple[str, str, str]]:
    return [
        ("class", old.class_, new.class_),
        ("unit", old.unit, new.unit),
        ("cohort", str(old.cohort), str(new.cohort)),
        ("time", str(old.at_ns), str(new.at_ns)),
    ]


def _changed(before: Iterable[Failure], after: Iterable[Failure]) -> list[_Change]:
    old = {(failure.cluster, failure.incident_id): failure for failure in before}
    new = {(failure.cluster, failure.incident_id): failure for failure in after}
    return [
        _Change(old=old.get(key), new=new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _counts(failure: Failure, row: RateRow) -> bool:
    if failure.category != row.category:
        return False
    match row.by:
        case "all":
            return True
        case "cluster":
            return failure.cluster == row.value
        case "component":
            return failure.component == row.value
        case "class":
            return failure.class_ == row.value
        case field:
            return str(getattr(failure.cohort, field)) == row.value


def _why(row: RateRow | None, changed: Sequence[_Change], changes: Changes) -> list[str]:
    if row is None:
        return []
    of_incidents = [reason for one in changed if one.touches(row) for reason in one.why(changes)]
    of_builds = [
        why if row.by == "cluster" else f"{cluster}: {why}"
        for cluster, why in changes.builds
        if row.by != "cluster" or cluster == row.value
    ]
    return [*of_incidents, *of_builds]
