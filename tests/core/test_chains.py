"""From roots to chains: which steps the clocks and the rules allow, and how many roots are looked at."""

from typing import Any

import msgspec
import pytest

from pipeline.core.chains import MAX_ROOTS, Chain, Known, Resolved, chains_of, link_of, may_precede
from pipeline.core.episodes import of_events
from pipeline.rules import load_rules
from schemas.records import Entity, Event, Printer
from tests.strategies import SECOND, T0, event, lost_gpu, waited

RULES = load_rules()
BUS = "0000:5e:00.0"


def _items(*events: Event) -> list[Resolved]:
    return [Resolved(episode=e, subject=link_of(e.subject, e.attributes)) for e in of_events(events, RULES.coalescing)]


def _chains(class_: str, *events: Event) -> list[Chain]:
    return [chain for chain in chains_of(_items(*events), RULES) if chain.rule.class_ == class_]


def _names(chain: Chain) -> list[str]:
    return [step.item.episode.name for step in chain.steps]


# --- lag ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lag_s", "bound_s", "may"),
    [(0, 0, True), (60, 0, True), (61, 0, False), (70, 5, True), (71, 5, False), (-1, 0, False), (-1, 1, True)],
)
def test_a_cause_precedes_its_effect_within_the_lag_of_the_link_as_far_as_the_clocks_say(
    lag_s: int, bound_s: int, may: bool
) -> None:
    cause = event("a", at_ns=T0, bound_ns=bound_s * SECOND)
    effect = event("b", node="beta", at_ns=T0 + lag_s * SECOND, bound_ns=bound_s * SECOND)
    first, second = (_items(one)[0] for one in (cause, effect))
    assert may_precede(first, second, 60) is may


def test_a_cause_without_a_time_may_precede_anything() -> None:
    first, second = (_items(one)[0] for one in (event("a", at_ns=None), event("b", node="beta", at_ns=T0)))
    assert may_precede(first, second, 1)


@pytest.mark.parametrize(("lead_s", "told"), [(599, True), (601, False), (86_400, False)])
def test_what_came_long_before_the_root_is_not_its_cause(lead_s: int, told: bool) -> None:
    error = event("pcie.aer", node="beta", source="kern", offset=1, bus=BUS, at_ns=T0 - lead_s * SECOND, role="cause",
                  attributes={"severity": "fatal"})  # fmt: skip
    (chain,) = _chains("hardware/gpu_xid_79", error, lost_gpu("beta"))
    assert ("pcie.aer" in _names(chain)) is told
    assert chain.steps[chain.root].item.episode.name == "gpu.xid"


@pytest.mark.parametrize(("lag_s", "told"), [(7_199, True), (7_201, False)])
def test_what_came_long_after_the_root_is_not_its_effect(lag_s: int, told: bool) -> None:
    (chain,) = _chains("hardware/gpu_xid_79", lost_gpu("beta"), waited(0, "beta", at_ns=T0 + lag_s * SECOND))
    assert ("nccl.watchdog.timeout" in _names(chain)) is told
    assert chain.effects == int(told)


# --- roots --------------------------------------------------------------------------------------------------------


def _raised(rank: int, kind: str, *, at_s: int = 0) -> Event:
    return event("python.exception", node=f"n{rank:04d}", source=f"rank{rank}", rank=rank, attributes={"type": kind},
                 role="cause", at_ns=T0 + at_s * SECOND)  # fmt: skip


def test_of_a_crowd_of_roots_the_rarest_kind_is_looked_at() -> None:
    crowd = [_raised(rank, "RuntimeError") for rank in range(200)]
    # The odd one is neither the first nor the last, by time or by name.
    chains = _chains("software/python_exception", *crowd, _raised(300, "KeyError"), _raised(400, "RuntimeError"))
    assert MAX_ROOTS == 16
    # needs_effect is asked later; here every root gives a chain.
    assert len(chains) == MAX_ROOTS
    assert [chain.subject.rank for chain in chains if chain.root_item.episode.attributes["type"] == "KeyError"] == [300]


def test_up_to_the_limit_every_root_is_looked_at() -> None:
    chains = _chains("software/python_exception", *(_raised(rank, "RuntimeError") for rank in range(MAX_ROOTS)))
    assert [chain.subject.rank for chain in chains] == list(range(MAX_ROOTS))


def test_root_lines_of_one_entity_that_lie_hours_apart_are_not_one_fault() -> None:
    near = event("gpu.fell_off_bus", node="beta", source="kern", offset=80, bus=BUS, at_ns=T0 + SECOND, role="cause")
    (chain,) = _chains("hardware/gpu_xid_79", lost_gpu("beta"), near)
    assert _names(chain) == ["gpu.xid", "gpu.fell_off_bus"]
    far = event("gpu.fell_off_bus", node="beta", source="kern", offset=80, bus=BUS, at_ns=T0 + 9_000 * SECOND)
    first, second = _chains("hardware/gpu_xid_79", lost_gpu("beta"), far)
    assert (_names(first), _names(second)) == (["gpu.xid"], ["gpu.fell_off_bus"])


# --- connections --------------------------------------------------------------------------------------------------


def _no_answer(node: str, peer: str, **more: str) -> Event:
    return event("nccl.ib.completion", node=node, role="intermediate", attributes={"status": "12", "peer": peer} | more)


def test_both_ends_of_a_connection_are_named_and_none_alone() -> None:
    (chain,) = _chains("network/ib_retry_exceeded", _no_answer("beta", "10.9.0.1"))
    assert chain.subject == Entity(link="10.9.0.1 <-> beta")


def test_two_witnesses_of_one_connection_are_one_connection() -> None:
    one = _no_answer("beta", "10.9.7.1", local_gid="::ffff:10.9.0.2", remote_gid="::ffff:10.9.0.1")
    other = _no_answer("alpha", "10.9.7.2", local_gid="::ffff:10.9.0.1", remote_gid="::ffff:10.9.0.2")
    (chain,) = _chains("network/roce_retry_exceeded", one, other)
    assert chain.subject == Entity(link="10.9.0.1 <-> 10.9.0.2")


def test_the_end_that_all_failed_connections_share_is_named() -> None:
    seen = [_no_answer(node, "10.9.0.1") for node in ("beta", "gamma", "delta")]
    (chain,) = _chains("network/ib_retry_exceeded", *seen)
    assert chain.subject == Entity(link="10.9.0.1")
    told = [_no_answer("beta", peer) for peer in ("10.9.0.1", "10.9.0.3")]
    (chain,) = _chains("network/ib_retry_exceeded", *told)
    assert chain.subject == Entity(node="beta")


def test_connections_over_several_ports_of_the_same_two_machines_name_the_machines() -> None:
    def over(port: int, peer: str) -> Event:
        return _no_answer("beta", peer, local_gid=f"fd00::{port}", remote_gid=f"fd01::{port}")

    (chain,) = _chains("network/roce_retry_exceeded", over(1, "10.9.0.1"), over(2, "10.9.0.1"))
    assert chain.subject == Entity(link="10.9.0.1 <-> beta")
    (chain,) = _chains("network/roce_retry_exceeded", over(1, "10.9.0.1"), over(2, "10.9.0.3"))
    assert chain.subject == Entity()


def test_connections_without_a_common_end_name_nobody() -> None:
    seen = [_no_answer("beta", "10.9.0.1"), _no_answer("gamma", "10.9.0.3")]
    (chain,) = _chains("network/ib_retry_exceeded", *seen)
    assert chain.subject == Entity()


@pytest.mark.parametrize(("apart_s", "node"), [(5, "beta"), (0, None)])
def test_of_ethernet_ports_the_first_that_went_down_is_named_where_the_clocks_say_which(
    apart_s: int, node: str | None
) -> None:
    downs = [
        msgspec.structs.replace(
            event("nic.link.down", node=name, source=f"kern {name}", nic="ens6np0", role="cause", bound_ns=SECOND,
                  at_ns=T0 + at * apart_s * SECOND, attributes={"layer": "ethernet"}),
            source_kind="kernel",
        ) for at, name in enumerate(("beta", "gamma"))
    ]  # fmt: skip
    (chain,) = _chains("network/roce_retry_exceeded", *downs)
    assert chain.subject.node == node


def test_second_hand_evidence_is_less_sure() -> None:
    said = event("cuda.error", node="beta", role="intermediate",
                 attributes={"error": "uncorrectable ECC error encountered"})  # fmt: skip
    (by_cuda,) = _chains("hardware/gpu_ecc_uncorrectable", said)
    xid = event("gpu.xid", node="beta", bus=BUS, role="cause", attributes={"xid": "48"})
    (by_driver,) = _chains("hardware/gpu_ecc_uncorrectable", xid)
    assert by_cuda.confidence < by_driver.confidence == by_driver.rule.confidence


def test_a_root_that_proves_less_than_its_rule_makes_a_weaker_chain() -> None:
    bus = event("gpu.xid", node="beta", bus=BUS, role="cause", attributes={"xid": "31"})
    said = event("cuda.error", node="beta", attributes={"error": "an illegal memory access was encountered"})
    (by_driver,) = _chains("software/illegal_memory_access", bus)
    (by_cuda,) = _chains("software/illegal_memory_access", said)
    assert by_cuda.strength < by_driver.strength == by_driver.rule.strength


def test_a_line_that_is_nothing_alone_counts_beside_one_that_is_something() -> None:
    record = event("gpu.xid", node="beta", bus=BUS, role="cause", attributes={"xid": "64"})
    stopped = event("gpu.xid", node="beta", bus=BUS, offset=80, attributes={"xid": "45", "previous_xid": "64"})
    (alone,) = _chains("hardware/gpu_row_remap_failure", record)
    (both,) = _chains("hardware/gpu_row_remap_failure", record, stopped)
    assert (alone.effects, alone.is_whole) == (0, False)
    assert (both.effects, both.is_whole) == (0, True)


def test_what_lies_hours_away_makes_no_line_something() -> None:
    record = event("gpu.xid", node="beta", bus=BUS, role="cause", attributes={"xid": "64"})
    far = event("gpu.xid", node="beta", bus=BUS, offset=80, at_ns=T0 + 9_000 * SECOND,
                attributes={"xid": "45", "previous_xid": "64"})  # fmt: skip
    first, _ = _chains("hardware/gpu_row_remap_failure", record, far)
    assert not first.is_whole


def test_gpus_without_an_address_are_told_apart_by_their_ranks() -> None:
    def seen(*ranks: int) -> int:
        error = {"error": "uncorrectable ECC error encountered"}
        events = [event("cuda.error", node="beta", rank=rank, offset=rank, attributes=error) for rank in ranks]
        return len(_chains("hardware/gpu_ecc_uncorrectable", *events))

    assert (seen(1), seen(1, 2)) == (1, 2)


def test_a_node_that_goes_off_concerns_the_ranks_that_run_there() -> None:
    lost = event("bmc.power", node="beta", role="cause", attributes={"what": "AC lost", "way": "asserted"})
    items = _items(lost, waited(0, "alpha"))
    for nodes, effects in ((("alpha", "beta"), 1), (("alpha",), 0)):
        chains = chains_of(items, RULES, Known(placed=True, nodes=nodes))
        (chain,) = [c for c in chains if c.rule.class_ == "hardware/psu"]
        assert chain.effects == effects


def test_a_slow_gpu_may_be_a_ranks_where_nobody_says_whose_it_is() -> None:
    hot = event("gpu.clocks_reduced", node="beta", bus=BUS, role="cause", attributes={"reason": "hw thermal slowdown"})
    items = _items(hot, waited(0, "alpha"))
    for blind, effects in ((("beta",), 1), (("alpha",), 0), ((), 0)):
        chains = chains_of(items, RULES, Known(placed=True, nodes=("alpha", "beta"), blind=blind))
        (chain,) = [c for c in chains if c.rule.class_ == "hardware/thermal"]
        assert chain.effects == effects


# --- whom a rule blames -------------------------------------------------------------------------------------------


def _printed(one: Event, **by: Any) -> Event:
    return msgspec.structs.replace(one, printer=Printer(**by))


def _blamed(class_: str, *events: Event, heard: bool) -> Entity:
    chains = chains_of(_items(*events), RULES, Known(heard=heard))
    (chain,) = [chain for chain in chains if chain.rule.class_ == class_]
    return chain.subject


def _stopped(node: str) -> Event:
    one = event("elastic.signal", node=node, source=f"agent-{node}", role="cause", attributes={"signal": "15"})
    return _printed(one, node=node)


def test_whoever_prints_what_ended_the_job_is_named_only_where_the_others_were_read_and_do_not_print_it() -> None:
    class_ = "external/supervisor_sigterm"
    assert _blamed(class_, _stopped("alpha"), heard=True) == Entity(node="alpha")
    assert _blamed(class_, _stopped("alpha"), heard=False) == Entity()
    assert _blamed(class_, _stopped("alpha"), _stopped("beta"), heard=True) == Entity()
    # A pod has the name that its lines bear.
    in_pod = _printed(_stopped("pod-0"), pod="pod-0")
    assert _blamed(class_, in_pod, heard=False) == Entity()
    assert _blamed(class_, in_pod, heard=True) == Entity(node="pod-0")


def test_a_node_that_somebody_else_names_is_named_whoever_waits_for_it() -> None:
    refused = event("slurm.launch_failed", node="gamma", source="srun", role="cause", attributes={"node": "gamma"})
    waits = event("elastic.rendezvous.failed", source="agent", attributes={"error": "RendezvousTimeoutError"})
    events = (_printed(refused), waits)
    assert _blamed("infra/node_absent", *events, heard=False) == Entity(node="gamma")


def test_a_node_at_fault_is_not_the_process_that_reports_it() -> None:
    down = event("fabric_manager.failed", source="journal", pid=1, role="cause")
    blamed = _blamed("hardware/fabric_manager", _printed(down, node="alpha", pid=1), heard=False)
    assert blamed == Entity(node="alpha")


# --- kernel logs that name no machine -----------------------------------------------------------------------------


def _nameless(xid: str, offset: int, *, source: str = "dmesg", **said: str) -> Event:
    made = event("gpu.xid", source=source, offset=offset, bus=BUS, at_ns=None, attributes={"xid": xid, **said})
    subject = msgspec.structs.replace(made.subject, node=None)
    return msgspec.structs.replace(made, node="", subject=subject, source_kind="kernel")


def test_lines_of_one_kernel_log_are_of_one_machine_though_none_names_it() -> None:
    thrown, hung = _nameless("13", 10, reason="Illegal Instruction Encoding"), _nameless("109", 20)
    (chain,) = _chains("software/illegal_instruction", thrown, hung)
    assert _names(chain) == ["gpu.xid", "gpu.xid"]
    assert chain.subject == Entity(pci_bus_id=BUS), "what stands for the machine is not told"


def test_two_kernel_logs_that_name_no_machine_may_be_of_two() -> None:
    thrown, hung = _nameless("13", 10, reason="Illegal Instruction Encoding"), _nameless("109", 20, source="other")
    (chain,) = _chains("software/illegal_instruction", thrown, hung)
    assert _names(chain) == ["gpu.xid"]
