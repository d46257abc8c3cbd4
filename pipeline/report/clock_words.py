"""Clocks of nodes in words: what a page, a terminal and a supervisor say alike. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.core.segments import NOT_MEASURED, NOT_YET
from pipeline.report.words import counted, duration, grouped, listed, short, shortened
from pipeline.web.answers import ClockListing, NodeClock

NAMED: Final = 5
_REASON: Final = 200
_PLAIN: Final = {
    "none": "not measured",
    "holdover": "no fresh beacon",
    "stepped": "the broker's clock jumped, or the node's raw clock stood still",
}
NONE_YET: Final = (
    "Shippers send them unless their settings say `[clock] beacon = false`, and `rootrank worker` measures clocks with "
    "them. `rootrank-shipper check --config node.toml` on a node says what is wrong there."
)
# What the states mean, for who has no documentation at hand.
MEANINGS: Final = {
    "good": "measured, and the bound is certain",
    "holdover": "no beacon came for a while, the bound grows",
    "stepped": "the measured clock (the node's raw clock or the broker's) broke off, the bound covers both readings",
    "none": "not measured",
    "silent": "nothing was told of the node for two minutes",
}
_CHECK: Final = "`rootrank-shipper check` on the node says why"


def signed(ns: int | None) -> str:
    """`+2.11 ms`; nothing where it is not known."""
    if ns is None:
        return ""
    return f"{'-' if ns < 0 else '+'}{duration(ns)}" if ns else "0"


def bound(ns: int | None) -> str:
    """`± 2.11 ms`; nothing where it is not known."""
    return "" if ns is None else f"± {duration(ns)}"


def drift(ppb: int | None) -> str:
    """`-1.8 ppm`; nothing where it is not known."""
    if ppb is None:
        return ""
    ppm = round(ppb / 1_000, 1) + 0.0  # no -0.0
    return f"{ppm:+.1f} ppm" if abs(ppm) < 1_000 else f"{ppm:+.2g} ppm"


def ago(seconds: int) -> str:
    """`16 s`, `4 min`, `3 h`: how long since, as short as a column needs it."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{grouped(seconds // size)} {unit}"
    return f"{seconds} s"


def jump(clock: NodeClock) -> str:
    """How far the wall clock jumped last; nothing where it did not."""
    return signed(clock.last_wall_step_ns)


def why(clock: NodeClock, listing: ClockListing) -> str:
    """Why a clock is not good, as far as it is known, and what to do."""
    if clock.state == "silent":
        return _silent(clock, is_alone=listing.following and not listing.all_silent)
    reason = shortened(clock.reason, _REASON) or _PLAIN.get(clock.state, "")
    if clock.state == "none" and not clock.reason.startswith(NOT_YET):
        off = "; beacons may be switched off there: [clock] beacon = false" * clock.reason.startswith(NOT_MEASURED)
        return f"{reason}; {_CHECK}{off}"
    return reason


def _silent(clock: NodeClock, *, is_alone: bool) -> str:
    """What was known, with its age: columns would say it as if it held now."""
    since = ago(clock.age_s)
    blame = ": the node is off, its shipper has stopped, or no beacon came for hours" * is_alone
    known = "" if clock.bound_ns is None else f"; it was {bound(clock.bound_ns)} then"
    return f"nothing told for {since}{blame}{known}"


def off(clock: NodeClock) -> str:
    """`wall clock 4 s ahead`; nothing where it is not off by much."""
    return f"wall clock {_side(clock)}" if clock.is_wall_off else ""


def _side(clock: NodeClock) -> str:
    offset_ns = clock.wall_offset_ns or 0
    return f"{duration(offset_ns)} {'ahead' if offset_ns < 0 else 'behind'}"


def offset_now(clock: NodeClock) -> str:
    """How far the wall clock is off now; nothing where that is not known any more."""
    return "" if clock.state == "silent" else signed(clock.wall_offset_ns)


def bound_now(clock: NodeClock) -> str:
    """Within which bound that is certain now; nothing where that is not known any more."""
    return "" if clock.state == "silent" else bound(clock.bound_ns)


def away(listing: ClockListing) -> str:
    """Who is away where nothing is told of any node; nothing where something is, or where nothing is known anyway."""
    silent = listing.counts.get("silent", 0)
    if not silent or not listing.all_silent or not listing.following:
        return ""
    if silent == 1 and len(listing.clusters) == 1:
        return "Nothing is told of the only node: its shipper, the worker or Kafka is away."
    return "All nodes at once: the worker or Kafka is away. Is `rootrank worker` running?"


def name_of(clock: NodeClock) -> str:
    """The node, with what tells its run apart where it is not live."""
    node = short(clock.node)
    return node if clock.run == "live" else f"{node} ({clock.run} {short(clock.run_id)})"


def fleet_lines(listing: ClockListing) -> list[str]:
    """`40 nodes: 33 good, 4 holdover, 3 none`, and whose bound is the widest of those that can be used."""
    counts = [f"{grouped(nodes)} {state}" for state, nodes in listing.counts.items() if nodes]
    if not counts:
        return ["No clocks."]
    walls = f"; {walls_off(listing)}" * bool(listing.walls_off)
    lines = [f"{counted(sum(listing.counts.values()), 'node')}: {', '.join(counts)}{walls}"]
    if away(listing):
        lines.append(away(listing))
    if listing.widest:
        lines.append(f"widest bound {bound(listing.widest.bound_ns)} ({name_of(listing.widest)})")
    return [*lines, *broker_lines(listing)]


def broker_lines(listing: ClockListing) -> list[str]:
    """`the clock of broker 2 is +8 ms ± 1 ms of broker 1's, by 12 nodes`."""
    return [
        f"the clock of broker {one.broker_id} is {signed((one.lo_ns + one.hi_ns) // 2)} "
        f"{bound((one.hi_ns - one.lo_ns) // 2)} of broker {one.reference_broker}'s, by {counted(one.nodes, 'node')}"
        for one in listing.brokers
    ]


def walls_off(listing: ClockListing) -> str:
    """`3 wall clocks off by more than 1 s`."""
    return f"{counted(listing.walls_off, 'wall clock')} off by more than 1 s"


def no_node_of(listing: ClockListing, cluster: str) -> str:
    """That a cluster has no node while others have; nothing where none was asked for, or none has."""
    if not cluster or not listing.clusters:
        return ""
    known = listed([short(each) for each in listing.clusters])
    return f"No node of cluster {short(cluster)} is known. Known: {known}."


def warnings(listing: ClockListing) -> list[str]:
    """What a supervisor should know of live clocks, one sentence a kind, at most five nodes named."""
    if not listing.following:
        return [f"clocks are not known: {listing.reason}"]
    return list(_warnings(listing))


def _warnings(listing: ClockListing) -> Iterator[str]:
    silent = [clock for clock in listing.clocks if clock.state == "silent"]
    unmeasured = [clock for clock in listing.clocks if clock.state == "none"]
    if unmeasured:
        yield f"the clock of {counted(len(unmeasured), 'node')} is not measured: {_named(unmeasured)}"
    if silent and len(silent) == sum(listing.counts.values()):
        newest = min(clock.age_s for clock in silent)
        suspects = "the worker or Kafka" if len(silent) > 1 else "its shipper, the worker or Kafka"
        yield f"no clock was told of for {ago(newest)}: {suspects} is away"
    elif silent:
        yield f"of {counted(len(silent), 'node')} no clock was told for two minutes: {_named(silent)}"
    if walls := [clock for clock in listing.clocks if clock.is_wall_off]:
        sides = listed([f"{name_of(clock)} ({_side(clock)})" for clock in walls], limit=NAMED)
        yield f"{walls_off(listing)}: {sides}"


def _named(clocks: Sequence[NodeClock]) -> str:
    return listed([name_of(clock) for clock in clocks], limit=NAMED)
