"""Clocks of a folder in words: how its nodes were put on one timeline, whose clock did not go, and what to do. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from pipeline.core.content_clock.solve import Alignment, Denied
from pipeline.core.content_clock.stepped import Change
from pipeline.core.times import DEFAULT_BOUND_NS
from pipeline.folder_clocks import WallClock
from pipeline.report.words import counted, duration, listed, short

MANIFEST: Final = "rootrank.toml"
SHOWN: Final = 3


def clock_lines(clocks: Alignment, recorded: Sequence[WallClock], nodes: int) -> list[str]:
    """What is known of the clocks of a folder of so many nodes, a sentence or two each."""
    return [*_recorded(recorded, nodes), *_aligned(clocks, nodes), *_odd(clocks)]


def _recorded(recorded: Sequence[WallClock], nodes: int) -> Iterator[str]:
    if not recorded:
        return
    line = f"clocks were measured on {len(recorded)} of {counted(nodes, 'node')}"
    known = [(clock.offset_ns, clock.node) for clock in recorded if clock.offset_ns is not None]
    if known:
        offset_ns, node = max(known, key=lambda one: abs(one[0]))
        line += f"; the wall clock of {short(node)} was off most at the end, {_off(offset_ns)}"
    stepped = [f"{short(clock.node)} (by {duration(clock.stepped_ns)})" for clock in recorded if clock.stepped_ns]
    yield f"{line}; wall clocks that were stepped: {listed(stepped)}" if stepped else line


def _off(offset_ns: int) -> str:
    return f"{duration(offset_ns)} {'ahead' if offset_ns < 0 else 'behind'}"


def _aligned(clocks: Alignment, nodes: int) -> Iterator[str]:
    aligned = len(clocks.nodes)
    if not aligned:
        return
    yield (
        f"{aligned} of {counted(nodes, 'node')} aligned by events that they all log, each within "
        f"{duration(clocks.bound_ns)} of their common time"
    )
    if (widest := clocks.widest) is not None:
        within = duration(widest.within_ns)
        yield (
            f"furthest apart: {short(widest.ahead)} is {duration(widest.ns)} ahead of {short(widest.behind)}, "
            f"within {within}"
            if widest.ns > widest.within_ns
            else f"no clock of them is ahead of another by more than {duration(widest.ns + widest.within_ns)}"
        )
    if clocks.others_bound_ns:
        known = duration(clocks.others_bound_ns - DEFAULT_BOUND_NS)
        yield (
            f"times are relative to each other; how far all of them are from UTC is known to {known} only: state one "
            f"clock in {MANIFEST}, [nodes.{_key(clocks.nodes[0])}] clock_offset_s = … and clock_bound_s = …"
        )


def _odd(clocks: Alignment) -> Iterator[str]:
    yield from (_moved(change) for change in clocks.moved)
    whys = dict.fromkeys(clocks.left_out.values())
    for why in whys:
        nodes = [node for node, said in clocks.left_out.items() if said == why]
        yield (
            f"{listed([short(node) for node in nodes])}: not aligned by what they log: {why}. Look into the log of the "
            f"time daemon there; state the clock in {MANIFEST}, with a clock_bound_s that covers the change"
            if len(nodes) > 1
            else f"{short(nodes[0])}: not aligned by what it logs: {why}. Look into the log of its time daemon; state "
            f"its clock in {MANIFEST}, with a clock_bound_s that covers the change"
        )
    yield from (_denied(denied) for denied in clocks.denied[:SHOWN])
    if len(clocks.denied) > SHOWN:
        yield f"… and {len(clocks.denied) - SHOWN} more pairs of stated clocks"


def _moved(change: Change) -> str:
    amount, wider = duration(change.ns), duration(change.spread_ns)
    if len(change.nodes) > 1:
        who = " or ".join(short(node) for node in change.nodes)
        said = f"{who}: the lines of one of them come about {amount} later or earlier than before from some moment on"
        return f"{said}, or its clock was set by that; bounds are wider by {wider}, so that either may be"
    way, set_ = ("later", "ahead") if change.ns > 0 else ("earlier", "back")
    return (
        f"{short(change.nodes[0])}: its lines come about {amount} {way} than before from some moment on, or its clock "
        f"was set {set_} by that; bounds are wider by {wider}, so that both may be"
    )


def _denied(denied: Denied) -> str:
    return (
        f"the stated clocks of {short(denied.one)} and {short(denied.other)} contradict what both log by "
        f"{duration(denied.ns)}; they are used all the same: check clock_offset_s and clock_bound_s in {MANIFEST}"
    )


def _key(node: str) -> str:
    """A node as a key of TOML."""
    said = short(node)
    return said if said.replace("-", "").replace("_", "").isalnum() and said.isascii() else f'"{said}"'
