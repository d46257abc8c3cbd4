"""What aligning clocks is worth: drills diagnosed with it and without, by chain.

usage: python -m tests.bench.alignment FOLDER   (made by `rootrank drill --out FOLDER`)

Without it every stamp is taken at its word: no claim, no bound, nothing measured.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec

from pipeline.core import times
from pipeline.core.clocks.node import NodeClock
from pipeline.drill.scoring import PROCESSES, Row, Score, folders, score_folder, summary
from schemas.records import ClockClaim
from tests.bench.ablation import exact

AT_ITS_WORD: Final = ClockClaim(offset_ns=0, bound_ns=0, by="nobody")
_bounds = times._bounds


def _raw(wall_ns: int, resolution_ns: int, clock_id: str, claim: ClockClaim, **said: Any) -> times.When:
    """The time that a stamp says, with the quality that it would have had."""
    when = exact(wall_ns, resolution_ns, clock_id, AT_ITS_WORD, **said)
    quality = _bounds(wall_ns, resolution_ns, clock_id, claim, **said).quality
    return when if when is times.UNKNOWN else msgspec.structs.replace(when, quality=quality)


def unaligned(folder: Path) -> Score:
    """Diagnose a drill as if every clock were right."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(times, "_bounds", _raw))
        stack.enter_context(mock.patch.object(NodeClock, "is_measured", new=False))
        return score_folder(folder)


def main() -> None:
    """Score all drills of a folder both ways and print what differs."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    found = folders(options.parse_args().folder)
    with ProcessPoolExecutor(PROCESSES) as pool:
        with_it = summary(pool.map(score_folder, found, chunksize=4))
        without = summary(pool.map(unaligned, found, chunksize=4))
    sys.stdout.write(f"{'chain':7} {'folders':>7}  {'class exact':>15}  {'culprit right':>15}  {'culprit wrong':>15}\n")
    for row, other in zip(with_it, without, strict=True):
        cells = (_pair(row, other, name) for name in ("class_exact", "culprit_right", "culprit_wrong"))
        sys.stdout.write(f"{row.chain:7} {row.folders:>7}  {'  '.join(cells)}\n")
    sys.stdout.write("% with alignment, then without\n")


def _pair(row: Row, other: Row, name: str) -> str:
    shares = (100 * getattr(each, name) / each.folders for each in (row, other))
    return f"{' -> '.join(f'{share:.1f}' for share in shares):>15}"


if __name__ == "__main__":
    main()
