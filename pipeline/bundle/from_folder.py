"""What belongs to an incident of a folder of logs: the folder is diagnosed again, which gives the same incident."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline.bundle.contents import Contents, Line, captures_in, distinct
from pipeline.diagnose import diagnose
from pipeline.logfiles import UnreadableFileError, open_log
from schemas.records import Incident

_LINE_BYTES: Final = 64 * 1024
_CAPTURE_BYTES: Final = 8 * 1024 * 1024


class NoSuchIncidentError(Exception):
    """Nothing has that id. The text says what there is."""


def contents_of_folder(folder: Path, incident_id: str, around: int) -> Contents:
    """Raises NoSuchIncidentError, ManifestError."""
    found = diagnose([folder]).incidents
    wanted = [each for each in found if each.incident_id.startswith(incident_id)]
    if len(wanted) != 1:
        there = ", ".join(each.incident_id for each in found) or "none"
        raise NoSuchIncidentError(f"{folder} has no incident {incident_id}; there are: {there}")
    remarks: list[str] = []
    lines = distinct(line for each in places(wanted[0]).items() for line in _around(folder, each, around, remarks))
    return Contents(
        incident=wanted[0], lines=lines, captures=_captures(folder), origin=f"folder {folder.name}", remarks=remarks
    )


def places(incident: Incident) -> dict[str, list[int]]:
    """The numbers of the lines that evidence names, by source."""
    found: dict[str, list[int]] = {}
    for step in incident.chain:
        if step.evidence.line_no is not None:
            found.setdefault(step.evidence.source, []).append(step.evidence.line_no)
    return found


def _around(folder: Path, place: tuple[str, list[int]], around: int, remarks: list[str]) -> Iterator[Line]:
    source, numbers = place
    path = folder / source
    if not path.resolve().is_relative_to(folder.resolve()):
        remarks.append(f"{source} is not in the folder")
        return
    node = source.split("/", 1)[0] if "/" in source else ""
    try:
        with open_log(path) as stream:
            for number, raw in enumerate(stream, 1):
                if any(abs(number - wanted) <= around for wanted in numbers):
                    text = raw[:_LINE_BYTES].decode("utf-8", "replace").rstrip("\r\n")
                    yield Line(node=node, source=source, text=text, line_no=number)
                if number > max(numbers) + around:
                    return
    except (UnreadableFileError, OSError) as error:
        remarks.append(f"{source} cannot be read: {error}")


def _captures(folder: Path) -> dict[str, str]:
    """Files that an agent kept of captures, where somebody collected its folder too."""
    bodies: list[str] = []
    for path in sorted(folder.rglob("captures/*.txt")):
        with path.open("rb") as file:
            bodies += file.read(_CAPTURE_BYTES).decode("utf-8", "replace").splitlines()
    return captures_in(bodies)
