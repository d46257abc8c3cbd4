"""How far the nodes of one job were read, and until when nothing more of it can come."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from msgspec import Struct

from schemas.records import TIME_MAX_NS, NodeProgress
from schemas.vocabulary import SourceState

SECOND_NS: Final = 1_000_000_000
# A node that says nothing for this long is left out of the watermark and named.
SILENT_NS: Final = 60 * SECOND_NS


class NodeSeen(Struct, kw_only=True):
    """How far one node has been read, as of when, and when it last spoke (broker time, ns)."""

    through_ns: int = 0
    as_of_ns: int = 0
    ended: bool = False
    said_ns: int = 0
    kinds: dict[str, SourceState] = {}
    is_node: bool = False
    excluded: str = ""

    def take(self, progress: NodeProgress, now_ns: int) -> None:
        """Note what a node says of itself."""
        self.as_of_ns = progress.as_of_unix_nano
        self.is_node = self.is_node or bool(progress.node)
        self.through_ns = max(self.through_ns, progress.through_unix_nano)
        self.ended, self.said_ns, self.kinds, self.excluded = (
            progress.ended, now_ns, progress.kinds, progress.excluded,
        )  # fmt: skip

    def is_open(self, now_ns: int) -> bool:
        """Whether the watermark waits for it."""
        return not self.ended and not self.excluded and now_ns - self.said_ns <= SILENT_NS


class Reporters:
    """The nodes of one job. Thousands report every second: who is asked often is asked first."""

    def __init__(self, known: dict[str, NodeSeen]) -> None:
        """`known` is the state, by name; it grows here only."""
        self._known = known
        self._unended = {name: None for name, seen in known.items() if not seen.ended}
        self._holder = ""

    def seen(self, name: str) -> NodeSeen:
        """What is known of a reporter, which may be new."""
        seen = self._known.get(name)
        if seen is None:
            seen = self._known[name] = NodeSeen()
            self._unended[name] = None
        return seen

    def take(self, progress: NodeProgress, now_ns: int) -> bool:
        """Note how far a node was read; whether anything but that changed."""
        seen = self.seen(progress.reporter)
        changes = seen.kinds != progress.kinds or seen.ended != progress.ended
        seen.take(progress, now_ns)
        if seen.ended:
            self._unended.pop(progress.reporter, None)
        else:
            self._unended[progress.reporter] = None
        return changes

    def all_ended(self) -> bool:
        """Whether every node was read to its end."""
        return bool(self._known) and not self._unended

    def silent(self, now_ns: int) -> list[str]:
        """Those that are left out of the watermark: not ended, and nothing heard of them for a minute."""
        return sorted(n for n, s in self._known.items() if not s.ended and now_ns - s.said_ns > SILENT_NS)

    def excluded(self) -> dict[str, str]:
        """Those that are left out for another reason, and why."""
        return {name: seen.excluded for name, seen in self._known.items() if seen.excluded}

    def watermark(self, now_ns: int) -> int:
        """Reference time up to which every node that still speaks has been read. Moves by progress, not by silence."""
        still_open = [seen.through_ns for seen in self._known.values() if seen.is_open(now_ns)]
        ended = any(seen.ended for seen in self._known.values())
        return min(still_open, default=TIME_MAX_NS if ended else 0)

    def hold(self, wanted_ns: int, now_ns: int) -> bool:
        """Whether anybody holds the watermark back from there. Who did last is asked first."""
        for name in chain((self._holder,), self._unended):
            seen = self._known.get(name)
            if seen is not None and seen.through_ns < wanted_ns and seen.is_open(now_ns):
                self._holder = name
                return True
        return False

    def through(self) -> dict[str, int]:
        """How far each was read: TIME_MAX_NS where that is to its end."""
        return {node: TIME_MAX_NS if seen.ended else seen.through_ns for node, seen in self._known.items()}

    def nodes(self) -> Iterator[tuple[str, NodeSeen]]:
        """Those that are nodes of their own, by name."""
        return ((name, seen) for name, seen in self._known.items() if seen.is_node)
