"""What the API answers, for server and client alike."""

from typing import Literal

import msgspec

from pipeline.core.clocks.brokers import BrokerClock
from schemas.records import Incident, Shown
from schemas.vocabulary import Quality

ClockState = Literal["none", "silent", "stepped", "holdover", "good"]


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
    `other_runs` counts the attempts that `run` left out.
    """

    job_id: str
    attempts: list[AttemptNodes]
    incidents: list[Incident]
    notes: list[Incident]
    following: bool
    reason: str
    other_runs: dict[str, int] = msgspec.field(default_factory=dict)


class NodeClock(Shown, frozen=True, kw_only=True):
    """A node's clock by its newest segment; times in ns. `state` is the quality, or `silent` where it is minutes old:
    then the rest holds of `reported_at`.

    `wall_offset_ns` is reference minus wall clock; the reference is certain to be within `bound_ns` of what is said, in
    99 of 100 cases within `u99_ns`. `drift_ppb` above 0: the raw clock runs slow. Null where it is not measured.
    `is_wall_off`: by more than a second, and not silent. `last_wall_step_ns`: new minus old, of the last hour. Ages are
    in whole seconds.
    """

    run: str
    run_id: str
    cluster: str
    node: str
    state: ClockState
    quality: Quality
    wall_offset_ns: int | None
    bound_ns: int | None
    u99_ns: int | None
    drift_ppb: int | None
    reference_broker: int | None
    epoch: int
    boot_id: str
    reason: str
    last_wall_step_ns: int | None
    last_wall_step_at: str | None
    last_wall_step_age_s: int | None
    reported_at: str
    age_s: int
    is_wall_off: bool = False


class ClockListing(Shown, frozen=True, kw_only=True):
    """Answer of /api/clocks, worst first. All but `clocks` and `total` is told without regard to `bad` and `limit`.

    `counts`: nodes by state. `widest`: of the clocks that are usable, the one with the widest bound. `walls_off`: wall
    clocks that are off by more than a second, whatever their state; `farthest`: the one that is off most of all that
    are told of now. `all_silent`: so are the live nodes of every cluster, which no node explains. `clusters`: those of
    which a node is known. `brokers`: how far their clocks are apart, by the nodes that measure several.
    `following`: whether this is the present; `reason`: why not.
    """

    clocks: list[NodeClock]
    total: int
    counts: dict[str, int]
    widest: NodeClock | None
    other_runs: dict[str, int]
    following: bool
    reason: str
    walls_off: int = 0
    farthest: NodeClock | None = None
    all_silent: bool = False
    clusters: tuple[str, ...] = ()
    brokers: tuple[BrokerClock, ...] = ()
