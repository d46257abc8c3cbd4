"""Which rank stopped, where no line says why."""

import msgspec
import pytest

from schemas.records import TIME_MAX_NS, TIME_MIN_NS, Event
from tests.core.concluding import concluded
from tests.strategies import SECOND, T0, event, placed, waited


def _job(silent: int) -> list[Event]:
    """Ranks 0 to 3 on two nodes; all but one and its neighbour give up waiting."""
    nodes = ["alpha", "alpha", "beta", "beta"]
    known = [placed(rank, node, world=4) for rank, node in enumerate(nodes)]
    far = (0, 1) if silent > 1 else (2, 3)
    return [*known, *(waited(rank, nodes[rank]) for rank in far)]


def _ended(rank: int, at_s: int, exitcode: str) -> Event:
    return event("elastic.failed", node="beta", source="agent", offset=at_s, rank=rank, at_ns=T0 + at_s * SECOND,
                 attributes={"exitcode": exitcode, "pid": str(800 + rank)})  # fmt: skip


def _lost(rank: int, at_s: int, name: str = "nccl.socket.closed") -> Event:
    """A rank says that it lost another one."""
    return event(name, node="beta", source=f"rank{rank}", offset=100 + at_s, rank=rank, at_ns=T0 + at_s * SECOND)


def _stopped(rank: int, at_s: int) -> Event:
    return event("elastic.terminate", node="beta", source="agent", offset=at_s + 1, rank=rank,
                 at_ns=T0 + at_s * SECOND)  # fmt: skip


@pytest.mark.parametrize(
    ("at_s", "exitcode", "named"),
    [(10, "1", [3]), (10, "-6", [3]), (10, "-15", []), (602, "-6", [2, 3])],  # too late to tell
)
def test_the_rank_that_its_launcher_saw_end_before_anybody_gave_up_stopped_the_others(
    at_s: int, exitcode: str, named: list[int]
) -> None:
    said = [event("train.step", node="beta", source=f"rank{rank}", rank=rank, role="context") for rank in (2, 3)]
    incident = concluded(*_job(3), *said, _ended(3, at_s, exitcode), _stopped(2, at_s), _stopped(3, at_s))
    assert [culprit.rank for culprit in incident.culprits] == named
    if named == [3]:
        assert incident.class_ == "unknown/silent_rank"
        assert "its launcher saw it end" in (incident.why_unknown or "")


@pytest.mark.parametrize(("at_s", "named"), [(10, [3]), (None, []), (602, [2])])
def test_the_neighbours_of_a_rank_whose_log_was_not_read_may_have_been_stopped_for_it(
    at_s: int | None, named: list[int]
) -> None:
    """Without a time nobody knows whether it ended by itself or gave up waiting, as the others did."""
    known = [one for one in _job(3) if one.subject.rank != 3]
    said = event("train.step", node="beta", source="rank2", rank=2, role="context")
    row = event("elastic.rank_failed", node="beta", source="agent", offset=700, rank=3, pid=803, at_ns=None,
                attributes={"exitcode": "-6"})  # fmt: skip
    lines = [_ended(3, at_s or 0, "-6"), _stopped(2, at_s or 0)]
    if at_s is None:
        never = {"aligned_time_unix_nano": None, "lo_unix_nano": TIME_MIN_NS, "hi_unix_nano": TIME_MAX_NS}
        lines = [msgspec.structs.replace(line, raw_ns=None, clock_id="", **never) for line in lines]
    incident = concluded(*known, said, row, *lines)
    assert [culprit.rank for culprit in incident.culprits] == named


@pytest.mark.parametrize("name", ["nccl.socket.closed", "gloo.reset", "torch.nccl.error", "tcpstore.error"])
@pytest.mark.parametrize(("at_s", "named"), [(9, []), (11, [3])])
def test_who_had_lost_a_peer_before_it_ended_did_not_stop_the_others(name: str, at_s: int, named: list[int]) -> None:
    said = [event("train.step", node="beta", source=f"rank{rank}", rank=rank, role="context") for rank in (2, 3)]
    stops = [_stopped(2, 10), _stopped(3, 10)]
    incident = concluded(*_job(3), *said, _lost(3, at_s, name), _ended(3, 10, "-6"), *stops)
    assert [culprit.rank for culprit in incident.culprits] == named


@pytest.mark.parametrize(("at_s", "named"), [(10, [0]), (605, [0, 3])])
def test_of_those_who_do_not_report_who_lost_a_peer_before_the_others_gave_up_is_none(
    at_s: int, named: list[int]
) -> None:
    nodes = ["alpha", "alpha", "beta", "beta", "gamma", "gamma"]
    known = [placed(rank, node, world=6) for rank, node in enumerate(nodes)]
    said = [event("train.step", node=n, source=f"rank{r}", rank=r, role="context") for r, n in enumerate(nodes)]
    waits = [waited(rank, nodes[rank]) for rank in (1, 2, 4, 5)]
    incident = concluded(*known, *said, *waits, _lost(3, at_s))
    assert [culprit.rank for culprit in incident.culprits] == named


# --- rank 0, of which there is nothing ----------------------------------------------------------------------------


def _reports(rank: int, source: str) -> Event:
    return event("nccl.watchdog.timeout", source=source, offset=9_000 + rank, rank=rank, at_ns=T0 + 600 * SECOND,
                 attributes={"seq": "88", "op": "ALLREDUCE"})  # fmt: skip


@pytest.mark.parametrize(
    ("reporters", "silent"), [({1, 2}, [0]), ({1, 2, 3}, [0]), ({1}, []), ({0, 2, 3}, []), ({2, 3}, [])]
)
def test_rank_0_is_missed_where_all_others_up_to_the_last_report_into_one_file(
    reporters: set[int], silent: list[int]
) -> None:
    incident = concluded(*(_reports(rank, "job") for rank in reporters))
    assert [culprit.rank for culprit in incident.culprits] == silent


@pytest.mark.parametrize(("own", "silent"), [([], []), ([0], [0])])
def test_where_each_rank_has_a_file_rank_0_is_missed_only_if_it_is_there(own: list[int], silent: list[int]) -> None:
    said = [event("train.step", source=f"rank{rank}", rank=rank, role="context") for rank in own]
    incident = concluded(*said, *(_reports(rank, f"rank{rank}") for rank in (1, 2, 3)))
    assert [culprit.rank for culprit in incident.culprits] == silent


@pytest.mark.parametrize(("locals_printed", "named"), [((0, 1), [0]), ((1,), []), ((0,), [])])
def test_rank_0_is_the_process_before_rank_1_in_the_file_of_its_node(
    locals_printed: tuple[int, ...], named: list[int]
) -> None:
    waits = [waited(rank, node) for rank, node in ((1, "alpha"), (2, "beta"), (3, "beta"))]
    waits = [msgspec.structs.replace(one, source=f"{one.node}.log") for one in waits]
    said = [
        event("train.step", node="alpha", source="alpha.log", offset=local, local_rank=local, role="context")
        for local in locals_printed
    ]
    incident = concluded(*waits, *said)
    assert [culprit.rank for culprit in incident.culprits] == named
