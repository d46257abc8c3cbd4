"""Ranks and nodes beside each other: versions, networks, numbers of GPUs, measures, and failures that come again."""

import random

import pytest

from pipeline.core.beside import MAX_STEPS, context
from pipeline.core.chains import Resolved, Step
from pipeline.core.derived import derive
from pipeline.core.derived.again import RECURS
from pipeline.core.derived.compare import TRANSPORT_DIFFERS, VERSION_DIFFERS
from pipeline.core.derived.missing import GPU_MISSING
from pipeline.core.derived.outliers import LEAST_MIB, OUTLIER
from pipeline.core.episodes import of_events
from pipeline.core.placement import Facts, PlacementMap
from pipeline.rules import load_rules
from schemas.records import Entity, Event
from tests.strategies import SECOND, T0, event

RULES = load_rules()
NOWHERE = PlacementMap(Facts())


def _derived(*events: Event) -> list[Resolved]:
    items = [Resolved(episode=e, subject=e.subject) for e in of_events(events, RULES.coalescing)]
    return derive(items, [], NOWHERE, None)


def _found(name: str, *events: Event) -> list[tuple[Entity, str]]:
    """Who is named, and the numbers."""
    found = [(i.subject, i.episode.attributes["numbers"]) for i in _derived(*events) if i.episode.name == name]
    return sorted(found, key=str)


# --- versions -----------------------------------------------------------------------------------------------------


def _nccl(rank: int, version: str, at_s: int = 0) -> Event:
    return event("nccl.version", source=f"rank{rank}", offset=at_s, rank=rank, role="context",
                 at_ns=T0 + at_s * SECOND, attributes={"version": version})  # fmt: skip


def test_the_rank_with_another_version_is_named_with_the_numbers() -> None:
    ((who, numbers),) = _found(VERSION_DIFFERS, *(_nccl(r, "2.18.3" if r == 2 else "2.21.5") for r in range(5)))
    assert who.rank == 2
    assert numbers == "nccl 2.18.3 on 1, 2.21.5 on 4"


def test_where_half_have_one_and_half_the_other_version_nobody_is_named() -> None:
    ((who, numbers),) = _found(VERSION_DIFFERS, *(_nccl(r, f"2.2{r % 2}.5") for r in range(4)))
    assert who == Entity()
    assert numbers == "nccl 2.21.5 on 2, 2.20.5 on 2"


@pytest.mark.parametrize(
    "events",
    [
        [_nccl(0, "2.21.5"), _nccl(1, "2.21.5")],
        [_nccl(0, "2.21.5")],
        # Only what a rank said last counts: the job was restarted with another image.
        [_nccl(0, "2.18.3"), _nccl(1, "2.18.3"), _nccl(0, "2.21.5", 900), _nccl(1, "2.21.5", 900)],
    ],
)
def test_one_version_on_all_is_nothing(events: list[Event]) -> None:
    assert _found(VERSION_DIFFERS, *events) == []


def _torch(rank: int, version: str) -> Event:
    return event("env.version", source=f"rank{rank}", rank=rank, role="context",
                 attributes={"component": "torch", "version": version})  # fmt: skip


def test_what_it_was_built_for_is_no_other_version_where_others_leave_that_out() -> None:
    assert _found(VERSION_DIFFERS, _torch(0, "2.4.0+cu121"), _torch(1, "2.4.0"), _torch(2, "2.4.0")) == []
    assert len(_found(VERSION_DIFFERS, _torch(0, "2.4.0+cu118"), _torch(1, "2.4.0+cu121"))) == 1


def test_a_driver_is_the_nodes_not_the_ranks() -> None:
    said = [
        event("gpu.driver_loaded", node=node, source=node, role="context", attributes={"version": version})
        for node, version in (("alpha", "570.86.15"), ("beta", "535.54.03"), ("gamma", "570.86.15"))
    ]
    ((who, numbers),) = _found(VERSION_DIFFERS, *said)
    assert (who.node, who.rank) == ("beta", None)
    assert numbers == "driver 535.54.03 on 1, 570.86.15 on 2"


def test_the_line_that_says_the_odd_version_is_the_evidence_and_stays() -> None:
    items = _derived(*(_nccl(rank, "2.18.3" if rank == 2 else "2.21.5") for rank in range(5)))
    assert [i.episode.name for i in items if i.episode.first.source == "rank2"] == ["nccl.version", VERSION_DIFFERS]


# --- networks -----------------------------------------------------------------------------------------------------


def _net(node: str, network: str, rank: int = 0) -> Event:
    return event("nccl.network", node=node, source=node, rank=rank, role="context", attributes={"network": network})


def test_the_node_that_fell_back_to_sockets_is_named() -> None:
    nets = [_net("alpha", "IB"), _net("beta", "Socket", 1), _net("gamma", "IB", 2)]
    ((who, numbers),) = _found(TRANSPORT_DIFFERS, *nets)
    assert who == Entity(node="beta")
    assert numbers == "NET/Socket on 1 node, IB on 2"


@pytest.mark.parametrize(
    "nets",
    [
        [("alpha", "Socket"), ("beta", "Socket")],
        [("alpha", "IB"), ("beta", "IB")],
        [("alpha", "IB"), ("alpha", "Socket"), ("beta", "IB")],
        [("alpha", "IB"), ("beta", "Socket"), ("gamma", "Socket")],
    ],
)
def test_no_node_fell_back_where_all_are_alike_or_most_do(nets: list[tuple[str, str]]) -> None:
    assert _found(TRANSPORT_DIFFERS, *(_net(*net) for net in nets)) == []


def test_the_lists_of_devices_tell_it_where_nothing_else_does() -> None:
    def devices(node: str, via: str, **said: str) -> Event:
        return event("nccl.network.devices", node=node, source=node, role="context", attributes={"via": via, **said})

    lists = [devices("alpha", "NET/IB", devices="[0]mlx5_0:1/IB"), devices("beta", "NET/IB", none="No device found"),
             devices("beta", "NET/Socket", devices="[0]eth0:10.9.0.2<0>"),
             devices("alpha", "Bootstrap", devices="eth0:10.9.0.1<0>")]  # fmt: skip
    ((who, _),) = _found(TRANSPORT_DIFFERS, *lists)
    assert who == Entity(node="beta")


# --- GPUs that are not there --------------------------------------------------------------------------------------


def _listed(node: str, gpus: range | list[int], *, at_s: int = 0, name: str = "gpu.enumerated") -> list[Event]:
    return [event(name, node=node, source=f"{node}/kern", offset=at_s + gpu, bus=f"0000:{gpu:02x}:00.0",
                  at_ns=T0 + at_s * SECOND, role="context") for gpu in gpus]  # fmt: skip


def test_a_gpu_that_a_later_list_leaves_out_is_missing() -> None:
    later = [gpu for gpu in range(8) if gpu != 5]
    ((who, numbers),) = _found(GPU_MISSING, *_listed("beta", range(8)), *_listed("beta", later, at_s=1_200))
    assert (who.node, who.pci_bus_id) == ("beta", "0000:05:00.0")
    assert numbers == "listed before, 7 other GPUs listed later without it"


@pytest.mark.parametrize("later", [range(8), [0, 1, 2, 3], []])
def test_all_gpus_or_half_of_them_later_is_no_loss(later: range | list[int]) -> None:
    assert _found(GPU_MISSING, *_listed("beta", range(8)), *_listed("beta", later, at_s=1_200)) == []


def test_a_node_with_fewer_gpus_than_most_is_named_with_the_numbers() -> None:
    lists = [one for node, count in (("a", 8), ("b", 7), ("c", 8), ("d", 8)) for one in _listed(node, range(count))]
    ((who, numbers),) = _found(GPU_MISSING, *lists)
    assert who == Entity(node="b")
    assert numbers == "7 GPUs, 8 on 3 other nodes"


@pytest.mark.parametrize("counts", [(8, 7, 8), (8, 7, 7, 8), (8, 8, 8, 8), (7, 6, 5, 4)])
def test_where_no_rule_can_be_seen_nothing_is_missing(counts: tuple[int, ...]) -> None:
    lists = [one for n, count in enumerate(counts) for one in _listed(f"n{n}", range(count))]
    assert _found(GPU_MISSING, *lists) == []


def test_a_stated_number_counts_for_more_than_a_list() -> None:
    said = [
        event("gpu.count", node=node, source=node, role="context", attributes={"gpus": "7" if node == "n2" else "8"})
        for node in ("n0", "n1", "n2", "n3")
    ]
    assert [who.node for who, _ in _found(GPU_MISSING, *said)] == ["n2"]


def test_a_row_that_says_more_of_a_gpu_than_that_it_is_there_counts_too() -> None:
    lists = [one for n in range(4) for one in _listed(f"n{n}", range(8))]
    listed = _listed("n4", range(7))
    (bad,) = _listed("n4", [7], name="gpu.ecc_uncorrected")
    assert _found(GPU_MISSING, *lists, *listed, bad) == []
    assert len(_found(GPU_MISSING, *lists, *listed)) == 1


def test_a_gpu_of_which_other_lines_tell_later_is_not_missing() -> None:
    later = [gpu for gpu in range(8) if gpu != 5]
    events = [*_listed("beta", range(8)), *_listed("beta", later, at_s=1_200)]
    (hot,) = _listed("beta", [5], at_s=1_500, name="gpu.clocks_reduced")
    assert len(_found(GPU_MISSING, *events)) == 1
    assert _found(GPU_MISSING, *events, hot) == []


# --- measures -----------------------------------------------------------------------------------------------------


def _used(rank: int, mib: float) -> Event:
    return event("gpu.telemetry", node="alpha", source="smi", offset=rank, rank=rank, role="context",
                 attributes={"memory_used_mib": str(mib)})  # fmt: skip


@pytest.mark.parametrize(("more", "found"), [(LEAST_MIB + 60, [3]), (LEAST_MIB - 60, [])])
def test_the_gpu_that_uses_two_gib_more_than_the_others_is_told(more: float, found: list[int]) -> None:
    told = _found(OUTLIER, *(_used(rank, 40_000 + rank + (more if rank == 3 else 0)) for rank in range(8)))
    assert [who.rank for who, _ in told] == found


def test_the_numbers_of_an_outlier_are_said() -> None:
    ((_, numbers),) = _found(OUTLIER, *(_used(rank, 45_000 if rank == 3 else 40_000) for rank in range(8)))
    assert numbers == "43.9 GiB used, median of 7 others 39.1 GiB"


def test_four_gpus_are_too_few_and_gpus_that_all_differ_have_no_outlier() -> None:
    assert _found(OUTLIER, *(_used(rank, 60_000 if rank == 3 else 40_000) for rank in range(4))) == []
    assert _found(OUTLIER, *(_used(rank, 30_000 + 4_000 * rank) for rank in range(8))) == []


# --- failures that come again -------------------------------------------------------------------------------------

HOUR_NS = T0 // (3_600 * SECOND) * 3_600 * SECOND


def _failed(at_s: int, step: int | None = None) -> list[Event]:
    marks = [] if step is None else [
        event("train.step", source="job", offset=at_s - 30, rank=0, role="context",
              at_ns=HOUR_NS + (at_s - 30) * SECOND, attributes={"step": str(step)})
    ]  # fmt: skip
    return [*marks, event("elastic.failed", source="job", offset=at_s, at_ns=HOUR_NS + at_s * SECOND)]


def _again(*failures: list[Event]) -> list[str]:
    return [numbers for _, numbers in _found(RECURS, *(one for lines in failures for one in lines))]


def test_failures_at_the_same_minute_of_several_hours_are_told() -> None:
    assert _again(_failed(130), _failed(3_600 + 150), _failed(3 * 3_600 + 100)) == [
        "3 failures around minute 2 of the hour, at most 90 s apart"
    ]


@pytest.mark.parametrize(("apart_s", "are_told"), [(90, True), (91, False)])
def test_all_failures_are_as_close_together_as_it_says(apart_s: int, are_told: bool) -> None:
    assert bool(_again(_failed(130), _failed(3_600 + 150), _failed(2 * 3_600 + 130 + apart_s))) == are_told


def test_the_turn_of_the_hour_is_one_minute() -> None:
    assert _again(_failed(3_590), _failed(2 * 3_600 + 10), _failed(4 * 3_600 - 5)) == [
        "3 failures around minute 0 of the hour, at most 90 s apart"
    ]


@pytest.mark.parametrize("at_s", [(130, 3_730), (130, 1_900, 3_750), (130, 3_600 + 1_000, 7_200 + 2_000)])
def test_two_or_scattered_failures_have_no_minute_in_common(at_s: tuple[int, ...]) -> None:
    assert _again(*(_failed(at) for at in at_s)) == []


def test_failures_after_the_same_step_are_told() -> None:
    assert _again(_failed(700, 1_200), _failed(2_900, 1_200)) == ["2 failures after step 1200"]


@pytest.mark.parametrize("steps", [(1_200, 1_300), (1_200, None), (None, None)])
def test_another_step_or_none_since_the_last_failure_is_not_the_same(steps: tuple[int | None, int | None]) -> None:
    assert _again(_failed(700, steps[0]), _failed(2_900, steps[1])) == []


# --- as context of a conclusion -----------------------------------------------------------------------------------


def _context(class_: str, culprit: Entity, items: list[Resolved]) -> list[Step]:
    root = Resolved(episode=of_events([event("gpu.xid")], RULES.coalescing)[0], subject=culprit)
    return context([Step(item=root, role="root")], 0, class_, [culprit], items)[1:]


def test_few_comparisons_stand_beside_a_conclusion_those_of_the_culprit_first() -> None:
    events = [_net("alpha", "IB"), _net("beta", "Socket", 1), _net("gamma", "IB", 2)]
    events += [_nccl(rank, "2.18.3" if rank == 2 else "2.21.5") for rank in range(5)]
    events += [_torch(rank, "2.3.0" if rank == 4 else "2.4.0") for rank in range(5)]
    events += [event("gpu.driver", node=n, source=f"q{n}", role="context", attributes={"version": v})
               for n, v in (("alpha", "570.86.15"), ("beta", "535.54.03"), ("gamma", "570.86.15"))]  # fmt: skip
    steps = _context("unknown/silent_rank", Entity(rank=4), _derived(*events))
    assert len(steps) == MAX_STEPS
    assert [step.role for step in steps] == ["context"] * MAX_STEPS
    assert steps[0].why == "compared with the others: torch 2.3.0 on 1, 2.4.0 on 4"
    assert steps[1].why == "compared with the others: NET/Socket on 1 node, IB on 2"


def test_a_difference_elsewhere_says_nothing_of_a_device_that_broke() -> None:
    items = _derived(*(_nccl(rank, "2.18.3" if rank == 2 else "2.21.5") for rank in range(5)))
    assert not _context("hardware/gpu_xid_79", Entity(rank=1), items)
    assert len(_context("hardware/gpu_xid_79", Entity(rank=2), items)) == 1


def test_an_outlier_is_told_of_the_culprit_alone() -> None:
    items = _derived(*(_used(rank, 45_000 if rank == 3 else 40_000) for rank in range(8)))
    assert len(_context("software/cuda_oom", Entity(rank=3, node="alpha"), items)) == 1
    assert not _context("software/cuda_oom", Entity(rank=2, node="alpha"), items)


# --- in any order -------------------------------------------------------------------------------------------------


def test_the_order_of_the_lines_changes_nothing() -> None:
    events = [_nccl(rank, "2.18.3" if rank in (2, 5) else "2.21.5") for rank in range(8)]
    events += [_net("alpha", "IB"), _net("beta", "Socket", 1), _net("gamma", "Socket", 2), _net("delta", "IB", 3)]
    events += [_used(rank, 45_000 if rank == 3 else 40_000) for rank in range(8)]
    events += [*_listed("beta", range(8)), *_listed("beta", range(7), at_s=1_200), *_failed(700, 9), *_failed(2_900, 9)]
    wanted = sorted((i.episode.name, str(i.subject), str(i.episode.attributes)) for i in _derived(*events))
    rng = random.Random(3)
    for _ in range(20):
        rng.shuffle(events)
        got = sorted((i.episode.name, str(i.subject), str(i.episode.attributes)) for i in _derived(*events))
        assert got == wanted
