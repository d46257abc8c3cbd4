"""What cannot all be true is told with both lines and not used; what followed one another is no contradiction."""

import pytest

from pipeline.core.contradictions import gaps_of
from pipeline.core.investigation import Investigation
from pipeline.core.placement import PlacementMap
from pipeline.rules import load_rules
from schemas.records import Entity
from tests.core.reading_placement import events_of, facts_of, lines, map_of
from tests.strategies import JOB_KEY, event_batch, incident_of, lost_gpu, placed, verdicts, waited

INIT = (
    "{stamp}{host}:{pid}:9 [{dev}] NCCL INFO comm 0x7f rank {rank} nranks {world} cudaDev {dev} busId {bus}000{comm} - "
    "Init COMPLETE"
)


def init(
    rank: int, host: str, *, pid: int = 0, dev: int = 0, bus: str = "1b", world: int = 4, at: int | None = None,
    comm: str = " commId 0x77aa",
) -> str:  # fmt: skip
    """An INIT line, stamped `at` seconds past three."""
    stamp = "" if at is None else f"2026-08-10T15:{at // 60:02}:{at % 60:02}+00:00 stderr F "
    return INIT.format(
        stamp=stamp, host=host, pid=pid or 900 + rank, dev=dev, rank=rank, bus=bus, world=world, comm=comm
    )


def reasons(placement: PlacementMap) -> list[str]:
    """The contradictions in words."""
    return [gap.reason for gap in gaps_of(placement.contradictions)]


def test_one_rank_of_one_communicator_at_two_places_is_told_with_both_lines_and_used_nowhere() -> None:
    placement = map_of({"a.log": init(1, "gx1", at=0), "b.log": init(1, "gx2", at=100)})
    (reason,) = reasons(placement)
    assert reason == (
        "contradiction: rank 1 of communicator 77aa is pid 901 on gx1 (a.log:1) and pid 901 on gx2 (b.log:1); "
        "neither is used"
    )
    assert placement.ranks[1].node is None
    assert placement.resolve(Entity(node="gx1", pid=901)).rank is None


def test_one_rank_at_two_places_at_one_time_is_on_neither() -> None:
    said = "[rank1]: {}:77:9 [0] NCCL INFO Setting affinity for GPU 0 to ff"
    placement = map_of({"a.log": said.format("gx1"), "b.log": said.format("gx2")})
    assert reasons(placement) == ["contradiction: rank 1 is on gx1 (a.log:1) and gx2 (b.log:1); neither is used"]
    assert placement.ranks[1] == Entity(rank=1)


def test_what_a_contradicted_process_says_of_itself_stays() -> None:
    said = "[rank1]: {}:77:9 [0] NCCL INFO Setting affinity for GPU 0 to ff"
    gpu = init(0, "gx1", pid=77, world=1, comm="")
    placement = map_of({"a.log": lines(said.format("gx1"), gpu), "b.log": said.format("gx2")})
    assert placement.resolve(Entity(node="gx1", pid=77)).pci_bus_id == "0000:1b:00.0"


@pytest.mark.parametrize("backwards", [False, True])
def test_a_restart_elsewhere_is_no_contradiction(backwards: bool) -> None:
    events = events_of({"a.log": init(1, "gx1", at=0), "b.log": init(1, "gx2", at=100, pid=55, comm=" commId 0x99bb")})
    placement = PlacementMap(facts_of(events[::-1] if backwards else events))
    assert placement.contradictions == []
    assert (placement.ranks[1].node, placement.ranks[1].pid) == ("gx2", 55)


FAILED = "failed (exitcode: -9) local_rank: 1 (pid: 901) of binary: /usr/bin/python"


def test_without_times_a_restart_is_one_where_a_process_ended_in_between() -> None:
    first, second = init(1, "gx1", comm=""), init(1, "gx1", pid=55, bus="3b", comm="")
    restarted = map_of({"job.log": lines(first, FAILED, second)})
    assert restarted.contradictions == []
    assert (restarted.ranks[1].pid, restarted.ranks[1].pci_bus_id) == (55, "0000:3b:00.0")
    at_once = map_of({"job.log": lines(first, second)})
    assert len(at_once.contradictions) == 2
    assert (at_once.ranks[1].node, at_once.ranks[1].pid, at_once.ranks[1].pci_bus_id) == ("gx1", None, None)


def test_two_communicators_of_one_size_at_one_time_number_no_ranks_of_the_job() -> None:
    one = [init(rank, f"gx{rank}", world=2, comm=" commId 0xaa") for rank in range(2)]
    other = [init(rank, f"gx{rank + 2}", world=2, comm=" commId 0xbb") for rank in range(2)]
    placement = map_of({"job.log": lines(*one, *other)})
    assert [placement.ranks[rank].node for rank in (0, 1)] == [None, None]
    assert len(placement.contradictions) == 2


def test_a_prefix_that_counts_otherwise_than_a_communicator_wins_and_is_told() -> None:
    placement = map_of({"job.log": "[rank3]: " + init(1, "gx1")})
    (reason,) = reasons(placement)
    assert "rank 3 by its prefix (job.log:1) and rank 1 in a communicator of 4 (job.log:1)" in reason
    assert placement.ranks[3].node == "gx1"
    assert 1 not in placement.ranks


def test_one_gpu_under_two_uuids_has_neither() -> None:
    uuids = [f"GPU-{digit * 8}-1111-2222-3333-444444444444" for digit in "ab"]
    kern = [f"[  56{n}.1] NVRM: GPU at PCI:0000:1b:00: {uuid}" for n, uuid in enumerate(uuids)]
    placement = map_of({"gx1/job.log": init(1, "gx1"), "gx1/kern.log": lines(*kern)})
    (reason,) = reasons(placement)
    assert reason.startswith("contradiction: the UUID of GPU 0000:1b:00.0 on gx1 is ")
    assert all(uuid in reason for uuid in uuids)
    assert "(gx1/kern.log:1)" in reason
    assert "(gx1/kern.log:2)" in reason
    assert placement.ranks[1].gpu_uuid is None
    assert placement.ranks[1].pci_bus_id == "0000:1b:00.0"
    assert placement.resolve(Entity(node="gx1", gpu_uuid=uuids[0])).rank is None


def test_a_gpu_that_was_replaced_has_the_uuid_of_its_time() -> None:
    uuids = [f"GPU-{digit * 8}-1111-2222-3333-444444444444" for digit in "ab"]
    kern = [
        f"2026-08-{10 + n}T15:00:00+00:00 gx1 kernel: NVRM: GPU at PCI:0000:1b:00: {u}" for n, u in enumerate(uuids)
    ]
    events = events_of({"kern.log": lines(*kern)})
    placement = PlacementMap(facts_of(events))
    assert placement.contradictions == []
    first_ns = events[0].aligned_time_unix_nano or 0
    gpu = Entity(node="gx1", pci_bus_id="0000:1b:00.0")
    assert placement.resolve(gpu, first_ns + 1_000_000_000).gpu_uuid == uuids[0]
    assert placement.resolve(gpu).gpu_uuid == uuids[1]


def test_two_ranks_under_one_local_rank_of_one_node_have_none() -> None:
    said = "[default1]:[rank{}]: gx1:{}:9 [0] NCCL INFO Setting affinity for GPU 0 to ff"
    placement = map_of({"a.log": said.format(1, 77), "b.log": said.format(5, 78)})
    assert reasons(placement) == [
        "contradiction: local rank 1 on gx1 is rank 1 (a.log:1) and 5 (b.log:1); neither is used"
    ]
    assert [placement.ranks[rank].local_rank for rank in (1, 5)] == [None, None]
    assert placement.ranks[5].pid == 78


def test_two_numbers_of_ranks_are_none() -> None:
    said = "Initialized process group rank: 1/{}"
    placement = map_of({"a.log": said.format(4), "b.log": said.format(8)})
    assert placement.world_size is None
    (reason,) = reasons(placement)
    assert reason == "contradiction: the number of ranks is 4 (a.log:1) and 8 (b.log:1); neither is used"


def test_a_communicator_proves_a_smaller_number_of_ranks_wrong() -> None:
    placement = map_of({"a.log": lines("Initialized process group rank: 1/2", init(1, "gx1"))})
    assert placement.world_size == 4
    assert len(placement.contradictions) == 1


def test_a_communicator_below_the_stated_number_of_ranks_is_not_of_all() -> None:
    placement = map_of({"a.log": lines("Initialized process group rank: 6/8", init(1, "gx1"))})
    assert placement.world_size == 8
    assert sorted(placement.ranks) == [6]


def test_what_a_file_says_of_all_its_lines_contradicts_nothing_and_yields() -> None:
    text = "[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered"
    placement = map_of({"gx9/copy.log": text, "a.log": init(1, "gx1")})
    assert placement.contradictions == []
    assert placement.ranks[1].node == "gx1"


def test_of_many_alike_a_few_are_told_and_the_rest_counted() -> None:
    ranks = range(20)
    one = lines(*(init(rank, "gx1", world=20, comm="") for rank in ranks))
    other = lines(*(init(rank, "gx2", world=20, comm="") for rank in ranks))
    told = reasons(map_of({"a.log": one, "b.log": other}))
    assert len(told) == 8
    assert told[-1].endswith("neither is used; 12 more of this kind")


def test_an_incident_says_which_lines_it_did_not_use() -> None:
    events = [placed(0, "alpha"), placed(1, "alpha", bus="0000:5e:00.0"), placed(1, "beta", bus="0000:5e:00.0")]
    batch = event_batch("beta", 1, [*events, lost_gpu("beta"), waited(0, "alpha")])
    found = verdicts(Investigation.new(load_rules(), "test", JOB_KEY).apply(batch, now_ns=1))
    incident = incident_of(found[0])
    (reason,) = [gap.reason for gap in incident.gaps if gap.source == "placement"]
    assert reason == "contradiction: rank 1 is on alpha (rank1:1) and beta (rank1:1); neither is used"
    assert [culprit.rank for culprit in incident.culprits] == [None]
