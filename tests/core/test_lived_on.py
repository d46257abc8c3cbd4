"""A fault of which the ranks concerned trained on did not stop the job."""

import pytest
from msgspec.structs import replace

from schemas.records import Event, Incident
from tests.core.concluding import concluded
from tests.strategies import SECOND, T0, event, lost_gpu, placed, waited

NODES = ["alpha", "alpha", "beta", "beta"]
BUSES = ["0000:5e:00.0", "0000:6e:00.0", "0000:5e:00.0", "0000:6e:00.0"]
GPU = "hardware/gpu_xid_79"
SILENT = "unknown/silent_rank"


def _at(name: str, at_s: int, *, rank: int | None = None, node: str = "alpha", role: str = "context") -> Event:
    source = "kern" if rank is None else f"rank{rank}"
    return event(name, node=node, source=source, offset=at_s, rank=rank, at_ns=T0 + at_s * SECOND, role=role)


def _job(trained_s: list[int], *, silent: int = 3) -> list[Event]:
    """Four ranks on two nodes, each with its last step so long after the start; one does not report the time-out."""
    known = [placed(rank, node, world=4, bus=BUSES[rank]) for rank, node in enumerate(NODES)]
    steps = [_at("train.step", at_s, rank=rank, node=NODES[rank]) for rank, at_s in enumerate(trained_s)]
    reports = (rank for rank in range(4) if rank != silent)
    return [*known, *steps, *(waited(rank, NODES[rank], at_ns=T0 + 1_110 * SECOND) for rank in reports)]


def _blamed(incident: Incident) -> tuple[str, list[int | None]]:
    return incident.class_, [culprit.rank for culprit in incident.culprits]


@pytest.mark.parametrize(
    ("trained_s", "blamed"),
    [
        ([500] * 4, (SILENT, [3])),
        ([90] * 4, (SILENT, [3])),
        ([20] * 4, (GPU, [0])),  # what was on its way
        ([20, 500, 500, 500], (GPU, [0])),  # its own steps count
    ],
)
def test_a_gpu_whose_rank_trained_on_did_not_stop_it(trained_s: list[int], blamed: tuple[str, list[int]]) -> None:
    assert _blamed(concluded(*_job(trained_s), lost_gpu("alpha"))) == blamed


def test_a_rank_of_which_no_step_is_known_may_have_stopped() -> None:
    events = [e for e in _job([500] * 4) if (e.name, e.subject.rank) != ("train.step", 0)]
    assert _blamed(concluded(*events, lost_gpu("alpha"))) == (GPU, [0])


def test_a_gpu_that_nobody_is_known_to_use_is_of_all_ranks_of_its_node_whose_gpu_is_not_known() -> None:
    def told(*, first_s: int) -> Incident:
        events = [e for e in _job([first_s, 500, 500, 500]) if e.name != "nccl.init"]
        known = [placed(rank, node, world=4, bus=BUSES[rank]) for rank, node in enumerate(NODES)]
        nameless = [replace(line, subject=replace(line.subject, pci_bus_id=None)) for line in known[:2]]
        return concluded(*nameless, *known[2:], *events, lost_gpu("alpha"))

    assert told(first_s=500).class_ == SILENT
    assert told(first_s=20).class_ == GPU


def test_a_fault_of_the_silent_rank_may_have_been_its_end_however_late() -> None:
    assert _blamed(concluded(*_job([500] * 4, silent=0), lost_gpu("alpha"))) == (GPU, [0])


def test_a_fault_that_shows_again_or_does_something_later_bit_later() -> None:
    again = lost_gpu("alpha", at_ns=T0 + 480 * SECOND)
    assert _blamed(concluded(*_job([500] * 4), lost_gpu("alpha"), again)) == (GPU, [0])
    error = _at("cuda.error", 490, rank=0, role="intermediate")
    assert _blamed(concluded(*_job([500] * 4), lost_gpu("alpha"), error)) == (GPU, [0])


def test_a_process_that_its_launcher_saw_end_did_not_wait() -> None:
    # Most do not report, so that nobody can be called silent.
    events = [e for e in _job([500] * 4) if e.name != "nccl.watchdog.timeout" or e.subject.rank == 2]
    end = event("elastic.failed", node="alpha", source="agent", rank=0, at_ns=T0 + 505 * SECOND,
                attributes={"exitcode": "-7", "pid": "800"})  # fmt: skip
    assert _blamed(concluded(*events, lost_gpu("alpha"), end)) == (GPU, [0])


def test_steps_of_a_job_that_failed_and_was_started_anew_are_of_another_run() -> None:
    end = event("elastic.failed", node="alpha", source="agent", rank=0, at_ns=T0 + 30 * SECOND,
                attributes={"exitcode": "-6", "pid": "800"})  # fmt: skip
    known = [placed(rank, node, world=4, bus=BUSES[rank]) for rank, node in enumerate(NODES)]
    for trained_s in (80, 500):
        steps = [_at("train.step", trained_s, rank=rank, node=node) for rank, node in enumerate(NODES)]
        assert _blamed(concluded(*known, *steps, lost_gpu("alpha"), end)) == (GPU, [0])
    # It stood still before it failed: no step of that time is kept.
    late = replace(end, aligned_time_unix_nano=T0 + 300 * SECOND, lo_unix_nano=T0 + 300 * SECOND,
                   hi_unix_nano=T0 + 300 * SECOND)  # fmt: skip
    assert _blamed(concluded(*known, *steps, lost_gpu("alpha"), late)) == (GPU, [0])


def test_a_clock_that_cannot_say_decides_nothing() -> None:
    line = replace(lost_gpu("alpha", bound_ns=480 * SECOND), clock_id="alpha/other")
    assert _blamed(concluded(*_job([500] * 4), line)) == (GPU, [0])


def test_a_fault_that_is_told_as_a_symptom_is_one_all_the_same() -> None:
    line = replace(lost_gpu("alpha"), role="symptom")
    assert _blamed(concluded(*_job([20] * 4), line)) == (GPU, [0])
    assert _blamed(concluded(*_job([500] * 4), line)) == (SILENT, [3])


@pytest.mark.parametrize(("trained_s", "blamed"), [(500, SILENT), (200, "storage/nfs_unresponsive")])
def test_a_file_server_that_is_gone_is_missed_later(trained_s: int, blamed: str) -> None:
    stall = event("nfs.stall", node="alpha", source="kern", role="cause", attributes={"server": "fs-2"})
    events = _job([trained_s] * 4)
    assert concluded(*events, _as_kernel(stall)).class_ == blamed


def _as_kernel(line: Event) -> Event:
    return replace(line, source_kind="kernel")
