"""The source `capture`: takes what a fault is about to destroy, keeps it in the spool folder, and tells it in lines.

It is looked at by a thread of its own that nobody waits for; each question has a deadline, and so has a capture.
"""

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from schemas.records import RawLine
from shippers.capture.bounded import Steps
from shippers.capture.kept import keep
from shippers.capture.ranks import LocalRank, chosen, ranks_here
from shippers.capture.redacting import redacting
from shippers.capture.requests import KafkaMessages, Requests, verifier
from shippers.capture.snapshots import TOOL_S, Part, link_counters, parts
from shippers.capture.triggers import Fatal, Marks, Trigger
from shippers.config import CaptureSettings, Config
from shippers.outbox import KIND
from shippers.pieces import Moment, Piece
from shippers.positions import SourcePosition
from shippers.probed import ProbedSource
from shippers.probes.probe import said

NAME: Final = "capture"
_HOUR_S: Final = 3600.0
_SAME_S: Final = 600.0  # one cause begins one capture in this time
_WAITING: Final = 16
_BELIEVED: Final = ("kernel", KIND)
_RANKS_S: Final = 5.0
_TEXT_CHARACTERS: Final = 2000
_PROC: Final = Path("/proc")
_CGROUPS: Final = Path("/sys/fs/cgroup")

Parts = Callable[[Sequence[LocalRank]], Iterator[Part]]


class Capture:
    """The probe. `triggers` are filled by who sees lines; what comes too often is counted and told."""

    name = NAME
    every_s = 1.0
    may_hang = True

    def __init__(
        self, settings: CaptureSettings, folder: Path, redact: Callable[[str], str], *, proc: Path = _PROC,
        parts_of: Parts | None = None, requests: Requests | None = None,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._folder = folder
        self._redact = redact
        self._proc = proc
        self._parts = parts_of or (lambda ranks: parts(ranks, proc, _CGROUPS, self._baseline))
        self._baseline = ""
        self._requests = requests
        self._steps = Steps()
        self._marks = Marks(settings.marks, settings.silent_s)
        self._taken: deque[float] = deque()
        self._causes: dict[str, float] = {}
        self._passed_over = 0
        self.triggers: deque[Trigger] = deque(maxlen=_WAITING)

    def open(self, memo: str) -> None:
        """Remember the error counters of the links, to say later what changed."""
        self._baseline = self._steps.run(link_counters, TOOL_S + 1)

    def look(self, moment: Moment) -> Sequence[str]:
        """The lines of one capture, if there is a reason for one."""
        stands_still = self._marks.look()
        if stands_still is not None:
            self.triggers.append(stands_still)
        if self._requests is not None:
            self.triggers.extend(self._requests.new())
        while self.triggers:
            trigger = self.triggers.popleft()
            if self._may_take(trigger):
                return self._take(trigger)
        return []

    def memo(self) -> str:
        """Nothing is remembered."""
        return ""

    def close(self) -> None:
        """Listen to nobody any more."""
        if self._requests is not None:
            self._requests.close()

    def _may_take(self, trigger: Trigger) -> bool:
        """Whether this cause has begun none of late, and not too many were taken within the hour."""
        now_s = time.monotonic()
        if now_s - self._causes.get(trigger.key, float("-inf")) < _SAME_S:
            return False
        while self._taken and now_s - self._taken[0] >= _HOUR_S:
            self._taken.popleft()
        if len(self._taken) >= self._settings.per_hour:
            self._passed_over += 1
            return False
        self._causes = {key: at_s for key, at_s in self._causes.items() if now_s - at_s < _SAME_S}
        self._causes[trigger.key] = now_s
        self._taken.append(now_s)
        return True

    def _take(self, trigger: Trigger) -> list[str]:
        began_s = time.monotonic()
        end_s = began_s + self._settings.timeout_s
        capture_id = secrets.token_hex(8)
        ranks: list[LocalRank] = []
        note = self._steps.run(lambda: self._find(ranks), min(_RANKS_S, self._settings.timeout_s))
        asked = chosen(list(ranks), trigger.rank)
        texts = [("about", self._about(trigger, asked, note))]
        left = self._settings.max_bytes
        for part in self._parts(asked):
            left_s = end_s - time.monotonic()
            if left_s <= 0 or left <= 0:
                texts.append((part.name, "[no time or room was left for it]"))
                continue
            text = self._redact(self._steps.run(part.ask, min(left_s, TOOL_S + 1)))[:left]
            left -= len(text)
            texts.append((part.name, text))
        job = asked[0].job if asked else None
        whole = "".join(f"=== {name}\n{text}\n" for name, text in texts)
        lines = list(_quoting(capture_id, whole))
        passed_over, self._passed_over = self._passed_over, 0
        head = said(
            NAME, id=capture_id, trigger=trigger.kind, job=job or None, rank=trigger.rank, parts=len(texts),
            bytes=len(whole.encode("utf-8", "replace")), took_ms=int((time.monotonic() - began_s) * 1000),
            passed_over=passed_over or None, file=self._folder / f"{capture_id}.txt", why=trigger.why,
        )  # fmt: skip
        return [head, *(self._shipped(capture_id, lines) if self._settings.ship else ()), *self._keep(head, lines)]

    def _find(self, ranks: list[LocalRank]) -> str:
        ranks.extend(ranks_here(self._proc))
        return ""

    def _about(self, trigger: Trigger, ranks: Sequence[LocalRank], note: str) -> str:
        named = ", ".join(f"rank {each.rank} (pid {each.pid}, job {each.job or 'unknown'})" for each in ranks)
        missed = f"\n{note}" if note.startswith("[") else ""
        return self._redact(f"{trigger.kind}: {trigger.why}\nasked: {named or 'no rank was found here'}{missed}")

    def _keep(self, head: str, lines: Sequence[str]) -> list[str]:
        """Keep it on this node; a line that says why not, where it cannot be kept."""
        capture_id = head.partition(" id=")[2].partition(" ")[0]
        whole = "".join(f"{line}\n" for line in (head, *lines))
        try:
            keep(self._folder, f"{capture_id}.txt", whole, self._settings.folder_bytes)
        except OSError as error:
            return [f"{_numbered(capture_id, len(lines) + 2)}[not kept on the node: {error.strerror}]"]
        return []

    def _shipped(self, capture_id: str, lines: Sequence[str]) -> list[str]:
        most = self._settings.max_lines
        more = len(lines) - most
        left_out = [f"{_numbered(capture_id, most + 1)}[{more} more lines on the node]"] if more > 0 else []
        return [*lines[:most], *left_out]


def _quoting(capture_id: str, text: str) -> Iterator[str]:
    """A text as lines that nobody takes for what they quote."""
    for number, line in enumerate(text.splitlines(), 1):
        yield f"{_numbered(capture_id, number)}{line[:_TEXT_CHARACTERS]}"


def _numbered(capture_id: str, number: int) -> str:
    return f"{said('capture.text', id=capture_id, n=number)} | "


class CaptureSource(ProbedSource):
    """The probe as a source that also sees what the others read."""

    def __init__(self, capture: Capture, saved: SourcePosition | None = None) -> None:
        super().__init__(capture, saved)
        self._capture = capture
        self._fatal = Fatal()

    def see(self, piece: Piece, kind: str) -> None:
        """Lines that were read. Only the kernel log and what the agent measures itself are believed."""
        if piece.lines and kind in _BELIEVED and piece.source != NAME:
            self._capture.triggers.extend(filter(None, map(self._trigger, piece.lines)))

    def _trigger(self, line: RawLine) -> Trigger | None:
        return self._fatal.trigger(line.body)


def capture_source(config: Config, saved: SourcePosition | None) -> CaptureSource:
    """As the settings ask for it."""
    folder = Path(config.spool.dir) / "captures"
    requests = None
    if config.capture.request_keys:
        requests = Requests(config, verifier(config.capture.request_keys), KafkaMessages(config))
    capture = Capture(config.capture, folder, redacting(config), requests=requests)
    return CaptureSource(capture, saved)
