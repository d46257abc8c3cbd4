"""What sources hand to the reader, and what the reader hands to them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from schemas.records import Attempt, Gap, NodeFacts, RawLine, SourceProgress, Span, Topology
from shippers.positions import SourcePosition

# What a source may send that is no line: it says the same however often it is read.
Told = NodeFacts | Topology | Span | Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a pass over all sources happens.

    `observed_ns` is the wall time when it began (0 where no host clock may go into records), `mono_ns` drives timers,
    `wall_ns` is for file ages. `ending`: nothing more will be written, so what is torn is complete.
    """

    observed_ns: int
    mono_ns: int
    wall_ns: int
    ending: bool = False
    observe: Callable[[], int] | None = None

    def observed_now(self) -> int:
        """The wall time for records, asked after a read: all that was read was written before it."""
        return self.observed_ns if self.observe is None else self.observe()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How much one read may return; a single line may be larger than `size`."""

    lines: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Lines of one source with the position after them. Without lines: only a position or gaps to be kept.

    `records` are sent as they are, each as a message of its own. `size` is what goes on, in bytes; `passed_over` is
    what was read beside it.
    """

    source: str
    position: SourcePosition | None
    lines: list[RawLine] = field(default_factory=list)
    size: int = 0
    gaps: list[Gap] = field(default_factory=list)
    records: list[Told] = field(default_factory=list)
    passed_over: int = 0


@runtime_checkable
class Watcher(Protocol):
    """A source that also looks at the lines of the others."""

    def see(self, piece: Piece, kind: str) -> None:
        """Lines that were read, of a source of this kind."""


@runtime_checkable
class Waking(Protocol):
    """A source whose next line may be waited for."""

    @property
    def descriptor(self) -> int | None:
        """Readable once there is something; None where the source is not open."""


class Readable(Protocol):
    """Lines that are there to be read."""

    @property
    def attributes(self) -> dict[str, str]:
        """What holds for all lines that are read now."""

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """The next lines; None at the end."""


class Source(Readable, Protocol):
    """A named stream of lines."""

    name: str

    def look(self, moment: Moment) -> None:
        """Look for what changed around the stream (rotation, creation, permission)."""

    def progress(self) -> SourceProgress:
        """How far the stream is read."""

    def close(self) -> None:
        """Close what is open."""
