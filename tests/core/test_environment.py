"""Environment dumps: which variables belong to one process, and what they say of it."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.facts import MAX_WORLD
from schemas.records import Entity
from tests.core.reading_placement import lines, map_of

UUID = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


def dump(rank: int, *, local: int, node: str | None = None, world: int = 4) -> str:
    """What `env` of one worker prints."""
    named = [] if node is None else [f"SLURMD_NODENAME={node}"]
    return lines(f"RANK={rank}", f"LOCAL_RANK={local}", *named, f"WORLD_SIZE={world}")


def test_a_dump_gives_rank_local_rank_node_and_the_number_of_ranks() -> None:
    placement = map_of({"rank.log": dump(3, local=1, node="gx2")})
    assert placement.world_size == 4
    assert (placement.ranks[3].node, placement.ranks[3].local_rank) == ("gx2", 1)


def test_a_number_of_ranks_that_no_job_has_is_not_one() -> None:
    assert map_of({"rank.log": dump(3, local=1, world=MAX_WORLD)}).world_size == MAX_WORLD
    placement = map_of({"rank.log": dump(3, local=1, node="gx2", world=MAX_WORLD + 1)})
    assert placement.world_size is None
    assert (placement.ranks[3].node, placement.ranks[3].local_rank) == ("gx2", 1)


def test_dumps_one_after_the_other_are_told_apart() -> None:
    text = lines(*(dump(rank, local=rank % 2, node=f"gx{rank // 2}") for rank in range(4)))
    found = map_of({"job.log": text}).ranks
    assert {rank: (found[rank].node, found[rank].local_rank) for rank in found} == {
        0: ("gx0", 0), 1: ("gx0", 1), 2: ("gx1", 0), 3: ("gx1", 1),
    }  # fmt: skip


def test_a_head_before_the_dumps_belongs_to_none_of_them() -> None:
    text = lines("CUDA_VISIBLE_DEVICES=4,5", *(dump(rank, local=rank, node="gx1", world=2) for rank in range(2)))
    found = map_of({"job.log": text}).ranks
    assert [(found[rank].node, found[rank].local_rank) for rank in (0, 1)] == [("gx1", 0), ("gx1", 1)]


@given(st.data())
def test_dumps_that_mix_are_used_only_where_they_cannot_have_mixed(data: st.DataObject) -> None:
    streams = [[f"RANK={rank}", f"LOCAL_RANK={rank + 10}", f"SLURMD_NODENAME=gx{rank}"] for rank in range(2)]
    order = data.draw(st.permutations([0, 0, 0, 1, 1, 1]))
    left = [list(stream) for stream in streams]
    text = lines("WORLD_SIZE=2", *(left[which].pop(0) for which in order))
    found = map_of({"job.log": text}).ranks
    for rank, entity in found.items():
        assert entity.local_rank in (None, rank + 10)
        assert entity.node in (None, f"gx{rank}")


def test_dumps_with_labels_may_mix() -> None:
    text = lines(
        "0: RANK=0", "1: RANK=1", "1: LOCAL_RANK=1", "0: LOCAL_RANK=0", "0: SLURMD_NODENAME=gx1",
        "1: SLURMD_NODENAME=gx1", "1: WORLD_SIZE=2", "0: WORLD_SIZE=2",
    )  # fmt: skip
    found = map_of({"job.log": text}).ranks
    assert [(found[rank].node, found[rank].local_rank) for rank in (0, 1)] == [("gx1", 0), ("gx1", 1)]


def test_a_rank_is_worked_out_from_the_node_and_the_local_rank() -> None:
    known = map_of(
        {"a.log": lines("GROUP_RANK=2", "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=8", "SLURMD_NODENAME=gx3")}
    ).known()
    (entry,) = known
    assert entry.rank == 19
    assert entry.fields["node"].how == "derived"


def test_a_number_of_a_task_is_a_rank_where_as_many_tasks_as_ranks_run() -> None:
    task = lines("SLURM_PROCID=3", "SLURM_LOCALID=1", "SLURM_NTASKS={}", "SLURMD_NODENAME=gx2")
    found = map_of({"a.log": lines(task.format(4), "[rank0]: x"), "b.log": dump(0, local=0)})
    assert (found.ranks[3].node, found.ranks[3].local_rank) == ("gx2", 1)
    assert sorted(map_of({"a.log": task.format(2), "b.log": dump(0, local=0)}).ranks) == [0]


def test_the_number_of_the_node_finds_its_name_in_the_list() -> None:
    text = lines("RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=4", "SLURM_NODEID=1", "SLURM_JOB_NODELIST=gx[01,07]")
    (entry,) = map_of({"a.log": text}).known()
    assert (entry.fields["node"].value, entry.fields["node"].how) == ("gx07", "derived")


def test_the_host_name_in_a_slurm_job_is_of_whoever_submitted_it() -> None:
    text = lines("RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=4", "HOSTNAME=login1")
    assert map_of({"a.log": text}).ranks[3].node == "login1"
    assert map_of({"a.log": lines(text, "SLURM_NODEID=0")}).ranks[3].node is None


def test_a_world_of_nodes_is_no_world_of_ranks() -> None:
    pod = lines("RANK=1", "WORLD_SIZE=2", "NODE_NAME=gx2")
    placement = map_of({"pod.log": pod, "worker.log": dump(9, local=1, node="gx2", world=16)})
    assert placement.world_size == 16
    assert sorted(placement.ranks) == [9]


# --- devices ------------------------------------------------------------------------------------------------------

INIT = (
    "{host}:{pid}:9 [{dev}] NCCL INFO comm 0x7f rank {rank} nranks 4 cudaDev {dev} busId {bus}000 commId 0x77aa - "
    "Init COMPLETE"
)


def test_visible_devices_turn_the_device_of_a_process_into_the_index_of_its_gpu() -> None:
    text = lines("SLURMD_NODENAME=gx2", "CUDA_VISIBLE_DEVICES=4,5,6,7")
    init = INIT.format(host="gx2", pid=31, dev=2, rank=2, bus="9b")
    found = map_of({"batch.log": text, "job.log": init}).ranks[2]
    assert found.gpu_index == 6


def test_visible_devices_may_be_uuids() -> None:
    text = lines("SLURMD_NODENAME=gx2", f"CUDA_VISIBLE_DEVICES=GPU-{'9' * 8}-1111-2222-3333-{'4' * 12},{UUID}")
    init = INIT.format(host="gx2", pid=31, dev=1, rank=2, bus="9b")
    placement = map_of({"batch.log": text, "job.log": init})
    assert placement.ranks[2].gpu_uuid == UUID
    assert placement.resolve(Entity(node="gx2", gpu_uuid=UUID)).rank == 2


def test_the_only_device_that_a_rank_sees_is_its_own() -> None:
    text = lines("RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=4", "SLURMD_NODENAME=gx2", "CUDA_VISIBLE_DEVICES=5")
    listing = f"GPU 5: NVIDIA H100 80GB HBM3 (UUID: {UUID})"
    found = map_of({"a.log": text, "gx2/smi.log": listing}).ranks[3]
    assert (found.gpu_index, found.gpu_uuid) == (5, UUID)


def test_a_line_with_the_local_rank_and_the_devices_is_a_dump_of_its_own() -> None:
    text = lines("[rank3]: LOCAL_RANK: 1 - CUDA_VISIBLE_DEVICES: [4,5]")
    init = "[rank3]: " + INIT.format(host="gx2", pid=31, dev=1, rank=3, bus="9b")
    found = map_of({"job.log": lines(text, init)}).ranks[3]
    assert (found.local_rank, found.gpu_index) == (1, 5)


def test_parts_of_gpus_and_devices_that_are_not_there_are_not_translated() -> None:
    init = INIT.format(host="gx2", pid=31, dev=2, rank=2, bus="9b")
    for listed in ("MIG-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9,5,6", "4,5"):
        text = lines("SLURMD_NODENAME=gx2", f"CUDA_VISIBLE_DEVICES={listed}")
        assert map_of({"batch.log": text, "job.log": init}).ranks[2].gpu_index is None


def test_nodes_that_list_other_devices_say_nothing_of_this_one() -> None:
    text = lines("SLURMD_NODENAME=gx9", "CUDA_VISIBLE_DEVICES=4,5,6,7")
    init = INIT.format(host="gx2", pid=31, dev=2, rank=2, bus="9b")
    assert map_of({"batch.log": text, "job.log": init}).ranks[2].gpu_index is None
