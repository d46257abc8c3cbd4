"""How far a spool says that its sources are read, while the shipper that has it runs."""

import contextlib
import os
from pathlib import Path

from shippers import segment
from shippers.positions import Positions, apply, decode


def saved_positions(folder: Path) -> Positions:
    """The positions of the newest whole record. Locks and writes nothing; none where nothing can be read.

    Every file of a spool begins with all positions, so the newest that has a record is enough.
    """
    for path in sorted(folder.glob("*.spool"), reverse=True):
        # The shipper removes files that Kafka has; who may not read them is told by the spool's own check.
        with contextlib.suppress(OSError):
            if known := positions_in(path):
                return known
    return {}


def positions_in(path: Path) -> Positions:
    """The positions after the last whole record of one file of a spool. Raises OSError."""
    known: Positions = {}
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _, entry, _ in segment.entries(fd):
            apply(known, decode(entry.positions))
    finally:
        os.close(fd)
    return known
