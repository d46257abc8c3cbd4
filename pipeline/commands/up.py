"""`rootrank up`."""

import logging
import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from pipeline.embedded.datadir import DataDir
from pipeline.embedded.errors import EmbeddedError
from pipeline.store.errors import StoreError
from pipeline.up import Addresses, Settings, Stack, UpError, page_with_incidents

UNREACHABLE = 3


def default_data() -> Path:
    """The data folder where none is given: per user."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "rootrank"


def up(
    *,
    data: Annotated[Path | None, typer.Option(help="Folder for broker, engine and logs; default: per user.")] = None,
    kafka: Annotated[str, typer.Option(envvar="KAFKA_BOOTSTRAP", help="Use this Kafka; empty: start one.")] = "",
    clickhouse_url: Annotated[
        str, typer.Option(envvar="CLICKHOUSE_URL", help="Use this ClickHouse; empty: start one.")
    ] = "",
    kafka_jars: Annotated[
        Path | None, typer.Option(help="Folder with Kafka's jars, for machines without network.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=16, help="Worker processes.")] = 1,
    host: Annotated[str, typer.Option(help="Address of the feed. Whoever can connect reads log text.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the feed; 0: 8088, or a free one where it is taken.")] = 0,
) -> None:
    """Bring up everything on this machine: Kafka, ClickHouse, worker, store, feed. Ctrl-C stops it all.

    Needs a JDK 17 and, the first time, Maven (or --kafka-jars). Uses KAFKA_BOOTSTRAP and CLICKHOUSE_URL where given.

    \b
    Examples:
      rootrank up
      rootrank up --data ./data --workers 2
    """  # noqa: D301 - \b keeps the lines of an example apart
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    folder = data or default_data()
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    settings = Settings(
        data=folder, kafka=kafka, clickhouse_url=clickhouse_url, kafka_jars=kafka_jars, workers=workers, host=host,
        port=port or None,
    )  # fmt: skip
    try:
        with DataDir(folder).acquire():
            stack = Stack(settings, lambda text: typer.echo(text, err=True))
            addresses = stack.start()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, on_signal)
            _say(addresses)
            try:
                stack.run(stop)
            finally:
                typer.echo("stopping …", err=True)
                stack.stop()
    except (EmbeddedError, UpError, StoreError) as error:
        typer.echo(f"rootrank: {error}", err=True)
        raise typer.Exit(UNREACHABLE) from None
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _say(addresses: Addresses) -> None:
    typer.echo(f"feed        {page_with_incidents(addresses.web)}")
    typer.echo(f"kafka       {addresses.kafka}")
    typer.echo(f"clickhouse  {addresses.clickhouse_url}")
    typer.echo("Ctrl-C stops everything.")
    typer.echo(
        f"in another shell:\n  {addresses.exports}\n  rootrank replay FOLDER      rootrank incidents --follow      "
        "rootrank query --list"
    )
