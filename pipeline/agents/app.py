"""The Faust app of a worker: settings that survive kill -9 and rebalances, start, stop and restart."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import faust
from aiokafka.errors import KafkaError
from faust import streams
from faust.exceptions import ProducerSendError

from pipeline.agents.broker import (
    MAX_MESSAGE_BYTES,
    TopicError,
    TopicPlan,
    changelog_plan,
    create_topics,
    wait_for_kafka,
)
from pipeline.agents.changelog import Changelog
from pipeline.agents.checkpoint import Hole, SkippedMessagesError, StageRunner
from pipeline.agents.fold import Stage
from pipeline.kafka_access import faust_credentials
from schemas.kafka_access import PLAIN, Access

log = logging.getLogger(__name__)

OK, REFUSED, FAILED = 0, 3, 4
RESTART_AFTER = (SkippedMessagesError, KafkaError, ProducerSendError, OSError)
FINISH_S = 5.0
STOP_S = 5.0
# A broker that has just started may not know a topic yet when it is asked for an assignment; the group then goes on
# without it until metadata is read again (aiokafka's default: five minutes).
METADATA_MAX_AGE_MS = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerConfig:
    """How a worker reaches Kafka and how fast the group notices that it died.

    `instance`, unique per running worker and equal after its restart, makes it a static member: it takes its partitions
    back at once instead of waiting for the session of its dead predecessor, and others wait for that session when it
    stops for good.
    """

    bootstrap: str
    group: str = "rootrank"
    replication: int = 0
    instance: str | None = None
    session_timeout_s: float = 6.0
    heartbeat_s: float = 2.0
    commit_interval_s: float = 1.0
    access: Access = PLAIN


def changelog_topic(config: WorkerConfig, stage: Stage) -> str:
    """Where the snapshots of a stage live."""
    return f"{config.group}-{stage.name}-changelog"


def make_app(config: WorkerConfig) -> faust.App:
    """A Faust app without web server and without topic creation of its own."""
    if streams._CStreamIterator is None:
        raise RuntimeError(
            "Faust runs without its compiled stream iterator, whose Python twin acknowledges messages it skips in a "
            "rebalance and so loses them. Install a faust-streaming wheel for this platform and unset NO_CYTHON"
        )
    return faust.App(
        config.group,
        broker=";".join(f"kafka://{server.strip()}" for server in config.bootstrap.split(",")),
        broker_credentials=faust_credentials(config.access),
        store="memory://",
        processing_guarantee="at_least_once",
        autodiscover=False,
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        stream_wait_empty=False,
        stream_buffer_maxsize=4096,
        worker_redirect_stdouts=False,
        broker_session_timeout=config.session_timeout_s,
        broker_heartbeat_interval=config.heartbeat_s,
        broker_commit_interval=config.commit_interval_s,
        broker_commit_livelock_soft_timeout=3600.0,
        stream_processing_timeout=3600.0,
        consumer_group_instance_id=config.instance,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=4 * 1024 * 1024,
        consumer_metadata_max_age_ms=METADATA_MAX_AGE_MS,
        producer_acks=-1,
        producer_max_batch_size=256 * 1024,
        producer_max_request_size=MAX_MESSAGE_BYTES,
    )


def add_stage(app: faust.App, config: WorkerConfig, stage: Stage, known_holes: set[Hole]) -> StageRunner:
    """Register the agent and the checkpoint task of a stage."""
    changelog = Changelog(
        bootstrap=config.bootstrap, group=config.group, topic=changelog_topic(config, stage),
        source_topic=stage.source_topic, access=config.access,
    )  # fmt: skip
    runner = StageRunner(app, stage, changelog, known_holes)
    source = app.topic(
        stage.source_topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw",
        allow_empty=True,
    )  # fmt: skip
    app.agent(source, name=stage.name)(runner.run)
    app.task(runner.checkpoint_forever)
    app.on_partitions_assigned.connect(runner.on_assigned)
    app.on_partitions_revoked.connect(runner.on_revoked)
    return runner


class SayOnce(logging.Filter):
    """Lets a kind of log line through once a minute: clients repeat the same error at every try to reconnect."""

    def __init__(self) -> None:
        super().__init__()
        self._next_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """True for the first line of its kind within a minute."""
        now_s = time.monotonic()
        if now_s < self._next_s.get(record.msg, 0.0):
            return False
        self._next_s[record.msg] = now_s + 60.0
        return True


def calm_client_logs() -> None:
    """Attach SayOnce to the loggers of the Kafka client."""
    once = SayOnce()
    for name in list(logging.root.manager.loggerDict):
        if name.split(".")[0] == "aiokafka":
            logging.getLogger(name).addFilter(once)


class Worker:
    """One life of an app: from start to stop or crash."""

    def __init__(self, config: WorkerConfig, stages: Iterable[Stage], known_holes: set[Hole]) -> None:
        self.app = make_app(config)
        self.runners = [add_stage(self.app, config, stage, known_holes) for stage in stages]

    async def run(self, stop: asyncio.Event) -> BaseException | None:
        """Work until `stop` is set (None) or the app crashes (the reason)."""
        app = self.app
        starting = asyncio.create_task(app.start())
        stopping = asyncio.create_task(stop.wait())
        ended = asyncio.create_task(app.wait_until_stopped())
        try:
            await asyncio.wait({starting, stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set() and not app.crashed:
                await self._finish()
        except (KafkaError, ProducerSendError, OSError) as error:
            return error
        finally:
            await self._stop()
            for task in (starting, stopping, ended):
                task.cancel()
        return app.crash_reason if app.crashed else None

    async def _finish(self) -> None:
        try:
            async with asyncio.timeout(FINISH_S):
                await asyncio.gather(*(runner.finish() for runner in self.runners))
        except (TimeoutError, KafkaError, ProducerSendError) as error:
            log.warning("no final checkpoint (%r); the next start reads these messages again", error)

    async def _stop(self) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                await self.app.stop()
        except TimeoutError:
            log.warning("the app did not stop within %.0f s", STOP_S)


async def run_worker(
    config: WorkerConfig,
    stages: Sequence[Stage],
    topics: Sequence[TopicPlan] = (),
    *,
    on_life: Callable[[list[StageRunner]], None] = lambda runners: None,
) -> int:
    """Run until SIGTERM or SIGINT. Returns 0; 3 where Kafka refuses our topics; 4 after any error that is not Kafka's.

    An unreachable Kafka is waited for, at the start and after a crash that it caused. `on_life` is told the runners of
    each life of the app.
    """
    calm_client_logs()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    plans = [*topics, *(changelog_plan(changelog_topic(config, s), s.partitions) for s in stages)]
    known_holes: set[Hole] = set()
    while await wait_for_kafka(config.bootstrap, stop, config.access):
        try:
            await create_topics(config.bootstrap, plans, replication=config.replication, access=config.access)
        except TopicError as error:
            log.error("%s", error)
            return REFUSED
        except (KafkaError, OSError) as error:
            log.warning("Kafka went away while topics were created: %r", error)
            continue
        worker = Worker(config, stages, known_holes)
        on_life(worker.runners)
        reason = await worker.run(stop)
        if reason is None:
            break
        if not isinstance(reason, RESTART_AFTER):
            log.error("worker stopped: %s", reason)
            return FAILED
        log.warning("worker stopped by %r; starting again", reason)
    return OK
