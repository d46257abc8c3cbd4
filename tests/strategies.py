"""Builders of records and events for tests, and hypothesis strategies over them."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from hypothesis import strategies as st

from pipeline.core.outputs import Output
from schemas.records import (
    TIME_MAX_NS,
    ClockClaim,
    ClockReading,
    Entity,
    Event,
    EventBatch,
    Gap,
    Incident,
    NodeProgress,
    Printer,
    Progress,
    RawBatch,
    RawLine,
    SourceProgress,
    Verdict,
)
from schemas.topics import key_of
from schemas.vocabulary import Run, SourceState

SECOND = 1_000_000_000
# 2026-03-04T05:06:07Z, in the middle of nowhere in particular.
T0 = 1_772_600_767 * SECOND
CLUSTER = "test"
JOB = "7001"
JOB_KEY = f"{CLUSTER}/{JOB}/0"
NO_CLOCK = ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0)

INIT = (
    "{node}:{pid}:{pid} [0] NCCL INFO comm 0x55{rank:02x} rank {rank} nranks {world} cudaDev 0 nvmlDev 0 "
    "busId {bus}000 commId 0x77aa - Init COMPLETE"
)
XID_79 = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
XID_48 = (
    "NVRM: Xid (PCI:0000:5e:00): 48, pid=800, name=python, An uncorrectable double bit error (DBE) has been detected "
    "on GPU in the framebuffer at physAddr 0x3f10a000 partition 1, subpartition 1."
)
WATCHDOG = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, "
    "Timeout(ms)=600000) ran for 600011 milliseconds before timing out."
)


# --- raw records --------------------------------------------------------------------------------------------------


def raw_lines(source: str, bodies: Iterable[str], *, first: int = 0, time_ns: int | None = None) -> list[RawLine]:
    """Lines of one source as a shipper reads them: numbered, with offsets, stamped one second apart where asked."""
    return [
        RawLine(
            seq=first + number, source=source, generation="0", offset=(first + number) * 1_000,
            line_no=first + number + 1,
            body=body, time_unix_nano=None if time_ns is None else time_ns + number * SECOND,
        )
        for number, body in enumerate(bodies)
    ]  # fmt: skip


def raw_batch(
    node: str,
    seq: int,
    lines: Sequence[RawLine] = (),
    *,
    attributes: Mapping[str, Mapping[str, str]] | None = None,
    shipper: str = "s1",
    run: Run = "post_mortem",
    clock: ClockReading = NO_CLOCK,
    claim: ClockClaim | None = None,
    gaps: Sequence[Gap] = (),
) -> RawBatch:
    """A batch of `node`. Sources that `attributes` does not describe are application logs of JOB on `node`."""
    stated = dict(attributes or {})
    for line in lines:
        stated.setdefault(line.source, application(node))
    return RawBatch(
        run=run, run_id="", cluster=CLUSTER, reporter=node, boot_id=f"boot-{node}", shipper_id=shipper, batch_seq=seq,
        clock=clock, clock_claim=claim, records=list(lines), gaps=list(gaps),
        source_attributes={name: dict(values) for name, values in stated.items()},
    )  # fmt: skip


def application(node: str, *, rank: int | None = None, job: str | None = JOB) -> dict[str, str]:
    """Attributes of a log that ranks write."""
    said = {"kind": "application", "node": node, "time.year": "2026", "time.zone": "+00:00"}
    if job is not None:
        said["job.id"] = job
    if rank is not None:
        said["rank"] = str(rank)
    return said


def kernel(node: str) -> dict[str, str]:
    """Attributes of the kernel's log."""
    return {"kind": "kernel", "node": node, "time.year": "2026", "time.zone": "+00:00"}


def raw_progress(
    node: str,
    *,
    through_ns: int = 0,
    ended: bool = False,
    kinds: Mapping[str, SourceState] | None = None,
    run: Run = "post_mortem",
    wall_ns: int = 0,
    shipper: str = "s1",
) -> Progress:
    """The progress of a node whose sources are of the given kinds."""
    return Progress(
        run=run, run_id="", cluster=CLUSTER, reporter=node, boot_id=f"boot-{node}", shipper_id=shipper,
        last_batch_seq=0, clock=ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=wall_ns), ended=ended,
        sources=[
            SourceProgress(source=kind, state=state, kind=kind, read_through_unix_nano=through_ns, at_end=ended)
            for kind, state in (kinds or {"kernel": "on", "application": "on"}).items()
        ],
    )  # fmt: skip


def key(node: str) -> bytes:
    """The raw topic's key of a node."""
    return key_of("post_mortem", "", CLUSTER, node)


# --- events -------------------------------------------------------------------------------------------------------


def event(
    name: str,
    *,
    at_ns: int | None = T0,
    node: str = "alpha",
    source: str = "log",
    offset: int = 0,
    rank: int | None = None,
    local_rank: int | None = None,
    bus: str | None = None,
    pid: int | None = None,
    nic: str | None = None,
    bound_ns: int = 0,
    resolution_ns: int = 0,
    clock_id: str | None = None,
    attributes: Mapping[str, str] | None = None,
    role: str = "symptom",
    count: int = 1,
) -> Event:
    """An event with a wall time and bounds, or without any time where `at_ns` is None."""
    ident = f"{name}/{node}/{source}/{offset}/{rank}"
    timed = {} if at_ns is None else {
        "clock_id": clock_id or f"{node}/wall", "raw_ns": at_ns, "resolution_ns": resolution_ns,
        "aligned_time_unix_nano": at_ns, "lo_unix_nano": at_ns - bound_ns,
        "hi_unix_nano": at_ns + resolution_ns + bound_ns, "quality": "good",
    }  # fmt: skip
    shape = {
        "event_id": ident, "name": name, "node": node, "source": source, "generation": "0", "offset": offset,
        "body": f"{name} of {node}", "role": role, "count": count, "attributes": dict(attributes or {}),
        "subject": Entity(node=node, rank=rank, local_rank=local_rank, pci_bus_id=bus, pid=pid, nic=nic),
        "printer": Printer(node=node or None), **timed,
    }  # fmt: skip
    return Event(**shape)  # type: ignore[arg-type]


def placed(rank: int, node: str, *, world: int = 2, bus: str = "0000:1b:00.0", pid: int | None = None) -> Event:
    """The NCCL INIT line of one rank."""
    return event(
        "nccl.init", at_ns=None, node=node, source=f"rank{rank}", offset=1, rank=rank, bus=bus,
        pid=800 + rank if pid is None else pid, role="context", attributes={"nranks": str(world), "rank": str(rank)},
    )  # fmt: skip


def waited(rank: int, node: str, *, at_ns: int = T0 + 600 * SECOND, bound_ns: int = 0) -> Event:
    """A rank's watchdog time-out."""
    return event(
        "nccl.watchdog.timeout", at_ns=at_ns, node=node, source=f"rank{rank}", offset=9_000, rank=rank,
        bound_ns=bound_ns, resolution_ns=SECOND,
        attributes={"seq": "88", "op": "ALLREDUCE", "timeout_ms": "600000", "ran_for_ms": "600011"},
    )  # fmt: skip


def lost_gpu(node: str, *, at_ns: int = T0, bus: str = "0000:5e:00.0", bound_ns: int = 0, xid: str = "79") -> Event:
    """A kernel's Xid line."""
    return event(
        "gpu.xid", at_ns=at_ns, node=node, source="kern", offset=77, bus=bus, bound_ns=bound_ns, role="cause",
        attributes={"xid": xid, "pci_bus_id": bus},
    )  # fmt: skip


def event_batch(
    node: str,
    seq: int,
    events: Sequence[Event],
    *,
    job_key: str = JOB_KEY,
    backfill: bool = False,
    gaps: Sequence[Gap] = (),
    run: Run = "live",
) -> EventBatch:
    """Events of one node for one investigation."""
    node_own = job_key.startswith("node:")
    return EventBatch(
        run=run, run_id="", cluster=CLUSTER, reporter=node, job_key=job_key, boot_id=f"boot-{node}", shipper_id="s1",
        batch_seq=seq, job_id=None if node_own else JOB, node=node, events=list(events), gaps=list(gaps),
        backfill=backfill,
    )  # fmt: skip


def node_progress(
    node: str,
    through_ns: int,
    *,
    ended: bool = False,
    job_key: str = JOB_KEY,
    kinds: Mapping[str, SourceState] | None = None,
) -> NodeProgress:
    """One node's progress as an investigation sees it."""
    return NodeProgress(
        run="live", run_id="", cluster=CLUSTER, reporter=node, job_key=job_key, node=node, through_unix_nano=through_ns,
        ended=ended, kinds=dict(kinds or {"application": "on", "kernel": "on"}),
    )  # fmt: skip


# --- reading outputs ----------------------------------------------------------------------------------------------


def verdicts(outputs: Iterable[Output]) -> list[Verdict]:
    """The verdicts among outputs."""
    return [output.record for output in outputs if isinstance(output.record, Verdict)]


def incidents(outputs: Iterable[Output]) -> list[Incident]:
    """The incidents among outputs."""
    return [output.record for output in outputs if isinstance(output.record, Incident)]


def incident_of(verdict: Verdict) -> Incident:
    """The incident a verdict carries."""
    assert isinstance(verdict.incident, Incident)
    return verdict.incident


def batches(outputs: Iterable[Output]) -> list[EventBatch]:
    """The event batches among outputs."""
    return [output.record for output in outputs if isinstance(output.record, EventBatch)]


def text(record: msgspec.Struct) -> str:
    """A record as canonical JSON, to compare byte for byte."""
    return msgspec.json.encode(record, order="sorted").decode()


# --- strategies ---------------------------------------------------------------------------------------------------

times_ns = st.one_of(st.none(), st.integers(T0, T0 + 700 * SECOND))


@st.composite
def any_events(draw: st.DrawFn, *, least: int = 1, most: int = 12) -> list[Event]:
    """Events of a few names on a few nodes, with and without times, each at an offset of its own."""
    number = draw(st.integers(least, most))
    return [
        event(
            draw(st.sampled_from(["gpu.xid", "nccl.watchdog.timeout", "cuda.error", "host.oom.kill"])),
            at_ns=draw(times_ns),
            node=draw(st.sampled_from(["alpha", "beta"])),
            offset=offset,
            rank=draw(st.sampled_from([None, 0, 1])),
            count=draw(st.integers(1, 3)),
            attributes=draw(st.sampled_from([{}, {"xid": "48"}, {"xid": "79"}])),
        )
        for offset in range(number)
    ]


@st.composite
def interleavings(draw: st.DrawFn, streams: Mapping[str, int]) -> list[str]:
    """An order of all records of several streams that keeps the order inside each: a list of stream names."""
    names = [name for name, length in sorted(streams.items()) for _ in range(length)]
    return draw(st.permutations(names))


TIME_NEVER_NS = TIME_MAX_NS
