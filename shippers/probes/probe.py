"""What a probe is: something that is looked at now and then and says in lines what has changed.

A line is `rootrank: THING key=value …`: the values are text without blanks (`shippers.probes.said` writes it), and a
signal of `schemas/signals/agent_*.toml` with `told_by = "telemetry"` reads it. A probe tells changes, no readings: what
is as it was when last told is not told again.
"""

from collections.abc import Sequence
from typing import Protocol

from shippers.pieces import Moment


class Absent(Exception):
    """There is nothing of that kind on this machine. The text says what was looked for."""


class Refused(Exception):
    """It is here and cannot be read. The text says why and what to do."""


class Probe(Protocol):
    """One thing that is looked at every `every_s` seconds.

    `may_hang`: it may wait for a device, a daemon or a file system, so it is looked at by a thread of its own.
    """

    name: str
    every_s: float
    may_hang: bool

    def open(self, memo: str) -> None:
        """Get ready; `memo` is what `memo()` gave before the agent was started again. Raises Absent, Refused."""

    def look(self, moment: Moment) -> Sequence[str]:
        """What has changed since the last look, as bodies of lines. Raises Absent, Refused."""

    def memo(self) -> str:
        """What to know after a restart: what was told last. Small; empty where nothing is."""

    def close(self) -> None:
        """Give back what is open."""


def said(thing: str, **values: object) -> str:
    """A line of the agent: `rootrank: THING key=value …`. What is None is left out, blanks in a value become `_`."""
    told = (f"{key}={'_'.join(str(value).split()) or '-'}" for key, value in values.items() if value is not None)
    return " ".join([f"rootrank: {thing}", *told])
