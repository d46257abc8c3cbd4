"""One of several agents has the seat: the same behaviour on a Lease and on a file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shippers.control.kube_access import Access
from shippers.control.kube_api import Api
from shippers.control.lease import LeaseStore
from shippers.control.seat import MAX_POSITION_CHARACTERS, Seat, SeatStore
from shippers.control.seat_file import FileStore
from tests.shippers.control.api_server import FakeApi, serving

SEAT_S, RENEW_S = 15.0, 5.0


class Hands:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(params=["lease", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], SeatStore]]:
    if request.param == "file":
        yield lambda: FileStore(tmp_path / "seat")
        return
    with serving(FakeApi()) as fake:
        api = Api(Access(host="127.0.0.1", port=fake.port), 5.0)
        yield lambda: LeaseStore(api, "monitoring", "rootrank-control", SEAT_S)


def seats(store: Callable[[], SeatStore], *clocks: Hands) -> list[Seat]:
    return [
        Seat(store(), f"agent-{n}", seat_s=SEAT_S, renew_s=RENEW_S, tell=lambda text: None, clock=clock)
        for n, clock in enumerate(clocks)
    ]


def test_one_has_the_seat_and_the_other_takes_it_when_it_was_not_renewed(store: Callable[[], SeatStore]) -> None:
    first_clock, second_clock = Hands(), Hands()
    first, second = seats(store, first_clock, second_clock)
    first.look()
    second.look()
    assert (first.term, second.term) == (1, 0)
    assert second.why_not == "stand-by: agent-0 is active"
    for _ in range(10):
        first_clock.now_s += RENEW_S
        second_clock.now_s += RENEW_S
        first.look()
        second.look()
        assert (first.term, second.term) == (1, 0)
    second_clock.now_s += SEAT_S - 0.1
    second.look()
    assert second.term == 0
    second_clock.now_s += 0.2
    second.look()
    assert second.term == 1


def test_who_cannot_renew_stops_before_another_may_begin(store: Callable[[], SeatStore]) -> None:
    clock = Hands()
    (first,) = seats(store, clock)
    first.look()
    clock.now_s += SEAT_S * 2 / 3 - 0.1
    assert first.term == 1
    clock.now_s += 0.2
    assert first.term == 0


def test_what_was_published_is_handed_to_the_next(store: Callable[[], SeatStore]) -> None:
    first_clock, second_clock = Hands(), Hands()
    first, second = seats(store, first_clock, second_clock)
    first.look()
    first.publish("kubernetes/events", '{"version":"7"}')
    first.publish("kubernetes/nodes", "x" * (MAX_POSITION_CHARACTERS + 1))
    first_clock.now_s += RENEW_S
    first.look()
    second.look()
    second_clock.now_s += SEAT_S + 1
    second.look()
    assert second.term == 1
    assert not second.was_mine
    assert second.handed("kubernetes/events") == '{"version":"7"}'
    assert second.handed("kubernetes/nodes") is None


def test_a_seat_that_is_given_back_is_taken_at_once(store: Callable[[], SeatStore]) -> None:
    first, second = seats(store, Hands(), Hands())
    first.look()
    second.look()
    first.publish("slurm/jobs", "p")
    first.close()
    second.look()
    assert (first.term, second.term) == (0, 1)
    assert second.handed("slurm/jobs") == "p"


def test_who_was_the_last_one_goes_on_from_what_it_knows_itself(store: Callable[[], SeatStore]) -> None:
    clock = Hands()
    (first,) = seats(store, clock)
    first.look()
    (again,) = seats(store, clock)
    again.look()
    assert (again.term, again.was_mine) == (1, True)


def test_a_stand_by_that_wakes_after_another_took_the_seat_is_no_longer_active(store: Callable[[], SeatStore]) -> None:
    first_clock, second_clock = Hands(), Hands()
    first, second = seats(store, first_clock, second_clock)
    first.look()
    second.look()
    second_clock.now_s += SEAT_S + 1
    second.look()
    first.look()  # its clock stood still, as that of a stopped process seems to
    assert (first.term, second.term) == (0, 1)
    assert first.why_not == "stand-by: agent-1 is active"


def test_a_lease_that_may_not_be_written_says_what_the_role_must_have() -> None:
    with serving(FakeApi()) as fake:
        fake.tokens = {"none"}
        said: list[str] = []
        store = LeaseStore(Api(Access(host="127.0.0.1", port=fake.port), 5.0), "monitoring", "rootrank-control", SEAT_S)
        seat = Seat(store, "agent-0", seat_s=SEAT_S, renew_s=RENEW_S, tell=said.append)
        seat.look()
        seat.look()
        assert seat.term == 0
        assert len(said) == 1
        assert 'apiGroups ["coordination.k8s.io"], resources ["leases"], verbs ["get"]' in seat.why_not


def test_a_file_that_is_no_seat_is_said(tmp_path: Path) -> None:
    (tmp_path / "seat").write_text("mine")
    said: list[str] = []
    seat = Seat(FileStore(tmp_path / "seat"), "agent-0", seat_s=SEAT_S, renew_s=RENEW_S, tell=said.append)
    seat.look()
    assert seat.term == 0
    assert "is no seat" in said[0]
