"""The newest state wins, whatever order the records came in, and nothing unreadable is skipped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.agents.snapshots import Snapshot, SnapshotStore, UnreadableSnapshotError, unpack


def packed(applied: int, last_ns: int = 0) -> bytes:
    return Snapshot(applied=applied, last_ns=last_ns, state=b"state %d" % applied).pack()


@given(st.binary(max_size=2000), st.integers(-1, 2**62), st.integers(0, 2**63))
def test_a_snapshot_comes_back_as_it_was(state: bytes, applied: int, last_ns: int) -> None:
    snapshot = Snapshot(applied=applied, last_ns=last_ns, state=state)
    assert unpack(snapshot.pack()) == snapshot


@given(st.permutations([10, 20, 30, 40]))
def test_a_snapshot_appended_late_by_a_paused_worker_does_not_win(order: list[int]) -> None:
    store = SnapshotStore()
    for offset, applied in enumerate(order):
        store.take(0, offset, b"job", packed(applied))
    found = store.read(0, b"job")
    assert found is not None
    assert found.applied == 40
    assert store.next_offset(0) == 4


def test_a_deleted_entity_starts_anew() -> None:
    store = SnapshotStore()
    store.take(0, 0, b"job", packed(50))
    store.take(0, 1, b"job", None)
    assert store.read(0, b"job") is None
    store.take(0, 2, b"job", packed(7))
    assert store.read(0, b"job") == unpack(packed(7))


def test_partitions_that_went_away_are_read_from_the_start_when_they_come_back() -> None:
    store = SnapshotStore()
    store.take(0, 5, b"a", packed(1))
    store.take(1, 8, b"b", packed(1))
    store.put(2, b"c", packed(1))
    store.keep_only({1})
    assert (store.next_offset(0), store.next_offset(1)) == (0, 9)
    assert store.read(0, b"a") is None
    assert store.read(2, b"c") is None
    assert store.read(1, b"b") is not None


def test_old_entities_are_found_by_the_time_of_their_last_message() -> None:
    store = SnapshotStore()
    store.put(0, b"old", packed(3, last_ns=100))
    store.put(0, b"new", packed(9, last_ns=200))
    assert list(store.older_than(200)) == [(0, b"old", 3)]
    store.drop(0, b"old")
    assert list(store.older_than(200)) == []


@pytest.mark.parametrize("bad", [b"", b"\x01", b"\x09" + packed(1)[1:], packed(1)[:-3], packed(1)[:17] + b"garbage"])
def test_damaged_or_foreign_snapshots_are_named(bad: bytes) -> None:
    with pytest.raises(UnreadableSnapshotError):
        unpack(bad)
