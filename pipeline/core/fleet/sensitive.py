"""How much the count of episodes depends on the window that joins lines into one."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from pipeline.core.fleet.answers import SensitivityRow
from pipeline.core.fleet.at_risk import HOUR_NS, Unit, Units, at_risk
from pipeline.core.fleet.poisson import top_share
from pipeline.core.fleet.rates import How, count_of, per_unit_days
from pipeline.core.fleet.records import EpisodeCount, Fleet, UnitKind


def sensitivity_of(fleet: Fleet, how: How) -> list[SensitivityRow]:
    """Episodes by kind of event: with the window of its class (`window_s` None), then with each other one.

    Only units that were at risk count: others have episodes, and no time to divide them by.
    """
    by_kind: dict[tuple[str, int | None, UnitKind], list[EpisodeCount]] = defaultdict(list)
    for count in fleet.episodes:
        by_kind[count.name, count.xid, count.unit_kind].append(count)
    whole = at_risk(fleet, "all", how.exposure).whole
    ranked = sorted(by_kind.items(), key=lambda item: (-sum(c.episodes for c in item[1]), str(item[0])))
    return [row for key, counts in ranked for row in _rows(key, counts, whole.of(key[2]), how)]


def _rows(
    key: tuple[str, int | None, UnitKind], counts: Sequence[EpisodeCount], units: Units, how: How
) -> list[SensitivityRow]:
    windows = sorted({window for count in counts for window in count.by_window})
    return [_row(key, counts, window, units, how) for window in (None, *windows)]


def _row(
    key: tuple[str, int | None, UnitKind], counts: Sequence[EpisodeCount], window_s: int | None, units: Units, how: How
) -> SensitivityRow:
    every: Counter[Unit | None] = Counter()
    for count in counts:
        # A window that was not counted for a unit leaves its episodes as they are.
        every[count.cluster, count.unit] += (
            count.episodes if window_s is None else count.by_window.get(window_s, count.episodes)
        )
    by_unit: Counter[Unit | None] = Counter({unit: n for unit, n in every.items() if unit in units.at_risk_ns})
    found = count_of(by_unit, units.at_risk_ns, how)
    hours = units.total_ns / HOUR_NS
    return SensitivityRow(
        name=key[0],
        xid=key[1],
        lines=sum(count.lines for count in counts),
        window_s=window_s,
        episodes=found.n,
        uncounted=every.total() - found.n,
        rate=per_unit_days(found, hours),
        unit_kind=key[2],
        exposure_kind=how.exposure,
        exposure_hours=hours,
        interval=found.interval,
        dispersion=found.dispersion,
        top_1_share=top_share(list(by_unit.values())),
        unobserved_share=units.unobserved_share,
    )
