"""The folder of captures: bounded, the oldest go first."""

import os
from pathlib import Path


def keep(folder: Path, name: str, text: str, max_bytes: int) -> Path:
    """Write a capture whole, and remove the oldest ones until all fit. Raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True, parents=True)
    path = folder / name
    scratch = folder / f".{name}"
    with scratch.open("w", encoding="utf-8", errors="replace") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
    scratch.replace(path)
    kept = sorted((each for each in folder.glob("*.txt") if each != path), key=lambda each: each.stat().st_mtime_ns)
    total = sum(each.stat().st_size for each in (*kept, path))
    for each in kept:
        if total <= max_bytes:
            break
        total -= each.stat().st_size
        each.unlink(missing_ok=True)
    return path
