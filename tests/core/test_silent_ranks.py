"""Which rank stopped, where no line says why."""

import pytest

from schemas.records import Event
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
        assert "its launcher saw it end first" in (incident.why_unknown or "")
