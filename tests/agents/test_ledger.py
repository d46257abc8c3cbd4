"""Acknowledge from the left, never past a held message."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.agents.ledger import Ledger


@dataclass(frozen=True)
class Message:
    offset: int


@dataclass
class Owner:
    saved: int = -1


def released(ledger: Ledger, below: int = 10**9) -> list[int]:
    return [message.offset for message in ledger.release(below=below)]


def test_one_old_held_message_stops_everything_behind_it() -> None:
    ledger, old, busy = Ledger(0), Owner(), Owner(saved=1000)
    ledger.add(Message(0), old)
    for offset in range(1, 100):
        ledger.add(Message(offset), busy)
    assert released(ledger) == []
    old.saved = 0
    assert released(ledger) == list(range(100))


def test_messages_after_the_mark_stay_even_when_their_owner_is_durable() -> None:
    ledger = Ledger(5)
    for offset in range(5, 10):
        ledger.add(Message(offset), None)
    assert released(ledger, below=7) == [5, 6]
    assert len(ledger) == 3
    assert ledger.expected == 10


def test_an_offset_cannot_come_twice() -> None:
    ledger = Ledger(0)
    ledger.add(Message(3), None)
    with pytest.raises(AssertionError):
        ledger.add(Message(3), None)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_what_was_released_is_always_a_prefix_of_durable_messages(steps: list[tuple[int, bool]]) -> None:
    ledger, owners, out = Ledger(0), [Owner() for _ in range(4)], list[int]()
    owner_of: list[Owner] = []
    for number, save in steps:
        if save:
            owners[number].saved = len(owner_of) - 1
        else:
            ledger.add(Message(len(owner_of)), owners[number])
            owner_of.append(owners[number])
        out += released(ledger)
        assert out == list(range(len(out)))
        assert all(owner_of[offset].saved >= offset for offset in out)
        assert len(out) == len(owner_of) or owner_of[len(out)].saved < len(out)
