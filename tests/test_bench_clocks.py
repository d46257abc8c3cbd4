"""The benchmark of clocks measures what it says, on a small scale."""

import argparse

import numpy as np
import pytest

from pipeline.core.clocks.track import Track
from tests.bench import clocks
from tests.bench.clock_orders import BANDS, Orders, orders
from tests.bench.clock_scenarios import OURS, bounds_of, play
from tests.clock_channels import SECOND, Clock, beacons, busy, quiet


def test_bounds_of_many_times_at_once_are_those_of_the_track() -> None:
    rng = np.random.default_rng(3)
    track = Track()
    for sample in beacons(rng, Clock(rng, 300), busy, 300).samples():
        track.update(sample)
    taus = rng.uniform(-200, 500, 200).round(3) * SECOND
    lo, hi = bounds_of(track, taus)
    newest = track.origin_raw_ns + int(track.solved)
    for tau, low, high in zip(taus.astype(int).tolist(), lo.tolist(), hi.tolist(), strict=True):
        found = track.at(newest + tau)
        assert found is not None
        assert abs(found.lo_ns - track.origin_ns - low) <= 1
        assert abs(found.hi_ns - track.origin_ns - high) <= 1


def test_orders_that_are_made_wrong_are_counted() -> None:
    """Answers that are off by more than their bounds say lead to wrong orders, and right ones to none."""
    result = play("A", quiet, 1, 3, 200, 5)
    assert result.outside == 0
    right = orders(result.answers, 5_000, 1)
    assert sum(band.certain_wrong + band.probable_wrong for band in right.values()) == 0
    first = result.answers[0]
    off = first._replace(
        errors={**first.errors, OURS: first.errors[OURS] + 5e6}, lo=first.lo + 5_000_000, hi=first.hi + 5_000_000
    )
    wrong = orders([off, *result.answers[1:]], 5_000, 1)
    assert wrong["1-3 ms"].certain_wrong > 0
    assert wrong["1-3 ms"].probable_wrong > 0


@pytest.mark.slow
def test_the_table_shows_each_figure_with_its_target() -> None:
    given = argparse.Namespace(nodes=2, seconds=200, checks=10, pairs=2_000, no_live=True, live_seconds=0, quick=True)
    lines = list(clocks.rows(given))
    judged = [line for line in lines if " target " in line]
    assert len(judged) >= 25
    assert all(line.endswith((" met", " MISSED", " too few")) for line in judged)
    missed = [line for line in judged if line.endswith("MISSED")]
    # Steps of 2 ms that a slow beacon hides are found by the next one.
    assert {line.split()[0] for line in missed} <= {"E"}
    assert lines[0].startswith("quick")
    assert "too few to judge: " in lines[-2]


def test_a_short_run_claims_nothing_and_one_wrong_order_is_proof() -> None:
    band = Orders(pairs=10, certain=5, certain_wrong=0, probable=8, probable_wrong=0, last_wrong=0, raw_wrong=0)
    fine, table = dict.fromkeys(BANDS, band), clocks.Table()
    assert [row for row in clocks.order_rows("A", fine, table) if row.endswith(("met", "MISSED"))] == []
    assert len(table.too_few) == 3
    wrong = clocks.order_rows("A", {**fine, "1-3 ms": band._replace(certain_wrong=1)}, table)
    assert [row.split()[:3] for row in wrong if row.endswith("MISSED")] == [["A", "wrong", "among"]]
