"""Passes over all sources: what they give becomes raw batches, each with the positions after its last line."""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas.clock_notes import ATTRIBUTES, ClockNote
from schemas.clock_notes import SOURCE as CLOCKS
from schemas.records import ClockClaim, ClockSample, Gap, Progress, RawBatch, RawLine, SourceProgress
from shippers import builtin, claim
from shippers.apart import Alone, Apart
from shippers.clock import Clock, no_zone
from shippers.config import Config, SourceSettings, parse_start_at
from shippers.fileset import FileSet
from shippers.jobs.folder import JobsFolder
from shippers.kmsg import KernelRing
from shippers.kmsg_marks import KmsgMarks
from shippers.pieces import Limit, Moment, Piece, Readable, Source, Told, Waking, Watcher
from shippers.places import Places, Whether
from shippers.positions import Positions
from shippers.probed import ProbedSource
from shippers.redact import Redactor, redactor_for
from shippers.redact_open import NAME as REDACTION
from shippers.redact_open import Memory
from shippers.signing import Signer
from shippers.unwritable import encode_batch

_PASS_BYTES: Final = 1024 * 1024
_PROBES_NS: Final = 10**9
_SOURCE_BYTES: Final = 512 * 1024  # of one source in one pass: a storm in one file does not keep others waiting


@dataclass(slots=True)
class Batch:
    """What was read, with the positions after it. `records` go ahead of it, each as a message of its own."""

    lines: list[RawLine] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    samples: list[ClockSample] = field(default_factory=list)
    positions: Positions = field(default_factory=dict)
    size: int = 0
    passed_over: int = 0
    next_line_seq: int = 0
    note: ClockNote | None = None
    records: list[Told] = field(default_factory=list)

    def is_worth_sending(self) -> bool:
        """Whether it holds more than positions."""
        return bool(self.lines or self.gaps or self.samples or self.note)


class Reader:
    """All sources of the settings."""

    def __init__(
        self, config: Config, clock: Clock, saved: Positions, next_line_seq: int = 0, marks: KmsgMarks | None = None,
        signer: Signer | None = None, *, may_hang: bool = False,
    ) -> None:  # fmt: skip
        """`may_hang`: files that are not on a disk of this machine are read by threads of their own (`apart`)."""
        self._config = config
        self._clock = clock
        self._marks = marks
        self._signer = signer
        self._redactor: Redactor = redactor_for(config.redact, claim.known_key(Path(config.spool.dir)))
        self._newest = {self._redactor.name(each.name or each.path) for each in config.source if each.drop == "newest"}
        self._open_secrets = Memory.of(saved.get(REDACTION))
        self._numbers = itertools.count(next_line_seq)
        self._last_number = next_line_seq - 1
        self._redacting = threading.Lock()  # threads of files hide what is secret in names
        self._places = Places() if may_hang else None
        self._filesets: list[FileSet | Apart] = []
        self._rings: list[KernelRing] = []
        self._built_in: list[Source]
        self.control = builtin.control_plane(config, saved)
        self._built_in = [
            *self._without_folders(builtin.make(config, saved)),
            *(self.control.sources if self.control else ()),
        ]
        # No probe is due more often than once a second, so most passes need not ask them.
        self._probes = {id(each) for each in self._built_in if isinstance(each, ProbedSource)}
        self._probes_due_ns = 0
        self._watchers = [each for each in self._built_in if isinstance(each, Watcher)]
        self._start = 0
        self._gone: list[str] = []
        self._batch = Batch()
        for settings in config.source:
            self._add(settings, saved)
        self._waking = [each for each in self._built_in if isinstance(each, Waking)]

    def read_pass(self, moment: Moment) -> Iterator[Batch]:
        """Batches of what is new. Nothing is new where none comes. Take all of them."""
        self.look(moment)
        self._batch = self._new_batch()
        budget = _PASS_BYTES
        for source in self._in_turn(moment):
            for piece in self._pieces(source, moment):
                budget -= piece.size + piece.passed_over
                if self._batch.lines and self._has_no_room(piece):
                    yield self._take_batch()
                self._put(piece)
                if len(self._batch.lines) >= self._config.batch.lines or self._batch.size >= self._config.batch.bytes:
                    yield self._take_batch()
            if budget <= 0:
                break
        if self._batch.is_worth_sending() or self._batch.positions:
            yield self._take_batch()

    def _has_no_room(self, piece: Piece) -> bool:
        limits, batch = self._config.batch, self._batch
        return batch.size + piece.size > limits.bytes or len(batch.lines) + len(piece.lines) > limits.lines

    def look(self, moment: Moment) -> None:
        """See what there is to read."""
        for fileset in self._filesets:
            fileset.look(moment)
            self._gone.extend(fileset.take_gone())
        are_due = moment.mono_ns >= self._probes_due_ns or moment.ending
        if are_due:
            self._probes_due_ns = moment.mono_ns + _PROBES_NS
        for source in (*self._rings, *self._built_in):
            if are_due or id(source) not in self._probes:
                source.look(moment)

    def descriptors(self, *, with_journal: bool) -> list[int]:
        """What becomes readable with the next line: of the kernel's log, and of the journal where that is wanted."""
        waking = (*self._rings, *(self._waking if with_journal else ()))
        return [found for each in waking if (found := each.descriptor) is not None]

    @property
    def next_line_seq(self) -> int:
        """The first line number that is not used."""
        return self._last_number + 1

    def drops_newest(self, source: str) -> bool:
        """Whether a source, when the spool fills, gives up its new lines rather than old ones."""
        return source in self._newest or any(source.startswith(f"{name}/") for name in self._newest)

    def encode(self, batch: Batch, shipper_id: str, batch_seq: int) -> bytes:
        """The batch as it goes over the wire."""
        config, note = self._config, batch.note
        record = RawBatch(
            run=config.run, run_id=config.run_id, cluster=config.cluster, reporter=config.reporter,
            boot_id=note.boot_id if note else self._clock.boot_id, shipper_id=shipper_id, batch_seq=batch_seq,
            clock=note.clock if note else self._clock.read(),
            machine_id=config.machine_id or None, clock_claim=self._claim(), clock_samples=batch.samples,
            records=batch.lines, gaps=batch.gaps, source_attributes=self._attributes(batch),
            key_id=self._signer.key_id if self._signer else None,
        )  # fmt: skip
        data = encode_batch(record)
        return self._signer.signed(data) if self._signer else data

    def progress(self, shipper_id: str, last_batch_seq: int) -> Progress:
        """How far all sources are read."""
        config = self._config
        return Progress(
            run=config.run, run_id=config.run_id, cluster=config.cluster, reporter=config.reporter,
            boot_id=self._clock.boot_id, shipper_id=shipper_id, last_batch_seq=last_batch_seq,
            clock=self._clock.read(), machine_id=config.machine_id or None, clock_claim=self._claim(),
            sources=self.source_progress(),
        )  # fmt: skip

    def source_progress(self) -> list[SourceProgress]:
        """Progress of each source."""
        told = [
            *(source.progress() for source in (*self._rings, *self._built_in)),
            *(each for fileset in self._filesets for each in fileset.progress()),
        ]
        return [self._without_secrets(each) for each in told]

    def wrap(self, around: Callable[[Any], Any]) -> None:
        """Put something around every source that is read now, as measuring does."""
        self._rings = [around(ring) for ring in self._rings]
        self._built_in = [around(source) for source in self._built_in]
        self._filesets = [around(fileset) for fileset in self._filesets]

    def close(self) -> None:
        """Close all sources."""
        for fileset in self._filesets:
            fileset.close()
        for source in (*self._rings, *self._built_in):
            source.close()
        if self._places is not None:
            self._places.close()

    def _claim(self) -> ClockClaim | None:
        """What is claimed of the clock: of those that stamp what a control plane tells, nothing."""
        return None if self.control is not None else self._clock.claim()

    def _add(self, settings: SourceSettings, saved: Positions) -> None:
        start_at = parse_start_at(settings.start_at or self._config.start_at)
        if settings.type == "kmsg" and not settings.path.startswith("/dev/"):
            self._add_files(FileSet(settings, start_at, saved, hide=self._hide))
        elif settings.type == "kmsg":
            name = settings.name or settings.path
            self._rings.append(KernelRing(settings, start_at, self._clock, saved.get(name), marks=self._marks))
        else:
            speaks_for_host = self._config.run in ("live", "drill")
            zone = self._clock.zone if speaks_for_host else no_zone
            self._add_files(FileSet(settings, start_at, saved, zone, self._hide))

    def _add_files(self, files: FileSet | Alone) -> None:
        """Files that may hang are read apart, now or once they do."""
        if self._places is not None:
            limit = Limit(lines=self._config.batch.lines, size=self._config.batch.bytes)
            self._filesets.append(Apart(files, Whether(self._places, files.patterns, files.devices), limit))
        elif isinstance(files, FileSet):
            self._filesets.append(files)

    def _without_folders(self, sources: Sequence[Source]) -> Iterator[Source]:
        """Those that read no files of others. Those that do are read as files are."""
        for source in sources:
            if self._places is not None and isinstance(source, JobsFolder):
                self._add_files(Alone(source, source.folders))
            else:
                yield source

    def _hide(self, name: str) -> str:
        with self._redacting:
            return self._redactor.name(name)

    def _in_turn(self, moment: Moment) -> list[Readable]:
        """The sources that are due and may have something, each pass beginning with another."""
        sources: list[Readable] = [*self._rings, *self._built_in]
        for fileset in self._filesets:
            sources.extend(fileset.due(moment))
        self._start = (self._start + 1) % max(1, len(sources))
        return sources[self._start :] + sources[: self._start]

    def _pieces(self, source: Readable, moment: Moment) -> Iterator[Piece]:
        left = _SOURCE_BYTES
        while left > 0:
            limit = Limit(
                lines=max(1, self._config.batch.lines - len(self._batch.lines)),
                size=max(4096, self._config.batch.bytes - self._batch.size),
            )
            piece = source.read(limit, moment, self._numbers)
            if piece is None:
                return
            left -= max(1, piece.size + piece.passed_over)
            for watcher in self._watchers:
                watcher.see(piece, source.attributes.get("kind", ""))
            yield piece

    def _new_batch(self) -> Batch:
        gone, self._gone = self._gone, []
        return Batch(positions=dict.fromkeys(gone), next_line_seq=self._last_number + 1)

    def _take_batch(self) -> Batch:
        """What was read, from here on without secrets: nothing else reaches the disk or the wire."""
        batch, self._batch = self._batch, self._new_batch()
        was_open = bool(self._open_secrets)
        with self._redacting:
            batch.lines = self._redactor.lines(batch.lines, self._open_secrets)
        if was_open or self._open_secrets:
            batch.positions[REDACTION] = self._open_secrets.position() if self._open_secrets else None
        return batch

    def _put(self, piece: Piece) -> None:
        batch = self._batch
        batch.lines.extend(piece.lines)
        with self._redacting:
            batch.gaps.extend(map(self._redactor.gap, piece.gaps))
        batch.records.extend(piece.records)
        batch.positions[piece.source] = piece.position
        batch.size += piece.size
        batch.passed_over += piece.passed_over
        if piece.lines:
            self._last_number = piece.lines[-1].seq
        batch.next_line_seq = self._last_number + 1

    def _attributes(self, batch: Batch) -> dict[str, dict[str, str]]:
        named = {line.source for line in batch.lines}
        said = {source.name: source.attributes for source in self._all() if source.name in named}
        with self._redacting:
            said = {name: self._redactor.attributes(attributes) for name, attributes in said.items()}
        return {**said, CLOCKS: ATTRIBUTES} if batch.note is not None and named else said

    def _without_secrets(self, told: SourceProgress) -> SourceProgress:
        with self._redacting:
            reason = self._redactor.text(told.reason) if told.reason else told.reason
            return msgspec.structs.replace(told, reason=reason, attributes=self._redactor.attributes(told.attributes))

    def _all(self) -> Iterator[Source]:
        yield from self._rings
        yield from self._built_in
        for fileset in self._filesets:
            yield from fileset.sources()
