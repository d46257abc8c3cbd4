"""Which messages of a partition may be acknowledged: only from the left, never past one that is in no snapshot.

Faust 0.15 commits past a held message when acknowledgements are out of order (and past a single held one even on a
group that never committed), so order is kept here and Faust sees a plain prefix.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class Acknowledgeable(Protocol):
    """The part of a Faust message that is needed to acknowledge it."""

    @property
    def offset(self) -> int: ...


class Saved(Protocol):
    """Whoever says up to which source offset a state is durable."""

    @property
    def saved(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Held:
    """A message that was processed and not acknowledged. `owner` None: only its outputs had to be durable."""

    message: Acknowledgeable
    owner: Saved | None


class Ledger:
    """The unacknowledged messages of one partition, oldest first. `expected` is the next offset to be processed."""

    def __init__(self, expected: int) -> None:
        self._held: deque[Held] = deque()
        self.expected = expected

    def __len__(self) -> int:
        return len(self._held)

    def add(self, message: Acknowledgeable, owner: Saved | None) -> None:
        """Remember a processed message; offsets only grow."""
        assert message.offset >= self.expected, f"offset {message.offset} after {self.expected - 1}"
        self._held.append(Held(message, owner))
        self.expected = message.offset + 1

    def release(self, *, below: int) -> Iterator[Acknowledgeable]:
        """Take from the left all messages below an offset whose owners are durable, stop at the first other."""
        held = self._held
        while held:
            first = held[0]
            offset = first.message.offset
            if offset >= below or (first.owner is not None and first.owner.saved < offset):
                return
            held.popleft()
            yield first.message
