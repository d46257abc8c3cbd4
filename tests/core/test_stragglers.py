"""Slow and not failed: found where it lasts, and not in 1,000 job-hours of ordinary ups and downs."""

import random
from collections.abc import Iterator
from math import exp

import msgspec
import pytest

from pipeline.core.chains import Resolved
from pipeline.core.derived import derive
from pipeline.core.derived.peers import MIN_PEERS, MIN_S, departing
from pipeline.core.derived.scene import Measured, Scene
from pipeline.core.derived.stragglers import LEAST_CLOCK, LEAST_TIME, MIN_SPREADS, SLOW
from pipeline.core.episodes import of_events
from pipeline.core.placement import Facts, PlacementMap
from pipeline.core.readings import Readings
from pipeline.rules import load_rules
from schemas.records import Entity, Event
from tests.strategies import SECOND, T0, event

RULES = load_rules()
NOWHERE = PlacementMap(Facts())


def _derived(*events: Event) -> list[Resolved]:
    items = [Resolved(episode=e, subject=e.subject) for e in of_events(events, RULES.coalescing)]
    return derive(items, [], NOWHERE, None)


def _slow(*events: Event) -> list[tuple[int | None, str]]:
    return sorted(
        (item.subject.rank, item.episode.attributes["cause"]) for item in _derived(*events) if item.episode.name == SLOW
    )


def _steps(rank: int, ms: float, *, minutes: int = 20, since_s: int = 0, attribute: str = "compute_ms") -> list[Event]:
    return [
        event("train.step", source=f"rank{rank}", offset=since_s + 20 * n, rank=rank, role="context",
              at_ns=T0 + (since_s + 20 * n) * SECOND, attributes={attribute: f"{ms + n % 7:.1f}", "step": str(n)})
        for n in range(minutes * 3)
    ]  # fmt: skip


def _gpu(rank: int, clock: float, *, load: int = 98, celsius: int = 60, minutes: int = 20) -> list[Event]:
    said = {"sm_clock_mhz": str(clock), "utilization_percent": str(load), "temperature_celsius": str(celsius)}
    return [
        event("gpu.telemetry", source="smi", offset=100 * n + rank, rank=rank, role="context",
              at_ns=T0 + 60 * n * SECOND, attributes=said)
        for n in range(minutes)
    ]  # fmt: skip


def _all(*series: list[Event]) -> list[Event]:
    return [one for events in series for one in events]


# --- what is found ------------------------------------------------------------------------------------------------


def test_the_rank_that_computes_longer_than_all_others_is_slow() -> None:
    (found,) = (i for i in _derived(*_all(*(_steps(rank, 812 if rank == 3 else 600) for rank in range(8))))
                if i.episode.name == SLOW)  # fmt: skip
    assert found.subject.rank == 3
    assert found.episode.first.attributes["numbers"] == "computes 815 ms, median of 7 others 603 ms, for 20 min"
    assert found.episode.first.source == "rank3"
    assert found.episode.count == 60


def test_its_line_stays_beside_the_finding() -> None:
    items = _derived(*_all(*(_steps(rank, 812 if rank == 3 else 600) for rank in range(8))))
    assert [i.episode.name for i in items if i.subject.rank == 3] == ["train.step", SLOW]


@pytest.mark.parametrize(("factor", "found"), [(LEAST_TIME + 0.03, [(3, "")]), (LEAST_TIME - 0.03, [])])
def test_so_much_slower_it_is_at_least(factor: float, found: list[tuple[int, str]]) -> None:
    assert _slow(*_all(*(_steps(rank, 600 * factor if rank == 3 else 600) for rank in range(8)))) == found


@pytest.mark.parametrize(("ranks", "found"), [(MIN_PEERS + 1, [(3, "")]), (MIN_PEERS, [])])
def test_with_fewer_peers_there_is_no_rule_to_depart_from(ranks: int, found: list[tuple[int, str]]) -> None:
    assert _slow(*_all(*(_steps(rank, 900 if rank == 3 else 600) for rank in range(ranks)))) == found


@pytest.mark.parametrize(("minutes", "found"), [(MIN_S // 60 + 1, [(3, "")]), (MIN_S // 60 - 3, [])])
def test_so_long_it_lasts_at_least(minutes: int, found: list[tuple[int, str]]) -> None:
    others = (_steps(rank, 600, minutes=60) for rank in range(8) if rank != 3)
    own = (_steps(3, 600, minutes=60 - minutes), _steps(3, 900, minutes=minutes, since_s=60 * (60 - minutes)))
    assert _slow(*_all(*others, *own)) == found


def test_of_a_day_two_slow_hours_are_found() -> None:
    day, slow = 24 * 60, range(10 * 60, 15 * 60)
    scene = Scene([], [], NOWHERE, None)
    scene.measured = {}
    for rank in range(8):
        readings = Readings()
        for minute in range(day):
            readings.add("compute_ms", 900 if rank == 3 and minute in slow else 600, T0 + 60 * minute * SECOND)
        scene.measured[f"rank {rank}"] = Measured(Entity(rank=rank), readings, {})
    (found,) = departing(scene, "compute_ms", LEAST_TIME, above=True)
    assert found.name == "rank 3"
    assert MIN_S <= found.seconds <= 6 * 3_600


def test_where_many_are_slower_the_job_is_built_so() -> None:
    assert _slow(*_all(*(_steps(rank, 900 if rank > 5 else 600) for rank in range(8)))) == []


def test_a_slow_node_of_several_is_found_rank_by_rank() -> None:
    events = [
        type(one)(**{**{f: getattr(one, f) for f in one.__struct_fields__},
                     "subject": Entity(rank=rank, node=f"n{rank // 2}"), "node": f"n{rank // 2}"})
        for rank in range(16) for one in _steps(rank, 900 if rank // 2 == 3 else 600)
    ]  # fmt: skip
    assert _slow(*events) == [(6, ""), (7, "")]


def test_lines_without_a_time_are_compared_by_their_number() -> None:
    def untimed(rank: int, ms: float, count: int) -> list[Event]:
        made = _steps(rank, ms)[:count]
        return [type(e)(**{**{f: getattr(e, f) for f in e.__struct_fields__}, "aligned_time_unix_nano": None})
                for e in made]  # fmt: skip

    assert _slow(*_all(*(untimed(rank, 900 if rank == 3 else 600, 30) for rank in range(8)))) == [(3, "")]
    assert _slow(*_all(*(untimed(rank, 900 if rank == 3 else 600, 10) for rank in range(8)))) == []


# --- why it is slow -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("celsius", "cause"), [(86, "heat"), (62, "")])
def test_a_low_clock_is_heat_where_the_gpu_is_hotter_than_its_peers(celsius: int, cause: str) -> None:
    events = _all(*(_gpu(rank, 1_200, celsius=celsius) if rank == 3 else _gpu(rank, 1_950) for rank in range(8)))
    assert _slow(*events) == [(3, cause)]


def test_a_gpu_that_has_nothing_to_do_is_not_slow() -> None:
    assert _slow(*_all(*(_gpu(r, 345, load=0) if r == 3 else _gpu(r, 1_950) for r in range(8)))) == []


@pytest.mark.parametrize(("share", "found"), [(0.83, [(3, "")]), (0.87, [])])
def test_so_much_lower_the_clock_is_at_least(share: float, found: list[tuple[int, str]]) -> None:
    assert 0.83 < 1 / LEAST_CLOCK < 0.87
    assert _slow(*_all(*(_gpu(r, round(1_950 * share) if r == 3 else 1_950) for r in range(8)))) == found


@pytest.mark.parametrize(("after_min", "brief"), [(5, "true"), (0, "")])
def test_a_moment_of_heat_that_was_over_is_brief(after_min: int, brief: str) -> None:
    hot = event("gpu.clocks_reduced", source="smi", offset=10_000, rank=3, at_ns=T0 + 600 * SECOND,
                attributes={"reason": "sw thermal slowdown"})  # fmt: skip
    hot = msgspec.structs.replace(hot, label="hardware/gpu_thermal")
    events = _all(*(_gpu(rank, 1_950, minutes=11 + after_min) for rank in range(2, 4)), [hot])
    (item,) = (item for item in _derived(*events) if item.episode.name == "gpu.clocks_reduced")
    assert item.episode.attributes.get("brief", "") == brief


def test_gpus_of_other_jobs_on_the_node_are_no_peers() -> None:
    def of_nobody(gpu: int) -> list[Event]:
        subject = Entity(node="alpha", pci_bus_id=f"0000:{gpu:02x}:00.0")
        return [msgspec.structs.replace(one, subject=subject, offset=one.offset + 50) for one in _gpu(gpu, 1_200)]

    ours = [_gpu(rank, 1_950) for rank in range(6)]
    assert _slow(*_all(*ours, of_nobody(6))) == []
    assert len(_slow(*_all(*(of_nobody(gpu) for gpu in range(3)), *ours))) == 0


def _link(rank: int, width: str) -> Event:
    return event("gpu.telemetry", source="smi", offset=rank, rank=rank, role="context",
                 attributes={"width": width, "generation": "5", "utilization_percent": "97"})  # fmt: skip


def test_one_reading_shows_a_narrow_link() -> None:
    assert _slow(*(_link(rank, "8" if rank == 3 else "16") for rank in range(8))) == [(3, "link")]
    assert _slow(*(_link(rank, "16") for rank in range(8))) == []


# --- straggler detectors ------------------------------------------------------------------------------------------


def _warned(at_s: int, ranks: str) -> Event:
    return event("train.straggler", source="rank0", offset=at_s, at_ns=T0 + at_s * SECOND, role="context",
                 attributes={"ranks": ranks})  # fmt: skip


@pytest.mark.parametrize(("times", "found"), [(3, [(21, "")]), (2, [])])
def test_a_rank_that_is_named_again_and_again_is_slow(times: int, found: list[tuple[int, str]]) -> None:
    assert _slow(*(_warned(300 * n, "21") for n in range(times))) == found


def test_ranks_that_take_turns_are_not_slow() -> None:
    assert _slow(*(_warned(300 * n, str(n % 4)) for n in range(8))) == []


def _spread(at_s: int, slowest: int, ms: float, hottest: int = 7) -> Event:
    said = {
        "slowest": str(slowest),
        "slowest_ms": str(ms),
        "fastest": "0",
        "fastest_ms": "800",
        "hottest": str(hottest),
    }
    return event("train.spread", source="rank0", offset=at_s, rank=0, at_ns=T0 + at_s * SECOND, role="context",
                 attributes=said)  # fmt: skip


@pytest.mark.parametrize(
    ("reports", "found"),
    [
        ([(5, 1_200.0, 7)] * 12, [(5, "")]),
        ([(5, 1_200.0, 5)] * 12, [(5, "heat")]),
        ([(5, 1_200.0, 7)] * 11 + [(6, 1_200.0, 7)], [(5, "")]),
        ([(5, 1_200.0, 7)] * 8 + [(6, 1_200.0, 7)] * 4, []),
        ([(5, 900.0, 7)] * 12, []),
        ([(5, 1_200.0, 7)] * (MIN_SPREADS - 1), []),
    ],
)
def test_who_is_the_slowest_in_nearly_every_report_is_slow(
    reports: list[tuple[int, float, int]], found: list[tuple[int, str]]
) -> None:
    assert _slow(*(_spread(120 * n, *report) for n, report in enumerate(reports))) == found


# --- ordinary ups and downs ---------------------------------------------------------------------------------------


def _ordinary(rng: random.Random, ranks: int, minutes: int) -> Iterator[tuple[int, str, float, int]]:
    """What the ranks of a healthy job measure: rank, measure, value, minute. One reading a minute.

    Ranks differ by some percent for good and from minute to minute; the first minutes are slow (compilation, caches);
    evaluations and saves idle all GPUs for a while; single steps take up to forty times as long; a rank waits for its
    own input for two or three minutes; all clocks go down together where the room is warm, and one GPU is some degrees
    hotter than the rest.
    """
    biases = [rng.gauss(0, 0.02) for _ in range(ranks)]
    clocks = [1_950 * exp(rng.gauss(0, 0.015)) for _ in range(ranks)]
    celsius = [58 + rng.uniform(0, 9) for _ in range(ranks)]
    pauses = {m for start in range(rng.randint(30, 60), minutes, rng.randint(40, 90)) for m in range(start, start + 4)}
    stalls = {(rng.randrange(ranks), m) for _ in range(minutes // 60)
              for start in [rng.randrange(minutes)] for m in range(start, start + 3)}  # fmt: skip
    for minute in range(minutes):
        warm = 1 - 0.05 * (minute // 120 % 2)
        first = 6 if minute < 2 else 1
        for rank in range(ranks):
            if minute in pauses:
                yield rank, "utilization_percent", rng.uniform(0, 20), minute
                yield rank, "sm_clock_mhz", rng.choice((345, 1_980)), minute
                continue
            once = rng.uniform(2, 40) if rng.random() < 0.01 else 1
            stalled = 3 if (rank, minute) in stalls else 1
            ms = 600 * exp(biases[rank] + rng.gauss(0, 0.04)) * once * stalled * first / warm
            yield rank, "compute_ms", ms, minute
            yield rank, "utilization_percent", rng.uniform(88, 100) / stalled, minute
            yield rank, "sm_clock_mhz", clocks[rank] * warm * exp(rng.gauss(0, 0.02)), minute
            yield rank, "temperature_celsius", celsius[rank] + rng.gauss(0, 1), minute


@pytest.mark.parametrize("hours", [1, 4, 20])
def test_in_a_thousand_job_hours_of_ordinary_ups_and_downs_nobody_is_slow(hours: int) -> None:
    rng = random.Random(hours)
    told = []
    for job in range(334 // hours + 1):
        ranks = rng.choice((5, 8))
        scene = Scene([], [], NOWHERE, None)
        scene.measured = {f"rank {r}": Measured(Entity(rank=r, node="n1"), Readings(), {}) for r in range(ranks)}
        for rank, measure, value, minute in _ordinary(rng, ranks, 60 * hours):
            scene.measured[f"rank {rank}"].readings.add(measure, value, T0 + 60 * minute * SECOND)
        told += [(job, one) for one in departing(scene, "compute_ms", LEAST_TIME, above=True)]
        told += [(job, one) for one in departing(scene, "sm_clock_mhz", LEAST_CLOCK, above=False, loaded=True)]
    assert not told
