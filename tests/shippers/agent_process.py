"""A node agent that writes its records to a file instead of Kafka, for tests that kill it: CONFIG RECORDS."""

import os
import sys
from pathlib import Path

from shippers.agent import Agent
from shippers.config import load
from shippers.sink import Done, Pending


class FileSink:
    """One line of JSON a record, in one write each."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(self._fd, b"\n")  # an earlier process may have been killed within a line

    def send(self, value: bytes) -> Pending:
        os.write(self._fd, value + b"\n")
        return Done()

    def close(self) -> None:
        """The process ends anyway."""


if __name__ == "__main__":
    Agent(load(Path(sys.argv[1])), FileSink(Path(sys.argv[2]))).run()
