"""What fleet statistics must find in simulated fleets: the benchmark of fleets in a small form."""

import numpy as np
import pytest

from pipeline.core.fleet.coalesce import sensitivity
from tests.bench import fleet
from tests.bench.clock_scenarios import Answers, play
from tests.clock_channels import busy
from tests.fleet_simulated import CAUSES, KINDS, NODES, Faults, Fleet, Sight, chains, dated, faults, stamped


@pytest.fixture(scope="module")
def clocks() -> list[Answers]:
    return play("B", busy, 1, NODES, 300, 1).answers


@pytest.fixture(scope="module")
def seen() -> list[Sight]:
    return chains(np.random.default_rng(2), CAUSES, 1_000, 5.0)


@pytest.mark.parametrize("name", KINDS)
def test_faults_are_counted_within_two_per_cent(name: str) -> None:
    kind = KINDS[name]
    made = faults(np.random.default_rng([1, kind.xid]), kind, 1_000)
    assert made.count > 900
    assert fleet.counted_faults(made, kind.xid) == pytest.approx(made.count, rel=0.02)


def test_five_seconds_for_all_make_five_faults_of_a_hang_and_silence_alone_makes_one_of_several() -> None:
    hangs = faults(np.random.default_rng(1), KINDS["119 (GSP)"], 1_000)
    assert sensitivity(hangs.lines, [5])[5] > 4 * hangs.count
    memory = faults(np.random.default_rng(1), KINDS["95 (uncontained)"], 1_000)
    assert fleet.counted_faults(Faults(memory.count, memory.lines), 95) < 0.85 * memory.count


def test_shares_are_recovered_within_two_points_under_clock_skew(seen: list[Sight], clocks: list[Answers]) -> None:
    for name, found in fleet.shares(seen, dated(seen, clocks), CAUSES).items():
        assert abs(found.by_odds) <= 2, name
        assert found.row.sources >= 1_000
        # What the clocks cannot order is between: the rest is what chance adds.
        assert found.row.followed - 15 <= found.true * found.row.sources <= found.row.followed + found.row.concurrent


def test_an_effect_on_another_node_is_named_so(seen: list[Sight], clocks: list[Answers]) -> None:
    found = fleet.shares(seen, dated(seen, clocks), CAUSES)
    for cause in CAUSES:
        row = found[cause.name].row
        by_place = {"unit": row.same_unit, "node": row.same_node, "other": row.other_node}
        assert by_place[cause.where] > 0.9 * row.followed


def test_clocks_taken_at_their_word_are_tens_of_points_off_and_unclaimed_ones_say_nothing(seen: list[Sight]) -> None:
    skews_ms = np.random.default_rng(3).uniform(-200, 200, NODES).tolist()
    believed = fleet.shares(seen, stamped(seen, skews_ms), CAUSES)["nic.down"]
    assert believed.points < -15
    unclaimed = fleet.shares(seen, stamped(seen, skews_ms, 5_000.0), CAUSES)["nic.down"].row
    assert unclaimed.share < 0.01
    assert unclaimed.concurrent > 500


def test_lemons_are_found_where_there_are_enough_failures_and_only_there() -> None:
    enough = fleet.found_lemons(Fleet(45.0), 20)
    assert enough.recall >= 0.9
    assert enough.fdr <= 0.05
    assert fleet.found_lemons(Fleet(2.34), 20).recall < 0.05


@pytest.mark.parametrize(("unlike", "recall"), [(0.3, 0.85), (0.5, 0.75), (1.0, 0.05)])
def test_of_nodes_that_differ_one_in_twenty_at_most_is_called_wrongly(unlike: float, recall: float) -> None:
    found = fleet.found_lemons(Fleet(45.0, unlike=unlike), 20)
    assert found.fdr <= 0.05
    assert found.recall >= recall


def test_the_exact_interval_covers_every_mean() -> None:
    assert min(fleet.covered(mean) for mean in fleet.MEANS) >= 0.95
    assert fleet.covered(0.5) < 1


@pytest.mark.slow
def test_the_table_shows_each_figure_with_its_target() -> None:
    lines = list(fleet.measure(fleet.Size(faults=300, sources=100, fleets=3, beacons_s=150, lines=10_000)))
    judged = [line for line in lines if " target " in line]
    assert len(judged) == len(KINDS) + 1 + 2 * 3 * len(CAUSES) + 2 + len(fleet.UNLIKE) + 1
    assert all(line.endswith((" met", " MISSED")) for line in judged)
    missed = [line for line in judged if line.endswith("MISSED")]
    assert all(line.split("   ")[0].strip() in lines[-1] for line in missed)
