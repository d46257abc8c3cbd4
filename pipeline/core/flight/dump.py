"""Dumps of PyTorch's flight recorder as plain records: which collectives a rank enqueued, and how far each came.

Sources: PyTorch's FlightRecorder.hpp, FlightRecorderDetail.hpp (from 2.2 on: TraceUtils.h, NCCLUtils.hpp) and
ProcessGroupNCCL.cpp. The shapes, by the dump's own `version`:

    none        2.2    a list of entries with `seq_id` and `pg_id`
    1.x         2.3    `entries` under a key; from 1.3 on `pg_config`, by `pg_id` or name, as lists of ranks
    2.0 - 2.3   2.4    `collective_seq_id`, `p2p_seq_id`, `is_p2p`, `process_group` (name, description), data types
    2.4 - 2.10  2.5+   `pg_status`, library version, thread; the JSON form has numbers of `pg_status` as text and 0 for
                       times that are not known, and leaves `entries` out where there are none
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import prod
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from pipeline.core.facts import MAX_WORLD

MAX_ENTRIES: Final = 100_000
MAX_GROUPS: Final = 8_192
MAX_DUMPS: Final = 20_000
# What all dumps in a file ask to read, counted in ranks that groups list; an operation counts as several.
MAX_ASKED: Final = 2**23
_ENTRY_COUNTS: Final = 8
# Of a list that is text, a rank takes at least so much: there are few of fewer digits.
_RANK_WIDTH: Final = 4
MAX_NAME: Final = 80
MAX_TENSORS: Final = 4_096
_INT64: Final = 2**63
# A dump without entries has one of these keys, and another one.
_KEYS: Final = frozenset(("pg_config", "pg_status"))
_OTHER_KEYS: Final = frozenset(("version", "entries", "nccl_comm_state", "nccl_version", "comm_lib_version"))
_P2P: Final = re.compile(r"(send|recv) (\d{1,7})(->|<-)(\d{1,7})")
_NUMBER_AT_END: Final = re.compile(r"(\d{1,7})\D{0,40}$")
# Folders of PyTorch itself: where a collective was called is above them.
_OF_TORCH: Final = ("/torch/", "torch/distributed/", "torch/_", "<frozen")


class FlightError(ValueError):
    """A dump that cannot be used; the text says why."""


class Entry(Struct, frozen=True, kw_only=True):
    """One operation. `seq` counts the collectives of its group, `p2p_seq` the sends and receives; times (ns since 1970,
    the host's clock) are 0 where they are not known. Of most operations nobody asks for more: `said` is the dump's own.
    """

    record_id: int
    group: str
    desc: str
    pg_id: str
    seq: int
    p2p_seq: int
    is_p2p: bool
    backend: str
    profiling_name: str
    op: str
    state: str
    retired: bool
    created_ns: int
    last_ns: int
    said: dict[Any, Any]

    @property
    def completed_ns(self) -> int:
        """When the rank saw that the operation had ended on its device."""
        return _time(self.said, "time_discovered_completed")

    @property
    def sizes(self) -> tuple[int, int, str]:
        """How many elements go in and come out, -1 where that is not known, and the shapes."""
        numel_in, shape_in = _sizes(self.said.get("input_sizes"))
        numel_out, shape_out = _sizes(self.said.get("output_sizes"))
        return numel_in, numel_out, shape_in or shape_out

    @property
    def dtypes(self) -> tuple[str, str]:
        """The data types that go in and come out."""
        return _types(self.said.get("input_dtypes")), _types(self.said.get("output_dtypes"))

    @property
    def timeout_ms(self) -> int:
        """After how long it times out; 0: not known."""
        return _int(self.said.get("timeout_ms"), 0)

    @property
    def where(self) -> str:
        """Where it was called: file and line of the innermost frame that is not PyTorch's own."""
        return _called_at(self.said.get("frames"))

    @property
    def ends(self) -> tuple[bool, int, int] | None:
        """Of a send or receive: whether it sends, the own rank in the group, and the other one."""
        found = _P2P.fullmatch(self.op)
        return (found[1] == "send", int(found[2]), int(found[4])) if found else None


class Status(Struct, frozen=True, kw_only=True):
    """The numbers of the last operations of one group; -1 where none is."""

    enqueued: int
    started: int
    completed: int


class Group(Struct, frozen=True, kw_only=True):
    """A process group: its name, what its maker calls it, and its ranks in the job (empty: not known)."""

    name: str
    desc: str
    ranks: tuple[int, ...]


class Dump(Struct, frozen=True, kw_only=True):
    """What one rank dumped. `rank`: as somebody wrote it beside the dump. `label`: its key in a file of many."""

    rank: int | None
    label: str
    version: str
    library: str
    groups: dict[str, Group]
    status: dict[str, Status]
    entries: list[Entry]


# --- recognising ------------------------------------------------------------------------------------------------------


def dumps_of_json(data: bytes) -> list[Dump]:
    """The dumps in a JSON document: one, a list of them, or many by rank.

    Raises:
        FlightError: the document is no JSON, or holds no dump.

    """
    try:
        return _found(_opened(Raw(data)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FlightError(f"no JSON: {error}") from None


def dumps_of_value(value: object) -> list[Dump]:
    """As `dumps_of_json`, of what a pickle held."""
    return _found(value)


def _opened(raw: Any) -> object:
    """A JSON value, but for what is inside of it: large dumps are taken apart entry by entry."""
    if not isinstance(raw, Raw):
        return raw
    head = bytes(raw).lstrip(b" \t\r\n\xef\xbb\xbf")[:1]
    if head == b"{":
        return msgspec.json.decode(_bare(raw), type=dict[str, Raw])
    return msgspec.json.decode(_bare(raw), type=list[Raw] if head == b"[" else Any)


def _bare(raw: Raw) -> bytes:
    return bytes(raw).removeprefix(b"\xef\xbb\xbf")


def _plain(value: object) -> object:
    return msgspec.json.decode(value) if isinstance(value, Raw) else value


def _found(value: object) -> list[Dump]:
    _check((value,))
    if (one := _dump(value, "")) is not None:
        return [one]
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    values = list(_first(pairs, MAX_DUMPS))
    _check(inner for _, inner in values)
    found = [dump for key, inner in values if (dump := _dump(_opened(inner), _text(key))) is not None]
    if not found:
        raise FlightError("holds no flight-recorder dump")
    return found


def _check(values: Iterable[object]) -> None:
    """Refuse what would be read again and again: a few bytes of a pickle show one long list in many places. In JSON
    nothing is there twice.
    """
    asked = 0
    for value in values:
        asked += sum(_asked(value))
        if asked > MAX_ASKED:
            raise FlightError("asks to read more than the dumps of any job hold")


def _asked(value: object) -> Iterator[int]:
    """How much a dump asks to read."""
    parts = [value.get(name) for name in ("entries", "pg_config", "pg_status")] if isinstance(value, dict) else [value]
    yield from (min(len(part), MAX_ENTRIES) * _ENTRY_COUNTS for part in parts if isinstance(part, list | dict))
    groups = value.get("pg_config") if isinstance(value, dict) else None
    for said in _first(groups.values(), MAX_GROUPS) if isinstance(groups, dict) else ():
        ranks = said.get("ranks") if isinstance(said, dict) else said
        if isinstance(ranks, list | tuple):
            yield min(len(ranks), MAX_WORLD)
        elif isinstance(ranks, str):
            yield len(ranks) // _RANK_WIDTH


def _dump(value: object, label: str) -> Dump | None:
    """A value as one dump, or None where it is none."""
    if isinstance(value, list):
        # PyTorch 2.2 dumped the entries alone.
        entries = _entries(value)
        return _made({}, label, entries) if entries else None
    if not isinstance(value, dict):
        return None
    entries = _entries(_opened(value.get("entries")))
    has, others = len(_KEYS & value.keys()), len(_OTHER_KEYS & value.keys())
    return _made(value, label, entries) if entries or (has and has + others > 1) else None


def _made(value: dict[Any, Any], label: str, entries: list[Entry]) -> Dump:
    rank = _int(_plain(value.get("rank")), -1)
    return Dump(
        rank=rank if 0 <= rank < MAX_WORLD else None, label=label, version=_text(_plain(value.get("version"))),
        library=_text(_plain(value.get("nccl_version", value.get("comm_lib_version")))),
        groups=_groups(_plain(value.get("pg_config"))), status=_statuses(_plain(value.get("pg_status"))),
        entries=entries,
    )  # fmt: skip


def own_rank(dump: Dump, file_name: str) -> int | None:
    """Who wrote a dump: what stands beside it, the one rank that all its groups share, the end it has in sends and
    receives; only then the last number of its key or of the file's name, which PyTorch ends with the rank.
    """
    if dump.rank is not None:
        return dump.rank
    possible = sorted((group.ranks for group in dump.groups.values() if group.ranks), key=len)
    shared = set(possible[0]).intersection(*possible[1:]) if possible else set()
    if len(shared) == 1:
        return shared.pop()
    for entry in dump.entries:
        group, ends = dump.groups.get(entry.group), entry.ends
        if group is not None and ends is not None and ends[1] < len(group.ranks):
            return group.ranks[ends[1]]
    found = _NUMBER_AT_END.search(dump.label) or _NUMBER_AT_END.search(_stem(file_name))
    return int(found[1]) if found else None


def _stem(file_name: str) -> str:
    """The name of a file without folders and endings; what stands before the first dot has the rank, if anything."""
    name = file_name.rpartition("/")[2]
    first = name.partition(".")[0]
    return first if _NUMBER_AT_END.search(first) else name


# --- groups -----------------------------------------------------------------------------------------------------------


def _groups(value: object) -> dict[str, Group]:
    groups = {}
    for key, said in _first(value.items(), MAX_GROUPS) if isinstance(value, dict) else ():
        name = _text(key)
        desc, ranks = "", said
        if isinstance(said, dict):
            name, desc, ranks = _text(said.get("name", name)), _text(said.get("desc")), said.get("ranks")
        groups[name] = Group(name=name, desc=desc, ranks=_ranks(ranks))
    return groups


def _ranks(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        return _listed(value) if len(value) < MAX_WORLD * 8 else ()
    if isinstance(value, list | tuple):
        return _valid([_int(rank, -1) for rank in value[: MAX_WORLD + 1]])
    return ()


@lru_cache(maxsize=4_096)
def _listed(text: str) -> tuple[int, ...]:
    """`[0, 1, 2]` as numbers: the dumps of all ranks say the same of a group."""
    inner = text.strip().removeprefix("[").removesuffix("]")
    return _valid([_int(part.strip(), -1) for part in inner.split(",")]) if inner.strip() else ()


def _valid(ranks: list[int]) -> tuple[int, ...]:
    """Ranks each once; none where one of them cannot be one."""
    good = len(ranks) <= MAX_WORLD and all(0 <= rank < MAX_WORLD for rank in ranks)
    return tuple(dict.fromkeys(ranks)) if good else ()


def _statuses(value: object) -> dict[str, Status]:
    statuses = {}
    for key, said in _first(value.items(), MAX_GROUPS) if isinstance(value, dict) else ():
        if isinstance(said, dict):
            statuses[_text(key)] = Status(
                enqueued=_int(said.get("last_enqueued_collective"), -1),
                started=_int(said.get("last_started_collective"), -1),
                completed=_int(said.get("last_completed_collective"), -1),
            )
    return statuses


# --- entries ----------------------------------------------------------------------------------------------------------


def _entries(value: object) -> list[Entry]:
    if not isinstance(value, list):
        return []
    # Of a longer list the last ones: the buffer is dumped oldest first.
    read = (_entry(_plain(one), number) for number, one in enumerate(value[-MAX_ENTRIES:]))
    return [entry for entry in read if entry is not None]


def _entry(said: object, number: int) -> Entry | None:
    if not isinstance(said, dict) or not isinstance(said.get("profiling_name"), str):
        return None
    profiling_name = _text(said["profiling_name"])
    backend, colon, op = profiling_name.partition(":")
    name, desc = _group_of(said)
    created_ns = _time(said, "time_created")
    is_p2p = said.get("is_p2p")
    op = op if colon else backend
    return Entry(
        record_id=_int(said.get("record_id"), number), group=name, desc=desc, pg_id=_text(said.get("pg_id")),
        seq=_int(said.get("collective_seq_id", said.get("seq_id")), -1), p2p_seq=_int(said.get("p2p_seq_id"), -1),
        is_p2p=is_p2p if isinstance(is_p2p, bool) else bool(_P2P.fullmatch(op)), backend=backend if colon else "",
        profiling_name=profiling_name, op=op, state=_text(said.get("state")), retired=said.get("retired") is True,
        created_ns=created_ns, said=said,
        last_ns=max(created_ns, _time(said, "time_discovered_started"), _time(said, "time_discovered_completed")),
    )  # fmt: skip


def _group_of(said: dict[Any, Any]) -> tuple[str, str]:
    """Name and description of the group; before version 2.0 the name alone, before 1.5 a number."""
    group = said.get("process_group")
    if isinstance(group, list | tuple):
        texts = [_text(part) for part in group[:2]]
        return (texts[0], texts[1]) if len(texts) == 2 else ("".join(texts), "")
    return (_text(group), "") if isinstance(group, str) else (_text(said.get("pg_id")), "")


def _time(said: dict[Any, Any], name: str) -> int:
    """A time in ns; PyTorch 2.2 counted in µs."""
    time_ns = _int(said.get(f"{name}_ns"), 0) or _int(said.get(f"{name}_us"), 0) * 1_000
    return time_ns if 0 < time_ns < _INT64 else 0


def _sizes(value: object) -> tuple[int, str]:
    """How many elements all tensors have together, and the shapes as far as they fit."""
    if not isinstance(value, list | tuple):
        return -1, ""
    total, shapes = 0, list[str]()
    for shape in value[:MAX_TENSORS]:
        dims = [_int(dim, 0) for dim in shape[:16]] if isinstance(shape, list | tuple) else [_int(shape, 0)]
        total += prod(dims)
        if len(shapes) < 4:
            shapes.append("[" + ", ".join(map(str, dims)) + "]")
    text = ", ".join(shapes) + (", …" if len(value) > 4 else "")
    return min(total, _INT64 - 1), f"[{text}]"[:MAX_NAME]


def _types(value: object) -> str:
    """The data types, each once."""
    if not isinstance(value, list | tuple):
        return ""
    return ",".join(sorted({_text(one) for one in value[:MAX_TENSORS]}))[:MAX_NAME]


def _called_at(frames: object) -> str:
    """The innermost frame that is not PyTorch's own: file and line."""
    for frame in frames[:64] if isinstance(frames, list | tuple) else ():
        if isinstance(frame, dict):
            file, line = _text(frame.get("filename"), 2 * MAX_NAME), _int(frame.get("line"), 0)
            if file.endswith(".py") and not any(part in file for part in _OF_TORCH):
                return f"{file.rpartition('/')[2]}:{line}"
    return ""


# --- values -----------------------------------------------------------------------------------------------------------


def _first(items: Iterable[Any], most: int) -> Iterator[Any]:
    return (item for item, _ in zip(items, range(most), strict=False))


def _int(value: object, default: int) -> int:
    """A number of 64 bits; the JSON form writes some as text."""
    if isinstance(value, str) and len(value) < 20 and value.removeprefix("-").isdecimal() and value.isascii():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64:
        return value
    return default


def _text(value: object, most: int = MAX_NAME) -> str:
    """A short text without what a line of a log may not hold."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return _clean(value[:most])
    return str(_int(value, -1)) if isinstance(value, int) and not isinstance(value, bool) else ""


@lru_cache(maxsize=4_096)
def _clean(text: str) -> str:
    text = text.replace("[repeated", "(repeated")
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
