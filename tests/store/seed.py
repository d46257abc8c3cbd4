"""Records of a small invented fleet, as the topics carry them."""

import msgspec

from pipeline.core.trust import Judged
from schemas import records as r
from schemas.vocabulary import Quality, Run

NS = 1_000_000_000
# 2026-03-01T10:00:00Z
T0 = 1_772_359_200 * NS
CLUSTER = "c1"
RUN_ID = "r1"
BYTES = "AAECgICA/w=="
CLOCK = r.ClockReading(raw_ns=5 * NS, mono_ns=5 * NS, boottime_ns=5 * NS, wall_ns=T0)


def batch(
    reporter: str = "n1", *, seq: int = 1, first: int = 0, lines: int = 3, observed_ns: int = T0, run: str = "live",
    run_id: str = RUN_ID, gaps: list[r.Gap] | None = None, shipper_id: str = "s1",
) -> r.RawBatch:  # fmt: skip
    """A raw batch of numbered kernel lines."""
    return r.RawBatch(
        run=run,  # type: ignore[arg-type]
        run_id=run_id, cluster=CLUSTER, reporter=reporter, boot_id="b1", shipper_id=shipper_id, batch_seq=seq,
        clock=CLOCK, machine_id="m1", gaps=gaps or [],
        source_attributes={"kern.log": {"kind": "kernel"}},
        records=[
            r.RawLine(
                seq=i, source="kern.log", generation="g1", offset=i * 40, line_no=i + 1, body=f"line {i} of {reporter}",
                observed_time_unix_nano=observed_ns and observed_ns + i, attributes={"kmsg.priority": "3"},
            )
            for i in range(first, first + lines)
        ],
    )  # fmt: skip


def event(number: int, *, node: str = "n1", name: str = "gpu.xid", shift_ns: int = 0, observed_ns: int = T0) -> r.Event:
    """An event; `shift_ns` refines its aligned time."""
    at = T0 + number * NS + shift_ns
    return r.Event(
        event_id=f"e{number:06d}", name=name, node=node, source="kern.log", generation="g1", offset=number * 40,
        line_no=number + 1, body="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", clock_id=f"{node}/wall",
        raw_ns=at, observed_time_unix_nano=observed_ns, aligned_time_unix_nano=at, lo_unix_nano=at - NS,
        hi_unix_nano=at + NS, quality="good", severity="critical", label="hardware/gpu_fell_off_bus", role="cause",
        scope="gpu", subject=r.Entity(node=node, pci_bus_id="0000:3b:00.0", gpu_index=2, rank=3),
        attributes={"xid": "79"}, count=2,
    )  # fmt: skip


def near_miss() -> r.Event:
    """Five lines with the hint of a signal that no pattern fits."""
    missed = msgspec.structs.replace(event(9), name="unmatched.near_miss", role="noise", severity="trace", count=5)
    return msgspec.structs.replace(missed, attributes={"signal": "nvrm.xid", "hint": "Xid (PCI:"}, body="Xid (PCI:?)")


def unread_errors() -> r.RawBatch:
    """Four lines that look like errors and no event, and one that is an event whose text the fold kept elsewhere."""
    bodies = [*(f"widget {n} failed after {n} s" for n in range(4)), f"fatal: {event(1).body}"]
    lines = batch(seq=2, first=60, lines=len(bodies))
    records = [msgspec.structs.replace(x, body=body) for x, body in zip(lines.records, bodies, strict=True)]
    return msgspec.structs.replace(lines, records=records)


def event_batch(
    events: list[r.Event], *, job_id: str | None = "job7", job_key: str = "c1/job7/0", run: str = "live",
    reporter: str = "n1", gaps: list[r.Gap] | None = None,
) -> r.EventBatch:  # fmt: skip
    """Events of one node for one job."""
    return r.EventBatch(
        run=run,  # type: ignore[arg-type]
        run_id=RUN_ID, cluster=CLUSTER, reporter=reporter, job_key=job_key, job_id=job_id, boot_id="b1",
        shipper_id="s1", batch_seq=1, node=reporter, events=events, gaps=gaps or [],
    )  # fmt: skip


def progress(reporter: str = "n1", *, shipper_id: str = "s1", through_ns: int = T0, ended: bool = False) -> r.Progress:
    """A progress record with one source."""
    return r.Progress(
        run="live", run_id=RUN_ID, cluster=CLUSTER, reporter=reporter, boot_id="b1", shipper_id=shipper_id,
        last_batch_seq=4, clock=CLOCK, ended=ended,
        sources=[
            r.SourceProgress(source="kern.log", state="on", kind="kernel", read_through_unix_nano=through_ns),
        ],
    )  # fmt: skip


def incident(revision: int = 1, *, class_: str = "hardware/gpu_xid_79", run: str = "live") -> r.Incident:
    """An incident with two steps."""
    return r.Incident(
        incident_id="i1", engine=r.Engine(version="0.1.0", rules_digest="d1"), run=run,  # type: ignore[arg-type]
        run_id=RUN_ID, cluster=CLUSTER, class_=class_, revision=revision, verdict="provisional", severity="critical",
        jobs=[r.Job(job_id="job7", world_size=16)], started_at="2026-03-01T10:00:01.123456789Z",
        started_error_ns=1000, detected_at="2026-03-01T10:00:03.5Z", labels=["hardware/gpu_fell_off_bus"], xid=79,
        culprits=[r.Culprit(node="n1", pci_bus_id="0000:3b:00.0", gpu_index=2, rank=3, confidence=0.95)],
        confidence=0.95, explanation="GPU 2 of n1 fell off the bus.",
        chain=[
            r.ChainStep(
                step=1, event="gpu.xid", role="root", where="n1 gpu 2", when="2026-03-01T10:00:01.123456789Z",
                error_ns=1000, lag_ns=0, evidence=r.Evidence(source="kern.log", line_no=2, text="Xid 79"), ranks=[3],
            ),
            r.ChainStep(
                step=2, event="nccl.watchdog.timeout", role="symptom", where="rank 0", lag_ns=600 * NS,
                evidence=r.Evidence(source="rank0.log", line_no=9, text="Watchdog caught collective timeout"),
            ),
        ],
        edges=[r.Edge(from_=1, to=2, why="the rank is gone", order="certain")],
        blast_radius=r.BlastRadius(ranks=16, nodes=2, silent_ranks=[3], reporting_ranks=15),
        action=r.Action(kind="drain_node", target="n1", why="the GPU is gone"),
        coverage={"kernel": r.Coverage(expected=2, seen=2)},
    )  # fmt: skip


def topology(node: str) -> r.Topology:
    """A node on a switch."""
    return r.Topology(
        run="live", run_id=RUN_ID, cluster=CLUSTER, reporter="control", node=node, source="slurm topology",
        start_unix_nano=T0 - 3600 * NS, leaf_switch="leaf1",
    )  # fmt: skip


def placement(spans: int = 2, node: str = "n1") -> r.Placement:
    """Who ran on a node."""
    return r.Placement(
        run="live", run_id=RUN_ID, cluster=CLUSTER, node=node,
        spans=[
            r.PlacementSpan(
                job_id="job7", start_unix_nano=T0, rank=rank, local_rank=rank, world_size=16, pid=4000 + rank,
                pci_bus_id=f"0000:3{rank}:00.0", gpu_index=rank, source="rank.log",
            )
            for rank in range(spans)
        ],
    )  # fmt: skip


def dead_letter(offset: int = 7, reason: str = "not JSON: unexpected character") -> r.DeadLetter:
    """A message that could not be read."""
    return r.DeadLetter(topic="raw", partition=2, offset=offset, reason=reason, data=BYTES, key="c1/n1")


GAP = r.Gap(source="kern.log", reason="spool full, oldest dropped", lost_lines=120, from_offset=40, to_offset=4840)


def unsigned(lines: int = 2, *, counts: bool = False) -> Judged:
    return Judged(record=msgspec.structs.replace(batch(lines=lines), key_id="k9"), doubt="not signed", counts=counts)


def release(offset: int = 7) -> Judged:
    return Judged(
        record=r.Release(
            run="live", run_id=RUN_ID, cluster=CLUSTER, reporter="n1", who="ana", why="known", released_unix_nano=T0,
            partition=0, offset=offset, batch=batch(lines=2), key_id="ops",
        )
    )  # fmt: skip


def segment(
    node: str = "n1", *, at_s: int = 0, broker_id: int = 1, a_ns: int = T0, b_ppb: int = 0, epoch: int = 0,
    quality: Quality = "good", wall_step_ns: int = 0, wall_offset_ns: int | None = -2_113_482, boot_id: str = "b1",
    run: Run = "live", half_ns: int = 600_000, reason: str = "",
) -> r.ClockSegment:  # fmt: skip
    """A span of 16 s from `at_s` after the boot; the raw clock was 0 at T0 and runs `b_ppb` slow."""
    return r.ClockSegment(
        run=run, run_id=RUN_ID, cluster=CLUSTER, node=node, boot_id=boot_id, broker_id=broker_id, epoch=epoch,
        t_from_raw_ns=at_s * NS, t_to_raw_ns=(at_s + 16) * NS, a_ns=a_ns, b_ppb=b_ppb, lo_ns=-half_ns,
        hi_ns=half_ns + 1_000, u99_ns=half_ns * 3 // 4, quality=quality, wall_offset_ns=wall_offset_ns,
        wall_step_ns=wall_step_ns, reason=reason,
    )  # fmt: skip


def unmeasured(node: str = "n2", *, at_s: int = 0, run: Run = "live") -> r.ClockSegment:
    """A node that sends no beacons."""
    told = segment(node, at_s=at_s, broker_id=-1, a_ns=0, quality="none", wall_offset_ns=None, half_ns=0, run=run)
    return msgspec.structs.replace(told, hi_ns=0, reason="no beacon was acknowledged for 90 s")


def timed(number: int, raw_ns: int | None, *, broker: int | None = 1, width_ns: int = 0) -> r.Event:
    """An event with the reading of the raw clock that belongs to it, stored with bounds of minutes."""
    return msgspec.structs.replace(
        event(number), monotonic_raw_ns=raw_ns, reference_broker=broker, monotonic_raw_width_ns=width_ns,
        lo_unix_nano=T0 - 60 * NS, hi_unix_nano=T0 + 120 * NS,
    )  # fmt: skip


def drain(end_ns: int | None = None, kind: str = "drain") -> r.Span:
    """A drain of n1, an hour after the beginning."""
    return r.Span(
        run="live", run_id=RUN_ID, cluster=CLUSTER, reporter="ops", node="n1", kind=kind,
        start_unix_nano=T0 + 3600 * NS, end_unix_nano=end_ns, source="ticket",
    )  # fmt: skip


def node_facts(boot_id: str = "b1", *, at_ns: int = T0, driver: str = "570") -> r.NodeFacts:
    """n1, whose machine id is m1, with one GPU that has a name and one that has none."""
    return r.NodeFacts(
        run="live", run_id=RUN_ID, cluster=CLUSTER, reporter="n1", boot_id=boot_id, observed_time_unix_nano=at_ns,
        machine_id="m1", versions={"driver": driver},
        gpus=[r.Gpu(pci_bus_id="0000:3b:00.0", uuid="GPU-1", model="H100"), r.Gpu(pci_bus_id="0000:5e:00.0")],
    )  # fmt: skip
