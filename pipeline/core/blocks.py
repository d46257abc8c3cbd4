"""Records of several lines, put together per writer: what the earlier lines say waits for the line that completes them.

Lines of several writers may stand between each other in any order. Where nothing tells two writers apart, a record
that another one may have been mixed into gets nothing from its earlier lines: fewer attributes, never somebody else's.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct, field

from pipeline.core.headings import is_exception
from pipeline.core.parse import ParsedLine
from schemas.signals import Match, SignalSet

# A block is short; more attributes than this are none.
MAX_ATTRIBUTES: Final = 16
MAX_BLOCKS: Final = 1_024
# A record whose lines stand further apart in the file than this (bytes, kernel records) is broken off.
MAX_DISTANCE: Final = 256 * 1024

_TRACEBACK: Final = "python.traceback"
_FRAME: Final = "python.frame"
_FRAME_KEYS: Final = ("file", "line", "function")
# Whoever catches an exception and prints it shows the frames from where it was caught; Python itself shows all of them,
# and the hook of torch.distributed is asked about what nobody caught. SGLang and torch.multiprocessing catch in the
# outermost function of a process and end it.
_UNCAUGHT: Final = "uncaught"
_OF_HOOK: Final = "rank_hook"
_SCRIPT: Final = ("<module>", "_run_module_as_main", "run_scheduler_process", "_wrap")
# torchrun's @record writes down what ends its process: it raises it again.
_RECORD: Final = ("wrapper", "/elastic/multiprocessing/errors/__init__.py")
# The functions of the program itself that were running, outermost first: of processes that wait for each other they
# tell which is elsewhere.
_CALLERS: Final = "callers"
_BELOW: Final = " > "
WAITED: Final = ("gloo.timeout", "gloo.closed", "gloo.reset")
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen ")
MAX_CALLERS: Final = 240


class Block(Struct, kw_only=True):
    """What the lines of a record said so far.

    `head`: the signal of its first line; `heads`: how often it came; `seen`: how often the other lines gave each
    attribute; `mixed`: several writers may have written it.
    """

    attributes: dict[str, str] = field(default_factory=dict)
    head: str = ""
    heads: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    mixed: bool = False
    offset: int = 0


def writer_of(parsed: ParsedLine) -> str:
    """A key of who wrote a line, as far as its prefixes say; empty where they say nothing."""
    # The kernel does not repeat its stamp on the further lines of one message.
    process = None if parsed.process == "kernel" else parsed.process
    said = (parsed.node, parsed.pod, process, parsed.pid, parsed.task, parsed.rank, parsed.local_rank)
    return "" if not any(value is not None for value in said) else "\x1f".join(map(str, said))


class Blocks:
    """The records that are not complete in one source. All state is in `memory`."""

    def __init__(self, memory: dict[str, Block], signals: SignalSet) -> None:
        self._memory = memory
        self._signals = signals

    def completed(self, match: Match, parsed: ParsedLine, offset: int, *, torn: bool) -> Match | None:
        """The match with what earlier lines of its record said; None where the line only carries.

        A `torn` line may have lost a part of what it says, so that it tells nothing to later ones.
        """
        if not self._memory and match.carries is None and match.event not in (_FRAME, _TRACEBACK):
            return match
        writer = writer_of(parsed)
        if match.event == _FRAME:
            if not torn:
                self._frame(match, writer, offset)
            return None
        if match.event == _TRACEBACK:
            self._traceback(writer, offset, uncaught=_OF_HOOK in parsed.wrappers)
        elif is_exception(parsed.body):
            match = self._raised(match, writer, offset)
        if match.carries is not None:
            if not torn:
                self._carry(match, match.carries, writer, offset)
            return match if match.keeps else None
        return match if match.takes is None else self._take(match, match.takes, writer, offset)

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _carry(self, match: Match, name: str, writer: str, offset: int) -> None:
        block = self._open(name, writer, offset)
        is_head = match.signal == block.head
        again = any(key in block.seen for key in match.attributes)
        if is_head:
            said = block.attributes
            again = bool(block.seen) or any(said.get(key, value) != value for key, value in match.attributes.items())
        if again and not writer and name not in self._signals.alone:
            # Two writers are at it, or one broke off; nothing tells them apart.
            block.mixed = True
        elif again and is_head:
            block.attributes.clear()
            block.seen.clear()
        if not block.head:
            block.head = match.signal
        elif not is_head:
            for key in match.attributes:
                block.seen[key] = block.seen.get(key, 0) + 1
        block.heads += is_head or block.heads == 0
        if len(block.attributes) < MAX_ATTRIBUTES:
            block.attributes.update(match.attributes)

    def _take(self, match: Match, name: str, writer: str, offset: int) -> Match:
        key = f"{name}\x1f{writer}"
        block = self._near(key, offset)
        if block is None:
            return match
        carried = {} if block.mixed else block.attributes
        if name not in self._signals.repeated:
            self._close(key, block)
        return self._signals.completed(match, carried)

    def _close(self, key: str, block: Block) -> None:
        """A record is complete; of a mixed block the others are still to come."""
        block.heads -= 1
        block.seen = {name: count - 1 for name, count in block.seen.items() if count > 1}
        if not block.mixed or (block.heads <= 0 and not block.seen):
            del self._memory[key]

    def _open(self, name: str, writer: str, offset: int) -> Block:
        key = f"{name}\x1f{writer}"
        block = self._near(key, offset)
        if block is None:
            while len(self._memory) >= MAX_BLOCKS:
                del self._memory[next(iter(self._memory))]
            block = self._memory[key] = Block()
        block.offset = offset
        return block

    def _near(self, key: str, offset: int) -> Block | None:
        block = self._memory.get(key)
        if block is not None and abs(offset - block.offset) > MAX_DISTANCE:
            del self._memory[key]
            return None
        return block

    # --- tracebacks ---------------------------------------------------------------------------------------------------

    def _traceback(self, writer: str, offset: int, *, uncaught: bool) -> None:
        """A traceback begins. Two that one writer began cannot be told apart where there may be several writers."""
        block = self._near(f"{_TRACEBACK}\x1f{writer}", offset)
        begun = 0 if block is None else block.seen.get(_TRACEBACK, 0)
        block = self._open(_TRACEBACK, writer, offset)
        block.attributes = {_UNCAUGHT: "true"} if uncaught else {}
        block.mixed = block.mixed or (not writer and begun > 0)
        block.seen[_TRACEBACK] = begun + 1 if block.mixed else 1

    def _frame(self, match: Match, writer: str, offset: int) -> None:
        """The deepest frame stands last; where the first one is the script itself, nobody caught the exception."""
        block = self._open(_TRACEBACK, writer, offset)
        block.seen.setdefault(_TRACEBACK, 1)
        said = block.attributes
        if _is_constructor(match.attributes, said):
            return
        is_uncaught = said.get(_UNCAUGHT) or (not said and _is_outermost(match.attributes))
        block.attributes = {**match.attributes, _CALLERS: _callers(said.get(_CALLERS, ""), match.attributes)}
        if is_uncaught:
            block.attributes[_UNCAUGHT] = "true"

    def _raised(self, match: Match, writer: str, offset: int) -> Match:
        """The exception ends the traceback: the place that raised it is the deepest frame."""
        key = f"{_TRACEBACK}\x1f{writer}"
        block = self._near(key, offset)
        if block is None:
            return match
        left = block.seen.get(_TRACEBACK, 1) - 1
        frame, block.attributes = block.attributes, {}
        if match.event not in WAITED:
            frame.pop(_CALLERS, None)
        if left <= 0:
            del self._memory[key]
        else:
            block.seen[_TRACEBACK], block.offset = left, offset
        if block.mixed or not frame or any(name in match.attributes for name in _FRAME_KEYS):
            return match
        return msgspec.structs.replace(match, attributes={**match.attributes, **frame})


def _is_outermost(frame: Mapping[str, str]) -> bool:
    """Whether an exception that comes this far ends the process."""
    function, file = frame.get("function"), frame.get("file", "")
    return function in _SCRIPT or (function == _RECORD[0] and file.endswith(_RECORD[1]))


def _is_constructor(frame: Mapping[str, str], caller: Mapping[str, str]) -> bool:
    """Whether a library's function made a helper of the same file there: torch.load opens what it reads like this."""
    same = frame.get("file") == caller.get("file") and frame.get("function") == "__init__"
    return same and any(part in frame.get("file", "") for part in _LIBRARIES)


def _callers(before: str, frame: Mapping[str, str]) -> str:
    """With one more function, where it is the program's own."""
    function = frame.get("function", "")
    if any(part in frame.get("file", "") for part in _LIBRARIES) or len(before) > MAX_CALLERS:
        return before
    return f"{before}{_BELOW}{function}" if before else function


def callers_of(said: Mapping[str, str]) -> tuple[str, ...]:
    """The functions of the program in which a wait in vain stood, outermost first."""
    return tuple(said.get(_CALLERS, "").split(_BELOW))
