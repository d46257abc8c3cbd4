"""Whether this version can read a spool: one of a later version is left as it is."""

import os
from pathlib import Path

from shippers import claim, segment


def check_format(path: Path) -> None:
    """Raises SpoolFormatError where a file of the spool was begun by a later version; OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        segment.check_format(fd)
    except segment.NewerFormatError as error:
        raise claim.SpoolFormatError(
            f"{path}: written by a later rootrank-shipper (spool format {error}); run that version until it has "
            "sent all, or move the folder away to begin anew (what it holds is then not sent)"
        ) from None
    finally:
        os.close(fd)


def later_format(folder: Path) -> str | None:
    """What to say of a spool that an agent would refuse to go on with; None where it would not."""
    try:
        for path in sorted(folder.glob("*.spool")):
            check_format(path)
    except claim.SpoolFormatError as error:
        return str(error)
    except OSError:  # the agent removes what Kafka has, or the folder may not be looked into
        pass
    return None
