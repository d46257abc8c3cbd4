"""The clock of one node against one broker."""

from pipeline.core.clocks.track import Track
from tests.core.clocks.channels import BASE, MS, SECOND, Node


def test_the_truth_is_within_the_bounds_from_the_first_sample_on() -> None:
    for seed in range(20):
        node, track = Node(seed), Track()
        for sample in node.samples(200):
            track.update(sample)
            for raw in (sample.t0_ns - SECOND, sample.t0_ns, sample.t1_ns, sample.t1_ns + SECOND):
                found = track.at(raw)
                assert found is not None
                assert found.lo_ns <= node.offset(raw) <= found.hi_ns
        assert track.epoch == 0


def test_the_bounds_are_narrower_than_what_one_sample_gives() -> None:
    node, track = Node(1), Track()
    for sample in node.samples(200):
        track.update(sample)
    found = track.at(BASE + 200 * SECOND)
    assert found is not None
    assert found.quality == "good"
    assert found.hi_ns - found.lo_ns < MS
    assert abs(found.offset_ns - node.offset(BASE + 200 * SECOND)) < 0.2 * MS
