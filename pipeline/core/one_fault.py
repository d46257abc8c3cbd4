"""Which chains tell of one fault: those that the clocks cannot order, and those of one entity."""

import re
from typing import Final

import msgspec

from pipeline.core.causes import ActionText
from pipeline.core.chains import SECOND_NS, Chain, Step, is_near, kind_of, step
from pipeline.core.conclusion import NOBODY_NAMED, REPEATED, Conclusion, conclusion_of, entity_text
from pipeline.core.groups import differ
from pipeline.core.order import canonical, lag_ns, order
from pipeline.core.placement import PlacementMap
from schemas.records import Entity

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
# A rule this strong rests on a record of the fault itself; it stands alone where it explains nothing of the failure.
STANDS_ALONE: Final = 0.8
# Faults of which each entity has a record of its own: all that show one are at fault.
_RECORDED: Final = ("gpu", "nic", "node")
# Ports that hang on one switch or subnet manager go down within so much of each other.
ONE_MOMENT_S: Final = 5
# Fewer nodes may fail together by chance, or by one cable between two.
MIN_NODES: Final = 3
SHARED: Final = "the switch or the subnet manager that they share"
# What two descriptions of one place cannot differ in. Pids may: the kernel and a container count apart.
_PLACES: Final = tuple(name for name in Entity.__struct_fields__ if name not in ("pid", "process_group", "link"))


def with_rivals(linked: list[Chain], loose: list[Chain], placement: PlacementMap) -> tuple[Conclusion, list[Chain]]:
    """The best of the chains that explain a failure, and all that stand beside it. Equals of the same rule that the
    clocks cannot order share it.
    """
    best, rest = linked[0], linked[1:]
    at_once = _at_once(best, [*rest, *loose], placement)
    equals = at_once or _equals(best, rest)
    same = [c for c in _without([*rest, *loose], at_once) if _is_same_place(best, c)]
    rivals = _without(rest, [*equals, *same])
    main = _of_all(best, at_once, placement) if at_once else _shared(best, equals, placement)
    main = _with_lines(main, same)
    main = msgspec.structs.replace(main, alternatives=[conclusion_of(c, placement) for c in rivals][:3])
    return main, [*rivals, *_without(loose, [*at_once, *same])]


def each(chains: list[Chain], placement: PlacementMap) -> list[Conclusion]:
    """Where nothing failed: a conclusion for each fault; what several ranks say alike, at one time or one soon after
    the other, is one.
    """
    found, rest = [], chains
    while rest:
        best = _named(rest)
        rest = _without(rest, [best])
        at_once = _at_once(best, rest, placement)
        if at_once:
            rest = _without(rest, at_once)
            found.append(_of_all(best, at_once, placement))
            continue
        equals = _equals(best, rest)
        if best.rule.scope in _RECORDED:
            equals = [c for c in equals if Entity() in (best.subject, c.subject)]
        equals += [c for c in _without(rest, equals) if _is_said_again(best, c) and _is_same_stamp(best, c)]
        # What names nobody is of those that the same rule names, whenever it was printed.
        equals += [c for c in rest if c.rule is best.rule and c.subject == Entity() and not any(c is e for e in equals)]
        same = [c for c in _without(rest, equals) if _is_same_place(best, c) or _is_said_again(best, c)]
        rest = _without(rest, [*equals, *same])
        found.append(_with_lines(_shared(best, equals, placement), same))
    return found


def _named(chains: list[Chain]) -> Chain:
    """The best chain; where it names nobody, the next that tells of the same device or node and names it."""
    best = chains[0]
    if best.subject != Entity():
        return best
    return next((c for c in chains[1:] if c.subject != Entity() and _is_same_place(best, c)), best)


def _without(chains: list[Chain], others: list[Chain]) -> list[Chain]:
    return [chain for chain in chains if not any(chain is other for other in others)]


def _is_same_place(best: Chain, other: Chain) -> bool:
    """Whether two chains of one rule tell of one device or node: nothing that both name differs, and they are near."""
    if best.rule is not other.rule or best.rule.scope not in _RECORDED or not is_near(best.root_item, other.root_item):
        return False
    return not any(differ(getattr(best.subject, name), getattr(other.subject, name)) for name in _PLACES)


def _is_said_again(best: Chain, other: Chain) -> bool:
    """Whether another rank soon shows the same failure: the first one that did tells of it."""
    is_same = best.rule is other.rule and best.rule.scope not in _RECORDED and is_near(best.root_item, other.root_item)
    return is_same and kind_of(best.root_item) == kind_of(other.root_item)


def _is_same_stamp(best: Chain, other: Chain) -> bool:
    """Whether the stamps of two lines do not tell which came first: in a log that several ranks write to, the order of
    its lines says little.
    """
    lag = lag_ns(best.root_item.episode.first, other.root_item.episode.first)
    return lag is not None and lag[0] <= 0 <= lag[1]


def _with_lines(main: Conclusion, chains: list[Chain]) -> Conclusion:
    """A conclusion with the roots of other chains that tell of the same fault; it names whom one of them names, where
    it names nobody itself.
    """
    steps = list(main.steps)
    named = {entity_text(c.subject): c.subject for c in chains if c.subject != Entity()}
    if main.why_unknown == NOBODY_NAMED and len(named) == 1:
        main = msgspec.structs.replace(main, culprits=list(named.values()), why_unknown=None)
    for chain in chains:
        if not any(one.item is chain.root_item for one in steps):
            steps.append(step(chain.root_item, "cascade", main.root, REPEATED, steps))
    return msgspec.structs.replace(main, steps=steps)


def _equals(best: Chain, rest: list[Chain]) -> list[Chain]:
    first = best.root_item.episode.first
    return [c for c in rest if c.rule is best.rule and order(first, c.root_item.episode.first) == "concurrent"]


def _at_once(best: Chain, others: list[Chain], placement: PlacementMap) -> list[Chain]:
    """The other chains of ports that failed in the same moment on most nodes of the job: it is none of the nodes."""
    if best.rule.scope != "nic":
        return []
    same = [c for c in others if c.rule is best.rule and _is_one_moment(best, c)]
    nodes = {c.subject.node for c in (best, *same) if c.subject.node is not None}
    return same if len(nodes) >= max(MIN_NODES, len(placement.nodes()) // 2 + 1) else []


def _is_one_moment(best: Chain, other: Chain) -> bool:
    first, second = best.root_item.episode.first, other.root_item.episode.first
    lag = lag_ns(first, second)
    if lag is None:
        return order(first, second) == "concurrent"
    return lag[0] <= ONE_MOMENT_S * SECOND_NS and lag[1] >= -ONE_MOMENT_S * SECOND_NS


def _of_all(best: Chain, at_once: list[Chain], placement: PlacementMap) -> Conclusion:
    """The conclusion where the ports of most nodes failed in one moment: no node is named."""
    count = len({c.subject.node for c in (best, *at_once) if c.subject.node is not None})
    main = conclusion_of(best, placement)
    rule = msgspec.structs.replace(
        best.told, explanation=f"ports of {count} nodes went down in the same moment",
        consequence="sends ran out of retries and the job stopped",
        action=ActionText(kind="check_network", target=SHARED, why="look at it before any of the nodes is taken out"),
    )  # fmt: skip
    why = f"{count} nodes lost their ports in the same moment: it is {SHARED}, and no line says which"
    return _together(msgspec.structs.replace(main, rule=rule, why_unknown=why), [], at_once)


def _shared(best: Chain, equals: list[Chain], placement: PlacementMap) -> Conclusion:
    """The conclusion of a chain and of those that cannot be told from it."""
    main = conclusion_of(best, placement)
    if not equals:
        return main
    # A line that names nobody is of those that others name.
    culprits = _cards([c for c in (best, *equals) if c.subject != Entity()])
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


def _cards(chains: list[Chain]) -> list[Entity]:
    """Who the chains blame. A network card that the kernel calls by its bus address and others by its name is one: a
    line gives both, or there is but one of each on the node.
    """
    addresses = [c for c in chains if c.subject.nic is not None and _ADDRESS.fullmatch(c.subject.nic)]
    names = [c for c in chains if c.subject.nic is not None and not any(c is one for one in addresses)]
    buses: dict[int, str] = {}
    for one in names:
        mine = [c.subject.nic for c in addresses if c.subject.node == one.subject.node]
        is_only = len(mine) == 1 and sum(c.subject.node == one.subject.node for c in names) == 1
        said = one.root_item.episode.attributes.get("pci_bus_id")
        buses.update((id(one), bus) for bus in mine if bus is not None and (is_only or bus == said))
    known = {(c.subject.node, buses[id(c)]) for c in names if id(c) in buses}
    return [
        msgspec.structs.replace(c.subject, pci_bus_id=buses[id(c)]) if id(c) in buses else c.subject
        for c in chains if (c.subject.node, c.subject.nic) not in known
    ]  # fmt: skip


def _together(main: Conclusion, culprits: list[Entity], equals: list[Chain]) -> Conclusion:
    """A conclusion with the roots of its equals: of several culprits each has one, other lines tell of the same."""
    steps = list(main.steps)
    present = {id(one.item): number for number, one in enumerate(steps)}
    for chain in equals:
        number = present.get(id(chain.root_item))
        is_root = len(culprits) > 1 and chain.subject != Entity()
        if number is None:
            same = step(chain.root_item, "cascade", main.root, REPEATED, steps)
            steps.append(Step(item=chain.root_item, role="root") if is_root else same)
        elif is_root:
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
