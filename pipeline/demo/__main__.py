"""`make demo`: brings the stack up, replays the bundled incident, prints what was found and where to look.

Keeps serving on a terminal; exits 0 by itself when it is not one, or with ONCE=1.
"""

import logging
import os
import signal
import sys
import threading
import time
from importlib.resources import as_file, files
from pathlib import Path
from types import FrameType
from typing import Final

from pipeline.embedded.datadir import DataDir
from pipeline.embedded.errors import EmbeddedError
from pipeline.folder import plan
from pipeline.replay import Replay, ReplayError, Settings, new_run_id
from pipeline.report import look_of, render_text
from pipeline.store.errors import StoreError
from pipeline.up import Addresses, Stack, UpError
from pipeline.up import Settings as UpSettings
from pipeline.web.client import FeedClient, FeedUnreachableError
from schemas.records import Incident

SETTLE_S: Final = 90.0
FAILED, UNREACHABLE = 1, 3


def main() -> int:
    """Run the demo; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    data = Path(os.environ.get("ROOTRANK_DATA", ".demo"))
    stop = threading.Event()
    serve = sys.stdout.isatty() and os.environ.get("ONCE") != "1"
    try:
        with DataDir(data).acquire():
            stack = Stack(UpSettings(data=data), _say)
            addresses = stack.start()
            try:
                incident = _replay(addresses, data)
                if incident is None:
                    _say(f"no settled incident after {SETTLE_S:.0f} s; the logs are in {data}/services")
                    return FAILED
                _show(incident, addresses)
                if serve:
                    _show_shell(addresses)
                    _serve(stack, stop)
            finally:
                _say("stopping …")
                stack.stop()
    except (EmbeddedError, UpError, StoreError, ReplayError) as error:
        _say(f"rootrank: {error}")
        return UNREACHABLE
    except KeyboardInterrupt:
        return 0
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _replay(addresses: Addresses, data: Path) -> Incident | None:
    _say("replaying a recorded incident of two nodes whose clocks disagree by 8 s …")
    run_id = new_run_id()
    with as_file(files("pipeline").joinpath("demo", "fell_off_bus")) as folder:
        settings = Settings(bootstrap=addresses.kafka, work_dir=data / "replay", run_id=run_id)
        Replay(plan([folder]), settings).run()
    return _wait_settled(FeedClient(url=addresses.web), run_id)


def _wait_settled(feed: FeedClient, run_id: str) -> Incident | None:
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        try:
            found = feed.listing({"run": "replay", "limit": "50"}).incidents
        except FeedUnreachableError:
            found = []
        for incident in found:
            if incident.run_id == run_id and incident.verdict == "settled":
                return incident
        time.sleep(0.2)
    return None


def _show(incident: Incident, addresses: Addresses) -> None:
    look = look_of(sys.stdout)
    sys.stdout.write("\n" + render_text(incident, width=look.width, color=look.color))
    sys.stdout.write(f"\nfeed    {addresses.web}/?run=replay\nSQL     {addresses.clickhouse_url}\n")
    sys.stdout.flush()


def _show_shell(addresses: Addresses) -> None:
    sys.stdout.write(f"in another shell:\n  {addresses.exports}\n  rootrank query --list\n")
    sys.stdout.flush()


def _serve(stack: Stack, stop: threading.Event) -> None:
    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    sys.stdout.write("Ctrl-C stops everything.\n")
    stack.run(stop)


if __name__ == "__main__":
    sys.exit(main())
