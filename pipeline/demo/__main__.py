"""`make demo`: brings the stack up, replays the bundled incident, prints what was found and where to look.

Keeps serving on a terminal; exits 0 by itself when it is not one, or with ONCE=1.
"""

import logging
import os
import shlex
import shutil
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
                look = look_of(sys.stdout)
                sys.stdout.write("\n" + render_text(incident, width=look.width, color=look.color))
                sys.stdout.write("\n" + (where_to_look(addresses) if serve else how_to_look_again(data)))
                sys.stdout.flush()
                if serve:
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


def where_to_look(addresses: Addresses) -> str:
    """What can be opened and asked while the demo serves."""
    return (
        f"feed    {addresses.web}/?run=replay\nSQL     {addresses.clickhouse_url}\n"
        f"in another shell:\n  {addresses.exports}\n  {_rootrank()} query --list\n"
    )


def how_to_look_again(data: Path) -> str:
    """Where the demo ends at once nothing answers any more; what it stored is kept."""
    return (
        "Everything that was started stops now. To look at the page and ask the tables, run `make demo` on a terminal\n"
        f"without ONCE=1, or serve what was stored again: {_rootrank()} up --data {shlex.quote(str(data))}\n"
        "(run replay: the page is the address that `up` prints, with ?run=replay; commands take --run replay)\n"
    )


def _rootrank() -> str:
    """How this installation's command is called from here."""
    beside = Path(sys.executable).with_name("rootrank")
    if not beside.exists() or shutil.which("rootrank") == str(beside):
        return "rootrank"
    below = beside.is_relative_to(Path.cwd())
    return shlex.quote(str(beside.relative_to(Path.cwd()) if below else beside))


def _serve(stack: Stack, stop: threading.Event) -> None:
    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    sys.stdout.write("Ctrl-C stops everything.\n")
    stack.run(stop)


if __name__ == "__main__":
    sys.exit(main())
