"""How a text is redacted: as every line that the agent sends."""

from collections.abc import Callable
from pathlib import Path

from schemas.records import RawLine
from shippers.claim import known_key
from shippers.config import Config
from shippers.redact import redactor_for
from shippers.redact_open import Memory


def redacting(config: Config, memory: Memory | None = None) -> Callable[[str], str]:
    """What takes secrets out of a text of one or more lines.

    With `memory` the texts follow each other: a block of key lines that begins in one of them goes on in the next.
    """
    redactor = redactor_for(config.redact, known_key(Path(config.spool.dir)))

    def without_secrets(text: str) -> str:
        lines = [
            RawLine(seq=number, source="text", generation="", offset=number, body=body, observed_time_unix_nano=0)
            for number, body in enumerate(text.split("\n"))
        ]
        return "\n".join(line.body for line in redactor.lines(lines, Memory() if memory is None else memory))

    return without_secrets
