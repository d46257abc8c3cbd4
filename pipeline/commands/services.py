"""`rootrank worker`, `rootrank store`, `rootrank web`: one process each."""

import asyncio
import logging
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from pipeline.agents.request_signer import RequestSigner
    from pipeline.trust.judge import Judge, TrustSettings

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

Bootstrap = Annotated[
    str, typer.Option("--kafka", envvar="KAFKA_BOOTSTRAP", help="Bootstrap servers, host:port[,host:port…].")
]


Trust = Annotated[
    str,
    typer.Option(
        "--trust", envvar="ROOTRANK_TRUST",
        help="Signatures of live reporters: off, warn (tell what fails) or require (leave out what fails).",
    ),
]  # fmt: skip
TrustKeys = Annotated[
    Path | None,
    typer.Option("--trust-keys", envvar="ROOTRANK_TRUST_KEYS", help="Public keys: a TOML file, or a folder of them."),
]
MetricsPort = Annotated[int, typer.Option(help="Serve /metrics on this port of the loopback; 0: do not.")]


def worker(
    *,
    kafka: Bootstrap = DEFAULT_BOOTSTRAP,
    group: Annotated[str, typer.Option(help="Consumer group; workers of one group share the partitions.")] = "rootrank",
    replication: Annotated[
        int, typer.Option(help="Replication of topics that are created; 0: three, or all brokers.")
    ] = 0,
    instance: Annotated[
        str, typer.Option(help="A name that stays over restarts, unique in the group: a restart is noticed sooner.")
    ] = "",
    trust: Trust = "off",
    trust_keys: TrustKeys = None,
    metrics_port: MetricsPort = 0,
    capture_key: Annotated[
        Path | None,
        typer.Option(
            envvar="ROOTRANK_CAPTURE_KEY",
            help="Ask nodes for captures, signed with this key (Ed25519, PEM); without one nobody is asked.",
        ),
    ] = None,
) -> None:
    """Run the Faust stages align, detect and join. Start as many as there is work for.

    Creates missing topics; waits for a Kafka that is away. Example: rootrank worker --kafka kafka1:9092
    """
    from pipeline import metrics
    from pipeline.agents.app import WorkerConfig, run_worker
    from pipeline.agents.readings import StageReadings
    from pipeline.agents.stages import all_stages
    from pipeline.agents.topics import topic_plans
    from pipeline.kafka_access import access

    _log_to_stderr()
    config = WorkerConfig(
        bootstrap=kafka, group=group, replication=replication, instance=instance or None, access=access()
    )
    readings = StageReadings()
    judge = _judge(trust, trust_keys)
    if metrics_port:
        metrics.serve(metrics.Readings(lambda: [*readings.read(), *judge.read()]), metrics_port)
    work = run_worker(config, list(all_stages(judge, _signer(capture_key))), topic_plans(), on_life=readings.follow)
    raise typer.Exit(asyncio.run(work))


def _signer(path: Path | None) -> "RequestSigner | None":
    from pipeline.agents.request_signer import NoKeyError, RequestSigner

    try:
        return RequestSigner.of_file(path) if path is not None else None
    except NoKeyError as error:
        raise typer.BadParameter(str(error), param_hint="--capture-key") from None


def store(
    *,
    kafka: Bootstrap = DEFAULT_BOOTSTRAP,
    clickhouse_url: Annotated[
        str, typer.Option(envvar="CLICKHOUSE_URL", help="http://user:password@host:port/database")
    ] = "http://127.0.0.1:8123/rootrank",
    password_file: Annotated[
        Path | None, typer.Option(envvar="CLICKHOUSE_PASSWORD_FILE", help="File with the password.")
    ] = None,
    trust: Trust = "off",
    trust_keys: TrustKeys = None,
    metrics_port: MetricsPort = 0,
) -> None:
    """Fill ClickHouse from Kafka. Waits for either that is away; what was not written is read again.

    Example: rootrank store --kafka kafka1:9092 --clickhouse-url http://clickhouse1:8123/rootrank
    """
    from pipeline import metrics
    from pipeline.kafka_access import access
    from pipeline.store import readings
    from pipeline.store.settings import settings_from_url
    from pipeline.store.sink import SinkSettings, StoreSink

    _log_to_stderr()
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    settings = SinkSettings(
        bootstrap=kafka,
        store=settings_from_url(clickhouse_url, password_file=password_file),
        access=access(),
        trust=_trust(trust, trust_keys),
    )
    _judge(trust, trust_keys)  # what is wrong with the keys is said here, in words
    sink = StoreSink(settings)
    if metrics_port:
        metrics.serve(metrics.Readings(lambda: readings.read(sink.counts)), metrics_port)
    sink.run(stop)


def web(
    *,
    kafka: Bootstrap = DEFAULT_BOOTSTRAP,
    host: Annotated[str, typer.Option(help="Address to listen on. Whoever can connect reads log text.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8088,
) -> None:
    """Serve the incident feed: page, server-sent events, /api/incidents, /healthz, /metrics.

    Example: rootrank web --kafka kafka1:9092 --port 8088
    """
    from pipeline.kafka_access import access
    from pipeline.web.server import WebSettings, run

    _log_to_stderr()
    run(WebSettings(bootstrap=kafka, host=host, port=port, access=access()))


def _trust(policy: str, keys: Path | None) -> "TrustSettings":
    from pipeline.trust.judge import POLICIES, TrustSettings

    for known in POLICIES:
        if policy == known:
            return TrustSettings(policy=known, keys=keys)
    raise typer.BadParameter(f"{policy!r} is none of {', '.join(POLICIES)}", param_hint="--trust")


def _judge(policy: str, keys: Path | None) -> "Judge":
    from pipeline.trust.judge import Judge
    from pipeline.trust.keys import KeysError

    try:
        return Judge(_trust(policy, keys))
    except KeysError as error:
        raise typer.BadParameter(str(error), param_hint="--trust-keys") from None


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for name in ("pipeline", "shippers"):
        logging.getLogger(name).setLevel(logging.INFO)
