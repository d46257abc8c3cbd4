import errno
import os
import threading
from pathlib import Path

import pytest

from schemas.small_file import MOST_BYTES, read_small


@pytest.mark.parametrize("size", [0, 1, MOST_BYTES])
def test_all_of_it_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"k" * size)
    assert read_small(path) == b"k" * size


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"secret" * 50_000,))
    writer.start()
    assert read_small(path) == b"secret" * 50_000
    writer.join()


def test_what_is_larger_or_never_ends_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"k" * (MOST_BYTES + 1))
    for path in (large, Path("/dev/zero")):
        with pytest.raises(OSError, match="larger than 1024 KiB") as raised:
            read_small(path)
        assert raised.value.errno == errno.EFBIG


@pytest.mark.parametrize("writes", [False, True])
def test_a_pipe_that_nobody_ends_is_not_waited_for_for_ever(tmp_path: Path, writes: bool) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR) if writes else None
    with pytest.raises(TimeoutError, match=r"no end within 0\.1 s"):
        read_small(path, patience_s=0.1)
    if end is not None:
        os.close(end)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_small(tmp_path)
