"""How far the clocks of brokers are apart, through the nodes that measure several of them."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from pipeline.core.clocks.closure import Bounds, Readings, between_brokers
from pipeline.core.clocks.track import SECOND_NS
from schemas.records import ClockSegment


class BrokerClock(Struct, frozen=True, kw_only=True):
    """The clock of a broker minus that of the one with the lowest id: certain to be within [lo_ns, hi_ns].

    `nodes`: how many nodes measure it and another one.
    """

    broker_id: int
    reference_broker: int
    lo_ns: int
    hi_ns: int
    nodes: int


def broker_clocks(nodes: Iterable[Sequence[ClockSegment]]) -> list[BrokerClock]:
    """By the newest segments of each node, one for each broker it measures; none where they contradict each other.

    Clocks of brokers are taken to run straight for the seconds by which these segments of two nodes are apart.
    """
    readings = [reading for segments in nodes if len(reading := _together(segments)) > 1]
    known = between_brokers(readings) or {}
    lowest = min((broker for pair in known for broker in pair), default=None)
    return [
        BrokerClock(
            broker_id=broker, reference_broker=reference, lo_ns=bounds.lo_ns, hi_ns=bounds.hi_ns,
            nodes=sum(broker in reading for reading in readings),
        )
        for (broker, reference), bounds in sorted(known.items())
        if reference == lowest
    ]  # fmt: skip


def _together(segments: Sequence[ClockSegment]) -> Readings:
    """What each broker's clock showed at one raw time of a node that lies in all its segments."""
    measured = [segment for segment in segments if segment.quality == "good"]
    raw_ns = min((segment.t_to_raw_ns for segment in measured), default=0) - 1
    return {
        segment.broker_id: Bounds(at_ns + segment.lo_ns, at_ns + segment.hi_ns)
        for segment in measured
        if segment.t_from_raw_ns <= raw_ns
        for at_ns in (raw_ns + segment.a_ns + segment.b_ppb * (raw_ns - segment.t_from_raw_ns) // SECOND_NS,)
    }
