"""What held of each unit and when: where it was installed, in which cohort, in service, busy and observed.

Spans of a node hold of the GPUs that sit in it: its drains, its jobs, its agent, and of its facts the driver and the
rack, whatever the GPU tells, and the position and the SKU where the GPU tells none (firmware and batch are a device's
own).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from typing import Final

from msgspec import Struct

from pipeline.core.fleet.defects import Defects, place, possible, when
from pipeline.core.fleet.installed import Piece, end_of, installed_pieces
from pipeline.core.fleet.intervals import Span, minus, paint, union
from pipeline.core.fleet.records import COHORT_FIELDS, Cohort, Defect, FleetSpan, SpanKind, UnitKind

OUT_OF_SERVICE: Final[tuple[SpanKind, ...]] = ("drain", "repair", "maintenance", "upgrade", "boot", "reset")
# A GPU has the driver and the rack of its node: an inventory that states them for both is brought up to date for nodes.
OF_NODE_FIRST: Final = frozenset({"driver", "rack"})
OF_NODE: Final = frozenset({"sku", "position"})
# A fact of a busy span of a node: how many of its GPUs the job had. Without it the job had them all.
GPUS: Final = "gpus"

UnitKey = tuple[str, UnitKind, str]
JobKey = tuple[str, int]
Steps = Mapping[str, list[tuple[int, int, str]]]


class Share(Struct, frozen=True):
    """Some GPUs of a node, nobody says which, inside a job."""

    begin: int
    end: int
    gpus: int
    job: JobKey


class UnitHistory(Struct, frozen=True, kw_only=True):
    """A unit's own spans in the window as sets of instants. `is_known`: some span of whatever time says that it was
    installed. `busy_whole`: in jobs that had all of a node's GPUs; `shares`: in those that had a number of them.
    `jobs`: when a GPU is said to be in which job. `away`: the spans that `out` is the union of.
    """

    is_known: bool = False

    pieces: list[Piece] = []
    facts: Steps = {}
    out: list[Span] = []
    busy: list[Span] = []
    busy_whole: list[Span] = []
    shares: list[Share] = []
    jobs: Mapping[JobKey, list[Span]] = {}
    observed: list[Span] = []
    away: list[FleetSpan] = []


class FleetHistory(Struct, frozen=True, kw_only=True):
    """All units of all clusters, and what could not be true of them."""

    units: dict[UnitKey, UnitHistory]
    defects: list[Defect]


NOTHING: Final = UnitHistory()


def history(spans: Iterable[FleetSpan], from_ns: int, to_ns: int) -> FleetHistory:
    """What the spans say of [from_ns, to_ns). Give every span that touches it, and the installed ones of all times:
    where a unit was installed decides whether it is known at all.

    A defect stands for all spans of its kind on its unit and has the address of the first: `overlapping_installed`,
    `gpu_in_two_nodes`, `seen_elsewhere`, `node_in_two_places`, `unknown_unit`, `span_before_install`,
    `span_outside_installed`, `duplicate_attempt`. Each span that cannot be true has one of its own: `inverted_span`,
    `clock_before_2000`, `clock_after_2100`, `unknown_kind`.
    """
    good, bad = possible(spans)
    by_unit: dict[UnitKey, list[FleetSpan]] = defaultdict(list)
    places: set[tuple[str, str]] = set()
    for span in good:
        if span.kind != "installed" and (span.from_ns >= to_ns or end_of(span) <= from_ns):
            continue
        by_unit[span.cluster, span.unit_kind, span.unit].append(span)
        if span.kind == "installed" and span.unit_kind == "gpu" and span.node:
            places.add((span.cluster, span.node))
    defects = Defects()
    units: dict[UnitKey, UnitHistory] = {}
    for key, told in by_unit.items():
        is_place = key[1] == "node" and (key[0], key[2]) in places
        units[key] = _unit(told, (from_ns, to_ns), defects, is_place=is_place)
    return FleetHistory(units=units, defects=_sorted([*bad, *defects.rows()]))


def _sorted(defects: list[Defect]) -> list[Defect]:
    return sorted(defects, key=lambda d: (d.kind, d.cluster, d.unit, d.source, d.row, d.detail))


def _unit(told: list[FleetSpan], window: Span, defects: Defects, *, is_place: bool) -> UnitHistory:
    by_kind: dict[SpanKind, list[FleetSpan]] = defaultdict(list)
    for span in told:
        by_kind[span.kind].append(span)
    everywhere = installed_pieces(by_kind["installed"], window, defects)
    _note_outside(told, everywhere, window, defects, is_place=is_place)
    pieces = [
        (max(a, window[0]), min(b, window[1]), node) for a, b, node in everywhere if a < window[1] and b > window[0]
    ]
    if by_kind["busy"]:
        _note_duplicates(by_kind["busy"], defects)
    shared = [span for span in by_kind["busy"] if span.unit_kind == "node" and _gpus(span)]
    busy = _clipped(by_kind["busy"], window)
    whole = _clipped([span for span in by_kind["busy"] if not _gpus(span)], window) if shared else busy
    away = [span for kind in OUT_OF_SERVICE for span in by_kind.get(kind, ())]
    return UnitHistory(
        is_known=bool(everywhere), pieces=pieces, facts=_facts(by_kind["facts"], by_kind["installed"], pieces, window),
        out=_clipped(away, window), busy=busy, busy_whole=whole, observed=_clipped(by_kind["observed"], window),
        shares=[_share(span, window) for span in shared],
        jobs=_jobs(by_kind["busy"], window), away=sorted(away, key=place),
    )  # fmt: skip


def _clipped(spans: Sequence[FleetSpan], window: Span) -> list[Span]:
    return union((max(span.from_ns, window[0]), min(end_of(span), window[1])) for span in spans) if spans else []


def _gpus(span: FleetSpan) -> str:
    """The number of GPUs a busy span of a node tells; empty where it tells none, or no number."""
    told = span.facts.get(GPUS, "")
    return told if told.isascii() and told.isdigit() and len(told) < 10 else ""


def _share(span: FleetSpan, window: Span) -> Share:
    begin, end = max(span.from_ns, window[0]), min(end_of(span), window[1])
    return Share(begin, end, int(_gpus(span)), (span.job_id, span.attempt))


def _jobs(busy: list[FleetSpan], window: Span) -> dict[JobKey, list[Span]]:
    told: dict[JobKey, list[FleetSpan]] = defaultdict(list)
    for span in busy:
        if span.unit_kind == "gpu" and span.job_id:
            told[span.job_id, span.attempt].append(span)
    return {job: _clipped(spans, window) for job, spans in told.items()}


def _facts(facts: list[FleetSpan], installed: list[FleetSpan], pieces: list[Piece], window: Span) -> Steps:
    """By field, what held when: who begins later is painted over who began earlier. Facts of an installed span hold
    while that place counts.
    """
    told: list[tuple[FleetSpan, list[Span]]] = [(span, [(span.from_ns, end_of(span))]) for span in facts if span.facts]
    for span in installed:
        if span.facts:
            held = [
                (max(a, span.from_ns), min(b, end_of(span)))
                for a, b, node in pieces
                if node == span.node and a < end_of(span) and b > span.from_ns
            ]
            told.append((span, held))
    if not told:
        return {}
    told.sort(key=lambda item: (item[0].from_ns, -end_of(item[0]), item[0].source, item[0].row))
    steps: dict[str, list[tuple[int, int, str]]] = {}
    for span, held in told:
        for name, value in span.facts.items():
            if name in COHORT_FIELDS and value:
                for begin, end in held:
                    clipped = (max(begin, window[0]), min(end, window[1]))
                    steps[name] = paint(steps.get(name, []), *clipped, value)
    return steps


def _note_outside(
    told: list[FleetSpan], pieces: list[Piece], window: Span, defects: Defects, *, is_place: bool
) -> None:
    """Spans of a unit that nobody installed, or before it was, and work where it was not."""
    if is_place and not pieces:
        return
    holding: list[Span] | None = None
    for span in told:
        if span.kind in ("installed", "facts") or span.from_ns == span.to_ns:
            continue
        begin, end = max(span.from_ns, window[0]), min(end_of(span), window[1])
        if not pieces:
            defects.add("unknown_unit", span, f"{_said(span)}: nothing says that the {span.unit_kind} was installed")
            continue
        first_ns = pieces[0][0]
        if begin < first_ns:
            text = f"{_said(span)} begins before the {span.unit_kind} was installed at {when(first_ns)}"
            defects.add("span_before_install", span, f"{text}; counted from there on")
        if span.kind in ("busy", "observed"):
            holding = union((a, b) for a, b, _ in pieces) if holding is None else holding
            if minus([(max(begin, first_ns), end)] if end > first_ns else [], holding):
                text = f"{_said(span)} goes on where the {span.unit_kind} was not installed"
                defects.add("span_outside_installed", span, f"{text}; not counted there")


def _said(span: FleetSpan) -> str:
    return f"{span.kind} from {when(span.from_ns)} to {when(span.to_ns)}"


def _note_duplicates(busy: list[FleetSpan], defects: Defects) -> None:
    """One source tells one attempt of a job twice, at one time on one unit."""
    last: dict[tuple[str, str, int], FleetSpan] = {}
    for span in sorted(busy, key=place):
        key = (span.source, span.job_id, span.attempt)
        other = last.get(key)
        if span.job_id and other is not None and end_of(other) > span.from_ns:
            text = f"job {span.job_id} attempt {span.attempt} from {when(span.from_ns)} to {when(span.to_ns)}"
            defects.add("duplicate_attempt", span, f"{text} is told in row {other.row} too; counted once")
        if other is None or end_of(other) < end_of(span):
            last[key] = span


def cohorts(begin: int, end: int, own: Steps, of_node: Steps) -> list[tuple[int, int, Cohort]]:
    """[begin, end) cut where the cohort may change. What the unit says itself goes before what its node says, but for
    driver and rack.
    """
    layers = (_only(of_node, OF_NODE_FIRST), own, _only(of_node, OF_NODE))
    cuts = {begin, end}
    for layer in layers:
        for steps in layer.values():
            cuts.update(t for a, b, _ in steps for t in (a, b) if begin < t < end)
    edges = sorted(cuts)
    return [(a, b, _cohort(a, layers)) for a, b in pairwise(edges)]


def _only(facts: Steps, names: Set[str]) -> Steps:
    return {name: steps for name, steps in facts.items() if name in names}


def _cohort(at_ns: int, layers: Sequence[Steps]) -> Cohort:
    values: dict[str, str] = {}
    for layer in reversed(layers):
        for name, steps in layer.items():
            for a, b, value in steps:
                if a <= at_ns < b:
                    values[name] = value
    return Cohort(**values)
