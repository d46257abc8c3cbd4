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


class AttemptNodes(Shown, frozen=True, kw_only=True):
    """An attempt of a job that verdicts speak of, and its nodes, as far as they are known."""

    cluster: str
    attempt: int
    nodes: list[str]


class JobView(Shown, frozen=True, kw_only=True):
    """Answer of /api/jobs/{job}: what is held of a job, over all its attempts.

    `incidents`: the latest revision of each that names the job, whatever its state, newest first. `notes`: endings that
    are no incident (a time limit, a preemption). `following`: whether this is the present; `reason`: why not.
    """

    job_id: str
    attempts: list[AttemptNodes]
    incidents: list[Incident]
    notes: list[Incident]
    following: bool
    reason: str
