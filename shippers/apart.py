"""Files that may hang, looked at and read by a thread of their own: one for each source, never a second.

The thread is asked once in a pass and the answer taken when it is there, so a read that hangs in the kernel holds up
its own source and nobody else. What it read waits, with the positions after it, until the pass takes it; nothing is
read on before all of that is taken. So lines come once, in order, with positions that fit what is spooled.

The thread has a table of open files of its own (`own_descriptors`): a program that the agent starts closes all files
that it inherits, and closing one of a FUSE file system asks its server, too.
"""

import ctypes
import dataclasses
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from schemas.records import SourceProgress
from shippers.pieces import Limit, Moment, Piece, Readable, Source

_PATIENCE_S: Final = 0.02  # how long a pass waits for an answer that it has just asked for
_SLOW_S: Final = 10.0
_FIRST_SLOW_S: Final = 2.0  # of what has never answered
_ASK_AGAIN_NS: Final = 10**9  # though there is nothing to read: files come and go
_ANSWER_BYTES: Final = 512 * 1024
_UNSEEN: Final = "not looked at yet"
_CLOSE_RANGE: Final = 436  # on every architecture
_FIRST_OWN: Final = 3
_UNSHARE: Final = 2
_LIBC: Final = ctypes.CDLL(None)


class Files(Protocol):
    """Streams of files that are looked at together."""

    @property
    def patterns(self) -> Sequence[str]:
        """The paths or globs of the files."""

    def look(self, moment: Moment) -> None:
        """See what files there are."""

    def take_gone(self) -> list[str]:
        """Names of streams that ended for good since the last call."""

    def due(self, moment: Moment) -> Iterator[Readable]:
        """Streams of which there may be something to read now."""

    def sources(self) -> Sequence[Source]:
        """All streams."""

    def devices(self) -> Iterable[int]:
        """The file systems on which open files lie."""

    def progress(self) -> list[SourceProgress]:
        """Progress of each stream."""

    def anew(self) -> "Files":
        """The same, with nothing open, to go on where these are. Close these afterwards."""

    def close(self) -> None:
        """Close all files."""


class Alone:
    """One source that reads files of its own, as `Files`."""

    def __init__(self, source: Source, folders: Sequence[str]) -> None:
        self.patterns = folders
        self.name = source.name
        self._source = source

    def look(self, moment: Moment) -> None:
        """See what files there are."""
        self._source.look(moment)

    def take_gone(self) -> list[str]:
        """None: it is never gone."""
        return []

    def due(self, moment: Moment) -> Iterator[Readable]:
        """The source."""
        yield self._source

    def sources(self) -> Sequence[Source]:
        """The source."""
        return (self._source,)

    def devices(self) -> Iterable[int]:
        """None: nothing stays open."""
        return ()

    def progress(self) -> list[SourceProgress]:
        """Its progress."""
        return [self._source.progress()]

    def anew(self) -> "Alone":
        """Itself: nothing stays open."""
        return self

    def close(self) -> None:
        """Close it."""
        self._source.close()


@dataclass(slots=True)
class _Answer:
    """What a look and reading gave, and how far all is read after it."""

    pieces: deque[Piece] = field(default_factory=deque)
    told: list[SourceProgress] = field(default_factory=list)
    sources: Sequence[Source] = ()
    error: BaseException | None = None


class Apart:
    """`files`, looked at and read where the caller is, and from when on `may_hang` says so by a thread, for good."""

    def __init__(self, files: Files, may_hang: Callable[[Moment], bool], limit: Limit) -> None:
        """`may_hang` is asked while nobody else uses the files; `limit` is for one read."""
        self.name = getattr(files, "name", "files")
        self._files = files
        self._may_hang = may_hang
        self._limit = limit
        self._thread: threading.Thread | None = None
        self._questions = queue.SimpleQueue[Moment | None]()
        self._answers = queue.SimpleQueue[_Answer]()
        self._asked: Moment | None = None
        self._asked_s = 0.0
        self._has_looked = False
        self._slow_s = 0.0
        self._told_ns = 0  # when what is told was asked for
        self._answer = _Answer()
        self._told: list[SourceProgress] = []
        self._taken_ns = 0  # the wall time at which the answer was taken: what is in it was written before
        self._turn = 0

    @property
    def attributes(self) -> dict[str, str]:
        """Of what is read next; all streams of one source have the same."""
        return self._answer.sources[0].attributes if self._answer.sources else {}

    def look(self, moment: Moment) -> None:
        """See what there is, or ask the thread to. While it has not answered, nothing is asked of it."""
        if self._asked is not None or self._answer.pieces:
            self._slow_s = 0.0 if self._asked is None else (moment.mono_ns - self._asked.mono_ns) / 1e9
            return
        if self._thread is None and self._may_hang(moment):
            self._thread = self._begin()
        if self._thread is None:
            self._files.look(moment)
            self._has_looked = True
            return
        if moment.mono_ns - self._told_ns >= _ASK_AGAIN_NS or any(True for _ in self._files.due(moment)):
            self._ask(moment)

    def take_gone(self) -> list[str]:
        """Names of streams that ended for good. The thread hands them over as pieces, in their order."""
        return [] if self._thread is not None else self._files.take_gone()

    def due(self, moment: Moment) -> Iterator[Readable]:
        """Streams that may have something now; of the thread's answer, itself."""
        if self._thread is None:
            yield from self._files.due(moment)
            return
        self._take_answer(moment)
        if self._answer.pieces:
            yield self

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """What was read next, with its numbers."""
        pieces = self._answer.pieces
        if not pieces:
            return None
        piece = pieces.popleft()
        if not pieces:
            self._told = self._answer.told
        lines = [
            msgspec.structs.replace(line, seq=next(numbers), observed_time_unix_nano=self._taken_ns)
            for line in piece.lines
        ]
        return dataclasses.replace(piece, lines=lines)

    def sources(self) -> Sequence[Source]:
        """All streams."""
        return self._files.sources() if self._thread is None else self._answer.sources

    def progress(self) -> list[SourceProgress]:
        """Progress of each stream, as far as its lines were taken."""
        if self._thread is None:
            return self._files.progress()
        if self._slow_s > (_SLOW_S if self._has_looked else _FIRST_SLOW_S):
            reason = f"has not answered for {self._slow_s:.0f} s"
            return [msgspec.structs.replace(each, state="refused", reason=reason, at_end=False) for each in self._told]
        if self._answer.pieces:
            return [msgspec.structs.replace(each, at_end=False) for each in self._told]
        return self._told

    def close(self) -> None:
        """Close all files, by the thread where it has them; nobody waits for that."""
        if self._thread is None:
            self._files.close()
        else:
            self._questions.put(None)

    def _begin(self) -> threading.Thread:
        """Leave the files to a thread, which opens them where they were left."""
        self._told = self._files.progress()
        if not self._has_looked:
            self._told = [msgspec.structs.replace(each, reason=_UNSEEN) for each in self._told]
        if self._has_looked:
            before, self._files = self._files, self._files.anew()
            threading.Thread(target=before.close, name="closing", daemon=True).start()
        thread = threading.Thread(target=self._work, name=f"files {self._files.patterns[0]}", daemon=True)
        thread.start()
        return thread

    def _ask(self, moment: Moment) -> None:
        self._asked, self._asked_s, self._slow_s = moment, time.monotonic(), 0.0
        self._questions.put(moment)

    def _take_answer(self, moment: Moment) -> None:
        """The answer, if it is there or comes at once."""
        if self._asked is None:
            return
        left_s = self._asked_s + _PATIENCE_S - time.monotonic()
        try:
            answer = self._answers.get(timeout=left_s) if left_s > 0 else self._answers.get_nowait()
        except queue.Empty:
            return
        self._told_ns, self._asked, self._slow_s = self._asked.mono_ns, None, 0.0
        if answer.error is not None:
            raise answer.error
        self._answer, self._taken_ns, self._has_looked = answer, moment.observed_now(), True
        if not answer.pieces:
            self._told = answer.told

    # --- in the thread ---

    def _work(self) -> None:
        own_descriptors()
        while (moment := self._questions.get()) is not None:
            self._answers.put(self._answer_to(moment))
        self._files.close()

    def _answer_to(self, moment: Moment) -> _Answer:
        try:
            self._files.look(moment)
            pieces = deque(Piece(source=name, position=None) for name in self._files.take_gone())
            pieces.extend(self._read(moment))
            return _Answer(pieces=pieces, told=self._files.progress(), sources=self._files.sources())
        except BaseException as error:  # raised where the answer is taken
            return _Answer(error=error)

    def _read(self, moment: Moment) -> Iterator[Piece]:
        """Of the streams that are due as much as one answer holds, each time beginning with another."""
        sources = list(self._files.due(moment))
        self._turn = (self._turn + 1) % max(1, len(sources))
        left = _ANSWER_BYTES
        for source in sources[self._turn :] + sources[: self._turn]:
            while left > 0 and (piece := source.read(self._limit, moment, itertools.repeat(0))) is not None:
                left -= max(1, piece.size + piece.passed_over)
                yield piece


def own_descriptors() -> bool:
    """Give this thread a table of open files of its own, that begins without any. Linux 5.9 can."""
    first, last, how = ctypes.c_uint(_FIRST_OWN), ctypes.c_uint(0xFFFFFFFF), ctypes.c_uint(_UNSHARE)
    return bool(_LIBC.syscall(ctypes.c_long(_CLOSE_RANGE), first, last, how) == 0)
