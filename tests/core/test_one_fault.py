"""What several chains tell of one fault is one incident."""

import msgspec

from pipeline.core.chains import Chain, Known, Resolved, chains_of
from pipeline.core.episodes import of_events
from pipeline.core.facts import Facts
from pipeline.core.one_fault import each, with_rivals
from pipeline.core.placement import PlacementMap
from pipeline.rules import load_rules
from schemas.records import Entity, Event
from tests.strategies import SECOND, T0, event

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
