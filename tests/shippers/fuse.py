"""A real file system that can be made to hang: a folder served through /dev/fuse, read-only. Needs root.

While it hangs no request is taken, so whoever looks at or reads a file of it sleeps in the kernel until it is killed,
as on a hard NFS mount whose server is away.
"""

import contextlib
import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FORGET, INTERRUPT, DESTROY, BATCH_FORGET = 2, 36, 38, 42
LOOKUP, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = 1, 3, 14, 15, 18, 25, 26, 27, 28, 29
ROOT, DIRECT_IO, DETACH = 1, 1, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


class FuseFolder:
    """The folder `backing` under the path `at`. `flushes`: whoever closes a file of it waits for an answer, too."""

    def __init__(self, backing: Path, at: Path, *, flushes: bool = False) -> None:
        self._flushes = flushes
        self._backing, self._at = backing, at
        self._nodes = {ROOT: os.open(backing, os.O_RDONLY)}
        self._listed: dict[int, list[str]] = {}
        self._answers = threading.Event()
        self._answers.set()
        self.held = threading.Event()  # a request came and hangs
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._serve, name="fuse", daemon=True)

    def mount(self) -> None:
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if _LIBC.mount(b"test", os.fsencode(self._at), b"fuse.test", 0, options):
            raise OSError(ctypes.get_errno(), f"mount {self._at}")
        self._thread.start()
        (self._backing / "once").touch()
        (self._at / "once").read_bytes()  # the kernel learns whether it flushes
        (self._backing / "once").unlink()

    def hang(self) -> None:
        """Answer nothing from here on."""
        self.held.clear()
        self._answers.clear()

    def answer(self) -> None:
        """Answer what waits and what comes."""
        self._answers.set()

    def close(self) -> None:
        """Unmount it; whoever hangs gets an error."""
        self._answers.set()
        _LIBC.umount2(os.fsencode(self._at), DETACH)
        self._thread.join(5)
        os.close(self._fd)
        for fd in self._nodes.values():
            os.close(fd)

    def _serve(self) -> None:
        requests = select.poll()
        requests.register(self._fd, select.POLLIN)
        while True:
            requests.poll()
            if not self._answers.is_set():
                self.held.set()
                self._answers.wait()
            try:
                data = os.read(self._fd, 1 << 20)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return  # unmounted
            _, opcode, unique, node = struct.unpack_from("<IIQQ", data)
            if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            try:
                body, failed = self._answer(opcode, node, data[40:]), 0
            except OSError as error:
                body, failed = b"", error.errno or errno.EIO
            with contextlib.suppress(OSError):  # who asked is gone
                os.write(self._fd, struct.pack("<IiQ", 16 + len(body), -failed, unique) + body)
            if opcode == DESTROY:
                return

    def _answer(self, opcode: int, node: int, body: bytes) -> bytes:
        if opcode == INIT:
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, 0, 12, 9, 65536, 1, 16, 0, 0)
        if opcode == LOOKUP:
            return self._lookup(node, body.rstrip(b"\0"))
        if opcode == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self._attributes(node)
        if opcode in (OPEN, OPENDIR):
            self._listed.pop(node, None)
            return struct.pack("<QII", 0, DIRECT_IO if opcode == OPEN else 0, 0)
        if opcode == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return os.pread(self._nodes[node], size, offset)
        if opcode == READDIR:
            return self._names(node, *struct.unpack_from("<QI", body, 8))
        if opcode in (RELEASE, RELEASEDIR, DESTROY) or (opcode == FLUSH and self._flushes):
            return b""
        raise OSError(errno.ENOSYS, "not served")

    def _lookup(self, parent: int, name: bytes) -> bytes:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._nodes[parent])
        node = os.fstat(fd).st_ino
        if node in self._nodes:
            os.close(fd)
        else:
            self._nodes[node] = fd
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self._attributes(node)

    def _attributes(self, node: int) -> bytes:
        status = os.fstat(self._nodes[node])
        seconds = [int(each) for each in (status.st_atime, status.st_mtime, status.st_ctime)]
        parts = [each % 10**9 for each in (status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns)]
        return struct.pack(
            "<QQQQQQIIIIIIIIII", status.st_ino, status.st_size, status.st_blocks, *seconds, *parts, status.st_mode,
            status.st_nlink, status.st_uid, status.st_gid, 0, 4096, 0,
        )  # fmt: skip

    def _names(self, node: int, offset: int, size: int) -> bytes:
        if offset == 0:
            self._listed[node] = os.listdir(self._nodes[node])  # noqa: PTH208 (by its descriptor)
        data = b""
        for number, name in enumerate(self._listed.get(node, [])[offset:], offset + 1):
            raw = os.fsencode(name)
            entry = struct.pack("<QQII", number, number, len(raw), 0) + raw
            entry += bytes(-len(entry) % 8)
            if len(data) + len(entry) > size:
                break
            data += entry
        return data


@contextmanager
def fuse_folder(backing: Path, at: Path, *, flushes: bool = False) -> Iterator[FuseFolder]:
    """It, mounted."""
    folder = FuseFolder(backing, at, flushes=flushes)
    folder.mount()
    try:
        yield folder
    finally:
        folder.close()
