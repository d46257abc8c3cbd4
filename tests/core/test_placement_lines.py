"""Placement from the lines that programs print: NCCL, torch, launchers, Slurm, Kubernetes, Ray, nvidia-smi."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.placement import PlacementMap
from schemas.records import Entity, Event
from tests.core.reading_placement import events_of, facts_of, lines, map_of

# --- NCCL ---------------------------------------------------------------------------------------------------------


def init(rank: int, *, world: int = 4, host: str = "gx1", pid: int = 0, dev: int = 0, more: str = "") -> str:
    """An INIT line of NCCL 2.18 to 2.20."""
    pid = pid or 900 + rank
    return (
        f"{host}:{pid}:{pid + 9} [{dev}] NCCL INFO comm 0x7f{rank:02x} rank {rank} nranks {world} cudaDev {dev} "
        f"nvmlDev {dev} busId {0x1B + dev:x}000{more} commId 0x77aa - Init COMPLETE"
    )


WORLD = {
    "gx1/job.log": lines(init(0), init(1, dev=1)),
    "gx2/job.log": lines(init(2, host="gx2"), init(3, host="gx2", dev=1)),
}


def test_an_init_line_gives_host_pid_bus_and_index_of_its_rank() -> None:
    found = map_of(WORLD).ranks[3]
    assert (found.node, found.pid, found.pci_bus_id, found.gpu_index) == ("gx2", 903, "0000:1c:00.0", 1)


def test_each_field_names_its_line_and_how_it_is_known() -> None:
    known = {entry.rank: entry.fields for entry in map_of(WORLD).known()}
    assert (known[3]["pid"].value, known[3]["pid"].how, known[3]["pid"].where) == (903, "stated", "gx2/job.log:2")
    assert (known[3]["local_rank"].value, known[3]["local_rank"].how) == (1, "derived")


def test_local_ranks_are_counted_only_where_every_rank_is_placed() -> None:
    assert map_of(WORLD).ranks[2].local_rank == 0
    assert map_of({"gx2/job.log": init(2, host="gx2")}).ranks[2].local_rank is None


def test_a_local_rank_that_nccl_states_wins_over_counting() -> None:
    topo = "gx2:903:912 [1] NCCL INFO comm 0x7f03 rank 3 nRanks 4 nNodes 2 localRanks 2 localRank 1 MNNVL 0"
    known = {one.rank: one.fields for one in map_of({**WORLD, "gx2/more.log": topo}).known()}
    assert (known[3]["local_rank"].how, known[3]["local_rank"].where) == ("stated", "gx2/more.log:1")


def test_ranks_of_a_split_communicator_are_ranks_of_the_group_only() -> None:
    split = (
        "gx2:903:912 [1] NCCL INFO ncclCommSplit comm 0x8f03 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 1c000 "
        "parent 0x7f03 splitCount 2 color 5 key 3 - Init COMPLETE"
    )
    also = split.replace("gx2:903:912", "gx1:901:912").replace("rank 1 nranks", "rank 0 nranks").replace("7f03", "7f01")
    placement = map_of({**WORLD, "gx1/split.log": also, "gx2/split.log": split})
    assert sorted(placement.ranks) == [0, 1, 2, 3]
    group = next(group for group in placement.groups() if group.kind == "split")
    assert (group.name, group.ranks) == ("77aa/5/2", [1, 3])
    assert {number: member.rank for number, member in group.members.items()} == {0: 1, 1: 3}


def test_a_smaller_communicator_of_a_version_without_ids_gives_no_ranks() -> None:
    old = (
        "gx1:{pid}:{pid} [{rank}] NCCL INFO comm 0x7f{size}{rank} rank {at} nranks {size} cudaDev {rank} busId {bus}000"
    )
    said = [
        old.format(pid=900 + rank, rank=rank, at=rank % size, size=size, bus=rank + 1) + " - Init COMPLETE"
        for size in (4, 2) for rank in range(4)
    ]  # fmt: skip
    placement = map_of({"gx1/job.log": lines(*said)})
    assert placement.contradictions == []
    assert {rank: entity.pid for rank, entity in placement.ranks.items()} == {0: 900, 1: 901, 2: 902, 3: 903}


def test_only_split_communicators_give_no_ranks() -> None:
    split = (
        "gx2:903:912 [1] NCCL INFO ncclCommSplit comm 0x8f03 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 1c000 "
        "parent 0x7f03 splitCount 2 color 5 key 3 - Init COMPLETE"
    )
    placement = map_of({"gx2/split.log": split})
    assert placement.ranks == {}
    assert placement.resolve(Entity(node="gx2", pid=903)).pci_bus_id == "0000:1c:00.0"


def test_a_line_about_a_split_communicator_that_does_not_say_so_is_known_by_its_pointer() -> None:
    split = (
        "gx2:903:912 [1] NCCL INFO ncclCommSplit comm 0x8f03 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 1c000 "
        "parent 0x7f03 splitCount 2 color 5 key 3- Init START"
    )
    topo = "gx2:903:912 [1] NCCL INFO comm 0x8f03 rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"
    placement = map_of({"gx2/split.log": lines(topo, split)})
    assert placement.ranks == {}
    assert placement.world_size is None


def test_the_last_line_of_a_communicator_places_its_rank_too() -> None:
    end = "gx2:903:912 [1] NCCL INFO comm 0x7f03 rank 3 nranks 4 cudaDev 1 busId 1c000 - Destroy COMPLETE"
    assert map_of({"gx2/job.log": end}).ranks[3].pci_bus_id == "0000:1c:00.0"


def test_a_process_of_which_only_the_device_is_known_may_bear_its_number() -> None:
    failed = "include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'"
    files = {"a.log": lines(f"gx7:31:40 [0] {failed}", f"gx7:34:40 [3] {failed}")}
    found = map_of(files).resolve(Entity(node="gx7", pid=34))
    assert found.local_rank == 3
    assert found.rank is None


def test_a_lone_device_0_says_nothing() -> None:
    failed = "include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'"
    assert map_of({"a.log": f"gx7:31:40 [0] {failed}"}).resolve(Entity(node="gx7", pid=31)).local_rank is None


@pytest.mark.parametrize("second", ["gx7:31:40 [2]", "gx7:34:40 [0]"])
def test_devices_that_are_shared_or_several_say_nothing(second: str) -> None:
    failed = "include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'"
    files = {"a.log": lines(f"gx7:31:40 [0] {failed}", f"{second} {failed}", f"gx7:35:40 [3] {failed}")}
    assert map_of(files).resolve(Entity(node="gx7", pid=31)).local_rank is None


def test_one_process_with_several_gpus_is_told_apart_by_the_device() -> None:
    both = lines(init(0, world=2, pid=55), init(1, world=2, pid=55, dev=1))
    warn = "gx1:55:90 [1] misc/socket.cc:49 NCCL WARN Net : Connection closed by remote peer gx9<50321>"
    files = {"a.log": lines(both, warn)}
    placement = map_of(files)
    event = next(event for event in events_of(files) if event.name == "nccl.socket.closed")
    assert placement.subject(event).rank == 1


# --- torch and torchrun -------------------------------------------------------------------------------------------


def test_nested_prefixes_give_local_and_global_rank() -> None:
    text = "[default1]:[rank5]:[E810 15:36:05.1 ProcessGroupNCCL.cpp:607] CUDA error: an illegal memory access"
    found = map_of({"gx2/job.log": text}).ranks[5]
    assert (found.local_rank, found.node) == (1, "gx2")


def test_the_rank_in_the_default_group_is_the_rank_of_the_job_and_in_another_group_it_is_not() -> None:
    said = "[PG ID {} PG GUID {} Rank {}] Process group watchdog thread terminated with exception: x"
    default = map_of({"a.log": said.format(0, "0(default_pg)", 3)})
    assert sorted(default.ranks) == [3]
    assert map_of({"a.log": said.format(2, "5(TENSOR)", 3)}).ranks == {}


def test_a_group_of_torch_has_the_ranks_that_its_members_print() -> None:
    said = "[rank{}]:[E810 15:36:05.1 ProcessGroupNCCL.cpp:607] [PG ID 2 PG GUID 5(TENSOR) Rank {}] {}"
    text = "Process group watchdog thread terminated with exception: x"
    placement = map_of({"a.log": lines(said.format(6, 0, text), said.format(7, 1, text))})
    (group,) = placement.groups()
    assert (group.kind, group.name, group.description, group.ranks) == ("pg", "5", "TENSOR", [6, 7])


BLOCK = """\
============================================================
fit.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-08-10_15:36:05
  host      : gx2.cluster.example
  rank      : 5 (local_rank: 1)
  exitcode  : -9 (pid: 4711)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4711
============================================================"""


def test_the_block_of_a_failed_child_places_its_rank() -> None:
    found = map_of({"job.log": BLOCK}).ranks[5]
    assert (found.node, found.local_rank, found.pid) == ("gx2.cluster.example", 1, 4711)


RENDEZVOUS = """\
[default] Rendezvous complete for workers. Result:
  restart_count=0
  master_addr=gx1
  master_port=29500
  group_rank=1
  group_world_size=2
  local_ranks=[0, 1]
  role_ranks=[2, 3]
  global_ranks=[2, 3]
  role_world_sizes=[4, 4]
  global_world_sizes=[4, 4]"""
FAILED = "failed (exitcode: -11) local_rank: 1 (pid: 4713) of binary: /usr/bin/python"


def test_the_result_of_a_rendezvous_gives_the_ranks_of_the_agents_node_and_the_failed_pid_joins() -> None:
    placement = map_of({"gx2/agent.log": lines(RENDEZVOUS, FAILED)})
    assert placement.world_size == 4
    found = placement.ranks[3]
    assert (found.node, found.local_rank, found.pid) == ("gx2", 1, 4713)
    assert placement.resolve(Entity(node="gx2", pid=4713)).rank == 3


def test_an_agents_line_in_a_file_of_many_nodes_is_not_joined_by_local_rank() -> None:
    shared = lines(RENDEZVOUS, init(2, host="gx7"), FAILED)
    assert map_of({"gx2/all.log": shared}).ranks[3].pid is None


def test_without_a_host_local_ranks_join_where_the_whole_job_is_of_one_agent() -> None:
    one = RENDEZVOUS.replace("[2, 3]", "[0, 1]").replace("[4, 4]", "[2, 2]")
    assert map_of({"job.log": lines(one, FAILED)}).ranks[1].pid == 4713
    assert map_of({"job.log": lines(RENDEZVOUS, FAILED)}).ranks[3].pid is None


# --- srun, mpirun, DeepSpeed, Ray, Kubernetes ---------------------------------------------------------------------


def test_labels_of_srun_are_ranks_where_the_lines_say_so() -> None:
    text = lines(
        "2: " + init(2, host="gx2"), "1: " + init(1, host="gx1", dev=1),
        "2: RuntimeError: CUDA error: an illegal memory access was encountered",
    )  # fmt: skip
    files = {"job.log": text}
    error = next(event for event in events_of(files) if event.name != "nccl.init")
    found = map_of(files).subject(error)
    assert (found.rank, found.node) == (2, "gx2")


def test_labels_of_srun_that_count_nodes_give_the_node_and_no_rank() -> None:
    text = lines(
        "1: " + init(2, host="gx2"), "1: " + init(3, host="gx2", dev=1),
        "1: RuntimeError: CUDA error: an illegal memory access was encountered",
    )  # fmt: skip
    files = {"job.log": text}
    error = next(event for event in events_of(files) if event.name != "nccl.init")
    found = map_of(files).subject(error)
    assert (found.rank, found.node) == (None, "gx2")


def test_label_0_alone_proves_nothing() -> None:
    text = lines("0: " + init(0), "3: RuntimeError: CUDA error: an illegal memory access was encountered")
    files = {"job.log": text}
    error = next(event for event in events_of(files) if event.name != "nccl.init")
    assert map_of(files).subject(error).rank is None


def test_a_rank_that_shares_the_gpu_of_another_runs_on_its_node() -> None:
    text = "gx1:811:990 [0] init.cc:938 NCCL WARN Duplicate GPU detected : rank 1 and rank 4 both on CUDA device 1b000"
    ranks = map_of({"job.log": text}).ranks
    assert {rank: entity.node for rank, entity in ranks.items()} == {1: "gx1", 4: "gx1"}


def test_the_tag_of_mpirun_is_a_rank() -> None:
    text = "[1,3]<stderr>:RuntimeError: CUDA error: an illegal memory access was encountered"
    assert sorted(map_of({"job.log": text}).ranks) == [3]


def test_the_table_of_the_deepspeed_launcher_places_all_ranks() -> None:
    text = lines(
        "gx1: [2026-08-10 15:36:05,123] [INFO] [launch.py:163:main] global_rank_mapping=defaultdict(<class 'list'>, "
        "{'gx1': [0, 1], 'gx2': [2, 3]})",
        "gx1: [2026-08-10 15:36:05,123] [INFO] [launch.py:164:main] dist_world_size=4",
        "gx2: [2026-08-10 15:36:05,124] [INFO] [launch.py:256:main] process 812 spawned with command: "
        "['/usr/bin/python', '-u', 'fit.py', '--local_rank=1']",
    )
    placement = map_of({"job.log": text})
    assert placement.world_size == 4
    found = placement.ranks[3]
    assert (found.node, found.local_rank, found.pid) == ("gx2", 1, 812)


def test_ray_places_its_workers_and_an_address_is_a_host_only_where_one_line_shows_both() -> None:
    worker = "(TorchTrainer pid=77) - (ip=10.9.0.2, pid=201) world_rank=1, local_rank=0, node_rank=1"
    apart = map_of({"job.log": worker})
    assert (apart.ranks[1].node, apart.ranks[1].pid) == ("10.9.0.2", 201)
    both = "gx2:201:210 [0] NCCL INFO Bootstrap : Using eth0:10.9.0.2<0>"
    assert map_of({"job.log": lines(worker, both)}).ranks[1].node == "gx2"


POD = "train-3   1/1   Running   0   15m   10.8.4.7   gx2   <none>   <none>"


def test_a_pod_runs_on_its_node_and_its_pids_are_its_own() -> None:
    placement = map_of({"job.log": init(3, host="train-3", pid=31), "pods.txt": POD})
    assert placement.ranks[3].node == "gx2"
    assert placement.resolve(Entity(node="gx2", pci_bus_id="0000:1b:00.0")).rank == 3
    assert placement.resolve(Entity(node="train-3", pid=31)).rank == 3
    assert placement.resolve(Entity(node="gx2", pid=31)).rank is None


def test_local_ranks_are_counted_by_pod_and_not_by_node() -> None:
    pods = [init(rank, host=f"train-{rank // 2}", pid=30 + rank % 2, dev=rank % 2) for rank in range(4)]
    nodes = [POD.replace("train-3", f"train-{number}") for number in range(2)]
    found = map_of({"job.log": lines(*pods), "pods.txt": lines(*nodes)}).ranks
    assert [(found[rank].node, found[rank].local_rank) for rank in range(4)] == [
        ("gx2", 0), ("gx2", 1), ("gx2", 0), ("gx2", 1),
    ]  # fmt: skip


def test_lines_of_a_pod_are_of_the_node_that_the_scheduler_chose() -> None:
    chosen = "Successfully assigned ml/train-3 to gx2"
    text = "[pod/train-3/main] [rank3]: RuntimeError: CUDA error: an illegal memory access was encountered"
    assert map_of({"job.log": lines(chosen, text)}).ranks[3].node == "gx2"


# --- GPUs ---------------------------------------------------------------------------------------------------------

UUID = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


def test_the_drivers_line_gives_the_uuid_of_a_rank_by_the_bus() -> None:
    found = map_of({**WORLD, "gx2/kern.log": f"NVRM: GPU at PCI:0000:1c:00: {UUID}"}).ranks[3]
    assert found.gpu_uuid == UUID


def test_a_listing_gives_the_uuid_by_the_index() -> None:
    placement = map_of({**WORLD, "gx2/smi.log": f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {UUID})"})
    assert placement.ranks[3].gpu_uuid == UUID
    assert placement.ranks[1].gpu_uuid is None
    assert placement.resolve(Entity(node="gx2", gpu_uuid=UUID)).rank == 3


def test_the_map_lists_gpus_with_their_lines() -> None:
    (gpu,) = map_of({"gx2/smi.log": f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {UUID})"}).gpus()
    assert {name: told.value for name, told in gpu.fields.items()} == {"node": "gx2", "gpu_index": 1, "gpu_uuid": UUID}


def test_a_kernel_line_under_the_long_name_of_a_host_finds_the_rank_under_its_short_name() -> None:
    xid = "NVRM: Xid (PCI:0000:1c:00): 79, GPU has fallen off the bus."
    files = {**WORLD, "kern.log": f"2026-08-10T15:00:00+00:00 gx2.cluster.example kernel: {xid}"}
    placement = map_of(files)
    (event,) = [event for event in events_of(files) if event.name == "gpu.xid"]
    found = placement.subject(event)
    assert (found.rank, found.node) == (3, "gx2")
    assert placement.name("gx2.cluster.example") == "gx2"


def test_memory_that_a_process_holds_gives_the_gpu_of_a_rank_that_nothing_else_gives() -> None:
    held = "nvidia-smi -q: GPU 00000000:{}:00.0: Processes: Process ID 71: Used GPU Memory: 900 MiB"
    rank = "[rank3]: gx2:71:80 [0] NCCL INFO Setting affinity for GPU 0 to ff"
    one = map_of({"job.log": rank, "gx2/smi.log": held.format("3B")})
    assert one.ranks[3].pci_bus_id == "0000:3b:00.0"
    two = map_of({"job.log": rank, "gx2/smi.log": lines(held.format("3B"), held.format("5E"))})
    assert two.ranks[3].pci_bus_id is None
    stated = map_of({**WORLD, "gx2/smi.log": held.format("3B").replace("71", "903")})
    assert stated.ranks[3].pci_bus_id == "0000:1c:00.0"


# --- whose line it is ---------------------------------------------------------------------------------------------


def test_what_one_rank_says_of_another_places_the_printer_only() -> None:
    lost = "E0810 15:36:05.1 71 coordination_service.cc:9] /job:jax_worker/replica:0/task:3 has been set to ERROR"
    placement = map_of({"gx1/job.log": f"[rank1]: {lost}"})
    assert placement.ranks[1].node == "gx1"
    assert placement.ranks[3].node is None


def test_lines_of_another_rank_in_a_nodes_file_belong_to_where_that_rank_runs() -> None:
    error = "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered"
    files = {**WORLD, "gx1/all.log": error}
    (event,) = [event for event in events_of(files) if event.source == "gx1/all.log"]
    assert event.subject.node == "gx1"
    assert map_of(files).subject(event).node == "gx2"


def test_a_line_without_a_host_in_a_file_of_several_nodes_is_of_no_node() -> None:
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    files = {"gx1/all.log": lines(init(0), init(2, host="gx2"), error), "gx2/own.log": error}
    placement = map_of(files)
    found = {event.source: placement.subject(event).node for event in events_of(files) if event.name == "cuda.error"}
    assert found == {"gx1/all.log": None, "gx2/own.log": "gx2"}


# --- any order ----------------------------------------------------------------------------------------------------

EVERYTHING = events_of(
    {
        **WORLD,
        "gx2/kern.log": f"NVRM: GPU at PCI:0000:1c:00: {UUID}",
        "gx2/agent.log": lines(RENDEZVOUS, FAILED),
        "job.log": lines("2: " + init(2, host="gx2"), BLOCK, "RANK=2", "LOCAL_RANK=0", "WORLD_SIZE=4"),
        "gx3/other.log": init(1, host="gx3", pid=5),
    }
)


@given(st.permutations(EVERYTHING))
def test_any_order_of_lines_gives_the_same_map(events: list[Event]) -> None:
    one, other = PlacementMap(facts_of(events)), PlacementMap(facts_of(EVERYTHING))
    assert one.known() == other.known()
    assert one.contradictions == other.contradictions
    assert one.groups() == other.groups()
