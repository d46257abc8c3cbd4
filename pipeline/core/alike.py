"""What all ranks of a job raise alike is no rank's own fault: it is what they share. Pure."""

from typing import Final

import msgspec

from pipeline.core.causes import Rule
from pipeline.core.chains import STOPPED, Resolved, Step, step
from pipeline.core.code_path import failure_of
from pipeline.core.conclusion import REPEATED, Conclusion
from pipeline.core.derived.launcher import LAUNCHER_STOPPED
from pipeline.core.derived.ranks import MAX_NAMED
from pipeline.core.placement import PlacementMap
from pipeline.core.signs import OF_OTHERS

WHY: Final = (
    "every rank that was not stopped fails in the same way: it is what they share (the program, its settings, its data "
    "or how it is started), not one of them"
)
# What is wrong with how a job is set up is wrong for all of its ranks, also where the others were stopped first.
_SETUP: Final = "software/config_error"
# What connects or carries the ranks shows at all of them too, and is at fault itself.
_OF_PROGRAMS: Final = ("software", "storage", "resource")
EVERY: Final = "every rank"
_TABLE: Final = "elastic.rank_failed"


def of_all(main: Conclusion, items: list[Resolved], placement: PlacementMap) -> Conclusion:
    """The conclusion, which names no rank where all ranks of the job say the same of themselves, and each of a few.

    Nobody's own error follows from that of another rank, so that the first line is no more than the first. Who was
    stopped by the launcher before it could say so does not count.
    """
    root = main.root_item.episode.first
    if (
        main.rule is None
        or main.rule.scope not in ("rank", "job")
        or root.source_kind != "application"
        or not main.culprits
    ):
        return main
    if main.class_.split("/")[0] not in _OF_PROGRAMS or root.name.startswith(OF_OTHERS) or not _is_whole(placement):
        return main
    said = failure_of(root)
    same = [item for item in items if item.episode.name == root.name and failure_of(item.episode.first) == said]
    alike = {rank for item in same for rank in item.ranks}
    stopped = {rank for item in items if _is_stopped(item) for rank in item.ranks}
    steps = _with_all(main, same)
    if set(placement.ranks) - alike - stopped:
        several = 1 < len(alike) <= MAX_NAMED and root.attributes.get("uncaught") == "true"
        named = [placement.ranks[rank] for rank in sorted(alike & set(placement.ranks))]
        return msgspec.structs.replace(main, culprits=named, steps=steps) if several else main
    if len(alike) < 2 and main.class_ != _SETUP:
        return main
    rule = _of_every_rank(main.rule)
    return msgspec.structs.replace(main, rule=rule, culprits=[], rivals=1, why_unknown=WHY, steps=steps)


def _with_all(main: Conclusion, same: list[Resolved]) -> list[Step]:
    """The steps, and the lines in which others say the same."""
    steps = list(main.steps)
    for item in same:
        if not any(one.item is item for one in steps):
            steps.append(step(item, "cascade", main.root, REPEATED, steps))
    return steps


def _of_every_rank(rule: Rule) -> Rule:
    """The rule as it reads of all ranks."""
    action = msgspec.structs.replace(rule.action, target=rule.action.target.replace("{who}", EVERY))
    return msgspec.structs.replace(
        rule, explanation=rule.explanation.replace("{who}", EVERY), consequence="no rank came further", action=action
    )


def _is_whole(placement: PlacementMap) -> bool:
    return placement.world_size in (None, len(placement.ranks))


def _is_stopped(item: Resolved) -> bool:
    name = item.episode.name
    return name in STOPPED or (name == _TABLE and item.episode.attributes.get("exitcode") == LAUNCHER_STOPPED)
