"""How far brokers' clocks are apart, from the segments of nodes that measure several."""

from pipeline.core.clocks.brokers import broker_clocks
from schemas.records import ClockSegment

S = 1_000_000_000
MS = 1_000_000


def segment(node: str, broker: int, a_ns: int, half_ns: int = MS, **changed: object) -> ClockSegment:
    said = {
        "run": "live", "run_id": "", "cluster": "c", "node": node, "boot_id": "b", "broker_id": broker, "epoch": 0,
        "t_from_raw_ns": 16 * S, "t_to_raw_ns": 32 * S, "a_ns": a_ns, "b_ppb": 0, "lo_ns": -half_ns, "hi_ns": half_ns,
        "u99_ns": half_ns // 2, "quality": "good",
    }  # fmt: skip
    return ClockSegment(**{**said, **changed})  # type: ignore[arg-type]


def test_what_each_node_says_is_intersected() -> None:
    wide = [segment("n1", 1, 100 * S), segment("n1", 2, 100 * S + 7 * MS)]
    narrow = [segment("n2", 1, 900 * S, MS // 2), segment("n2", 2, 900 * S + 8 * MS, MS // 2)]
    (found,) = broker_clocks([wide, narrow])
    assert (found.broker_id, found.reference_broker, found.nodes) == (2, 1, 2)
    assert (found.lo_ns, found.hi_ns) == (7 * MS, 9 * MS)


def test_brokers_that_no_node_measures_together_are_compared_through_a_third() -> None:
    first = [segment("n1", 1, 0), segment("n1", 2, 5 * MS)]
    second = [segment("n2", 2, 0), segment("n2", 3, 5 * MS)]
    found = {each.broker_id: (each.lo_ns, each.hi_ns) for each in broker_clocks([first, second])}
    assert found == {2: (3 * MS, 7 * MS), 3: (6 * MS, 14 * MS)}


def test_nothing_is_said_of_one_broker_of_old_segments_and_of_contradictions() -> None:
    assert broker_clocks([[segment("n1", 1, 0)]]) == []
    assert broker_clocks([[segment("n1", 1, 0), segment("n1", 2, 0, t_from_raw_ns=64 * S, t_to_raw_ns=80 * S)]]) == []
    assert broker_clocks([[segment("n1", 1, 0), segment("n1", 2, 0, quality="holdover")]]) == []
    apart = [segment("n1", 1, 0), segment("n1", 2, S)], [segment("n2", 1, 0), segment("n2", 2, 5 * S)]
    assert broker_clocks(apart) == []
