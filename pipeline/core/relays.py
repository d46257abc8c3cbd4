"""What a control plane tells of a node goes to where the node's own lines are read, and from there to its jobs.

The reporter of a control plane knows neither which jobs have lines on a node nor how they are called there. The node's
own fold does: it hands on what concerns a job, with the ids that the events have, and keeps it for a job that becomes
known later. Only lines of a control plane travel so: nobody tells what the kernel or the GPUs of another node said.
"""

from collections.abc import Iterable

from pipeline.core import keys
from pipeline.core.here import Here, Recent
from pipeline.core.outputs import Output
from pipeline.core.routes import CONTROL, Route
from schemas import topics
from schemas.records import Event, EventBatch, RawBatch, Relay


def sent(batch: RawBatch, relays: Iterable[tuple[Route, Event]]) -> list[Output]:
    """The events of a batch on their way, those of one node and job together."""
    groups: dict[tuple[str, tuple[str, ...], int | None], list[Event]] = {}
    for route, event in relays:
        for node in route.nodes:
            groups.setdefault((node, route.jobs, route.attempt), []).append(event)
    return [
        Output(
            topic=topics.RAW.name, key=topics.key_of(batch.run, batch.run_id, batch.cluster, node),
            record=Relay(
                run=batch.run, run_id=batch.run_id, cluster=batch.cluster, reporter=batch.reporter, node=node,
                boot_id=batch.boot_id, shipper_id=batch.shipper_id, batch_seq=batch.batch_seq, jobs=list(jobs),
                attempt=attempt, events=events,
            ),
        )
        for (node, jobs, attempt), events in groups.items()
    ]  # fmt: skip


def taken(here: Here, record: Relay, boot_id: str, now_ns: int) -> list[Output]:
    """The events for the jobs that they concern; for the node itself where they concern none that is known here.

    What was told before, by another agent of the same control plane, is not told again.
    """
    known = {recent.event.event_id for recent in here.recent}
    found: dict[str, list[Event]] = {}
    for event in record.events:
        if event.source_kind != CONTROL or event.event_id in known:
            continue
        targets = _concerned(here, record, event)
        node = keys.node_key(keys.run_prefix(record.run, record.run_id), record.cluster, record.node, boot_id)
        for target in targets or [node]:
            found.setdefault(target, []).append(event)
        here.recent.append(
            Recent(
                event=event, arrived_ns=now_ns, sent_to=targets or [node], jobs=record.jobs, reporter=record.reporter
            )
        )
    # A node without an agent of its own has no batches, at which the rest is forgotten.
    here.forget_events(now_ns)
    return [_output(here, record, key, events) for key, events in found.items()]


def late(here: Here, wanted: set[str], batch: RawBatch) -> list[Output]:
    """What was told of jobs that are known here only now."""
    found: dict[tuple[str, str], list[Event]] = {}
    for recent in here.recent if wanted else ():
        if not recent.reporter:
            continue
        for key in wanted - set(recent.sent_to):
            if key in here.jobs and _is_of(here, key, recent, batch.reporter):
                recent.sent_to.append(key)
                found.setdefault((key, recent.reporter), []).append(recent.event)
    outputs = []
    for (key, reporter), events in found.items():
        record = Relay(
            run=batch.run, run_id=batch.run_id, cluster=batch.cluster, reporter=reporter, node=batch.reporter,
            boot_id="", shipper_id="late", batch_seq=batch.batch_seq,
        )  # fmt: skip
        outputs.append(_output(here, record, key, events))
    return outputs


def _concerned(here: Here, record: Relay, event: Event) -> list[str]:
    """The jobs here that an event concerns: the one that it names, else the one that was there then."""
    named = {key: job for key, job in here.jobs.items() if job.job_id in record.jobs}
    same = [key for key, job in named.items() if record.attempt is None or job.attempt == record.attempt]
    if named:
        return same or list(named)
    covering = here.covering(event, record.node)
    # Its names may be others than those here; where several jobs share the node it is not guessed which one it is.
    return covering if not record.jobs or len(covering) == 1 else []


def _is_of(here: Here, key: str, recent: Recent, node: str) -> bool:
    job = here.jobs[key]
    if not recent.jobs or job.job_id in recent.jobs:
        return bool(recent.jobs) or job.covers(recent.event, node)
    is_named = any(other.job_id in recent.jobs for other in here.jobs.values())
    return not is_named and here.covering(recent.event, node) == [key]


def _output(here: Here, record: Relay, key: str, events: list[Event]) -> Output:
    job = here.jobs.get(key)
    batch = EventBatch(
        run=record.run, run_id=record.run_id, cluster=record.cluster, reporter=record.reporter, job_key=key,
        boot_id=record.boot_id, shipper_id=record.shipper_id, batch_seq=record.batch_seq,
        job_id=job.job_id if job else None, attempt=job.attempt if job else 0, events=events, backfill=True,
        relayed=True,
    )  # fmt: skip
    return Output(topic=topics.EVENTS.name, key=key.encode(), record=batch)
