"""Reads pickles of plain values and executes nothing: each opcode is interpreted here, against an allow list.

Plain are None, bool, int, float, str, bytes, list, tuple and dict, in protocols 0 to 5. An opcode that names, calls or
builds anything else is refused. A value may stand in many places and even inside itself: walk it to a fixed depth only.
"""

import codecs
import struct
from collections.abc import Callable
from typing import Any, Final

# So many opcodes: a dump of 20,000 entries with their stacks has half of them.
MAX_OPCODES: Final = 6_000_000
MAX_MARKS: Final = 1_000
MAX_LONG_BYTES: Final = 16
MAX_DIGITS: Final = 40
MAX_TEXT_LINE: Final = 1_000_000
MAX_PROTOCOL: Final = 5
# What a key of a dict may be: comparing others may take for ever, and of larger numbers Python puts many in one place.
_KEYS: Final = frozenset((str, int, bytes, bool, type(None)))
MAX_NUMBER_KEY: Final = 2**32
_INT32: Final = struct.Struct("<i").unpack_from
_UINT16: Final = struct.Struct("<H").unpack_from
_UINT32: Final = struct.Struct("<I").unpack_from
_UINT64: Final = struct.Struct("<Q").unpack_from
_DOUBLE: Final = struct.Struct(">d").unpack_from
# Opcodes that are never read, by the name that the documentation gives them.
_REFUSED: Final = {
    b"c": "GLOBAL", b"\x93": "STACK_GLOBAL", b"R": "REDUCE", b"b": "BUILD", b"i": "INST", b"o": "OBJ",
    b"\x81": "NEWOBJ", b"\x92": "NEWOBJ_EX", b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4", b"P": "PERSID",
    b"Q": "BINPERSID", b"\x8f": "EMPTY_SET", b"\x90": "ADDITEMS", b"\x91": "FROZENSET", b"\x96": "BYTEARRAY8",
    b"\x97": "NEXT_BUFFER", b"\x98": "READONLY_BUFFER",
}  # fmt: skip


class PickleError(ValueError):
    """A pickle that is not read; the text says at which byte it stops and why."""


def is_pickle(head: bytes) -> bool:
    """Whether a file that begins so may be a pickle of a container (protocol 0 has no mark of its own)."""
    if head[:1] == b"\x80":
        return len(head) > 1 and head[1] <= MAX_PROTOCOL
    return head[:3] in (b"(dp", b"(lp") or head[:2] in (b"}q", b"]q")


def read_pickle(data: bytes) -> Any:
    """The value that a pickle holds.

    Raises:
        PickleError: it asks for more than plain values, is cut short, or is too large.

    """
    machine = _Machine(data)
    handlers, count = _HANDLERS, 0
    try:
        while count < MAX_OPCODES:
            machine.start = machine.at
            handler = handlers[data[machine.at]]
            machine.at += 1
            if handler is None:
                return machine.result()
            handler(machine)
            count += 1
    except IndexError:
        what = "ends too early" if machine.at >= len(data) else "takes values that are not there"
        raise machine.error(what) from None
    raise machine.error(f"has more than {MAX_OPCODES:,} opcodes")


class _Machine:
    """The stack, the marks on it, and the memo."""

    __slots__ = ("at", "data", "marks", "memo", "stack", "start")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = self.start = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def error(self, what: str) -> PickleError:
        return PickleError(f"pickle, byte {self.start}: {what}")

    def result(self) -> Any:
        if self.marks or len(self.stack) != 1:
            raise self.error(f"stops with {len(self.stack)} values and {len(self.marks)} marks, not one value")
        return self.stack[0]

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self.at + size
        if end > len(self.data):
            raise self.error(f"ends too early: {size:,} bytes are announced, {len(self.data) - self.at:,} are left")
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def line(self) -> bytes:
        """The bytes up to the end of the line (protocol 0)."""
        end = self.data.find(b"\n", self.at, self.at + MAX_TEXT_LINE)
        if end < 0:
            raise self.error("a line does not end")
        piece = self.data[self.at : end]
        self.at = end + 1
        return piece

    def text(self, raw: bytes, encoding: str = "utf-8", errors: str = "surrogatepass") -> str:
        try:
            return raw.decode(encoding, errors)
        except UnicodeDecodeError:
            raise self.error(f"a text is no {encoding}") from None

    def size(self, unpack: Callable[..., tuple[int]], width: int) -> int:
        """A length or number of so many bytes."""
        if self.at + width > len(self.data):
            raise self.error("ends too early")
        (number,) = unpack(self.data, self.at)
        self.at += width
        return number

    def since_mark(self) -> list[Any]:
        """The values behind the last mark, taken off the stack."""
        if not self.marks:
            raise self.error("a mark is missing")
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def pop(self) -> Any:
        if self.marks and self.marks[-1] >= len(self.stack):
            raise self.error("takes a value from below a mark")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        """The value on top, which must be a list or a dict; what is below a mark is out of reach."""
        if (self.marks and self.marks[-1] >= len(self.stack)) or type(self.stack[-1]) is not kind:
            raise self.error(f"adds to what is no {kind.__name__}")
        return self.stack[-1]

    def fill(self, items: list[Any]) -> None:
        """Keys and values into the dict on top."""
        target = self.top(dict)
        if len(items) % 2:
            raise self.error("a key has no value")
        for number in range(0, len(items), 2):
            key = items[number]
            if type(key) not in _KEYS:
                raise self.error("a key is neither text nor a whole number")
            if type(key) is int and not 0 <= key < MAX_NUMBER_KEY:
                raise self.error("a key is a number too large for one")
            target[key] = items[number + 1]

    def remember(self, name: int) -> None:
        if (self.marks and self.marks[-1] >= len(self.stack)) or not self.stack:
            raise self.error("remembers a value that is not there")
        if not 0 <= name < MAX_NUMBER_KEY:
            raise self.error("remembers a value under a number too large for one")
        self.memo[name] = self.stack[-1]

    def recall(self, name: int) -> None:
        try:
            self.stack.append(self.memo[name])
        except KeyError:
            raise self.error(f"recalls value {name}, which was not remembered") from None

    def number(self, raw: bytes) -> int:
        """A number in decimal digits."""
        try:
            if len(raw) <= MAX_DIGITS:
                return int(raw)
        except ValueError:
            pass
        raise self.error("a number is none or too long")


# --- opcodes ----------------------------------------------------------------------------------------------------------


def _mark(m: _Machine) -> None:
    if len(m.marks) >= MAX_MARKS:
        raise m.error(f"is nested more than {MAX_MARKS} deep")
    m.marks.append(len(m.stack))


def _protocol(m: _Machine) -> None:
    (version,) = m.take(1)
    if version > MAX_PROTOCOL:
        raise m.error(f"protocol {version} is not known")


def _frame(m: _Machine) -> None:
    size = m.size(_UINT64, 8)
    if size > len(m.data) - m.at:
        raise m.error(f"ends too early: a frame of {size:,} bytes is announced, {len(m.data) - m.at:,} are left")


def _long(m: _Machine, size: int) -> None:
    if not 0 <= size <= MAX_LONG_BYTES:
        raise m.error(f"a number of {size:,} bytes")
    m.stack.append(int.from_bytes(m.take(size), "little", signed=True))


def _int_line(m: _Machine) -> None:
    raw = m.line()
    m.stack.append(raw == b"01" if raw in (b"00", b"01") else m.number(raw))


def _float_line(m: _Machine) -> None:
    raw = m.line()
    try:
        m.stack.append(float(raw[:MAX_DIGITS]))
    except ValueError:
        raise m.error("a number is none") from None


def _string_line(m: _Machine) -> None:
    raw = m.line().strip()
    if len(raw) < 2 or raw[:1] not in b"'\"" or raw[-1:] != raw[:1]:
        raise m.error("a text has no quotes")
    try:
        plain, _ = codecs.escape_decode(raw[1:-1])
    except ValueError:
        raise m.error("a text has an escape that is none") from None
    m.stack.append(m.text(plain, errors="replace"))


def _append(m: _Machine) -> None:
    value = m.pop()
    m.top(list).append(value)


def _setitem(m: _Machine) -> None:
    value, key = m.pop(), m.pop()
    m.fill([key, value])


def _tuple(m: _Machine, size: int) -> None:
    values = [m.pop() for _ in range(size)]
    m.stack.append(tuple(values[::-1]))


def _appends(m: _Machine) -> None:
    items = m.since_mark()
    m.top(list).extend(items)


def _dict(m: _Machine) -> None:
    items = m.since_mark()
    m.stack.append({})
    m.fill(items)


def _pop(m: _Machine) -> None:
    # As Python does: a mark on top is taken like a value.
    if m.marks and m.marks[-1] == len(m.stack):
        m.marks.pop()
    else:
        m.stack.pop()


def _dup(m: _Machine) -> None:
    value = m.pop()
    m.stack += [value, value]


def _binput(m: _Machine) -> None:
    m.remember(m.data[m.at])
    m.at += 1


def _binget(m: _Machine) -> None:
    m.recall(m.data[m.at])
    m.at += 1


def _binint1(m: _Machine) -> None:
    m.stack.append(m.data[m.at])
    m.at += 1


def _refuse(m: _Machine) -> None:
    name = _REFUSED.get(m.data[m.start : m.start + 1])
    if name is None:
        raise m.error(f"0x{m.data[m.start]:02x} is no opcode")
    raise m.error(f"{name} asks for more than plain values; a pickle is never executed")


def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(make(m))


_Handler = Callable[[_Machine], None]
_ALLOWED: Final[dict[bytes, _Handler]] = {
    b"(": _mark, b"\x80": _protocol, b"\x95": _frame, b"0": _pop, b"1": lambda m: m.since_mark().clear(), b"2": _dup,
    # values
    b"N": _push(lambda _: None), b"\x88": _push(lambda _: True), b"\x89": _push(lambda _: False),
    b"I": _int_line, b"L": _push(lambda m: m.number(m.line().removesuffix(b"L"))), b"F": _float_line,
    b"K": _binint1, b"M": _push(lambda m: m.size(_UINT16, 2)), b"J": _push(lambda m: m.size(_INT32, 4)),
    b"\x8a": lambda m: _long(m, m.take(1)[0]), b"\x8b": lambda m: _long(m, m.size(_INT32, 4)),
    b"G": _push(lambda m: m.size(_DOUBLE, 8)),
    b"S": _string_line, b"V": _push(lambda m: m.text(m.line(), "raw-unicode-escape", "strict")),
    b"U": _push(lambda m: m.text(m.take(m.take(1)[0]), errors="replace")),
    b"T": _push(lambda m: m.text(m.take(m.size(_UINT32, 4)), errors="replace")),
    b"X": _push(lambda m: m.text(m.take(m.size(_UINT32, 4)))), b"\x8c": _push(lambda m: m.text(m.take(m.take(1)[0]))),
    b"\x8d": _push(lambda m: m.text(m.take(m.size(_UINT64, 8)))),
    b"C": _push(lambda m: m.take(m.take(1)[0])), b"B": _push(lambda m: m.take(m.size(_UINT32, 4))),
    b"\x8e": _push(lambda m: m.take(m.size(_UINT64, 8))),
    # containers
    b"]": _push(lambda _: []), b"}": _push(lambda _: {}), b")": _push(lambda _: ()), b"l": _push(_Machine.since_mark),
    b"t": _push(lambda m: tuple(m.since_mark())), b"d": _dict, b"a": _append, b"e": _appends, b"s": _setitem,
    b"u": lambda m: m.fill(m.since_mark()), b"\x85": lambda m: _tuple(m, 1), b"\x86": lambda m: _tuple(m, 2),
    b"\x87": lambda m: _tuple(m, 3),
    # memo
    b"p": lambda m: m.remember(m.number(m.line())), b"q": _binput, b"r": lambda m: m.remember(m.size(_UINT32, 4)),
    b"\x94": lambda m: m.remember(len(m.memo)), b"g": lambda m: m.recall(m.number(m.line())), b"h": _binget,
    b"j": lambda m: m.recall(m.size(_UINT32, 4)),
}  # fmt: skip
# STOP has no handler.
_HANDLERS: Final[list[_Handler | None]] = [
    None if byte == ord(".") else _ALLOWED.get(bytes((byte,)), _refuse) for byte in range(256)
]
