"""What dumps of the flight recorder show, as a table for a terminal and as one JSON object. Pure text."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pipeline.core.flight.analysis import Findings, GroupView
from pipeline.core.flight.state import RankState, folded, world_of
from pipeline.core.flight.words import (
    circle_said,
    crossed_said,
    group_text,
    mismatch_said,
    missing_said,
    op_text,
    ranks_text,
    stuck_alike,
    stuck_said,
    together_said,
)

MAX_ROWS: Final = 40
MAX_CELL: Final = 60
HEADINGS: Final = ("process group", "at", "inside", "not entered", "completed", "no dump")


def is_quiet(found: Findings) -> bool:
    """Whether the dumps show nothing that is stuck."""
    return not (found.groups or found.stuck or found.awaited or found.mismatches)


def flight_text(states: list[RankState], found: Findings, *, all_rows: bool = False) -> Iterator[str]:
    """The table, line by line."""
    world = world_of(states)
    of = f" of {world}" if world else ""
    versions = ", ".join(sorted({state.version or "without a number" for state in states}))
    libraries = ", ".join(sorted({state.library for state in states if state.library}))
    yield f"{len(found.ranks)}{of} ranks: {folded(found.ranks)}" + (f"; NCCL {libraries}" if libraries else "")
    yield f"dump version {versions}"
    if found.missing:
        yield f"no dump of {ranks_text(found.missing).lower()}"
    fresh = sorted({state.rank for state in states if state.fresh})
    if fresh:
        yield f"not counted: {ranks_text(fresh).lower()} had waited for less than 5 s when dumped"
    yield ""
    yield from _sentences(found)
    if not found.groups:
        return
    yield ""
    rows = [_row(view) for view in sorted(found.groups, key=_age)]
    shown = rows if all_rows else rows[:MAX_ROWS]
    widths = [max(len(row[at]) for row in (HEADINGS, *shown)) for at in range(len(HEADINGS))]
    for row in (HEADINGS, *shown):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if len(rows) > len(shown):
        yield f"… and {len(rows) - len(shown)} more groups with something pending; --all shows them"


def _sentences(found: Findings) -> Iterator[str]:
    said = False
    for mismatch in found.mismatches[:MAX_ROWS]:
        said = True
        yield f"MISMATCH  {mismatch_said(mismatch)}"
    for heading, (sentence, _) in _findings(found):
        said = True
        yield f"{heading}  {sentence}"
    if not said:
        yield "No rank is behind another one." if not found.groups else "No rank is seen to hold up the others."


def _findings(found: Findings) -> Iterator[tuple[str, tuple[str, str]]]:
    if found.stuck:
        yield "STOPPED ", stuck_said(found)
    if found.awaited:
        yield "NO DUMP ", missing_said(found)
    if found.circle:
        yield "CIRCLE  ", circle_said(found)
    if found.crossed is not None:
        yield "ORDER   ", crossed_said(found.crossed)
    if found.together and not (found.stuck or found.mismatches):
        yield "TOGETHER", together_said(found)


def _age(view: GroupView) -> tuple[bool, int, str]:
    """Groups in which somebody is behind first, then by what is pending for longest."""
    return not (view.behind or view.completed or view.absent), view.op.created_ns, group_text(view.group)


def _row(view: GroupView) -> tuple[str, ...]:
    ranks = (view.inside, view.behind, view.completed, view.absent)
    return (group_text(view.group)[:MAX_CELL], op_text(view.op), *(_cell(some) for some in ranks))


def _cell(ranks: Iterable[int]) -> str:
    text = folded(ranks)
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 2].rpartition(',')[0]}, …"


def flight_shape(states: list[RankState], found: Findings, unreadable: list[str]) -> dict[str, Any]:
    """The JSON object of `--json`. Sets of ranks are text (`0-511, 700`), as jobs are large."""
    return {
        "ranks": folded(found.ranks), "world_size": world_of(states) or None, "missing": folded(found.missing),
        "versions": sorted({state.version for state in states}),
        "stopped": [
            {
                "ranks": folded(one.rank for one in alike), "where": alike[0].kind, **_of_group(alike[0].group),
                "number": alike[0].seq, "operation": alike[0].op, "nothing_pending": alike[0].pending == 0,
                "waiting": folded(set().union(*{one.waiting for one in alike})),
            }
            for alike in stuck_alike(found)
        ],
        "awaited": folded(found.awaited),
        "mismatches": [
            {
                **_of_group(one.group), "number": one.seq, "what": one.what, "ranks": folded(one.odd),
                "others": folded(one.others), "said": mismatch_said(one),
            }
            for one in found.mismatches
        ],
        "circle": folded(found.circle),
        "order": crossed_said(found.crossed)[0] if found.crossed is not None else None,
        "together": [
            {**_of_group(one.group), "number": one.op.seq, "operation": one.op.name, "ranks": folded(one.ranks)}
            for one in found.together
        ],
        "groups": [
            {
                **_of_group(view.group), "number": view.op.seq, "operation": view.op.name,
                "inside": folded(view.inside), "not_entered": folded(view.behind),
                "completed": folded(view.completed), "no_dump": folded(view.absent),
            }
            for view in sorted(found.groups, key=_age)
        ],
        "unreadable": unreadable,
    }  # fmt: skip


def _of_group(group: tuple[str, str, str]) -> dict[str, str]:
    return {"process_group": group[0], "description": group[1], "members": group[2]}
