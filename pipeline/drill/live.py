"""Plays a drill through a running installation: real shippers, Kafka, worker, feed; says where it got lost."""

import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from msgspec import Struct

from pipeline.drill import generate
from pipeline.drill.generate import Incident as Made
from pipeline.drill.scoring import NOTHING, Score, judge
from pipeline.folder import FolderPlan, plan
from pipeline.kafka_access import access, client_options
from pipeline.kafka_client import KafkaClient
from pipeline.replay import Replay, Settings
from pipeline.web.client import FeedClient, FeedRefusedError, FeedUnreachableError
from schemas import topics
from schemas.codec import decode
from schemas.records import Incident, Progress, RawBatch
from schemas.vocabulary import STANDING

TICK_S: Final = 0.05
READY_S: Final = 60.0
LATE_S: Final = 2.0
QUIET_S: Final = 15.0
# Each node of a drill is a process of its own here.
MAX_NODES: Final = 40

Say = Callable[[str], None]


class LiveError(RuntimeError):
    """A live drill that cannot be played; the text says why and what to do."""


class Stages(Struct, kw_only=True):
    """What the drill's records came to, stage by stage. `in_feed_s`: seconds after the first line could be read."""

    shippers: int = 0
    lines: int = 0
    events: int = 0
    verdicts: int = 0
    incidents: int = 0
    in_feed_s: float | None = None

    @property
    def lost_at(self) -> str:
        """The first stage that got nothing, and what to look at; empty where the feed has it."""
        if self.in_feed_s is not None:
            return ""
        if not self.lines:
            return "the shippers delivered no line to Kafka (topic raw): look at what they say in their shipper.log"
        if not self.events:
            return "lines are in Kafka, but no event came of them (topic events): does `rootrank worker` run?"
        if not self.verdicts:
            return "there are events, but no verdict (topic verdicts): does the worker's stage detect keep up?"
        if not self.incidents:
            return "there are verdicts, but no incident (topic incidents): does the worker's stage join run?"
        return "the incident is in Kafka, but not in the feed: does `rootrank web` run on this Kafka?"


class Outcome(Struct, kw_only=True):
    """How a live drill ended."""

    run_id: str
    chain: str
    variant: str
    seed: int
    quiet: bool
    stages: Stages
    score: Score | None = None

    @property
    def right(self) -> bool:
        """The incident is in the feed (or none is, after a quiet ending), and says the truth."""
        if self.quiet:
            return self.stages.in_feed_s is None and bool(self.stages.events)
        return self.score is not None and self.score.right and self.stages.in_feed_s is not None

    @property
    def sentence(self) -> str:
        """The last line of the command."""
        if self.quiet and self.stages.in_feed_s is None:
            return "no incident in the feed, as it should be" if self.right else f"lost: {self.stages.lost_at}"
        if self.score is None or self.stages.in_feed_s is None:
            return f"lost: {self.stages.lost_at}"
        after = f"incident in the feed after {self.stages.in_feed_s:.1f} s"
        said = "culprit right" if self.score.culprit == "right" else f"culprit {self.score.culprit}: {self.score.why}"
        if self.score.class_right:
            return f"{after}, {said}"
        return f"{after}, {said}, but class {self.score.said} where {self.score.expected} is true"


class Watch:
    """Follows the topics from their ends and counts what belongs to one run, in a thread of its own."""

    def __init__(self, bootstrap: str, run_id: str) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, kafka_client=KafkaClient, **client_options(access())
        )
        self._marks = (f"drill:{run_id}/".encode(), f'"run_id":"{run_id}"'.encode())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drill watch", daemon=True)
        self.stages = Stages()
        self.reporters: set[str] = set()

    def __enter__(self) -> Self:
        places = [
            TopicPartition(topic.name, number)
            for topic in (topics.RAW, topics.EVENTS, topics.VERDICTS, topics.INCIDENTS)
            for number in self._consumer.partitions_for_topic(topic.name) or ()
        ]
        if len({place.topic for place in places}) < 4:
            raise LiveError("Kafka lacks topics of rootrank: start `rootrank worker`, which creates them")
        self._consumer.assign(places)
        self._consumer.seek_to_end(*places)
        for place in places:
            self._consumer.position(place)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(10)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for messages in self._consumer.poll(timeout_ms=50).values():
                for message in messages:
                    self._take(message)

    def _take(self, message: Any) -> None:
        prefix, mark = self._marks
        if not (message.key or b"").startswith(prefix) and mark not in (message.value or b""):
            return
        if message.topic == topics.EVENTS.name:
            self.stages.events += 1
        elif message.topic == topics.VERDICTS.name:
            self.stages.verdicts += 1
        elif message.topic == topics.INCIDENTS.name:
            self.stages.incidents += 1
        else:
            self._take_raw(message.value)

    def _take_raw(self, value: bytes) -> None:
        record = decode(topics.RAW.name, value)
        if isinstance(record, RawBatch):
            self.stages.lines += len(record.records)
        if isinstance(record, RawBatch | Progress):
            self.reporters.add(record.reporter)
            self.stages.shippers = len(self.reporters)


class LiveDrill:
    """One drill on one installation."""

    def __init__(self, made: Made, *, bootstrap: str, feed: FeedClient, work_dir: Path, run_id: str) -> None:
        self._made, self._feed, self._bootstrap = made, feed, bootstrap
        self._folder = work_dir / f"{run_id}-story"
        self._work_dir, self._run_id = work_dir, run_id

    def run(self, say: Say, *, wait_s: float) -> Outcome:
        """Play it and wait for the incident. Raises LiveError; leaves no process and no file behind."""
        generate.write(self._made, self._folder)
        try:
            folder = plan([self._folder / generate.LOGS])
            if len(folder.nodes) > MAX_NODES:
                raise LiveError(
                    f"{len(folder.nodes)} nodes are as many shippers here: give --ranks, or --gpus-per-node 8"
                )
            with Watch(self._bootstrap, self._run_id) as watch:
                return self._play(folder, watch, say, wait_s)
        except KafkaError as error:
            raise LiveError(f"Kafka at {self._bootstrap} does not answer: {error}") from None
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            shutil.rmtree(self._work_dir / self._run_id, ignore_errors=True)

    def _play(self, folder: FolderPlan, watch: Watch, say: Say, wait_s: float) -> Outcome:
        settings = Settings(bootstrap=self._bootstrap, work_dir=self._work_dir, run_id=self._run_id, run="drill")
        replay = Replay(folder, settings)
        try:
            say(f"starting {len(replay.shippers)} shippers as {self._run_id}")
            for shipper in replay.shippers:
                shipper.start()
            _until(lambda: len(watch.reporters) >= len(replay.shippers), READY_S, replay)
            say(f"{len(watch.reporters)} of {len(replay.shippers)} shippers report to Kafka; playing the story")
            began_s = time.monotonic()
            self._release(replay)
            return self._wait(replay, watch, began_s, wait_s)
        finally:
            for shipper in replay.shippers:
                shipper.stop()

    def _release(self, replay: Replay) -> None:
        """Write the logs where the shippers look; some files come late."""
        late = set(self._made.truth.late)
        players = [player for shipper in replay.shippers for player in shipper.players()]
        for player in players:
            if player.name not in late:
                player.release_all()
        if late:
            _until(lambda: False, LATE_S, replay)
            for player in players:
                if player.name in late:
                    player.release_all()
        for shipper in replay.shippers:
            shipper.end()

    def _wait(self, replay: Replay, watch: Watch, began_s: float, wait_s: float) -> Outcome:
        truth, stages = self._made.truth, watch.stages
        outcome = Outcome(
            run_id=self._run_id, chain=truth.chain, variant=truth.variant, seed=truth.seed, quiet=truth.knowable.quiet,
            stages=stages,
        )  # fmt: skip

        def settled() -> bool:
            found = self._found()
            if not found:
                # What was said early and withdrawn does not count.
                stages.in_feed_s, outcome.score = None, None
                return False
            if stages.in_feed_s is None:
                stages.in_feed_s = time.monotonic() - began_s
            outcome.score = self._best(found)
            return _is_right(outcome) or all(one.verdict == "settled" for one in found)

        if outcome.quiet:
            # Silence is proved by time: all is read, and then nothing stands for a while.
            _until(lambda: all(shipper.done for shipper in replay.shippers), wait_s, replay)
            quiet_from_s = time.monotonic() + QUIET_S
            _until(lambda: settled() or (not self._found() and time.monotonic() > quiet_from_s), wait_s, replay)
        else:
            _until(settled, wait_s, replay)
        return outcome

    def _found(self) -> list[Incident]:
        """The incidents of this run that stand in the feed."""
        try:
            found = self._feed.listing({"run": "drill", "limit": "1000"}).incidents
        except (FeedUnreachableError, FeedRefusedError):
            return []
        return [one for one in found if one.run_id == self._run_id and one.state in STANDING]

    def _best(self, found: Iterable[Incident]) -> Score:
        """Of several incidents the one that is right, else the surest."""
        by_confidence = sorted(found, key=lambda one: -one.confidence)
        scores = [judge(self._run_id, self._made.truth, [one]) for one in by_confidence]
        return next((score for score in scores if score.right), scores[0])


def _is_right(outcome: Outcome) -> bool:
    return not outcome.quiet and outcome.score is not None and outcome.score.right and outcome.score.said != NOTHING


def _until(true: Callable[[], bool], seconds: float, replay: Replay) -> bool:
    """Wait for something while the shippers are kept alive; False at the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for shipper in replay.shippers:
            shipper.keep_alive()
        if true():
            return True
        time.sleep(TICK_S)
    return False
