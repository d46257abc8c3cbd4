"""What a reader asks for: run, cluster, state, limit. Checked once, with a sentence for whoever got it wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, get_args

from schemas.records import Incident
from schemas.vocabulary import STANDING, IncidentState, Run

RUNS: Final[tuple[str, ...]] = (*get_args(Run), "all")
STATES: Final[tuple[str, ...]] = get_args(IncidentState)
# Superseded and retracted incidents are history; a page at 3 am shows what stands.
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1_000
MAX_CLOCKS: Final = 20_000


class BadQueryError(ValueError):
    """A query that cannot be answered; its text says what would be right."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which incidents to show."""

    run: str = "live"
    cluster: str = ""
    states: frozenset[str] = STANDING
    limit: int = DEFAULT_LIMIT

    def wants(self, incident: Incident) -> bool:
        """Whether an incident is among those asked for (the limit apart)."""
        return (
            self.run in ("all", incident.run)
            and self.cluster in ("", incident.cluster)
            and incident.state in self.states
        )

    @property
    def state(self) -> str:
        """The states as they stand in an address: empty for the default."""
        if self.states == STANDING:
            return ""
        return "all" if self.states == frozenset(STATES) else ",".join(sorted(self.states))


def parse_query(given: Mapping[str, str]) -> Query:
    """The query of an address. Raises BadQueryError."""
    return Query(
        run=_one_of("run", given.get("run") or "live", RUNS),
        cluster=given.get("cluster", ""),
        states=_states(given.get("state", "")),
        limit=_limit(given.get("limit") or str(DEFAULT_LIMIT)),
    )


@dataclass(frozen=True, kw_only=True)
class ClockQuery:
    """Which clocks to show; `bad`: only those that are not good."""

    run: str = "live"
    cluster: str = ""
    bad: bool = False
    limit: int = MAX_CLOCKS


def parse_clock_query(given: Mapping[str, str]) -> ClockQuery:
    """The query of an address of clocks. Raises BadQueryError."""
    return ClockQuery(
        run=_one_of("run", given.get("run") or "live", RUNS),
        cluster=given.get("cluster", ""),
        bad=_one_of("bad", given.get("bad") or "0", ("0", "1")) == "1",
        limit=_limit(given.get("limit") or str(MAX_CLOCKS), MAX_CLOCKS),
    )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise BadQueryError(f"{name}={value!r} is not known; use one of {', '.join(allowed)}")
    return value


def _states(value: str) -> frozenset[str]:
    if not value:
        return STANDING
    if value == "all":
        return frozenset(STATES)
    return frozenset(_one_of("state", part, (*STATES, "all")) for part in value.split(","))


def _limit(value: str, most: int = MAX_LIMIT) -> int:
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= most):
        raise BadQueryError(f"limit={value!r} is not a number from 1 to {most}")
    return int(value)
