"""Where a unit was installed at each instant.

Of several installed spans that hold at once, the one that began last counts; of equal beginnings the one that ends
first, then the node whose name sorts last. Spans that were only seen (`action` = `seen`: an agent or a scheduler met
the unit there) count where nothing states an installation of the unit at all; a later sighting ends an earlier one.
"""

from collections.abc import Sequence
from typing import Final

from pipeline.core.fleet.defects import Defects, when
from pipeline.core.fleet.intervals import FOREVER, Span, paint
from pipeline.core.fleet.records import FleetSpan

SEEN: Final = "seen"
# [from, to) on a node.
Piece = tuple[int, int, str]


def installed_pieces(spans: Sequence[FleetSpan], window: Span, defects: Defects) -> list[Piece]:
    """Disjoint pieces in order, neighbours on one node joined, from a unit's installed spans.

    Notes what happens in the window: `gpu_in_two_nodes` (of a node: `node_in_two_places`), `overlapping_installed`
    (one source says twice that the unit is there), `seen_elsewhere` (somebody met it where the inventory has it not).
    """
    stated = [span for span in spans if span.action != SEEN]
    counted = sorted(stated or spans, key=_rank)
    pieces: list[Piece] = []
    for span in counted:
        pieces = paint(pieces, span.from_ns, end_of(span), span.node)
    if stated:
        _note_overlaps(counted, window, defects)
        seen = [span for span in spans if span.action == SEEN and window[0] <= span.from_ns < window[1]]
        _note_seen_elsewhere(seen, pieces, defects)
    return _joined(pieces)


def end_of(span: FleetSpan) -> int:
    """The end of a span; `FOREVER` for one that has not ended."""
    return FOREVER if span.to_ns is None else span.to_ns


def _rank(span: FleetSpan) -> tuple[int, int, str, str, int]:
    """Later ones are painted over earlier ones."""
    return span.from_ns, -end_of(span), span.node, span.source, span.row


def _note_overlaps(spans: Sequence[FleetSpan], window: Span, defects: Defects) -> None:
    """Compare each span with the one of those before it that lasts longest, on its node and on any other."""
    longest: dict[str, FleetSpan] = {}
    for span in spans:
        for other in longest.values():
            begin, end = max(span.from_ns, window[0]), min(end_of(span), end_of(other), window[1])
            if begin < end:
                _note_overlap(span, other, defects)
        held = longest.get(span.node)
        if held is None or end_of(held) < end_of(span):
            longest[span.node] = span


def _note_overlap(span: FleetSpan, other: FleetSpan, defects: Defects) -> None:
    begins = f"installed in {span.node or 'its place'} from {when(span.from_ns)}"
    until = f"until {when(other.to_ns)} ({other.source or 'somebody'}:{other.row})"
    if span.node != other.node:
        kind = "gpu_in_two_nodes" if span.unit_kind == "gpu" else "node_in_two_places"
        defects.add(kind, span, f"{begins} and in {other.node or 'no node'} {until}; the later beginning counts")
    elif span.source == other.source:
        defects.add("overlapping_installed", span, f"{begins} though it already is {until}; counted once")


def _note_seen_elsewhere(seen: Sequence[FleetSpan], pieces: Sequence[Piece], defects: Defects) -> None:
    for span in seen:
        node = next((node for begin, end, node in pieces if begin <= span.from_ns < end), None)
        if node is None:
            text = f"seen in {span.node or 'its place'} at {when(span.from_ns)} while it was not installed"
            defects.add("seen_elsewhere", span, f"{text}; the inventory counts")
        elif node != span.node and span.node:
            text = f"seen in {span.node} at {when(span.from_ns)} while it was installed in {node}"
            defects.add("seen_elsewhere", span, f"{text}; the inventory counts")


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    whole: list[Piece] = []
    for begin, end, node in pieces:
        if whole and whole[-1][1] == begin and whole[-1][2] == node:
            whole[-1] = (whole[-1][0], end, node)
        else:
            whole.append((begin, end, node))
    return whole
