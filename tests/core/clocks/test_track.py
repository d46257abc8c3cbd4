"""The clock of one node against one broker."""

import numpy as np

from pipeline.core.clocks.track import Track
from tests.clock_channels import BASE, MS, SECOND, Clock, beacons, quiet


def test_the_truth_is_within_the_bounds_from_the_first_sample_on() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        clock, track = Clock(rng, 200), Track()
        for sample in beacons(rng, clock, quiet, 200).samples():
            track.update(sample)
            for raw in (sample.t0_ns - SECOND, sample.t0_ns, sample.t1_ns, sample.t1_ns + SECOND):
                found = track.at(raw)
                assert found is not None
                assert found.lo_ns <= clock.offset(raw) <= found.hi_ns
        assert track.epoch == 0


def test_the_bounds_are_narrower_than_what_one_sample_gives() -> None:
    rng = np.random.default_rng(1)
    clock, track = Clock(rng, 200), Track()
    for sample in beacons(rng, clock, quiet, 200).samples():
        track.update(sample)
    found = track.at(BASE + 200 * SECOND)
    assert found is not None
    assert found.quality == "good"
    assert found.hi_ns - found.lo_ns < MS
    assert abs(found.offset_ns - clock.offset(BASE + 200 * SECOND)) < 0.2 * MS
