"""Counting writers and what rotates their files: each line bears its number, each file its fate."""

import os
import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Literal

Fate = Literal["open", "renamed", "copied and truncated", "truncated in a race", "deleted"]
UNKNOWABLE: Final[tuple[Fate, ...]] = ("truncated in a race", "deleted")


@dataclass
class Life:
    """The lines from `first` up to `end` (not included) that one file, or one content of it, held."""

    first: int
    end: int = 0
    fate: Fate = "open"


@dataclass
class Writer:
    """One file that is written and rotated. All numbers from 0 up to `next_seq` were written."""

    path: Path
    seed: int
    per_second: int
    pad: int = 60
    next_seq: int = 0
    lives: list[Life] = field(default_factory=lambda: [Life(0)])

    def __post_init__(self) -> None:
        self._chance = Random(self.seed)
        self._lock = threading.Lock()
        self._fd = self._open()
        self._rotated = 0
        self._storm = 0

    @property
    def name(self) -> str:
        """What the agent calls the source."""
        return self.path.name

    def write(self, count: int) -> None:
        """So many lines, in pieces as a buffered program flushes them: also in the middle of a line."""
        with self._lock:
            text = "".join(self._line(self.next_seq + number) for number in range(count)).encode()
            self.next_seq += count
            cut = self._chance.randrange(len(text) + 1)
            for part in (text[:cut], text[cut:]):
                os.write(self._fd, part)

    def storm(self, lines: int) -> None:
        """So many lines more, as fast as they can be written."""
        self._storm += lines

    def run(self, stopping: threading.Event) -> None:
        """Write until told to stop."""
        while not stopping.wait(self._chance.uniform(0.02, 0.2)):
            self.write(max(1, int(self.per_second * 0.11)) + self._take_storm())

    def rotate(self, how: str) -> None:
        """By name: rename, copytruncate, race, delete."""
        {"rename": self._rename, "copytruncate": self._copy_truncate, "race": self._race, "delete": self._delete}[how]()

    def _take_storm(self) -> int:
        taken = min(self._storm, 2000)
        self._storm -= taken
        return taken

    def _line(self, seq: int) -> str:
        return f"{self.name} {seq:09d} {'x' * self.pad} {seq:09d}\n"

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def _rename(self) -> None:
        """As logrotate with `create`: the program goes on in the old file until it is told."""
        self.path.rename(self._rotated_name())
        time.sleep(self._chance.choice((0, 0.05, 0.3)))
        with self._lock:
            os.close(self._fd)
            self._fd = self._open()
            self._end("renamed")

    def _copy_truncate(self) -> None:
        """With the program held still between copy and truncation, so that nothing falls in between."""
        with self._lock:
            shutil.copyfile(self.path, self._rotated_name())
            os.truncate(self.path, 0)
            self._end("copied and truncated")

    def _race(self) -> None:
        """As logrotate does it: what is written between the copy and the truncation is gone."""
        shutil.copyfile(self.path, self._rotated_name())
        time.sleep(self._chance.uniform(0, 0.05))
        with self._lock:
            os.truncate(self.path, 0)
            self._end("truncated in a race")

    def _delete(self) -> None:
        with self._lock:
            self.path.unlink()
            os.close(self._fd)
            self._fd = self._open()
            self._end("deleted")

    def _rotated_name(self) -> Path:
        self._rotated += 1
        return self.path.with_name(f"{self.path.name}.{self._rotated:05d}")

    def _end(self, fate: Fate) -> None:
        self.lives[-1].end, self.lives[-1].fate = self.next_seq, fate
        self.lives.append(Life(self.next_seq))
