"""What was asked for at the command line: days, moments and properties. Wrong ones are a sentence and exit code 2."""

from datetime import UTC, date, datetime, time
from typing import Final, get_args

from pipeline.core.fleet.answers import By
from pipeline.core.fleet.records import ExposureKind
from pipeline.core.fleet.report import EXPOSURES
from pipeline.fleet.load import NOW
from pipeline.store.commands import EXIT_USAGE, exit_with
from pipeline.store.queries import STORED_RUNS

BYS: Final[tuple[By, ...]] = get_args(By)
MOST_DAYS: Final = 3653
FIRST_DAY: Final = date(2000, 1, 1)
LAST_DAY: Final = date(2099, 12, 31)
LAST_OF_DAY: Final = time(23, 59, 59, 999_000)
_UNITS: Final = {"d": 1, "w": 7}


def days(text: str) -> int:
    """How many days `90d` or `12w` are."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdecimal() and unit in _UNITS and 0 < int(number) * _UNITS[unit] <= MOST_DAYS):
        exit_with(f"--last {text}: write it as 90d or 12w, at most ten years", EXIT_USAGE)
    return int(number) * _UNITS[unit]


def day(option: str, text: str) -> date | None:
    """A UTC day; None where none is given."""
    if not text:
        return None
    try:
        found = date.fromisoformat(text)
    except ValueError:
        exit_with(f"{option} {text}: write a day as 2026-03-31", EXIT_USAGE)
    return possible(option, found)


def moment(option: str, text: str) -> datetime:
    """A moment; of a day its end, so that all of the day is in. Empty: now."""
    if not text:
        return NOW
    try:
        if len(text) == len("2026-03-31"):
            at = datetime.combine(date.fromisoformat(text), LAST_OF_DAY, UTC)
        else:
            at = datetime.fromisoformat(text)
    except ValueError:
        exit_with(f"{option} {text}: write it as 2026-03-31 or 2026-03-31T18:00:00Z", EXIT_USAGE)
    possible(option, at.date())
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def possible(option: str, day: date) -> date:
    """The day, if clocks may have shown it. The tables hold days of 1970 to 2149 only."""
    if not FIRST_DAY <= day <= LAST_DAY:
        exit_with(f"{option} {day}: days are those from {FIRST_DAY} to {LAST_DAY}", EXIT_USAGE)
    return day


def properties(text: str) -> tuple[By, ...]:
    """What to report by, as `sku,driver`."""
    asked = [name.strip() for name in text.split(",") if name.strip()]
    found = tuple(by for name in asked for by in BYS if by == name)
    if unknown := [name for name in asked if name not in BYS]:
        exit_with(f"--by {unknown[0]}: there are {', '.join(by for by in BYS if by != 'all')}", EXIT_USAGE)
    return found


def exposure(text: str) -> ExposureKind:
    """The kind of time at risk."""
    found = next((kind for kind in EXPOSURES if kind == text), None)
    if found is None:
        exit_with(f"--exposure {text}: there are {', '.join(EXPOSURES)}", EXIT_USAGE)
    return found


def run(text: str) -> str:
    """The run whose rows are read."""
    if text not in STORED_RUNS:
        exit_with(f"--run {text}: there are {', '.join(STORED_RUNS)}", EXIT_USAGE)
    return text
