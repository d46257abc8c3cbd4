"""Measures how often verdicts are right on made incidents, by the rule's own estimate: `make calibration`.

Fits `pipeline/calibration.toml` on one range of seeds and writes how well it holds on another one to
`docs/calibration.md`. A quarter each of the incidents have all their files, 70 %, 40 % and 10 % of them: what an
estimate is worth shows where something is missing.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from pipeline import VERSION
from pipeline.core.calibration import Calibration, Kind, Point, fitted, kind_of
from pipeline.diagnose import diagnose
from pipeline.drill.generate import LOGS, Options, incident, write
from pipeline.drill.scoring import PROCESSES, judge
from pipeline.rules import CALIBRATION, load_rules

SHARES: Final = (0.0, 0.3, 0.6, 0.9)
FIT_FROM: Final = 2_000_000
TEST_FROM: Final = 3_000_000
_BINS: Final = 10
# The largest jobs take minutes and say nothing that smaller ones do not.
_MOST_RANKS: Final = 512


class Judged(NamedTuple):
    """A verdict: its own estimate, what it names, whether class and culprits are right, among how many it wavers."""

    estimate: float
    kind: Kind
    right: bool
    rivals: int = 1

    def said(self, calibration: Calibration) -> float:
        """What an incident prints."""
        return calibration.of(self.estimate, self.kind) / self.rivals


class Bin(NamedTuple):
    """Verdicts of nearly one confidence."""

    verdicts: int
    said: float
    right: float


def judged(options: Options) -> Judged | None:
    """Make one incident, diagnose it without calibration and judge; None where nothing is said or it is too large."""
    made = incident(options)
    if made.truth.ranks > _MOST_RANKS:
        return None
    with tempfile.TemporaryDirectory(prefix="rootrank-") as folder:
        write(made, Path(folder))
        rules = msgspec.structs.replace(load_rules(), calibration=Calibration())
        found = diagnose([Path(folder) / LOGS], rules=rules).incidents
    if not found:
        return None
    score, main = judge("", made.truth, found), found[0]
    kind = kind_of(main.class_, main.coverage, names_somebody=bool(main.culprits))
    # What is said of two rivals is half of what their rule says.
    rivals = 1 if kind in ("silent", "unknown") or main.confidence in _estimates() else 2
    return Judged(main.confidence * rivals, kind, score.right, rivals)


@cache
def _estimates() -> frozenset[float]:
    """All that rules say of themselves."""
    rules = load_rules().rules
    return frozenset(
        round(said, 3) for rule in rules for said in (rule.confidence, *(one.confidence for one in rule.root)) if said
    )


def measured(first_seed: int, count: int) -> list[Judged]:
    """The verdicts of `count` incidents of each share of missing files."""
    wanted = [
        Options(seed=first_seed + part * count + number, remove_share=share)
        for part, share in enumerate(SHARES)
        for number in range(count)
    ]
    found: list[Judged] = []
    began_s = time.monotonic()
    with ProcessPoolExecutor(PROCESSES) as pool:
        for number, one in enumerate(pool.map(judged, wanted, chunksize=4), 1):
            found += [one] if one is not None else []
            if number % 100 == 0:
                left_s = (time.monotonic() - began_s) / number * (len(wanted) - number)
                print(f"{number} of {len(wanted)} incidents, {left_s:.0f} s left", file=sys.stderr)
    return found


def fit(verdicts: Sequence[Judged]) -> Calibration:
    """The calibration that fits these best."""

    def points(kind: Kind) -> list[Point]:
        return fitted([(one.estimate, one.right) for one in verdicts if one.kind == kind and one.rivals == 1])

    return Calibration(
        on="simulated incidents", cause=points("cause"), partial=points("partial"), silent=points("silent"),
        unknown=points("unknown"),
    )  # fmt: skip


def bins(verdicts: Sequence[Judged], calibration: Calibration) -> list[Bin]:
    """Verdicts by confidence, in tenths, without empty ones."""
    tenths: list[list[tuple[float, bool]]] = [[] for _ in range(_BINS)]
    for one in verdicts:
        said = one.said(calibration)
        tenths[min(int(said * _BINS), _BINS - 1)].append((said, one.right))
    return [
        Bin(len(group), sum(said for said, _ in group) / len(group), sum(right for _, right in group) / len(group))
        for group in tenths
        if group
    ]


def error(table: Sequence[Bin]) -> float:
    """The expected calibration error: the mean distance of what is said from what is right, by number of verdicts."""
    return sum(row.verdicts * abs(row.said - row.right) for row in table) / sum(row.verdicts for row in table)


def as_toml(calibration: Calibration) -> str:
    """The file as it is shipped."""
    lines = [
        "# How often a verdict is right, by the rule's own estimate. Made by `make calibration`: docs/calibration.md.",
        f'on = "{calibration.on}"',
    ]
    for name in ("cause", "partial", "silent", "unknown"):
        lines += [f"{name} = [", *(f"  [{x:g}, {y:g}]," for x, y in getattr(calibration, name)), "]"]
    return "\n".join(lines) + "\n"


def as_page(count: int, raw: Sequence[Bin], calibrated: Sequence[Bin]) -> str:
    """docs/calibration.md."""
    fit_to, test_to = (first + len(SHARES) * count - 1 for first in (FIT_FROM, TEST_FROM))
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    return f"""# Calibration

Made by `make calibration`; do not edit.

A verdict is right where its class and all culprits that it names are what the files of the incident can prove. Of the
verdicts that are said to be 90 % sure, nine in ten should be right. **Measured on simulated incidents
(`rootrank drill`), not on real ones**: for other fleets the figures are as good as the simulation is like them.

Fitted on seeds {FIT_FROM} to {fit_to}, tested on seeds {TEST_FROM} to {test_to}, with up to {_MOST_RANKS} ranks; of
equal parts of the incidents {shares} of the log files are missing. rootrank {VERSION}. The made logs are whole: of an
excerpt of a few lines nothing was measured.

Where no kernel log of any node, or no log of the job, was read, a cause has a curve of its own (`partial`): the missing
kind may hold another one.

Expected calibration error on the tested seeds: **{error(calibrated):.3f}** (ten bins); of the rules' own estimates,
before calibration: {error(raw):.3f}.

## Calibrated, tested seeds

{_rows(calibrated)}

## The rules' own estimates, the same incidents

{_rows(raw)}
"""


def _rows(table: Sequence[Bin]) -> str:
    head = ["| verdicts | confidence, mean | right |", "|---:|---:|---:|"]
    return "\n".join([*head, *(f"| {row.verdicts} | {row.said:.3f} | {row.right:.3f} |" for row in table)])


def main() -> None:
    """Fit, test, write both files into the checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="incidents of each part and range (default: 400)")
    count = parser.parse_args().count
    package = Path(__file__).resolve().parent.parent
    calibration = fit(measured(FIT_FROM, count))
    tested = measured(TEST_FROM, count)
    raw, calibrated = bins(tested, Calibration()), bins(tested, calibration)
    (package / CALIBRATION).write_text(as_toml(calibration), encoding="utf-8")
    page = package.parent / "docs" / "calibration.md"
    page.write_text(as_page(count, raw, calibrated), encoding="utf-8")
    print(f"expected calibration error {error(raw):.3f} before, {error(calibrated):.3f} after; see {page}")


if __name__ == "__main__":
    main()
