"""What is mounted, as `/proc/self/mountinfo` says it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from shippers.probes.thresholds import thresholds

MOUNTINFO: Final = "/proc/self/mountinfo"
_ESCAPES: Final = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mount. `device` is `major:minor`, which is the same for all mounts of one file system."""

    path: str
    fstype: str
    source: str
    device: str
    is_read_only: bool

    @property
    def is_network(self) -> bool:
        """Whether servers behind a network answer for it."""
        return self.fstype in thresholds().names["network_fs"]

    @property
    def is_local(self) -> bool:
        """Whether a disk of this machine holds it."""
        return self.fstype in thresholds().names["local_fs"]

    @property
    def may_hang(self) -> bool:
        """Whether a look into it may never end: servers, an automounter or a program may have to answer."""
        return not self.is_local and self.fstype not in thresholds().names["kernel_fs"]

    @property
    def is_shared_memory(self) -> bool:
        """Whether it is the shared memory of the node or of a container."""
        return self.fstype == "tmpfs" and (self.path.endswith("/shm") or self.source == "shm")

    @property
    def server(self) -> str | None:
        """Who serves it, where its source says so: `store3:/data`, `10.0.0.7@o2ib:/fs`, `//store3/share`."""
        if self.source.startswith("//"):
            return self.source[2:].partition("/")[0] or None
        host, colon, _ = self.source.partition(":/")
        return host.strip("[]") or None if colon else None


def mounts(text: str) -> Iterator[Mount]:
    """The mounts in the text of the file, in its order: the last one of a path is the one that is seen."""
    for line in text.splitlines():
        head, _, tail = line.partition(" - ")
        first, last = head.split(), tail.split(" ")
        if len(first) < 6 or len(last) < 3:
            continue
        options = {*first[5].split(","), *last[2].split(",")}
        yield Mount(
            path=_unescaped(first[4]), fstype=last[0], source=_unescaped(last[1]), device=first[2],
            is_read_only="ro" in options,
        )  # fmt: skip


def _unescaped(text: str) -> str:
    if "\\" in text:
        for escape, character in _ESCAPES.items():
            text = text.replace(escape, character)
    return text
