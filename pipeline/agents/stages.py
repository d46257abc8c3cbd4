"""The three stages, cut as ARCHITECTURE.md draws them: which topic, which fold, which key."""

from collections.abc import Iterable
from typing import Any

from pipeline import VERSION
from pipeline.agents.dead_letter import dead_letter
from pipeline.agents.fold import Pace, Stage, as_it_is
from pipeline.agents.request_signer import RequestSigner
from pipeline.core.align import NodeFold
from pipeline.core.investigation import Investigation
from pipeline.core.join import Join
from pipeline.core.keys import job_key
from pipeline.rules import load_rules
from pipeline.trust.judge import Judge
from schemas import signals
from schemas.codec import UnreadableRecordError, decode, encode
from schemas.records import Placement, Relay
from schemas.topics import EVENTS, RAW, VERDICTS, key_of, run_prefix

# Verdicts carry few messages and decide revisions: save early, so that little is worked out twice.
QUICK = Pace(tick_s=0.5, entity_age_s=1.0)

SHOWN_KEY_BYTES = 200


def read_raw(key: bytes | None, data: bytes | None) -> object:
    """A record of the raw topic under the key of its reporter; a placement or relay, of its node. Raises otherwise."""
    record = decode(RAW.name, data)
    name = record.node if isinstance(record, Placement | Relay) else record.reporter
    return _checked(key, record, [key_of(record.run, record.run_id, record.cluster, name)])


def read_event(key: bytes | None, data: bytes | None) -> object:
    """A record of the events topic under its job key; a placement, under that of a job in it. Raises otherwise."""
    record = decode(EVENTS.name, data)
    if isinstance(record, Placement):
        run = run_prefix(record.run, record.run_id)
        return _checked(key, record, [job_key(run, record.cluster, s.job_id, s.attempt).encode() for s in record.spans])
    return _checked(key, record, [record.job_key.encode()])


def read_verdict(key: bytes | None, data: bytes | None) -> object:
    """A verdict under its job key. Raises otherwise."""
    record = decode(VERDICTS.name, data)
    return _checked(key, record, [record.job_key.encode()])


def _checked(key: bytes | None, record: Any, fitting: list[bytes]) -> object:
    """Nobody speaks for another node or job by putting a record under its key."""
    if key not in fitting:
        said = "none" if key is None else repr(_text(key))
        raise UnreadableRecordError(
            f"key {said} does not fit the record of {', '.join(map(_text, fitting[:3])) or 'no job'}"
        )
    return record


def _text(key: bytes) -> str:
    return key[:SHOWN_KEY_BYTES].decode("utf-8", "backslashreplace")


def align(judge: Judge | None = None) -> Stage:
    """Raw lines of a reporter become events of jobs. `judge` says which of them are proven."""
    known = signals.load()
    return Stage(
        name="align", source_topic=RAW.name, partitions=RAW.partitions,
        decode=read_raw, encode=encode, on_bad=dead_letter,
        new=lambda key: NodeFold(known), restore=lambda key, data: NodeFold.restore(known, data),
        pace=Pace(entity_age_s=5.0), examine=judge.examine if judge else as_it_is,
    )  # fmt: skip


def detect() -> Stage:
    """Events of a job become verdicts."""
    rules = load_rules()
    return Stage(
        name="detect", source_topic=EVENTS.name, partitions=EVENTS.partitions,
        decode=read_event, encode=encode, on_bad=dead_letter,
        new=lambda key: Investigation.new(rules, VERSION, key.decode("utf-8", "replace")),
        restore=lambda key, data: Investigation.restore(rules, VERSION, data),
    )  # fmt: skip


def join(signer: RequestSigner | None = None) -> Stage:
    """Verdicts of all jobs become incidents; one fold, one partition. With a signer it asks nodes for captures."""
    asks = signer is not None
    return Stage(
        name="join", source_topic=VERDICTS.name, partitions=VERDICTS.partitions,
        decode=read_verdict, encode=signer.encode if signer is not None else encode, on_bad=dead_letter,
        new=lambda key: Join(asks_captures=asks), restore=lambda key, data: Join.restore(data, asks_captures=asks),
        entity_key=lambda key, record: b"all", pace=QUICK,
    )  # fmt: skip


def all_stages(judge: Judge | None = None, signer: RequestSigner | None = None) -> Iterable[Stage]:
    """Align, detect, join."""
    return [align(judge), detect(), join(signer)]
