"""What goes over the pipes between the agent and the process that asks NVML: one JSON object a line.

Moments are of CLOCK_MONOTONIC in ns, without the offset of a time namespace: both sides read the same.
"""

import time
from typing import Final

import msgspec
from msgspec import Struct

from shippers.time_namespace import offsets_ns

# How the process ends where it does not crash: the agent is gone; the driver must be opened anew; it is let go so that
# the GPUs may sleep, or be reset.
ORPHANED: Final = 0
REOPEN: Final = 10
AT_REST: Final = 11
LET_GO: Final = 12

Value = str | int | float


class Settings(Struct, frozen=True, kw_only=True):
    """The first line that the process is given. `memo` is what it told before it was started again."""

    driver_root: str
    sys_root: str
    proc_root: str
    interval_s: float
    sees_all_pids: bool
    memo: str = ""


class Message(Struct, frozen=True, kw_only=True, tag_field="m"):
    """What the process says."""


class Alive(Message, frozen=True, kw_only=True, tag="alive"):
    """It goes on, and what it does next: where nothing more comes, that is what hangs."""

    doing: str


class Identity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who a GPU is, as far as it says."""

    address: str
    index: int | None = None
    uuid: str | None = None
    serial: str | None = None
    model: str | None = None


class Opened(Message, frozen=True, kw_only=True, tag="opened"):
    """NVML answers. `skipped` says of GPUs why they are not asked."""

    gpus: list[Identity]
    driver: str
    library: str
    skipped: list[str] = []


class Read(Message, frozen=True, kw_only=True, tag="read"):
    """All GPUs were asked; `memo` is what to know after a restart, where that has changed."""

    memo: str | None = None


class Told(Message, frozen=True, kw_only=True, tag="told"):
    """Something changed at a moment from `since_ns` to `until_ns`; None where it may have been so for long."""

    thing: str
    values: dict[str, Value]
    since_ns: int | None
    until_ns: int


class Failed(Message, frozen=True, kw_only=True, tag="failed"):
    """It cannot go on. `is_absent`: there is nothing to read."""

    reason: str
    is_absent: bool = False
    memo: str | None = None


AnyMessage = Alive | Opened | Read | Told | Failed
_DECODER: Final = msgspec.json.Decoder(AnyMessage)
_OFFSET_NS: Final = (offsets_ns() or {}).get(time.CLOCK_MONOTONIC, 0)


def encode(message: Struct) -> bytes:
    """The line of a message."""
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> AnyMessage:
    """The message of a line. Raises msgspec.DecodeError."""
    return _DECODER.decode(line)


def now_ns() -> int:
    """The moment that it is."""
    return time.monotonic_ns() - _OFFSET_NS
