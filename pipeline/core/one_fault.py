"""Which chains tell of one fault: those that the clocks cannot order, and those of one entity."""

import re
from typing import Final

import msgspec

from pipeline.core.chains import Chain, Step, step
from pipeline.core.conclusion import Conclusion, conclusion_of, entity_text
from pipeline.core.order import canonical, order
from pipeline.core.placement import PlacementMap
from schemas.records import Entity

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
# A rule this strong rests on a record of the fault itself; it stands alone where it explains nothing of the failure.
STANDS_ALONE: Final = 0.8
# Faults of which each entity has a record of its own: all that show one are at fault.
_RECORDED: Final = ("gpu", "nic", "node")


def with_rivals(linked: list[Chain], placement: PlacementMap) -> tuple[Conclusion, list[Chain]]:
    """The best chain, and those that stand beside it. Equals of the same rule that the clocks cannot order share it."""
    best, rest = linked[0], linked[1:]
    equals = _equals(best, rest)
    others = [c for c in rest if not any(c is equal for equal in equals)]
    main = _shared(best, equals, placement)
    return msgspec.structs.replace(main, alternatives=[conclusion_of(c, placement) for c in others][:3]), others


def each(chains: list[Chain], placement: PlacementMap) -> list[Conclusion]:
    """Where nothing failed: a conclusion for each fault; what several ranks say alike at one time is one."""
    found, rest = [], chains
    while rest:
        best, rest = rest[0], rest[1:]
        equals = _equals(best, rest)
        if best.rule.scope in _RECORDED:
            equals = [c for c in equals if Entity() in (best.subject, c.subject)]
        # What names nobody is of those that the same rule names, whenever it was printed.
        equals += [c for c in rest if c.rule is best.rule and c.subject == Entity() and not any(c is e for e in equals)]
        rest = [c for c in rest if not any(c is equal for equal in equals)]
        found.append(_shared(best, equals, placement))
    return found


def _equals(best: Chain, rest: list[Chain]) -> list[Chain]:
    first = best.root_item.episode.first
    return [c for c in rest if c.rule is best.rule and order(first, c.root_item.episode.first) == "concurrent"]


def _shared(best: Chain, equals: list[Chain], placement: PlacementMap) -> Conclusion:
    """The conclusion of a chain and of those that cannot be told from it."""
    main = conclusion_of(best, placement)
    if not equals:
        return main
    # A line that names nobody is of those that others name.
    named = [entity for entity in (best.subject, *(c.subject for c in equals)) if entity != Entity()]
    culprits = _one_card(named)
    main = msgspec.structs.replace(main, why_unknown=None if culprits else main.why_unknown)
    together = _together(main, culprits, equals)
    if best.rule.scope in _RECORDED or len(culprits) == 1:
        return together
    if len(culprits) == 2:
        return msgspec.structs.replace(together, rivals=2)
    nodes = {entity.node for entity in culprits}
    if len(nodes) == 1 and None not in nodes:
        # Several ranks of one node at once: it is the node that they share.
        node = Entity(node=culprits[0].node, machine_id=culprits[0].machine_id)
        return msgspec.structs.replace(together, culprits=[node])
    why = f"{len(culprits)} ranks show the same failure and the clocks cannot say which came first"
    return msgspec.structs.replace(main, culprits=[], rivals=2, why_unknown=why)


def _one_card(culprits: list[Entity]) -> list[Entity]:
    """A network card that the kernel calls by its bus address and others by its name is one."""
    if len(culprits) != 2 or culprits[0].node != culprits[1].node:
        return culprits
    addresses = [c.nic for c in culprits if c.nic is not None and _ADDRESS.fullmatch(c.nic)]
    named = [c for c in culprits if c.nic is not None and not _ADDRESS.fullmatch(c.nic)]
    if len(addresses) == 1 and len(named) == 1:
        return [msgspec.structs.replace(named[0], pci_bus_id=addresses[0])]
    return culprits


def _together(main: Conclusion, culprits: list[Entity], equals: list[Chain]) -> Conclusion:
    steps = list(main.steps)
    present = {id(one.item): number for number, one in enumerate(steps)}
    for chain in equals:
        number = present.get(id(chain.root_item))
        if number is None:
            steps.append(step(chain.root_item, "root", None, "", steps))
        elif len(culprits) > 1:
            steps[number] = Step(item=chain.root_item, role="root")
    return msgspec.structs.replace(main, culprits=culprits, steps=steps)


def alone(chains: list[Chain], placement: PlacementMap, blamed: list[Entity]) -> list[Conclusion]:
    """Faults that stand on their own beside the main conclusion, one per entity that is not blamed already."""
    known = {entity_text(entity) for entity in blamed}
    strong = [c for c in chains if c.strength >= STANDS_ALONE and entity_text(c.subject) not in known]
    strong.sort(key=lambda c: canonical(c.root_item.episode.first))
    return [msgspec.structs.replace(conclusion_of(c, placement), main=False) for c in one_per_entity(strong)]


def one_per_entity(chains: list[Chain]) -> list[Chain]:
    best: dict[str, Chain] = {}
    for chain in chains:
        name = entity_text(chain.subject)
        if name not in best or chain.weight > best[name].weight:
            best[name] = chain
    return list(best.values())
