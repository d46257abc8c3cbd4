"""The files a source names: one path, or all that a glob matches, now and later."""

import glob
import itertools
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from schemas.names import printable
from schemas.records import SourceProgress
from shippers.attributes import stated
from shippers.clock import no_zone
from shippers.config import SourceSettings, StartAt
from shippers.globbed import matching
from shippers.pieces import Moment
from shippers.positions import SourcePosition
from shippers.redact_open import HIDDEN
from shippers.rotation import Listing
from shippers.tail import LOOK_EVERY_NS, Tail

# Of more files than this each is looked at less often, so that a glob over many costs no more than a part of a core.
_FEW: Final = 200
_EACH_NS: Final = 1_000_000
NONE_YET: Final = " yet: "
_ONLY_OTHERS: Final = "only folders, pipes or devices do, which are not read"
_NEW: Final = SourcePosition()  # "seen before, nothing read": from its beginning


class FileSet:
    """The tails of one configured source."""

    def __init__(
        self, settings: SourceSettings, start_at: StartAt, saved: Mapping[str, SourcePosition | None],
        zone: Callable[[], str | None] = no_zone, hide: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        """`hide` takes secrets out of names: what is sent and saved bears no other."""
        self._settings = settings
        self._hide = hide
        self._start_at = start_at
        self._zone = zone
        self._saved = dict(saved)
        self._pattern = settings.path if glob.has_magic(settings.path) else None
        self._root = _fixed_part(settings.path)
        self._listing = Listing()
        self._look_mono_ns = 0
        self._is_first_look = True
        self._why_none = ""
        self.patterns = (settings.path,)
        self.tails: dict[str, Tail] = {}
        self.gone: list[str] = []
        if self._pattern is None:
            self._add(hide(settings.name or settings.path), Path(settings.path), self._start_saved)
        else:
            self._resume_globbed()

    def look(self, moment: Moment) -> None:
        """See what files there are, and what became of those that are known."""
        is_due = moment.mono_ns >= self._look_mono_ns or moment.ending
        if is_due or len(self.tails) <= _FEW:
            for tail in self.tails.values():
                tail.look(moment)
        if self._pattern is None or not is_due:
            return
        pace_ns = len(self.tails) * _EACH_NS if len(self.tails) > _FEW else 0
        self._look_mono_ns = moment.mono_ns + max(LOOK_EVERY_NS, pace_ns)
        for tail in self.tails.values():
            tail.pace_ns = pace_ns
        for name in [name for name, tail in self.tails.items() if tail.is_gone]:
            self.tails.pop(name).close()
            self.gone.append(name)
        self._find_new(moment)
        if self._is_first_look:
            self._is_first_look = False
            self._say_lost(moment)

    def due(self, moment: Moment) -> Iterator[Tail]:
        """Those of which there may be something to read now."""
        return (tail for tail in self.tails.values() if tail.is_due(moment))

    def progress(self) -> list[SourceProgress]:
        """Progress of each file; of the glob itself where no file matches."""
        if self.tails:
            return [tail.progress() for tail in self.tails.values()]
        return [
            SourceProgress(
                source=self._settings.name or self._settings.path,
                state="off",
                kind=self._settings.kind,
                reason=f"no file matches {self._settings.path}{self._why_none}",
                attributes=stated(self._settings.kind, self._settings.attributes, self._zone()),
            )
        ]

    def take_gone(self) -> list[str]:
        """Names of streams that ended for good since the last call."""
        gone, self.gone = self.gone, []
        return gone

    def sources(self) -> Sequence[Tail]:
        """All streams."""
        return tuple(self.tails.values())

    def devices(self) -> set[int]:
        """The file systems on which the open files lie."""
        return {each.device for tail in self.tails.values() for each in tail.open_files()}

    def anew(self) -> "FileSet":
        """The same files with none open, to go on where these are. Close these afterwards."""
        saved = {**self._saved, **{name: tail.left_at() for name, tail in self.tails.items()}}
        again = FileSet(self._settings, self._start_at, saved, self._zone, self._hide)
        again._is_first_look = self._is_first_look
        return again

    def close(self) -> None:
        """Close all files."""
        for tail in self.tails.values():
            tail.close()

    def _start_saved(self, name: str) -> SourcePosition | None:
        return self._saved.pop(name, None)

    def _find_new(self, moment: Moment) -> None:
        known = {tail.path for tail in self.tails.values()}
        being_read = set[int]().union(*(tail.open_inodes() for tail in self.tails.values()))
        finished = set[int]().union(*(tail.finished_inodes() for tail in self.tails.values()))
        are_others = False
        for path in sorted(matching(self._settings.path) - known):
            try:
                status = path.stat()
            except OSError:
                continue
            if not stat.S_ISREG(status.st_mode):
                are_others = True
                continue
            if status.st_ino in being_read:
                continue
            if status.st_ino in finished and self._is_read(path, status.st_ino):
                continue
            name = self._name_of(path)
            self._add(name, path, lambda name: self._start_saved(name) or (None if self._is_first_look else _NEW))
            self.tails[name].look(moment)
            finished |= self.tails[name].finished_inodes()
        if not self.tails:
            self._why_none = f"{NONE_YET}{_ONLY_OTHERS}" if are_others else self._folder_gone()

    def _folder_gone(self) -> str:
        return "" if self._root.is_dir() else f"{NONE_YET}there is no folder {self._root}"

    def _say_lost(self, moment: Moment) -> None:
        """Files whose real names are not saved, and that are not there any more: each leaves a gap."""
        for name, position in list(self._saved.items()):
            if position is not None and self._is_hidden(position) and self._matches(name, position.real_path):
                self._add(name, position.real_path, self._start_saved)
                self.tails[name].look(moment)

    def _is_read(self, path: Path, inode: int) -> bool:
        return any(tail.has_finished(path, inode) for tail in self.tails.values())

    def _add(self, name: str, path: Path, saved: Callable[[str], SourcePosition | None]) -> None:
        self.tails[name] = Tail(
            name,
            path,
            self._settings,
            self._start_at,
            saved(name),
            self._is_read,
            self._zone,
            self._listing,
            self._hide,
        )

    def _resume_globbed(self) -> None:
        for name, position in list(self._saved.items()):
            if position is None or self._is_hidden(position):
                continue
            if self._matches(name, position.real_path):
                self._add(name, position.real_path, self._start_saved)

    @staticmethod
    def _is_hidden(position: SourcePosition) -> bool:
        return HIDDEN in position.path

    def _matches(self, name: str, path: Path) -> bool:
        return str(path).startswith(str(self._root)) and name == self._name_of(path)

    def _name_of(self, path: Path) -> str:
        try:
            inner = str(path.relative_to(self._root))
        except ValueError:
            inner = str(path)
        inner = self._hide(printable(inner))
        return f"{self._settings.name}/{inner}" if self._settings.name else inner


def _fixed_part(pattern: str) -> Path:
    parts = itertools.takewhile(lambda part: not glob.has_magic(part), Path(pattern).parts)
    return Path(*parts)
