"""`python -m pipeline.embedded.clickhouse --data DIR --port N`: the engine behind ClickHouse's HTTP interface."""

import argparse
import logging
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

from pipeline.embedded.clickhouse.access import read_passwords
from pipeline.embedded.clickhouse.engine import Engine
from pipeline.embedded.clickhouse.server import ClickHouseHttpServer
from pipeline.embedded.datadir import DataDir
from pipeline.embedded.errors import EmbeddedError

logger = logging.getLogger(__name__)

CANNOT_START = 3


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; exit code 3 and one sentence when that cannot start."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.embedded.clickhouse", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the database, one process at a time")
    parser.add_argument("--port", type=int, required=True, help="loopback port to listen on")
    parser.add_argument("--passwords", type=Path, help="file with `user:password` lines; without it users have none")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        with DataDir(options.data.absolute()) as folder:
            serve(folder.path, options.port, read_passwords(options.passwords))
    except (EmbeddedError, OSError, ValueError) as error:
        logger.error("cannot start: %s", error)
        return CANNOT_START
    return 0


def serve(folder: Path, port: int, passwords: dict[str, str]) -> None:
    """Open the engine on the folder and answer requests until a signal."""
    temporary = folder / "tmp"
    shutil.rmtree(temporary, ignore_errors=True)  # bodies that a kill -9 left
    temporary.mkdir()
    engine = Engine(folder)
    with ClickHouseHttpServer(port, engine, passwords, temporary) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            # shutdown() waits for the loop that this handler interrupts, so it runs beside it
            signal.signal(number, lambda *_: threading.Thread(target=server.shutdown, daemon=True).start())
        logger.info("serving %s on 127.0.0.1:%d, engine %s", folder, port, engine.version)
        server.serve_forever(poll_interval=0.1)
    engine.close()


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    os._exit(status)  # threads of cut-off statements must not delay or crash the end of the interpreter
