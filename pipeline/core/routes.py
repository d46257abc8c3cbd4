"""To which nodes and jobs a line of a control plane goes: its reporter is neither."""

from typing import Final

from msgspec import Struct

from pipeline.core.hosts import expand_hosts

# The source kind of what a control plane tells of nodes and jobs.
CONTROL: Final = "control"
# A line about a job of many nodes is for each of them; so many are enough to find the job.
MAX_ROUTES: Final = 4


class Route(Struct, frozen=True, kw_only=True, gc=False):
    """Of whom a line of a control plane speaks, as its attributes say: nodes, and names that a job there may have."""

    nodes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    attempt: int | None = None


def route_of(attributes: dict[str, str], subject: str | None) -> Route:
    """To whom a line of a control plane goes: the first and last few of many nodes."""
    nodes = expand_hosts(attributes.get("node", "")) or ([subject] if subject else [])
    if len(nodes) > MAX_ROUTES:
        nodes = [*nodes[: MAX_ROUTES // 2], *nodes[-MAX_ROUTES // 2 :]]
    attempt = attributes.get("attempt", "")
    return Route(
        nodes=tuple(nodes), jobs=tuple(filter(None, attributes.get("jobs", "").split(","))),
        attempt=int(attempt) if attempt.isascii() and attempt.isdecimal() and len(attempt) < 10 else None,
    )  # fmt: skip
