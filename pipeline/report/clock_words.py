"""Clocks of nodes in words: what a page, a terminal and a supervisor say alike. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.report.words import counted, duration, grouped, listed, short, shortened
from pipeline.web.answers import ClockListing, NodeClock

NAMED: Final = 5
_REASON: Final = 200
_PLAIN: Final = {
    "none": "not measured",
    "holdover": "no fresh beacon",
    "stepped": "its clock or the broker's has jumped",
}
NONE_YET: Final = (
    "Shippers send them to the topic clock.beacon unless their settings say clock.beacon = false, and `rootrank "
    "worker` measures clocks with them. `rootrank-shipper check --config node.toml` on a node says what is wrong there."
)


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
    ppm = ppb / 1_000
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


def why(clock: NodeClock) -> str:
    """Why a clock is not good, as far as it is known."""
    if clock.state == "silent":
        since = ago(clock.age_s)
        return f"nothing told for {since}: the node is off, its shipper has stopped, or no beacon came for hours"
    return shortened(clock.reason, _REASON) or _PLAIN.get(clock.state, "")


def name_of(clock: NodeClock) -> str:
    """The node, with what tells its run apart where it is not live."""
    node = short(clock.node)
    return node if clock.run == "live" else f"{node} ({clock.run} {short(clock.run_id)})"


def fleet_lines(listing: ClockListing) -> list[str]:
    """`40 nodes: 33 good, 4 holdover, 3 none`, and whose bound is the widest of those that can be used."""
    counts = [f"{grouped(nodes)} {state}" for state, nodes in listing.counts.items() if nodes]
    if not counts:
        return ["No clocks."]
    lines = [f"{counted(sum(listing.counts.values()), 'node')}: {', '.join(counts)}"]
    if listing.widest:
        lines.append(f"widest bound {bound(listing.widest.bound_ns)} ({name_of(listing.widest)})")
    return lines


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
        yield f"no clock was told of for {ago(newest)}: is `rootrank worker` running?"
    elif silent:
        yield f"of {counted(len(silent), 'node')} no clock was told for two minutes: {_named(silent)}"


def _named(clocks: Sequence[NodeClock]) -> str:
    return listed([name_of(clock) for clock in clocks], limit=NAMED)
