"""What several chains tell of one fault is one incident."""

import msgspec
import pytest

from pipeline.core.chains import Chain, Known, Resolved, chains_of
from pipeline.core.conclusion import Conclusion
from pipeline.core.episodes import of_events
from pipeline.core.facts import Facts
from pipeline.core.one_fault import ONE_MOMENT_S, SHARED, each, with_rivals
from pipeline.core.placement import PlacementMap
from pipeline.rules import load_rules
from schemas.records import Entity, Event
from tests.strategies import SECOND, T0, event, placed, waited

RULES = load_rules()
NOWHERE = PlacementMap(Facts())


def _chains(class_: str, *events: Event) -> list[Chain]:
    items = [Resolved(episode=one, subject=one.subject) for one in of_events(events, RULES.coalescing)]
    return [chain for chain in chains_of(items, RULES, Known()) if chain.rule.class_ == class_]


def _raised(rank: int, at_s: int, kind: str = "KeyError") -> Event:
    return event("python.exception", node="beta", source=f"rank{rank}", rank=rank, role="cause",
                 attributes={"type": kind}, at_ns=T0 + at_s * SECOND)  # fmt: skip


def _said(*events: Event) -> list[list[Entity]]:
    return [one.culprits for one in each(_chains("software/python_exception", *events), NOWHERE)]


def test_the_first_rank_that_shows_a_failure_tells_of_those_that_soon_show_it_too() -> None:
    assert len(_said(_raised(1, 0), _raised(2, 30))) == 1
    assert len(_said(_raised(1, 0), _raised(2, 30, "OSError"))) == 2
    assert len(_said(_raised(1, 0), _raised(2, 4_000))) == 2


def _ecc(bus: str | None, uuid: str | None, source: str, at_s: int = 0) -> Chain:
    told = event("cuda.error", node="beta", source=source, bus=bus, role="cause", at_ns=T0 + at_s * SECOND,
                 attributes={"error": "uncorrectable ECC error encountered"})  # fmt: skip
    (chain,) = _chains("hardware/gpu_ecc_uncorrectable", told)
    return msgspec.structs.replace(chain, subject=Entity(node="beta", pci_bus_id=bus, gpu_uuid=uuid))


def test_two_names_of_a_gpu_that_no_line_tells_apart_are_one_and_two_addresses_are_not() -> None:
    by_address, by_uuid = _ecc("0000:04:00.0", None, "rank2"), _ecc(None, "GPU-11", "plugin", 20)
    other = _ecc("0000:84:00.0", None, "rank3", 20)
    main, beside = with_rivals([by_address], [by_uuid], NOWHERE)
    assert (main.culprits, beside) == ([by_address.subject], [])
    assert [one.item for one in main.steps] == [by_address.root_item, by_uuid.root_item]
    assert with_rivals([by_address], [other], NOWHERE)[1] == [other]


def _evicted(node: str | None, at: int, resource: str = "") -> Event:
    made = event("pod.evicted", node=node or "", source="describe", offset=at, at_ns=None, role="cause",
                 attributes={"resource": resource} if resource else {})  # fmt: skip
    subject = Entity(node=node)
    return msgspec.structs.replace(made, label="resource/eviction", subject=subject)


def test_a_line_without_a_name_is_of_the_one_node_that_others_name() -> None:
    message = _evicted(None, 9, "memory")
    named = each(_chains("infra/pod_evicted", _evicted("beta", 5), message), NOWHERE)
    assert [one.culprits for one in named] == [[Entity(node="beta")]]
    assert named[0].why_unknown is None
    two = each(_chains("infra/pod_evicted", _evicted("beta", 5), _evicted("gamma", 7), message), NOWHERE)
    assert [one.culprits for one in two] == [[Entity(node="beta")], [Entity(node="gamma")]]


def _down(node: str, at_s: float, nic: str = "ib0", bus: str | None = None) -> Event:
    at_ns = T0 + round(at_s * SECOND)
    return event("nic.link.down", node=node, source=f"kern {nic}", nic=nic, role="cause", at_ns=at_ns,
                 attributes={"pci_bus_id": bus} if bus else {})  # fmt: skip


def _failed(*events: Event, nodes: str = "abcd") -> Conclusion:
    facts = Facts()
    for rank, node in enumerate(nodes):
        facts.learn(placed(rank, node, world=len(nodes)))
    linked = _chains("network/ib_link_flap", *events, waited(0, nodes[0], at_ns=T0 + 600 * SECOND))
    main, beside = with_rivals(linked, [], PlacementMap(facts))
    assert [c for c in beside if c.rule is linked[0].rule] == [] or len(main.culprits) == 1
    return main


@pytest.mark.parametrize(
    ("nodes", "apart_s", "is_shared"),
    [("abcd", 0.3, True), ("abc", 0.3, True), ("ab", 0.3, False), ("abcd", ONE_MOMENT_S + 1, False)],
)
def test_ports_of_most_nodes_that_fail_in_one_moment_hang_on_what_they_share(
    nodes: str, apart_s: float, is_shared: bool
) -> None:
    main = _failed(*(_down(node, at * apart_s) for at, node in enumerate(nodes)), nodes="abcd")
    assert (main.culprits == [], SHARED in (main.why_unknown or "")) == (is_shared, is_shared)
    assert sum(step.role == "root" for step in main.steps) == max(1, len(main.culprits))
    assert sum(step.item.episode.name == "nic.link.down" for step in main.steps) == (len(nodes) if is_shared else 1)


def test_few_of_many_nodes_are_at_fault_themselves() -> None:
    main = _failed(*(_down(node, 0) for node in "abc"), nodes="abcdefgh")
    assert [culprit.node for culprit in main.culprits] == ["a", "b", "c"]


@pytest.mark.parametrize("bus", ["0000:41:00.0", None])
def test_a_card_that_two_lines_call_by_other_names_stands_once(bus: str | None) -> None:
    lines = [_down(node, 0, "0000:41:00.0") for node in "ab"]
    lines += [_down(node, 0, "ib0", bus) for node in "ab"]
    lines += [_down("a", 0, "ib1", "0000:81:00.0")] if bus else []
    found = _failed(*lines).culprits
    cards = [("a", "ib0", "0000:41:00.0"), *([("a", "ib1", None)] if bus else []), ("b", "ib0", "0000:41:00.0")]
    assert sorted((c.node, c.nic, c.pci_bus_id) for c in found) == cards
