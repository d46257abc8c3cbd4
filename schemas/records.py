"""Every record that crosses a process boundary. Frozen, keyword-only, units in names, integer nanoseconds.

Names follow the OpenTelemetry log data model where it has one. A default that is left out on the wire means
"not known" or "not said". Additions must be backward compatible: new fields have defaults; unknown fields are
ignored by readers; a changed meaning is a new version (`schemas.codec.VERSION`).
"""

from typing import Final

from msgspec import UNSET, Struct, UnsetType, field

from schemas.vocabulary import (
    ActionKind,
    EdgeOrder,
    IncidentSeverity,
    IncidentState,
    Inferred,
    Interruption,
    Phase,
    Quality,
    Role,
    Run,
    Severity,
    SourceState,
    StepRole,
    VerdictState,
)

INCIDENT_SCHEMA_VERSION: Final = 1

# What differs between a live incident and the post-mortem of the same lines: how it was delivered, not what it says.
DELIVERY_FIELDS: Final[frozenset[str]] = frozenset({"run", "run_id", "revision", "detected_at", "gaps"})

# Bounds of an event whose time is not known: it is concurrent with everything that its own source does not order.
TIME_MIN_NS: Final = 0
TIME_MAX_NS: Final = 2**62


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A part of a record; has no topic of its own."""


class Record(Part, frozen=True, kw_only=True, omit_defaults=True, tag_field="record"):
    """A record that is a whole Kafka message. `record` on the wire is its tag."""


# --- raw: what shippers send -------------------------------------------------------------------------------------


class ClockReading(Part, frozen=True, kw_only=True):
    """Four clocks of one host read together, each in ns: all within `width_ns` after `raw_ns` was read."""

    raw_ns: int
    mono_ns: int
    boottime_ns: int
    wall_ns: int
    width_ns: int = 0


class ClockClaim(Part, frozen=True, kw_only=True):
    """Somebody's claim: reference time = the node's wall time + offset_ns, give or take bound_ns.

    `knots` say it more sharply near some moments: (wall_ns, offset_ns, bound_ns, astray_ns) each, by wall_ns; between
    one and the next offset and bound run straight, give or take astray_ns. `others_bound_ns`: this reference is no true
    time, and clocks of which nothing is claimed are within so much of it. `timeline` tells several such apart (0: there
    is one); events have it, negative, for their reference broker.
    """

    offset_ns: int
    bound_ns: int
    by: str
    knots: list[tuple[int, int, int, int]] = []
    others_bound_ns: int = 0
    timeline: int = 0


class ClockSample(Part, frozen=True, kw_only=True):
    """One acknowledged beacon: sent at t0 and acknowledged at t1 (raw clock, ns), stamped by the broker (ms)."""

    t0_ns: int
    t1_ns: int
    broker_time_ms: int
    broker_id: int
    leader_epoch: int


class RawLine(Part, frozen=True, kw_only=True):
    """One line as it was read. `offset` is in bytes (kmsg: the record's sequence number).

    An attribute `time.width_ns` says how much later than `time_unix_nano` it may have happened (what a probe sees
    happened between two looks).
    """

    seq: int
    source: str
    generation: str
    offset: int
    body: str
    line_no: int | None = None
    time_unix_nano: int | None = None  # only where the transport itself carries a wall time (journal, probes)
    kernel_time_ns: int | None = None  # only where the transport carries the kernel's boot clock (kmsg)
    observed_time_unix_nano: int = 0  # 0 where no host clock may be used (replay, post-mortem)
    attributes: dict[str, str] = {}
    truncated: bool = False


class Gap(Part, frozen=True, kw_only=True):
    """What was lost or could not be read, where, and why."""

    source: str
    reason: str
    node: str | None = None
    lost_lines: int | None = None
    lost_bytes: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None


class RawBatch(Record, frozen=True, kw_only=True, tag="raw_batch"):
    """Lines of all sources of one reporter, in the order read. May be empty (only clock samples or gaps).

    `source_attributes` says once per source what holds for all its lines: `kind` (kernel, application, service),
    `node` (subject, where it is not the reporter), `job.id`, `job.attempt`, `job.undated` (true: no line of it tells a
    time), `rank`, `time.zone` (+02:00), `time.year`, and what was inferred of its time (`pipeline.core.dating`):
    `time.inferred` (of year, zone, boot), `time.near` and `time.spread` (s), `time.zones` (others that are possible),
    `time.boot` (boot clock, wall clock and bound, in ns), and `released.by` where a person let the lines count.

    `signature` is the last member of the message (`schemas.signing`); `key_id` names the key.
    """

    run: Run
    run_id: str
    cluster: str
    reporter: str
    boot_id: str
    shipper_id: str
    batch_seq: int
    clock: ClockReading
    machine_id: str | None = None
    clock_claim: ClockClaim | None = None
    clock_samples: list[ClockSample] = []
    records: list[RawLine] = []
    source_attributes: dict[str, dict[str, str]] = {}
    gaps: list[Gap] = []
    signature: str | None = None
    key_id: str | None = None


class SourceProgress(Part, frozen=True, kw_only=True):
    """How far one source has been read. `read_through_unix_nano` is on the node's wall clock."""

    source: str
    state: SourceState
    kind: str = "application"
    reason: str | None = None
    read_through_unix_nano: int = 0
    backlog_bytes: int = 0
    at_end: bool = False
    attributes: dict[str, str] = {}


class Progress(Record, frozen=True, kw_only=True, tag="progress"):
    """Sent at least once a second, also when idle. `ended`: every source was read to its end and no more will come."""

    run: Run
    run_id: str
    cluster: str
    reporter: str
    boot_id: str
    shipper_id: str
    last_batch_seq: int
    clock: ClockReading
    machine_id: str | None = None
    clock_claim: ClockClaim | None = None
    sources: list[SourceProgress] = []
    spool_backlog_bytes: int = 0
    ended: bool = False
    signature: str | None = None
    key_id: str | None = None


class Release(Record, frozen=True, kw_only=True, tag="release"):
    """A person says that the lines of a batch count that failed its check: who and why, signed with an operator's key.

    `partition` and `offset` are the address of the batch on the topic raw.
    """

    run: Run
    run_id: str
    cluster: str
    reporter: str
    who: str
    why: str
    released_unix_nano: int
    partition: int
    offset: int
    batch: RawBatch
    signature: str | None = None
    key_id: str | None = None


class Nic(Part, frozen=True, kw_only=True):
    """A network interface of a node."""

    name: str
    pci_bus_id: str | None = None
    netdev: str | None = None
    guid: str | None = None


class Gpu(Part, frozen=True, kw_only=True):
    """A GPU of a node; `index` is NVML's."""

    pci_bus_id: str
    index: int | None = None
    uuid: str | None = None
    serial: str | None = None
    model: str | None = None


class NodeFacts(Record, frozen=True, kw_only=True, tag="node_facts"):
    """What a node is: names, addresses, devices, mounts, versions."""

    run: Run
    run_id: str
    cluster: str
    reporter: str
    boot_id: str
    observed_time_unix_nano: int
    machine_id: str | None = None
    aliases: list[str] = []
    addresses: list[str] = []
    gids: list[str] = []
    gpus: list[Gpu] = []
    nics: list[Nic] = []
    mounts: dict[str, str] = {}
    versions: dict[str, str] = {}


class Topology(Record, frozen=True, kw_only=True, tag="topology"):
    """Where a node hangs: rack, NVLink domain, leaf switch, power feed; valid in [start, end)."""

    run: Run
    run_id: str
    cluster: str
    reporter: str
    node: str
    source: str
    start_unix_nano: int
    end_unix_nano: int | None = None
    rack: str | None = None
    nvlink_domain: str | None = None
    leaf_switch: str | None = None
    power_feed: str | None = None


class Annotation(Record, frozen=True, kw_only=True, tag="annotation"):
    """A mark by the training job: step, phase or checkpoint. Times are of the node's wall clock."""

    run: Run
    run_id: str
    cluster: str
    reporter: str
    node: str
    kind: str
    job_id: str
    start_unix_nano: int
    attempt: int = 0
    rank: int | None = None
    step: int | None = None
    phase: Phase | None = None
    end_unix_nano: int | None = None
    outcome: str | None = None
    source: str = ""


class Attempt(Record, frozen=True, kw_only=True, tag="attempt"):
    """Start or end of one attempt of a job on a node."""

    run: Run
    run_id: str
    cluster: str
    reporter: str
    node: str
    job_id: str
    attempt: int
    start_unix_nano: int
    end_unix_nano: int | None = None
    owner: str | None = None
    world_size: int | None = None
    outcome: str | None = None
    source: str = ""


class Span(Record, frozen=True, kw_only=True, tag="span"):
    """A time in which a node does not work as usual: boot, drain, driver upgrade, reset, maintenance, repair."""

    run: Run
    run_id: str
    cluster: str
    reporter: str
    node: str
    kind: str
    start_unix_nano: int
    end_unix_nano: int | None = None
    outcome: str | None = None
    source: str = ""


# --- clocks ------------------------------------------------------------------------------------------------------


class ClockBeacon(Record, frozen=True, kw_only=True, tag="clock_beacon"):
    """Only there to be stamped by the broker; the shipper learns the stamp from the acknowledgement."""

    cluster: str
    reporter: str
    boot_id: str
    shipper_id: str
    seq: int
    t0_ns: int


class ClockSegment(Record, frozen=True, kw_only=True, tag="clock_segment"):
    """A node's clock against a broker's, over a span of the node's raw clock (CLOCK_MONOTONIC_RAW, ns).

    Reference time = raw + a_ns + b_ppb * (raw - t_from_raw_ns) / 1e9 for raw in [t_from_raw_ns, t_to_raw_ns); the truth
    is certain to be within [lo_ns, hi_ns] of that, and within u99_ns in 99 of 100 cases. `epoch` counts what broke the
    line: steps of the broker's clock, a suspend. `wall_offset_ns` is reference minus wall clock at the end,
    `wall_step_ns` how far the wall clock jumped within the span (new minus old; 0: it did not). A node whose clock is
    not measured has quality `none`, broker -1 and a `reason`.
    """

    run: Run
    run_id: str
    cluster: str
    node: str
    boot_id: str
    broker_id: int
    epoch: int
    t_from_raw_ns: int
    t_to_raw_ns: int
    a_ns: int
    b_ppb: int
    lo_ns: int
    hi_ns: int
    u99_ns: int
    quality: Quality
    wall_offset_ns: int | None = None
    wall_step_ns: int = 0
    reason: str = ""


# --- who ran where -----------------------------------------------------------------------------------------------


class PlacementSpan(Part, frozen=True, kw_only=True):
    """One process of one job attempt on a node in [start, end), and the line that says so."""

    job_id: str
    attempt: int = 0
    start_unix_nano: int
    end_unix_nano: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    pid: int | None = None
    gpu_uuid: str | None = None
    pci_bus_id: str | None = None
    gpu_index: int | None = None
    owner: str | None = None
    scheduler: str | None = None
    source: str = ""


class Placement(Record, frozen=True, kw_only=True, tag="placement"):
    """The full list of spans of a node; the newest record of a key replaces the older ones."""

    run: Run
    run_id: str
    cluster: str
    node: str
    spans: list[PlacementSpan] = []


class JobAlias(Record, frozen=True, kw_only=True, tag="job_alias"):
    """Keys that mean the same job attempt, and why."""

    run: Run
    run_id: str
    cluster: str
    job_key: str
    aliases: list[str]
    why: str


# --- events ------------------------------------------------------------------------------------------------------


class Entity(Part, frozen=True, kw_only=True):
    """A thing a line speaks of, by every identifier that the evidence gives. gpu_index is NVML's."""

    node: str | None = None
    machine_id: str | None = None
    gpu_uuid: str | None = None
    serial: str | None = None
    pci_bus_id: str | None = None
    gpu_index: int | None = None
    nic: str | None = None
    link: str | None = None
    switch: str | None = None
    nvlink_domain: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    process_group: str | None = None


class Printer(Part, frozen=True, kw_only=True):
    """Who printed a line, as far as its prefixes say; a line may speak of others.

    `cuda_dev` counts within what the process sees. `task` is srun's label: a rank, or the number of a node.
    `group_rank` is the rank inside `process_group`. `node_of_source`, `rank_of_source`: no prefix says `node` or
    `rank`, but the line's source is of that one.
    """

    node: str | None = None
    pod: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    cuda_dev: int | None = None
    task: int | None = None
    process_group: str | None = None
    group_rank: int | None = None
    node_of_source: bool = False
    rank_of_source: bool = False


class ClockStamp(Part, frozen=True, kw_only=True):
    """A reading of a named clock: somewhere in [raw_ns, raw_ns + resolution_ns]."""

    clock_id: str
    raw_ns: int
    resolution_ns: int = 0


class Event(Part, frozen=True, kw_only=True):
    """One line that means something. `count` identical lines of one second are one event, the last of them at `until`.

    `alerts` is false for what an agent finds of the past at first sight: recorded, never the reason of an incident.

    `lo_unix_nano` and `hi_unix_nano` bound the reference time. The line was written somewhere in
    [raw_ns, raw_ns + resolution_ns] on clock `clock_id`; readings of one clock compare exactly. Two lines of one
    source and generation are ordered by `offset`. `kernel` is the kernel's own stamp of the line, where there is one
    beside. `inferred` names what of the time nobody states. `prefix` stands before `body` in the line. On the node's
    raw clock of this boot it was between monotonic_raw_ns and monotonic_raw_width_ns later, where that is known.
    """

    event_id: str
    name: str
    node: str
    source: str
    generation: str
    offset: int
    body: str
    prefix: str = ""
    line_no: int | None = None
    source_kind: str = "application"
    clock_id: str = ""
    raw_ns: int | None = None
    resolution_ns: int = 0
    seq: int = 0
    observed_time_unix_nano: int = 0
    aligned_time_unix_nano: int | None = None
    until_unix_nano: int | None = None
    lo_unix_nano: int = TIME_MIN_NS
    hi_unix_nano: int = TIME_MAX_NS
    monotonic_raw_ns: int | None = None
    monotonic_raw_width_ns: int = 0
    u99_ns: int | None = None
    clock_epoch: int = 0
    reference_broker: int | None = None
    quality: Quality = "none"
    kernel: ClockStamp | None = None
    inferred: list[Inferred] = []
    severity: Severity = "info"
    label: str = ""
    role: Role = "context"
    scope: str = ""
    subject: Entity = Entity()
    printer: Printer = Printer()
    attributes: dict[str, str] = {}
    count: int = 1
    alerts: bool = True

    @property
    def writer(self) -> str:
        """The node or pod that wrote the line, which may speak of another; empty where nothing says it."""
        return self.printer.node or self.printer.pod or ""


class EventBatch(Record, frozen=True, kw_only=True, tag="event_batch"):
    """Events of one raw batch for one job (`job_key`), or for a node without a job (key `node:...`).

    `backfill`: events sent before to somebody else and now, with the same ids, to this key. `relayed`: a control plane
    tells them, whose reporter sends no progress to the job.
    """

    run: Run
    run_id: str
    cluster: str
    reporter: str
    job_key: str
    boot_id: str
    shipper_id: str
    batch_seq: int
    job_id: str | None = None
    attempt: int = 0
    node: str | None = None
    machine_id: str | None = None
    events: list[Event] = []
    gaps: list[Gap] = []
    backfill: bool = False
    relayed: bool = False


class Relay(Record, frozen=True, kw_only=True, tag="relay"):
    """Events that the reporter of a control plane tells of another node, on their way to where that node's lines are
    read: there it is known which jobs they concern.

    `jobs`: names that the job concerned may have there; empty: any job that ran there then. `attempt`: of that job.
    """

    run: Run
    run_id: str
    cluster: str
    reporter: str
    node: str
    boot_id: str
    shipper_id: str
    batch_seq: int
    jobs: list[str] = []
    attempt: int | None = None
    events: list[Event] = []


class NodeProgress(Record, frozen=True, kw_only=True, tag="node_progress"):
    """One node's progress on the reference timeline, handed to each job on it.

    `node` is empty where the reporter speaks only of others (a job's output on a login node). `kinds` says per source
    kind whether any source of it is on, `sources` which ones are. `excluded`: why this node cannot hold the watermark
    (its clock). `as_of_unix_nano`: broker time of the message that told it, so that what is said again later is known
    as old.
    """

    run: Run
    run_id: str
    cluster: str
    reporter: str
    job_key: str
    node: str
    through_unix_nano: int
    as_of_unix_nano: int = 0
    excluded: str = ""
    ended: bool = False
    kinds: dict[str, SourceState] = {}
    sources: list[str] = []


# --- bad input ---------------------------------------------------------------------------------------------------


class DeadLetter(Record, frozen=True, kw_only=True, tag="dead_letter"):
    """A message or line that could not be used, with its address. `data` is base64."""

    topic: str
    partition: int
    offset: int
    reason: str
    data: str
    key: str | None = None
    observed_time_unix_nano: int = 0


# --- incidents ---------------------------------------------------------------------------------------------------


class Shown(Struct, frozen=True, kw_only=True):
    """A part of the incident that people and machines read: nothing is left out when empty."""


class Engine(Shown, frozen=True, kw_only=True):
    """Which code and which rules made the verdict, and on what the confidences were measured."""

    version: str
    rules_digest: str
    calibrated_on: str = ""


class Job(Shown, frozen=True, kw_only=True):
    """A job attempt hit by the incident."""

    job_id: str
    attempt: int = 0
    owner: str | None = None
    world_size: int | None = None


class Culprit(Shown, frozen=True, kw_only=True):
    """What broke the run: every identifier that the evidence gives."""

    node: str | None = None
    machine_id: str | None = None
    gpu_uuid: str | None = None
    serial: str | None = None
    pci_bus_id: str | None = None
    gpu_index: int | None = None
    nic: str | None = None
    link: str | None = None
    switch: str | None = None
    nvlink_domain: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    process_group: str | None = None
    confidence: float = 0.0


class Alternative(Shown, frozen=True, kw_only=True):
    """Another reading, and why it is less likely."""

    class_: str = field(name="class")
    culprits: list[Culprit] = []
    confidence: float = 0.0
    why_less_likely: str = ""


class Evidence(Shown, frozen=True, kw_only=True):
    """Where the line stands and what it says. `source` is relative to its root."""

    source: str
    text: str
    line_no: int | None = None
    offset: int | None = None


class ChainStep(Shown, frozen=True, kw_only=True):
    """One step of the proof. `when` is RFC 3339 or null; `lag_ns` counts from the root."""

    step: int
    event: str
    role: StepRole
    where: str
    evidence: Evidence
    label: str = ""
    when: str | None = None
    error_ns: int | None = None
    lag_ns: int | None = None
    count: int = 1
    ranks: list[int] = []


class Edge(Shown, frozen=True, kw_only=True):
    """Why one step leads to another; `order` says how sure the clocks are, `odds` how likely it is where probable."""

    from_: int = field(name="from")
    to: int
    why: str
    order: EdgeOrder
    odds: float | None = None


class BlastRadius(Shown, frozen=True, kw_only=True):
    """How far it reached."""

    ranks: int | None = None
    nodes: int | None = None
    first_failing_rank: int | None = None
    silent_ranks: list[int] = []
    reporting_ranks: int = 0


class Suppressed(Shown, frozen=True, kw_only=True):
    """Lines that repeat what the chain shows."""

    count: int = 0
    by_event: dict[str, int] = {}


class Action(Shown, frozen=True, kw_only=True):
    """What to do now, to what, why. `commands`: lines for a shell, where the logs show what runs the nodes."""

    kind: ActionKind
    target: str = ""
    why: str = ""
    reference: str = ""
    commands: list[str] = []


class Recovery(Shown, frozen=True, kw_only=True):
    """From where the run can go on."""

    last_checkpoint: str | None = None
    checkpoint_at: str | None = None
    lost_gpu_hours: float | None = None
    resume_from: str | None = None


class Coverage(Shown, frozen=True, kw_only=True):
    """Of one source kind: nodes expected, seen, silent."""

    expected: int
    seen: int
    silent: list[str] = []


class Related(Shown, frozen=True, kw_only=True):
    """Another incident on the same machine, GPU, element or code path."""

    incident_id: str
    why: str


class Incident(Struct, frozen=True, kw_only=True, tag_field="record", tag="incident"):
    """One incident with a named root cause; see docs/incident.md for each field."""

    incident_id: str
    engine: Engine
    run: Run
    run_id: str
    cluster: str
    class_: str = field(name="class")
    schema_version: int = INCIDENT_SCHEMA_VERSION
    synthetic: bool = False
    revision: int = 0
    verdict: VerdictState = "provisional"
    state: IncidentState = "open"
    superseded_by: str | None = None
    severity: IncidentSeverity = "error"
    jobs: list[Job] = []
    started_at: str | None = None
    started_error_ns: int | None = None
    detected_at: str | None = None
    detected_error_ns: int | None = None
    ended_at: str | None = None
    ended_error_ns: int | None = None
    stall_started_at: str | None = None
    stall_started_error_ns: int | None = None
    labels: list[str] = []
    xid: int | None = None
    sxid: int | None = None
    culprits: list[Culprit] = []
    why_unknown: str | None = None
    confidence: float = 0.0
    alternatives: list[Alternative] = []
    phase: Phase = "unknown"
    interruption: Interruption = "soft"
    chain: list[ChainStep] = []
    edges: list[Edge] = []
    blast_radius: BlastRadius = BlastRadius()
    suppressed: Suppressed = Suppressed()
    explanation: str = ""
    action: Action = Action(kind="none")
    recovery: Recovery = Recovery()
    coverage: dict[str, Coverage] = {}
    related: list[Related] = []
    failure: str = ""
    repeats: int = 0
    not_network_because: str | None = None
    gaps: list[Gap] = []


class Verdict(Record, frozen=True, kw_only=True, tag="verdict"):
    """What detect concludes of one investigation; join turns verdicts into incidents.

    `root_events` are the ids of the lines the root rests on, `explained_events` all host-level ids the verdict uses:
    join supersedes a node's verdict by the job's verdict that explains the same line.
    `main`: it speaks for the failure of the job, and not for a fault beside it. `withdrawn`: the earlier verdict of
    this id no longer stands. `as_of` and `seq` order the verdicts of an investigation: a worker that was killed gives
    its last ones again, and they are not news. `nodes`: those that report of this investigation themselves or that its
    ranks are known to run on; a name that only some line speaks of is not among them.
    """

    verdict_id: str
    job_key: str
    incident: Incident | UnsetType = UNSET
    root_events: list[str] = []
    explained_events: list[str] = []
    elements: dict[str, str] = {}
    content_hash: str = ""
    main: bool = True
    withdrawn: bool = False
    as_of_unix_nano: int = 0
    seq: int = 0
    nodes: list[str] = []


class CaptureRequest(Record, frozen=True, kw_only=True, tag="capture_request"):
    """The only record that goes from right to left: join asks the agent of a node for a capture.

    It is nothing without a signature of a key that the agent's settings name, and nothing after it has expired. It says
    nothing of what to capture: that is the agent's own. `request_id` is the same however often it is sent.
    """

    run: Run
    run_id: str
    cluster: str
    node: str
    request_id: str
    incident_id: str
    why: str
    created_unix_nano: int
    expires_unix_nano: int
    rank: int | None = None
    signature: str = ""


RawRecord = RawBatch | Progress | Release | NodeFacts | Topology | Annotation | Attempt | Span | Placement | Relay
EventRecord = EventBatch | NodeProgress | Placement | JobAlias
