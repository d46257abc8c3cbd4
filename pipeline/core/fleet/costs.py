"""What interrupted work, by class: over time, and by count beside cost. The two rank differently."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from pipeline.core.fleet.answers import CostRow, ShareRow
from pipeline.core.fleet.at_risk import DAY_HOURS, HOUR_NS
from pipeline.core.fleet.components import CATEGORIES
from pipeline.core.fleet.records import Category, Failure, Fleet

MOST_WEEKS: Final = 26


def shares_over_time(fleet: Fleet) -> list[ShareRow]:
    """Interruptions by class in each week, or month where the window has more than 26 weeks.

    A share is of all interruptions of its period, whatever their category; that of the unknown ones stands beside it.
    """
    weeks = (fleet.to_ns - fleet.from_ns) / HOUR_NS / DAY_HOURS / 7
    by_period: dict[str, list[Failure]] = {}
    for failure in sorted(fleet.failures, key=lambda f: f.at_ns):
        by_period.setdefault(_period(failure.at_ns, monthly=weeks > MOST_WEEKS), []).append(failure)
    return [row for period, failures in by_period.items() for row in _shares(period, failures)]


def unknown_share(failures: Sequence[Failure]) -> float | None:
    """The share of interruptions whose cause is not known; None: there are none."""
    return sum(f.category == "unknown" for f in failures) / len(failures) if failures else None


def _period(at_ns: int, *, monthly: bool) -> str:
    at = datetime.fromtimestamp(at_ns // 1_000_000_000, UTC)
    return f"{at:%Y-%m}" if monthly else f"{at:%G-W%V}"


def _shares(period: str, failures: Sequence[Failure]) -> list[ShareRow]:
    unknown = unknown_share(failures) or 0.0
    return [
        ShareRow(
            period=period, class_=class_, category=category, n=n, share=n / len(failures), unknown_share=unknown
        )
        for (class_, category), n in _counted(failures).most_common()
    ]  # fmt: skip


def _counted(failures: Iterable[Failure]) -> Counter[tuple[str, Category]]:
    return Counter((failure.class_, failure.category) for failure in failures)


def costs_of(failures: Sequence[Failure]) -> list[CostRow]:
    """Lost GPU-hours and counts by class, each category apart, the dearest first, with the rank by either."""
    of = {category: [f for f in failures if f.category == category] for category in CATEGORIES}
    return [row for category in CATEGORIES for row in _costs(category, of[category])]


def _costs(category: Category, failures: Sequence[Failure]) -> list[CostRow]:
    counts = Counter(failure.class_ for failure in failures)
    unpriced = Counter(failure.class_ for failure in failures if failure.lost_gpu_hours is None)
    hours = {class_: sum(f.lost_gpu_hours or 0.0 for f in failures if f.class_ == class_) for class_ in counts}
    whole = sum(hours.values())
    by_cost = sorted(counts, key=lambda class_: (-hours[class_], class_))
    by_count = sorted(counts, key=lambda class_: (-counts[class_], class_))
    return [
        CostRow(
            class_=class_,
            category=category,
            n=counts[class_],
            share_of_n=counts[class_] / len(failures),
            lost_gpu_hours=hours[class_],
            share_of_cost=hours[class_] / whole if whole else None,
            without_a_price=unpriced[class_],
            rank_by_cost=by_cost.index(class_) + 1,
            rank_by_count=by_count.index(class_) + 1,
        )
        for class_ in by_cost
    ]
