"""The real node agent on falsified clocks, as a process of its own: CONFIG CLOCKS."""

import os
import signal
import sys
import threading
from pathlib import Path

from shippers.agent import Agent
from shippers.clock import HostClock
from shippers.config import load
from tests.e2e import false_clocks


def main(config_file: Path, clocks_file: Path) -> None:
    """Ship until SIGTERM or the end of standard input.

    No time service is asked for a claim: it would speak of the machine's true clock.
    """
    config = load(config_file)
    clock = HostClock(config.clock.boot_id, gettime=false_clocks.load(clocks_file).gettime(), claim=config.clock.claim)
    agent = Agent(config, clock=clock)
    signal.signal(signal.SIGTERM, lambda _number, _frame: agent.request_stop())
    threading.Thread(target=_stop_at_end_of_input, args=(agent,), daemon=True).start()
    agent.run()


def _stop_at_end_of_input(agent: Agent) -> None:
    while os.read(0, 1024):
        pass
    agent.request_stop()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
