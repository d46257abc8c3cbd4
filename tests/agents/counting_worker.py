"""A worker with one trivial stage, run as a process of its own by the tests: `python counting_worker.py CONFIG_JSON`.

Its fold is the list of numbers it has seen per entity, so a message that a state missed or took twice is visible.
"""

import asyncio
import json
import logging
import os
import random
import sys
from collections.abc import Iterable

import msgspec
import orjson

from pipeline.agents.app import WorkerConfig, run_worker
from pipeline.agents.broker import TopicPlan
from pipeline.agents.fold import BadMessage, Output, Pace, Stage


class Shown(msgspec.Struct, kw_only=True):
    """What a stage says about an entity after a message."""

    id: str
    count: int
    now_ns: int = 0
    seen: list[int] | None = None
    ballast: int | None = None
    wide: str = ""


class Letter(msgspec.Struct, kw_only=True):
    """A dead letter."""

    id: str
    reason: str
    data: str


class Numbers:
    """The numbers of one entity in the order they were applied. `close` as a number asks for a snapshot."""

    def __init__(self, entity: str, seen: list[int], ballast: str = "") -> None:
        self.entity = entity
        self.seen = seen
        self.ballast = ballast
        self.wants_snapshot = False

    def apply(self, record: object, *, now_ns: int) -> Iterable[Output]:
        assert isinstance(record, dict)
        number = record["n"]
        if record.get("poison"):
            raise ValueError("poison")
        self.seen.append(number)
        if record.get("light"):
            self.ballast = ""
        self.ballast += random.Random(number).randbytes(record.get("ballast_bytes", 0)).hex()
        self.wants_snapshot = bool(record.get("close"))
        if record.get("quiet"):
            return
        state = (self.seen, len(self.ballast)) if record.get("state") else (None, None)
        shown = Shown(
            id=f"{self.entity}/{number}", count=len(self.seen), now_ns=now_ns, seen=state[0], ballast=state[1],
            wide="x" * record.get("wide_bytes", 0),
        )  # fmt: skip
        if record.get("huge"):
            shown.now_ns = 2**70
        yield Output(topic=OUT, key=self.entity.encode(), record=shown)

    def snapshot(self) -> bytes:
        return json.dumps([self.seen, self.ballast]).encode()


class Passed:
    """A second stage: takes each output of the first once, though a re-read sends some again."""

    wants_snapshot = False

    def __init__(self, entity: str, ids: list[str]) -> None:
        self.entity = entity
        self.ids = dict.fromkeys(ids)

    def apply(self, record: object, *, now_ns: int) -> Iterable[Output]:
        assert isinstance(record, dict)
        if record["id"] in self.ids:
            return
        self.ids[record["id"]] = None
        yield Output(topic=LAST, key=self.entity.encode(), record=Shown(id=record["id"], count=len(self.ids)))

    def snapshot(self) -> bytes:
        return json.dumps(list(self.ids)).encode()


SETTINGS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
SOURCE, OUT, LAST, DEAD = (f"{SETTINGS.get('prefix', 't')}.{name}" for name in ("in", "out", "last", "dead"))
PARTITIONS = SETTINGS.get("partitions", 4)


def decode(key: bytes | None, data: bytes | None) -> object:
    """A JSON object with `n`."""
    del key
    if data is None:
        raise ValueError("empty message")
    return json.loads(data)


def encode(record: msgspec.Struct) -> bytes:
    """JSON as the real stages write it."""
    return orjson.dumps(msgspec.to_builtins(record))


def on_bad(bad: BadMessage) -> Output:
    """The address and the bytes."""
    where = f"{bad.topic}/{bad.partition}/{bad.offset}"
    return Output(topic=DEAD, key=where.encode(), record=Letter(id=where, reason=bad.reason, data=repr(bad.value)))


STAGE = Stage(
    name="numbers",
    source_topic=SOURCE,
    partitions=PARTITIONS,
    decode=decode,
    encode=encode,
    new=lambda key: Numbers(key.decode(), []),
    restore=lambda key, state: Numbers(key.decode(), *json.loads(state)),
    on_bad=on_bad,
    pace=Pace(**SETTINGS.get("pace", {})),
)
SECOND = Stage(
    name="passed",
    source_topic=OUT,
    partitions=PARTITIONS,
    decode=decode,
    encode=encode,
    new=lambda key: Passed(key.decode(), []),
    restore=lambda key, state: Passed(key.decode(), json.loads(state)),
    on_bad=on_bad,
    pace=Pace(**SETTINGS.get("pace", {})),
)


def main() -> int:
    """Run until SIGTERM."""
    logging.basicConfig(level=SETTINGS.get("log", "WARNING"), stream=sys.stderr,
                        format="%(asctime)s %(process)d %(levelname)s %(name)s %(message)s")  # fmt: skip
    topics = [TopicPlan(name=name, partitions=PARTITIONS) for name in (SOURCE, LAST)]
    topics.append(TopicPlan(name=OUT, partitions=PARTITIONS, settings={"max.message.bytes": "1000000"}))
    topics.append(TopicPlan(name=DEAD, partitions=1))
    config = WorkerConfig(bootstrap=os.environ["KAFKA_BOOTSTRAP"], group=f"{SETTINGS.get('prefix', 't')}-group",
                          instance=SETTINGS.get("instance"))  # fmt: skip
    return asyncio.run(run_worker(config, [STAGE, SECOND][: SETTINGS.get("stages", 1)], topics))


if __name__ == "__main__":
    sys.exit(main())
