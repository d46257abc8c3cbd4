"""Inventories that hypothesis invents: units that come, go, move, are drained and run jobs, at any second."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hypothesis import strategies as st

from pipeline.core.fleet.exposure import exposures
from pipeline.core.fleet.history import history
from pipeline.core.fleet.records import Defect, Exposure, FleetSpan, SpanKind, UnitKind

SECOND: Final = 10**9
BEGIN: Final = 1_772_323_200 * SECOND  # 2026-03-01
LENGTH_S: Final = 3 * 86_400
NODES: Final = ("n1", "n2")
KINDS: Final[tuple[SpanKind, ...]] = (
    "installed", "installed", "installed", "installed", "installed", "facts", "facts", "drain", "repair", "maintenance",
    "upgrade", "boot", "reset", "busy", "busy", "busy", "observed", "observed",
)  # fmt: skip
FACTS: Final = ("", "sku", "rack", "driver", "batch")
GPUS: Final = ("g1", "g2")


def span(unit: str, kind: SpanKind, from_s: float, to_s: float | None, **more: Any) -> FleetSpan:
    """A span in seconds after the beginning; units that begin with `g` are GPUs."""
    unit_kind: UnitKind = "gpu" if unit.startswith("g") else "node"
    defaults: Mapping[str, Any] = {"cluster": "a", "source": "inventory.csv"}
    return FleetSpan(
        unit_kind=unit_kind, unit=unit, kind=kind, from_ns=BEGIN + round(from_s * SECOND),
        to_ns=None if to_s is None else BEGIN + round(to_s * SECOND), **{**defaults, **more},
    )  # fmt: skip


def exposed(spans: Iterable[FleetSpan], from_ns: int, to_ns: int) -> tuple[list[Exposure], list[Defect]]:
    """Time at risk in a window, and what in the spans cannot be true."""
    told = history(spans, from_ns, to_ns)
    return exposures(told), told.defects


def any_span(row: int) -> st.SearchStrategy[FleetSpan]:
    """One span, most likely a possible one, and of few units: they shall meet."""
    fields = st.tuples(
        st.sampled_from(NODES + GPUS), st.sampled_from(KINDS),
        st.one_of(st.sampled_from((-1, 0, 40_000 * SECOND)), st.integers(-86_400 * SECOND, LENGTH_S * SECOND)),
        st.one_of(st.none(), st.integers(-5, LENGTH_S * SECOND)), st.sampled_from(NODES), st.sampled_from(FACTS),
        st.sampled_from(["", "j1", "j2"]), st.sampled_from(["inventory.csv", "agent"]), st.integers(0, 9),
    )  # fmt: skip
    return fields.map(lambda f: _made(row, *f))


def any_spans() -> st.SearchStrategy[list[FleetSpan]]:
    """Spans of all kinds, overlapping and contradicting each other."""
    return st.integers(0, 16).flatmap(lambda count: st.tuples(*map(any_span, range(count))).map(list))


def _made(
    row: int, unit: str, kind: SpanKind, begin_ns: int, length_ns: int | None, node: str, facts: str, job: str,
    source: str, dice: int,
) -> FleetSpan:  # fmt: skip
    is_gpu, is_busy = unit in GPUS, kind == "busy"
    told = {"gpus": str(dice)} if is_busy and not is_gpu and dice < 5 else {facts: "xyz"[dice % 3]} if facts else {}
    return FleetSpan(
        cluster="a", unit_kind="gpu" if is_gpu else "node", unit=unit, kind=kind, from_ns=BEGIN + begin_ns,
        to_ns=None if length_ns is None else BEGIN + begin_ns + length_ns, node=node if is_gpu else "", facts=told,
        job_id=job if is_busy else "", source=source, row=row,
        action="seen" if kind == "installed" and not dice else "",
    )  # fmt: skip
