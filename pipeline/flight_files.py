"""Files that hold dumps of PyTorch's flight recorder: how they are known, and the lines that are made of them.

A dump is a pickle (`nccl_trace_rank_3`, written when a collective times out) or JSON, of one rank or of many. What it
is shows in its content; a name is asked only for a rank that the content does not give.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from pipeline.core.flight.dump import Dump, FlightError, dumps_of_json, dumps_of_value, own_rank
from pipeline.core.flight.state import MAX_LINES, MAX_LINES_OF_RANK, RankState, lines_of, state_of, world_of
from pipeline.core.pickles import PickleError, is_pickle, read_pickle
from pipeline.core.shown_times import rfc3339
from pipeline.logfiles import BROKEN, UnreadableFileError, open_log
from schemas.names import printable

# A dump has to be in memory as a whole.
MAX_BYTES: Final = 128 * 1024 * 1024
HEAD_BYTES: Final = 64 * 1024
# What every dump has near its beginning: an entry, or groups and something else.
_ENTRY: Final = b"profiling_name"
_GROUPS: Final = (b"pg_config", b"pg_status")
_OTHERS: Final = (b"version", b"entries", b"nccl_comm_state", b"comm_lib_version", *_GROUPS)
# A time of creation in JSON, and in a pickle, where its name comes first and a memo may stand between.
_CREATED: Final = re.compile(rb'"time_created_ns": ?(\d{19})|time_created_ns(?:q.|r....)?\x8a\x08(.{8})', re.DOTALL)


class Head(NamedTuple):
    """What the beginning of a file shows: whether it is a dump, or some other pickle, and a time of it in ns."""

    is_dump: bool
    is_pickle: bool
    time_ns: int


NOTHING: Final = Head(is_dump=False, is_pickle=False, time_ns=0)


def head_of(path: Path) -> Head:
    """Look at the beginning of a file.

    Raises:
        UnreadableFileError: it cannot be opened.

    """
    with open_log(path) as stream:
        try:
            start = stream.read(3)
            if not start or not (is_pickle(start) or start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b"")):
                return NOTHING
            head = start + stream.read(HEAD_BYTES)
        except BROKEN:
            return NOTHING
    pickled = is_pickle(head)
    names = [_quoted(name, pickled) in head for name in (_ENTRY, *_OTHERS)]
    has_groups = any(_quoted(name, pickled) in head for name in _GROUPS)
    found = _CREATED.search(head)
    time_ns = 0 if found is None else int(found[1]) if found[1] else int.from_bytes(found[2], "little")
    is_dump = names[0] or (has_groups and sum(names[1:]) > 1)
    return Head(is_dump=is_dump, is_pickle=pickled, time_ns=time_ns)


def _quoted(name: bytes, pickled: bool) -> bytes:
    return name if pickled else b'"' + name + b'"'


def states_in(path: Path, name: str) -> list[RankState]:
    """Where the ranks stand of which a file holds dumps. `name` is the file's, with its folders.

    Raises:
        UnreadableFileError: the file cannot be read, or holds no dump of which the rank is known.

    """
    written_ns = path.stat().st_mtime_ns
    states = []
    for dump in dumps_in(path):
        rank = own_rank(dump, name)
        if rank is None:
            raise UnreadableFileError(
                f"{printable(str(path))}: flight-recorder dump; its rank is neither in it nor at the end of its name"
            )
        states.append(state_of(dump, rank, written_ns))
    return states


def dump_lines(path: Path, name: str) -> list[str]:
    """As `states_in`, as the lines that go the way of a log."""
    lines = []
    for state in states_in(path, name):
        most = max(1, min(MAX_LINES_OF_RANK, MAX_LINES // max(1, world_of([state]))))
        lines += lines_of(state, rfc3339(state.last_ns) or "" if state.last_ns else "", most)
    return lines


def dumps_in(path: Path) -> list[Dump]:
    """The dumps that a file holds.

    Raises:
        UnreadableFileError: the file cannot be read, or holds no dump.

    """
    with open_log(path) as stream:
        data = stream.read(MAX_BYTES + 1)
    shown = printable(str(path))
    if len(data) > MAX_BYTES:
        raise UnreadableFileError(f"{shown}: flight-recorder dump of more than {MAX_BYTES >> 20} MiB")
    try:
        return dumps_of_value(read_pickle(data)) if is_pickle(data[:3]) else dumps_of_json(data)
    except (PickleError, FlightError) as error:
        raise UnreadableFileError(f"{shown}: flight-recorder dump: {error}") from None
