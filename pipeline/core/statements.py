"""What the lines of one source state, each as one match: split lines joined, torn ones parted, documents flattened."""

from typing import Final, NamedTuple

import msgspec
from msgspec import Struct, field

from pipeline.core.blocks import Block, Blocks, writer_of
from pipeline.core.document_kinds import Open
from pipeline.core.documents import Documents, Flat, holds_back
from pipeline.core.headings import Heading, headed, heading_of
from pipeline.core.parse import ParsedLine
from pipeline.core.partials import Joined, Partial, Partials
from pipeline.core.pieces import Piece, is_whole, pieces
from pipeline.core.wrapped import Wrapped
from schemas.records import RawLine
from schemas.signals import Match, SignalSet

# What SignalSet.look says of a line that may begin a document.
_HEAD: Final = 2


class Pending(Struct, kw_only=True):
    """What the lines of one source began and did not end yet.

    `heading`: the writer of a traceback that goes on; `wrapped`: a line that may have been broken off.
    """

    partials: dict[str, Partial] = field(default_factory=dict)
    documents: dict[str, Open] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)
    heading: Heading | None = None
    wrapped: Wrapped | None = None

    @property
    def waits(self) -> bool:
        """Whether something is held back until more lines come."""
        return bool(self.partials) or any(map(holds_back, self.documents.values()))


class Statement(NamedTuple):
    """A match, the line of the file that it stands for, and what that line's prefixes say.

    `identity`: what tells it from other statements of its line.
    """

    line: RawLine
    parsed: ParsedLine
    match: Match
    identity: str


class Statements:
    """The statements of one source. All that it keeps is in `pending`."""

    def __init__(self, signals: SignalSet, pending: Pending) -> None:
        self._signals = signals
        self._pending = pending
        self._partials = Partials(pending.partials)
        self._documents = Documents(pending.documents)
        self._blocks = Blocks(pending.blocks, signals)
        self._look = 0
        # Whether the last line that was read is one of a document.
        self.is_taken = False

    def wants(self, body: str) -> bool:
        """Whether a line may state anything, by itself or with others."""
        self._look = self._signals.look(body)
        is_open = self._documents.is_open or self._partials.is_open or self._pending.wrapped is not None
        return self._look > 0 or is_open

    def whole(self, line: RawLine) -> Joined | None:
        """The line that was just asked for, with the parts before it; None where more of it is still to come."""
        whole = self._partials.take(line)
        if whole is not None and whole.joined:
            self._look = self._signals.look(whole.line.body)
        return whole

    def of(self, whole: Joined, parsed: ParsedLine, match: Match | None) -> list[Statement]:
        """What a line states. `match` is what its body means where it is whole."""
        self.is_taken = False
        parsed = self._headed(parsed, whole.line.offset)
        if is_whole(parsed.body):
            if match is None and self._look < _HEAD and not self._documents.is_open:
                return []
            return self._of_piece(whole, Piece(parsed, torn=False), match, whole.line.body)
        self._look = _HEAD
        if parsed.process == "kernel" and match is not None:
            # The kernel prints a message of several lines at once.
            return self._of_piece(whole, Piece(parsed, torn=False), match, whole.line.body)
        found: list[Statement] = []
        for piece in pieces(parsed):
            identity = f"{whole.line.body}\x1f{piece.parsed.body}"
            found += self._of_piece(whole, piece, self._signals.match(piece.parsed.body), identity)
        return found

    def _headed(self, parsed: ParsedLine, offset: int) -> ParsedLine:
        """The line, with the writer of the traceback that it belongs to where it says none."""
        pending = self._pending
        if pending.heading is not None:
            told = headed(parsed, pending.heading, offset)
            if told is not None:
                return told
        pending.heading = heading_of(parsed, offset)
        return parsed

    def rest(self) -> tuple[list[Joined], list[Statement]]:
        """Lines and statements that are not complete and never will be: nothing more comes."""
        flats = [statement for flat in self._documents.flush() for statement in self._of_flat(flat)]
        return self._partials.flush(), flats

    def _of_piece(self, whole: Joined, piece: Piece, match: Match | None, identity: str) -> list[Statement]:
        found: list[Statement] = []
        is_told = False
        if not piece.torn and (self._look >= _HEAD or self._documents.is_open):
            fed = self._documents.feed(writer_of(piece.parsed), whole.line, piece.parsed)
            is_told, self.is_taken = fed.waits, fed.taken
            for flat in fed.flats:
                stated = self._of_flat(flat)
                is_told = is_told or (bool(stated) and flat.line.offset == whole.line.offset)
                found += stated
        if match is None or is_told:
            return found
        completed = self._blocks.completed(match, piece.parsed, whole.line.offset, torn=piece.torn)
        if completed is None:
            return found
        mark = {"torn": "true"} if piece.torn else {"joined": "true"} if whole.joined else {}
        if mark:
            completed = msgspec.structs.replace(completed, attributes={**completed.attributes, **mark})
        return [*found, Statement(whole.line, piece.parsed, completed, identity)]

    def _of_flat(self, flat: Flat) -> list[Statement]:
        match = self._signals.match(flat.text)
        if match is None:
            return []
        parsed = msgspec.structs.replace(flat.parsed, body=flat.text)
        completed = self._blocks.completed(match, parsed, flat.line.offset, torn=False)
        return [] if completed is None else [Statement(flat.line, parsed, completed, flat.text)]
