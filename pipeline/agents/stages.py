"""The three stages, cut as ARCHITECTURE.md draws them: which topic, which fold, which key."""

from collections.abc import Iterable

from pipeline import VERSION
from pipeline.agents.dead_letter import dead_letter
from pipeline.agents.fold import Pace, Stage
from pipeline.core.align import NodeFold
from pipeline.core.investigation import Investigation
from pipeline.core.join import Join
from pipeline.rules import load_rules
from schemas import signals
from schemas.codec import decode, encode
from schemas.topics import EVENTS, RAW, VERDICTS

# Verdicts carry few messages and decide revisions: save early, so that little is worked out twice.
QUICK = Pace(tick_s=0.5, entity_age_s=1.0)


def align() -> Stage:
    """Raw lines of a reporter become events of jobs."""
    known = signals.load()
    return Stage(
        name="align", source_topic=RAW.name, partitions=RAW.partitions,
        decode=lambda data: decode(RAW.name, data), encode=encode, on_bad=dead_letter,
        new=lambda key: NodeFold(known), restore=lambda key, data: NodeFold.restore(known, data),
        pace=Pace(entity_age_s=5.0),
    )  # fmt: skip


def detect() -> Stage:
    """Events of a job become verdicts."""
    rules = load_rules()
    return Stage(
        name="detect", source_topic=EVENTS.name, partitions=EVENTS.partitions,
        decode=lambda data: decode(EVENTS.name, data), encode=encode, on_bad=dead_letter,
        new=lambda key: Investigation.new(rules, VERSION, key.decode("utf-8", "replace")),
        restore=lambda key, data: Investigation.restore(rules, VERSION, data),
    )  # fmt: skip


def join() -> Stage:
    """Verdicts of all jobs become incidents; one fold, one partition."""
    return Stage(
        name="join", source_topic=VERDICTS.name, partitions=VERDICTS.partitions,
        decode=lambda data: decode(VERDICTS.name, data), encode=encode, on_bad=dead_letter,
        new=lambda key: Join(), restore=lambda key, data: Join.restore(data),
        entity_key=lambda key, record: b"all", pace=QUICK,
    )  # fmt: skip


def all_stages() -> Iterable[Stage]:
    """Align, detect, join."""
    return [align(), detect(), join()]
