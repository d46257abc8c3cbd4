"""Spans that cannot be true, and a list of defects in which a thousand of one kind on one unit are one row."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, get_args

from msgspec import Struct, field

from pipeline.core.fleet.records import Defect, FleetSpan, SpanKind

FIRST_NS: Final = 946_684_800 * 10**9  # 2000-01-01: no clock that was set shows an earlier time
_KINDS: Final = frozenset(get_args(SpanKind))
LAST_NS: Final = 4_102_444_800 * 10**9  # 2100-01-01


class Defects(Struct):
    """Defects by kind and unit: how many spans, and the first of them by time, source and row."""

    found: dict[tuple[str, str, str], tuple[str, int, FleetSpan]] = field(default_factory=dict)

    def add(self, kind: str, span: FleetSpan, detail: str) -> None:
        """Note one more span of which `detail` is true."""
        key = (kind, span.cluster, span.unit)
        said, count, first = self.found.get(key, (detail, 0, span))
        if count and place(span) < place(first):
            said, first = detail, span
        self.found[key] = (said, count + 1, first)

    def rows(self) -> list[Defect]:
        """All of them, sorted."""
        return [
            of_span(kind, span, detail if count == 1 else f"{detail}; and {count - 1} more like it")
            for (kind, _, _), (detail, count, span) in sorted(self.found.items(), key=lambda item: item[0])
        ]


def place(span: FleetSpan) -> tuple[int, str, int, str, int]:
    """Where a span stands, for an order that does not depend on how spans were given."""
    return span.from_ns, span.source, span.row, span.kind, _end(span)


def of_span(kind: str, span: FleetSpan, detail: str) -> Defect:
    """A defect with the span's address."""
    return Defect(
        kind=kind, cluster=span.cluster, unit=span.unit, detail=detail, source=span.source, row=span.row,
        at_ns=span.from_ns if FIRST_NS <= span.from_ns < LAST_NS else None,
    )  # fmt: skip


def possible(spans: Iterable[FleetSpan]) -> tuple[list[FleetSpan], list[Defect]]:
    """The spans that can be true, and a defect for each that cannot: `inverted_span`, `clock_before_2000`,
    `clock_after_2100`, `unknown_kind`.
    """
    good: list[FleetSpan] = []
    defects: list[Defect] = []
    for span in spans:
        wrong = _wrong(span)
        if wrong is None:
            good.append(span)
        else:
            defects.append(of_span(wrong[0], span, wrong[1]))
    return good, defects


def when(at_ns: int | None) -> str:
    """A time for a person: UTC to the second."""
    if at_ns is None:
        return "still"
    if not FIRST_NS <= at_ns < LAST_NS:
        return f"{at_ns} ns"
    return datetime.fromtimestamp(at_ns // 10**9, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _wrong(span: FleetSpan) -> tuple[str, str] | None:
    end_ns = span.from_ns if span.to_ns is None else span.to_ns
    if FIRST_NS <= span.from_ns <= end_ns < LAST_NS and span.kind in _KINDS:
        return None
    said = f"{span.kind} from {when(span.from_ns)} to {when(span.to_ns)}"
    if end_ns < span.from_ns:
        return "inverted_span", f"{said} ends before it begins; not counted"
    if span.from_ns < FIRST_NS:
        return "clock_before_2000", f"{said}: the clock was not set; not counted"
    if span.kind not in _KINDS:
        return "unknown_kind", f"{said}: the kinds are {', '.join(get_args(SpanKind))}; not counted"
    return "clock_after_2100", f"{said}: no such time yet; not counted"


def _end(span: FleetSpan) -> int:
    return LAST_NS if span.to_ns is None else span.to_ns
