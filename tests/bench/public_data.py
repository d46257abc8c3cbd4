"""`make public-data DATA=dir`: what rootrank's statistics make of public failure data, next to known results.

usage: python -m tests.bench.public_data DIR

The files are looked for anywhere below DIR, under the names that they were published with; they are not part of this
project. Exit code 1: a figure differs. 2: a file is missing.
"""

import csv
import lzma
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any, Final, NamedTuple

from pipeline.core.fleet.poisson import dispersion, mtbf, rate, top_share
from pipeline.core.fleet.survival import Curve, exponential_check, kaplan_meier, weibull

KNOWN: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
GAPS_S: Final = {"5 s": 5, "60 s": 60, "300 s": 300, "1 h": 3600, "1 d": 86_400, "30 d": 30 * 86_400}
QUARTER_MONTHS: Final = 3
CAUSES: Final = ("Hardware", "Software", "Undetermined", "Network", "Facilities", "Human Error")

Row = dict[str, str]


class MissingFileError(Exception):
    """A public file is not there; the text says where it comes from and how it is cited."""


class Card(NamedTuple):
    """A GPU of Titan: how long it was seen (years), whether it was removed after an error, how many errors it had."""

    batch: str
    cage: str
    years: float
    died: bool
    events: int


class Error(NamedTuple):
    """An error of a card: double bit (DBE) or off the bus (OTB), at Unix time in s."""

    card: str
    kind: str
    at_s: float


def titan(folder: Path) -> Iterator[tuple[str, float]]:
    """Figures of the GPU lifetimes of Titan."""
    summary, full = (_open(folder, "titan", name) for name in KNOWN["titan"]["files"])
    cards = [_card(row) for row in summary]
    yield from _cohorts(cards)
    yield "censored", sum(not card.died for card in cards)
    yield "cards with an event", sum(card.events > 0 for card in cards)
    yield "cards with more than one event", sum(card.events > 1 for card in cards)
    yield "cards with an event, new batch", sum(card.events > 0 for card in cards if card.batch == "new")
    for batch in ("old", "new"):
        yield from _survival(batch, [card for card in cards if card.batch == batch])
    lives = [*full]
    errors = [Error(row["SN"], row["event"], _utc(row["remove"])) for row in lives if row["event"]]
    yield from _episodes(errors)
    yield from _concentration(cards)
    inserted = [_utc(row["insert"]) for row in lives if row["insert"]]
    yield from _quarters(errors, min(inserted), max(_utc(row["remove"]) for row in lives if row["remove"]))


def lanl(folder: Path) -> Iterator[tuple[str, float]]:
    """Figures of the failures of 22 systems of LANL."""
    (records,) = ([*_open(folder, "lanl", name)] for name in KNOWN["lanl"]["files"])
    yield "records", len(records)
    for system, n in Counter(record["System"] for record in records).most_common(5):
        yield f"records, system {system}", n
    for cause in CAUSES:
        yield f"records, {cause}", sum(bool(record[cause].strip()) for record in records)
    yield "records, no cause", sum(not any(record[cause].strip() for cause in CAUSES) for record in records)
    yield "down time mean, min", mean(float(record["Down Time"]) for record in records)
    yield "down time median, min", median(float(record["Down Time"]) for record in records)
    for cause in CAUSES:
        down = [float(record["Down Time"]) for record in records if record[cause].strip()]
        if down:
            yield f"down time mean, {cause}", mean(down)
            yield f"down time median, {cause}", median(down)
    yield from _repairs(records)
    yield from _gaps(sorted(_minutes(record["Prob Started"]) for record in records if record["System"] == "20"))


def _card(row: Row) -> Card:
    events = int(row["dbe"]) + int(row["otb"])
    return Card(row["batch"], row["cage"], float(row["years"]), row["out"] == "TRUE" and events > 0, events)


def _cohorts(cards: Sequence[Card]) -> Iterator[tuple[str, float]]:
    cohorts: dict[str, Callable[[Card], bool]] = {
        "all": lambda card: True,
        "old batch": lambda card: card.batch == "old",
        "new batch": lambda card: card.batch == "new",
    }
    for name, belongs in cohorts.items():
        yield from _cohort(name, [card for card in cards if belongs(card)])
    for cage in sorted({card.cage for card in cards}):
        yield from _cohort(f"old, cage {cage}", [card for card in cards if card.batch == "old" and card.cage == cage])


def _cohort(name: str, cards: Sequence[Card]) -> Iterator[tuple[str, float]]:
    dead, years = sum(card.died for card in cards), sum(card.years for card in cards)
    yield f"cards, {name}", len(cards)
    yield f"dead, {name}", dead
    yield f"GPU-years, {name}", years
    per_year, between = rate(dead, years), mtbf(dead, years)
    if per_year.value is not None and per_year.hi is not None and between.value is not None and between.hi is not None:
        yield f"rate a year, {name}", per_year.value
        yield f"rate a year, {name}, low", per_year.lo
        yield f"rate a year, {name}, high", per_year.hi
        yield f"years a failure, {name}", between.value
        yield f"years a failure, {name}, low", between.lo
        yield f"years a failure, {name}, high", between.hi


def _survival(batch: str, cards: Sequence[Card]) -> Iterator[tuple[str, float]]:
    years, died = [card.years for card in cards], [card.died for card in cards]
    curve = kaplan_meier(years, died)
    yield from _survivors(batch, curve)
    fit, check = weibull(years, died), exponential_check(years, died)
    if fit is None or check is None:
        return
    yield f"Weibull scale, {batch}", fit.scale
    yield f"Weibull shape, {batch}", fit.shape
    yield f"exponential is wrong, {batch}", check.is_wrong
    first = exponential_check(years, died, early=1.0)
    last = exponential_check(years, died, early=5.0)
    if first and last and first.dead:
        yield f"survive 1 year by the exponential, {batch}", 1 - first.expected_dead
        yield f"survive 5 years by the exponential, {batch}", 1 - last.expected_dead
        yield f"first-year failures, exponential / real, {batch}", first.expected_dead / first.dead


def _survivors(batch: str, curve: Curve) -> Iterator[tuple[str, float]]:
    for year in range(1, int(curve.last) + 1):
        name = f"survive {year} year{'s' if year > 1 else ''}, {batch}"
        yield name, curve.at(year)
        yield f"{name}, std error", curve.std_error_at(year)


def _episodes(errors: Sequence[Error]) -> Iterator[tuple[str, float]]:
    by_kind: dict[tuple[str, str], list[float]] = defaultdict(list)
    for error in sorted(errors, key=lambda one: one.at_s):
        by_kind[error.card, error.kind].append(error.at_s)
    yield "episodes, raw", len(errors)
    for name, gap_s in GAPS_S.items():
        new = sum(b - a > gap_s for times in by_kind.values() for a, b in pairwise(times))
        yield f"episodes, gap {name}", len(by_kind) + new
    yield "episodes, first of card and kind", len(by_kind)
    yield "episodes, first of card", len({card for card, _ in by_kind})


def _concentration(cards: Sequence[Card]) -> Iterator[tuple[str, float]]:
    counts, years = [card.events for card in cards], sum(card.years for card in cards)
    of_all = {first: top_share(counts, first) for first in (1, 10)}
    for first, share in of_all.items():
        yield f"share of the top {first} cards, percent", 100 * (share or 0)
    yield "dispersion of events", dispersion(counts, [sum(counts) / years * card.years for card in cards]) or 0


def _quarters(errors: Sequence[Error], begin_s: float, end_s: float) -> Iterator[tuple[str, float]]:
    counts = Counter(_quarter(error.at_s) for error in errors)
    for year, quarter in sorted(counts):
        n, name = counts[year, quarter], f"{year}Q{quarter + 1}"
        seen_s = min(end_s, _quarter_begin_s(year, quarter + 1)) - max(begin_s, _quarter_begin_s(year, quarter))
        yield f"events, {name}", n
        yield f"hours an event, {name}", mtbf(n, seen_s / 3600).value or 0


def _repairs(records: Sequence[Row]) -> Iterator[tuple[str, float]]:
    minutes = [_minutes(record["Prob Fixed"]) - _minutes(record["Prob Started"]) for record in records]
    curve = kaplan_meier(minutes, [True] * len(minutes))
    low, high = curve.median_bounds()
    yield "repair median by Kaplan-Meier, min", curve.median() or 0
    yield "repair median, low", low or 0
    yield "repair median, high", high or 0
    yield (
        "repairs whose down time is not fixed - started",
        sum(float(record["Down Time"]) != each for record, each in zip(records, minutes, strict=True)),
    )


def _gaps(started: Sequence[float]) -> Iterator[tuple[str, float]]:
    gaps = [b - a for a, b in pairwise(started)]
    longer = [gap for gap in gaps if gap > 0]
    fit, check = weibull(longer, [True] * len(longer)), exponential_check(longer, [True] * len(longer))
    if fit and check:
        yield "mean gap, system 20, min", mean(gaps)
        yield "gaps of 0, system 20, percent", 100 * gaps.count(0) / len(gaps)
        yield "Weibull shape of gaps, system 20", fit.shape
        yield "exponential is wrong, gaps of system 20", check.is_wrong


def _open(folder: Path, source: str, name: str) -> Iterator[Row]:
    """Rows of a file. Raises MissingFileError before the first."""
    found = sorted(folder.rglob(name))
    if not found:
        known = KNOWN[source]
        raise MissingFileError(f"{name} is not below {folder}. It is public: {known['where']}. {known['cite']}.")
    reader = lzma.open if name.endswith(".xz") else open
    with reader(found[0], "rt", encoding="utf-8", newline="") as text:
        return iter([*csv.DictReader(text)])


def _utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _minutes(text: str) -> float:
    return datetime.strptime(text, "%m/%d/%Y %H:%M").replace(tzinfo=UTC).timestamp() / 60


def _quarter(at_s: float) -> tuple[int, int]:
    at = datetime.fromtimestamp(at_s, UTC)
    return at.year, (at.month - 1) // QUARTER_MONTHS


def _quarter_begin_s(year: int, quarter: int) -> float:
    return datetime(year + quarter // 4, quarter % 4 * QUARTER_MONTHS + 1, 1, tzinfo=UTC).timestamp()


class Line(NamedTuple):
    """A figure: ours and what is known of it, as printed; `equal` None: nothing is known."""

    name: str
    ours: str
    known: str
    equal: bool | None


def compare(figures: Iterable[tuple[str, float]], known: dict[str, str]) -> list[Line]:
    """Figures next to the known ones, rounded as these are. A known one that was not computed is not equal."""
    found = dict(figures)
    lines = [_line(name, value, known.get(name)) for name, value in found.items()]
    return lines + [Line(name, "-", printed, False) for name, printed in known.items() if name not in found]


def _line(name: str, value: float, known: str | None) -> Line:
    if known is None:
        return Line(name, f"{value:,.5g}" if value < 1e5 else f"{value:,.0f}", "-", None)
    ours = f"{value:,.{len(known.partition('.')[2])}f}"
    return Line(name, ours, known, ours == known)


def main(arguments: Sequence[str]) -> int:
    """Print the tables."""
    if len(arguments) != 1:
        print("usage: make public-data DATA=DIR", *(KNOWN[of]["where"] for of in KNOWN), sep="\n  ", file=sys.stderr)
        return 2
    folder, differ = Path(arguments[0]), 0
    for source, figures in (("titan", titan), ("lanl", lanl)):
        try:
            lines = compare(figures(folder), KNOWN[source]["figures"])
        except MissingFileError as error:
            print(error, file=sys.stderr)
            return 2
        print(f"\n{source}: {KNOWN[source]['cite']}\n\n| figure | ours | known | equal |\n|---|---:|---:|---|")
        for line in lines:
            print(f"| {line.name} | {line.ours} | {line.known} | {_said(line.equal)} |")
        compared = [line.equal for line in lines if line.equal is not None]
        differ += compared.count(False)
        print(f"\n{compared.count(True)} of {len(compared)} known figures are equal.")
    return 1 if differ else 0


def _said(equal: bool | None) -> str:
    return "" if equal is None else "yes" if equal else "NO"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
