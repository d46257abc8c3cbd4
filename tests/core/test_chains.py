"""From roots to chains: which steps the clocks and the rules allow, and how many roots are looked at."""

import pytest

from pipeline.core.causes import Link
from pipeline.core.chains import MAX_ROOTS, Chain, Resolved, chains_of, may_precede
from pipeline.core.episodes import of_events
from pipeline.rules import load_rules
from schemas.records import Event
from tests.strategies import SECOND, T0, event, lost_gpu, waited

RULES = load_rules()
BUS = "0000:5e:00.0"


def _items(*events: Event) -> list[Resolved]:
    return [Resolved(episode=e, subject=e.subject) for e in of_events(events, RULES.coalescing)]


def _chains(class_: str, *events: Event) -> list[Chain]:
    return [chain for chain in chains_of(_items(*events), RULES, placed=False) if chain.rule.class_ == class_]


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
    link = Link(event="b", scope="job", why="x", max_lag_s=60)
    cause = event("a", at_ns=T0, bound_ns=bound_s * SECOND)
    effect = event("b", node="beta", at_ns=T0 + lag_s * SECOND, bound_ns=bound_s * SECOND)
    first, second = (_items(one)[0] for one in (cause, effect))
    assert may_precede(first, second, link) is may


def test_a_cause_without_a_time_may_precede_anything() -> None:
    link = Link(event="b", scope="job", why="x", max_lag_s=1)
    first, second = (_items(one)[0] for one in (event("a", at_ns=None), event("b", node="beta", at_ns=T0)))
    assert may_precede(first, second, link)


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
    (chain,) = _chains("hardware/gpu_xid_79", lost_gpu("beta"), far)
    assert _names(chain) == ["gpu.xid"]
