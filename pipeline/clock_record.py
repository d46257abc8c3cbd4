"""Reads what was recorded of a node's clocks beside its logs."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.logfiles import UnreadableFileError
from schemas.clock_notes import ClockNote, NoClockNoteError, note_of


def notes_of(path: Path) -> Iterator[ClockNote]:
    """The notes of a file. Raises UnreadableFileError that names the line."""
    read = 0
    try:
        with path.open("rb") as lines:
            for line in lines:
                yield note_of(line)
                read += 1
    except NoClockNoteError as error:
        raise UnreadableFileError(f"{path.name}:{read + 1}: no note of clocks: {error}") from None
    except OSError as error:
        raise UnreadableFileError(f"{path.name}: {error.strerror}") from None
