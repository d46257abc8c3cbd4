"""Selecting, parsing and diagnosing, each beside the field's tools on the same file in the same run, on one core.

The file is noise of a healthy job with one significant line in a thousand, and one where every line is significant.
Peers are given the same patterns. What is not installed is left out, and said.
"""

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pipeline.core.line_reader import LineReader
from pipeline.core.parse import parse_line
from schemas import selecting, signals
from schemas.selecting import BLOCK_BYTES
from tests import noise

MB = 1_000_000
# As an operator would write them for grep: the shapes of `noise.FAULTS`.
PATTERNS = (
    r"NVRM: Xid \(PCI:[0-9a-fA-F:.]+\): [0-9]+", r"nvidia-nvswitch[0-9]+: SXid", r"invoked oom-killer",
    r"Out of memory: Killed process [0-9]+", r"mlx5_core [^ ]+ .*Link down", r"\[[0-9]+\]: segfault at",
    r"nfs: server [^ ]+ not responding", r"task [^ ]+:[0-9]+ blocked for more than [0-9]+ seconds",
    r"soft lockup - CPU#[0-9]+ stuck", r"AER: (Uncorrectable|Uncorrected|Multiple)",
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=[0-9]+",
    r"Got completion from peer [^ ]+ with status=[0-9]+",
    r"CUDA out of memory", r"NCCL error in:", r"DUE TO NODE FAILURE",
)  # fmt: skip


def measure(folder: Path, count: int, sizes_gb: list[float]) -> Iterator[str]:
    """The rows of all three."""
    folder.mkdir(parents=True, exist_ok=True)
    quiet, storm = folder / "noise.log", folder / "storm.log"
    noise.write(quiet, noise.mixed(count, 1_000))
    noise.write(storm, noise.mixed(count // 4, 1))
    yield f"\nselecting: {quiet.stat().st_size / MB:.0f} MB, {count:,} lines, one in a thousand significant; one core"
    yield from _selecting(quiet, folder)
    yield f"\nparsing: {storm.stat().st_size / MB:.0f} MB, {count // 4:,} lines, every one significant; one core"
    yield from _parsing(storm)
    storm.unlink()
    yield "\ndiagnose: noise, one line in a thousand significant"
    for size in sizes_gb:
        yield _diagnosing(quiet, folder, size)


# --- selecting ----------------------------------------------------------------------------------------------------


def _selecting(path: Path, folder: Path) -> Iterator[str]:
    pattern_file = folder / "patterns.txt"
    pattern_file.write_text("".join(f"{pattern}\n" for pattern in PATTERNS))
    data = path.read_bytes()
    expressions = [pattern.encode() for pattern in PATTERNS]
    ours_count, ours = _best(lambda: _lines(data, selecting.Search(expressions).lines))
    yield _row("rootrank, the peers' patterns", data, ours, ours_count)
    peers = {
        "ripgrep": ["rg", "--threads", "1", "--count", "--file", str(pattern_file), str(path)],
        "grep -E": ["grep", "-cE", "--file", str(pattern_file), str(path)],
    }
    for name, command in peers.items():
        if shutil.which(command[0]) is None:
            yield f"  {name:<44} not installed"
            continue
        counted, seconds = _best(partial(_counted, command))
        yield _row(name, data, seconds, counted, ours=ours)
    part = data[: len(data) // 10]
    alternation = re.compile("|".join(PATTERNS))
    counted, seconds = _best(lambda: sum(1 for text in part.decode().split("\n") if alternation.search(text)), 1)
    yield _row("Python re, one alternation (a tenth of it)", part, seconds, counted, ours=ours * len(part) / len(data))
    known = signals.load()
    own_count, own = _best(lambda: _lines(data, selecting.selector(known).select))
    yield _row(f"rootrank, all {len(known.hints)} literals of {len(known.signals)} signals", data, own, own_count)
    literals = folder / "literals.txt"
    literals.write_text("".join(f"{hint}\n" for hint in sorted(known.line_hints)))
    if shutil.which("rg") is not None:
        command = ["rg", "--threads", "1", "--count", "--fixed-strings", "--file", str(literals), str(path)]
        counted, seconds = _best(partial(_counted, command))
        yield _row("ripgrep, those literals", data, seconds, counted, ours=own)
    plain_count, plain = _best(lambda: _lines(part, selecting.selector(known, plain=True).select), 1)
    yield _row("rootrank without hyperscan (a tenth of it)", part, plain, plain_count)


def _counted(command: list[str]) -> int:
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def _lines(data: bytes, find: Callable[[bytes], Sequence[object]]) -> int:
    found = start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + BLOCK_BYTES) + 1 or len(data)
        found += len(find(data[start:end]))
        start = end
    return found


def _best(run: Callable[[], int], times: int = 3) -> tuple[int, float]:
    """What it counted and the shortest time in seconds."""
    seconds, counted = float("inf"), 0
    for _ in range(times):
        started = time.perf_counter()
        counted = run()
        seconds = min(seconds, time.perf_counter() - started)
    return counted, seconds


def _row(name: str, data: bytes, seconds: float, counted: int, *, ours: float | None = None) -> str:
    ratio = f"  rootrank is {seconds / ours:.2f} times as fast" if ours else ""
    return f"  {name:<44} {len(data) / seconds / MB:7.0f} MB/s  {counted:>7,} lines{ratio}"


# --- parsing ------------------------------------------------------------------------------------------------------


def _parsing(path: Path) -> Iterator[str]:
    texts = path.read_text(encoding="utf-8").splitlines()
    known = signals.load()

    def parsed() -> int:
        reader = LineReader(known)
        return sum(reader.read(text)[1] is not None for text in texts)

    def one_by_one() -> int:
        return sum(known.match(parse_line(text).body) is not None for text in texts)

    read, seconds = _best(parsed)
    yield f"  {'prefixes, time, signal, attributes':<44} {len(texts) / seconds:>9,.0f} lines/s  {read:,} read"
    read, slow = _best(one_by_one, 1)
    yield (
        f"  {'the same, each line by itself':<44} {len(texts) / slow:>9,.0f} lines/s  {read:,} read"
        f"  shapes make it {slow / seconds:.1f} times as fast"
    )


# --- diagnose -----------------------------------------------------------------------------------------------------


def _diagnosing(quiet: Path, folder: Path, size_gb: float) -> str:
    """Diagnose so many copies of the noise, each of another day."""
    big = folder / "big.log"
    data = quiet.read_bytes()
    with big.open("wb") as file:
        day = 0
        while file.tell() < size_gb * 1_000 * MB:
            date = f"2026-{3 + day // 28:02d}-{1 + day % 28:02d}T".encode()
            file.write(data.replace(b"2026-03-04T", date))
            day += 1
        size = file.tell()
    started = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "diagnose", "--json", str(big)], stdout=subprocess.DEVNULL
    )
    _, _, used = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    big.unlink()
    cpu_s = used.ru_utime + used.ru_stime
    return (
        f"  {size / MB / 1_000:6.1f} GB  {seconds:7.1f} s  {cpu_s:7.1f} CPU-s  {size / cpu_s / MB:5.0f} MB per CPU-s"
        f"  {_resident_mib(used):5.0f} MiB resident at most"
    )


def _resident_mib(used: resource.struct_rusage) -> float:
    return used.ru_maxrss / 1024
