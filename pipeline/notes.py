"""What `rootrank diagnose` saw and holds for no incident."""

import msgspec
from msgspec import Struct


class Note(Struct, frozen=True, kw_only=True):
    """An ending that is no incident, and the line that says so."""

    class_: str = msgspec.field(name="class")
    why: str
    source: str
    line_no: int | None
    text: str
