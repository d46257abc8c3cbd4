"""What happens while a node starts, is drained or in maintenance is context."""

import msgspec
import pytest

from pipeline.core import derived
from pipeline.core.chains import Resolved
from pipeline.core.derived import derive
from pipeline.core.derived.spans import BOOT_S, DRIVER_S
from pipeline.core.episodes import of_events
from pipeline.core.placement import Facts, PlacementMap
from pipeline.rules import load_rules
from schemas import signals
from schemas.records import Event
from tests.strategies import SECOND, T0, event, placed, waited

COALESCING = load_rules().coalescing
EVENTS = {signal.event for signal in signals.load().signals} | derived.EVENTS


def _host(name: str, at_s: int, label: str, *, role: str = "cause", node: str = "beta", nic: str | None = None,
          **attributes: str) -> Event:  # fmt: skip
    assert name in EVENTS
    made = event(name, node=node, source="kern", offset=5_000 + at_s, nic=nic, at_ns=T0 + at_s * SECOND, role=role,
                 attributes=attributes)  # fmt: skip
    return msgspec.structs.replace(made, label=label, source_kind="kernel")


def _link(at_s: int, nic: str = "ib0") -> Event:
    return _host("nic.link.down", at_s, "network/ib_link", nic=nic)


def _names(*events: Event, ranks_on: tuple[str, ...] = ()) -> list[str]:
    facts = Facts()
    for rank, node in enumerate(ranks_on):
        facts.learn(placed(rank, node, world=len(ranks_on)))
    # Somebody misses the port.
    stalled = waited(0, "alpha", at_ns=T0 + 700 * SECOND)
    items = [Resolved(episode=e, subject=e.subject) for e in of_events([*events, stalled], COALESCING)]
    return [item.episode.name for item in derive(items, [], PlacementMap(facts), None) if "down" in item.episode.name
            or "xid" in item.episode.name]  # fmt: skip


BOOT = _host("host.boot", 0, "context/lifecycle", role="context")


@pytest.mark.parametrize(
    ("at_s", "name"),
    [(5, "nic.link.down.in_boot"), (BOOT_S + 1, "nic.link.down"), (-5, "nic.link.down")],
)
def test_links_that_come_up_with_the_node_are_no_fault(at_s: int, name: str) -> None:
    assert _names(BOOT, _link(at_s)) == [name]


@pytest.mark.parametrize("nic", ["ib0", "ens1f0np0", "bond0"])
def test_what_runs_on_a_port_does_not_make_it_a_fault_again(nic: str) -> None:
    assert _names(BOOT, _link(5, nic)) == ["nic.link.down.in_boot"]


def test_another_node_that_starts_explains_nothing_here() -> None:
    assert _names(_host("host.boot", 0, "context/lifecycle", role="context", node="alpha"), _link(5)) == [
        "nic.link.down"
    ]


def test_what_goes_on_after_the_start_is_a_fault() -> None:
    assert _names(BOOT, *(_link(at_s) for at_s in range(5, BOOT_S + 60, 20))) == ["nic.link.down"]


def test_nvlinks_train_while_the_driver_starts_but_a_gpu_that_is_lost_then_is_lost() -> None:
    loaded = _host("gpu.driver_loaded", 0, "context/lifecycle", role="context")
    assert _names(loaded, _host("gpu.nvlink_down", 3, "hardware/nvlink")) == ["gpu.nvlink_down.in_driver_start"]
    assert _names(loaded, _host("gpu.nvlink_down", DRIVER_S + 3, "hardware/nvlink")) == ["gpu.nvlink_down"]
    assert _names(loaded, _host("gpu.xid", 3, "hardware/gpu_fell_off_bus", xid="79")) == ["gpu.xid"]


def test_a_link_that_fails_for_good_while_the_node_starts_has_failed() -> None:
    fatal = msgspec.structs.replace(_link(5), severity="fatal")
    assert _names(BOOT, fatal) == ["nic.link.down"]


def test_a_drained_node_is_worked_on_until_it_is_back() -> None:
    drained = _host("slurm.drained", 0, "context/lifecycle", role="context", reason="riser swap")
    back = _host("slurm.node_back", 100, "context/lifecycle", role="context")
    assert _names(drained, back, _link(50)) == ["nic.link.down.in_drain"]
    assert _names(drained, back, _link(150)) == ["nic.link.down"]
    assert _names(drained, back, _link(50), ranks_on=("beta",)) == ["nic.link.down"]


@pytest.mark.parametrize(
    ("end", "name"),
    [("2026-03-04T05:07:00Z", "nic.link.down.in_maintenance"), (None, "nic.link.down.in_maintenance"),
     ("2026-03-04T05:06:08Z", "nic.link.down")],
)  # fmt: skip
def test_declared_maintenance_lasts_from_start_to_end(end: str | None, name: str) -> None:
    said = {"kind": "maintenance", "start": "2026-03-04T05:00:00Z", **({"end": end} if end else {})}
    declared = _host("span.declared", 900, "context/lifecycle", role="context", **said)
    assert _names(declared, _link(5)) == [name]
