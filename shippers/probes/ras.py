"""NCCL's own view of a job (RAS, NCCL 2.24 and later): who is dead or silent, of which ranks data is missing.

Every answer is gathered from all processes of the job, so it is asked for seldom; what may pass is asked for twice.
"""

import re
import socket
import time
from collections.abc import Callable
from typing import Final

from shippers.probes.counted import HostProbe
from shippers.probes.probe import Absent, Refused
from shippers.probes.thresholds import thresholds

PORT: Final = 28028
_ADDRESSES: Final = ("127.0.0.1", "::1")
_CONNECT_S: Final = 1.0
_JOB_S: Final = 5  # how long the job's processes wait for each other
_MOST_BYTES: Final = 1024 * 1024
_HEAD: Final = re.compile(r"^(?:#\d{1,6}-\d{1,6} \(([0-9a-f]{1,32})\) )?(INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)\s*$")
_COUNT: Final = re.compile(r"^\s*(?:(\d{1,7}) job process|Missing communicator data from (\d{1,7}) )")
_PROCESS: Final = re.compile(r"^\s*Process (\d{1,10}) on node (\S{1,253}) managing GPUs? (\S.{0,80}?)\s*$")
_RANK: Final = re.compile(
    r"^\s*Rank (\d{1,7}) (?:reported (.{2,40}?) )?-- "
    r"(?:GPU (\S{1,8})(?: \(NVML \d{1,4}\))? managed by process (\d{1,10}) on node (\S{1,253}))?"
)

Problems = dict[str, dict[str, object]]


def problems(text: str) -> Problems:
    """What is wrong by an answer to STATUS, by what it is. Different counts of operations are no fault."""
    found: Problems = {}
    what, group = "", ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            what, group = head[2].lower(), head[1] or ""
        elif not line.strip():
            what = ""
        if what not in ("incomplete", "dead", "error"):
            continue
        about: dict[str, object] = {"what": what, "comm": group or None}
        if process := _PROCESS.match(line):
            found[f"{what} {process[2]} {process[1]}"] = {
                **about, "pid": process[1], "node": process[2], "gpus": process[3],
            }  # fmt: skip
        elif rank := _RANK.match(line):
            found[f"{what} {group} {rank[1]}"] = {
                **about, "rank": rank[1], "error": rank[2], "gpus": rank[3], "pid": rank[4], "node": rank[5],
            }  # fmt: skip
        elif count := _COUNT.match(line):
            found[f"{what} {group}"] = {**about, "missing": count[1] or count[2]}
    return found


class Ras(HostProbe):
    """STATUS of the first process of a job on this machine, by the text protocol of its port."""

    name = "ras"
    may_hang = True

    def __init__(self, root: str = "/", port: int = PORT, ask: Callable[[], str] | None = None) -> None:
        super().__init__(root)
        self._port = port
        self._ask = ask or self._status
        self._told: Problems = {}

    def measure(self) -> None:
        """What became wrong, and what is over."""
        try:
            now = problems(self._ask())
            if any(name not in self._told for name in now):
                again = problems(self._ask())
                now = {name: said for name, said in now.items() if name in again or name in self._told}
        except Absent:
            self._told = {}  # the job is gone
            raise
        new = [name for name in now if name not in self._told]
        for name in new[: int(thresholds().limits["ras_told"])]:
            self.tell("nccl.ras", state="began", **now[name])
        for name, said in self._told.items():
            if name not in now:
                self.tell("nccl.ras", state="over", **said)
        self._told = now

    def _status(self) -> str:
        deadline_s = time.monotonic() + thresholds().limits["ras_answer_s"]
        with _connected(self._port) as connection:
            read = connection.makefile("rb")
            for sent, wanted in (("CLIENT PROTOCOL 2", b"SERVER PROTOCOL"), (f"TIMEOUT {_JOB_S}", b"OK")):
                _send(connection, sent, deadline_s)
                if not _line(read.readline, wanted):
                    raise Refused(f"what listens on port {self._port} of this machine is not NCCL RAS")
            _send(connection, "STATUS", deadline_s)
            return _rest(connection, read.read1, deadline_s)


def _connected(port: int) -> socket.socket:
    for address in _ADDRESSES:
        try:
            return socket.create_connection((address, port), timeout=_CONNECT_S)
        except OSError:
            continue
    raise Absent(f"nothing answers on port {port} of this machine: no job with NCCL 2.24 or later runs here")


def _send(connection: socket.socket, text: str, deadline_s: float) -> None:
    connection.settimeout(max(0.1, deadline_s - time.monotonic()))
    try:
        connection.sendall(f"{text}\n".encode())
    except OSError as error:
        raise Refused(f"NCCL RAS does not take a question: {error}") from None


def _line(readline: Callable[[int], bytes], wanted: bytes) -> bool:
    try:
        return readline(1024).startswith(wanted)
    except OSError as error:
        raise Refused(f"NCCL RAS does not answer: {error}") from None


def _rest(connection: socket.socket, read: Callable[[int], bytes], deadline_s: float) -> str:
    """All until the other side closes."""
    data = b""
    while len(data) < _MOST_BYTES:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise Refused("NCCL RAS has begun to answer and not ended in time")
        connection.settimeout(left_s)
        try:
            more = read(65536)
        except OSError as error:
            raise Refused(f"NCCL RAS does not answer: {error}") from None
        if not more:
            break
        data += more
    return data.decode("utf-8", "replace")
