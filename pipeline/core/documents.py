"""Tables, outlines and lists inside a log become lines that each stand by themselves, which the signals then match.

Which forms there are is data (`schemas/signals/documents.toml`); `document_kinds` says how each kind is cut. A document
belongs to one writer: lines of others do not end it, and a line that does not fit never becomes part of it.
"""

from typing import Final, NamedTuple

import msgspec

from pipeline.core.document_kinds import AGAIN, BEGINS, ENDS, STEPS, Open
from pipeline.core.parse import ParsedLine
from schemas.documents import FIRST_BYTES, FOLLOW_BYTES, Form, load_forms
from schemas.records import RawLine

MAX_OPEN: Final = 64
# The counters of TCP fill the longest line.
MAX_CHARACTERS: Final = 8_192


class Flat(NamedTuple):
    """A text that a document became, the line of the file that said it, and what that line's prefixes said."""

    text: str
    line: RawLine
    parsed: ParsedLine


class Fed(NamedTuple):
    """What a line completes, whether it is one of a document, and whether others will say it together with it."""

    flats: list[Flat]
    taken: bool = False
    waits: bool = False


class Documents:
    """The documents that are open in one source, by writer. All state is in `memory`."""

    def __init__(self, memory: dict[str, Open]) -> None:
        self._memory = memory
        self._forms = load_forms()

    @property
    def is_open(self) -> bool:
        """Whether a line may belong to a document without beginning one."""
        return bool(self._memory)

    def feed(self, writer: str, line: RawLine, parsed: ParsedLine) -> Fed:
        """What a line completes: texts of its own, or of lines before it that wait for no more."""
        body = parsed.body
        if len(body) > MAX_CHARACTERS:
            return Fed([])
        line, parsed = msgspec.structs.replace(line, body=""), msgspec.structs.replace(parsed, body="")
        over = self._forgotten(line)
        document = self._memory.get(writer)
        if document is not None:
            form = self._forms.by_name.get(document.form)
            is_near = _is_near(document, line)
            said = STEPS[form.entry.kind](form, document, body) if form is not None and is_near else None
            if said is not None:
                before = [Flat(text, document.line, document.parsed) for text in said.before]
                document.line, document.parsed, document.foreign = line, parsed, 0
                if document.begun == AGAIN:
                    document.begun = line.offset
                now = [Flat(text, line, parsed) for text in said.now]
                return Fed(over + before + now, taken=True, waits=holds_back(document))
            document.foreign += 1
            if form is None or not is_near or document.foreign > form.entry.patience:
                over += self._close(writer)
        begun = self._begun(body)
        if begun is None:
            return Fed(over)
        over += self._close(writer)
        while len(self._memory) >= MAX_OPEN:
            over += self._close(next(iter(self._memory)))
        over += self._begin(begun, writer, line, parsed, body)
        return Fed(over, taken=True, waits=begun.entry.kind in ENDS)

    def flush(self) -> list[Flat]:
        """What the open documents say by now, where nothing more of them comes. Tables wait for further rows."""
        ending = [writer for writer, document in self._memory.items() if holds_back(document)]
        return [flat for writer in ending for flat in self._close(writer)]

    def _begun(self, body: str) -> Form | None:
        """The form that a line is the head of."""
        for number in self._forms.heads.candidates(body.encode("utf-8", "surrogatepass")):
            form = self._forms.in_order[number]
            if form.head.fullmatch(body.strip()):
                return form
        return None

    def _begin(self, form: Form, writer: str, line: RawLine, parsed: ParsedLine, body: str) -> list[Flat]:
        document = self._memory[writer] = Open(form=form.entry.name, line=line, parsed=parsed)
        head = form.head.fullmatch(body.strip())
        document.lead = {name: value for name, value in head.groupdict().items() if value} if head else {}
        if form.entry.kind in BEGINS:
            BEGINS[form.entry.kind](form, document, body)
        said = STEPS[form.entry.kind](form, document, body) if form.entry.first else None
        document.begun = line.offset
        return [Flat(text, line, parsed) for text in said.now] if said else []

    def _forgotten(self, line: RawLine) -> list[Flat]:
        """The end of the oldest document, where its writer has been silent for long."""
        writer = next(iter(self._memory), None)
        return [] if writer is None or _is_near(self._memory[writer], line) else self._close(writer)

    def _close(self, writer: str) -> list[Flat]:
        document = self._memory.pop(writer, None)
        if document is None or not holds_back(document):
            return []
        form = self._forms.by_name[document.form]
        return [Flat(text, document.line, document.parsed) for text in ENDS[form.entry.kind](form, document)]


def holds_back(document: Open) -> bool:
    """Whether its last lines say something only once nothing more of it comes."""
    form = load_forms().by_name.get(document.form)
    return form is not None and form.entry.kind in ENDS


def _is_near(document: Open, line: RawLine) -> bool:
    """Whether a line may still belong to a document; one with which a file begins has no end but its own."""
    return document.begun <= FIRST_BYTES or abs(line.offset - document.begun) <= FOLLOW_BYTES
