"""What the API answers, for server and client alike."""

from schemas.records import Incident, Shown


class Listing(Shown, frozen=True, kw_only=True):
    """Answer of /api/incidents. `total` counts without the limit; `other_runs` counts what `run` left out.

    `last_event_id` is where a stream must start so that nothing is missed.
    """

    incidents: list[Incident]
    total: int
    other_runs: dict[str, int]
    last_event_id: str


class One(Shown, frozen=True, kw_only=True):
    """Answer of /api/incidents/{id}: the latest revision, and all that are held, oldest first."""

    incident: Incident
    revisions: list[Incident]
