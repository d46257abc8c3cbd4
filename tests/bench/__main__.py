"""`make bench`: the figures of this path, each beside those of the field's tools, bare Kafka and Faust in the same run.

usage: python -m tests.bench [--only reading|collapse|collapse-live|content-clocks|fleet|live]
                             [--folders 20] [--lines 200000] [--samples 60] [--noise 850000] [--sizes 0.1,1]
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from pipeline.up import Settings, Stack
from tests.bench import collapse, content_clocks, fleet, latency, reading, throughput
from tests.bench.throughput import Parts

PARTS: Final = ["reading", "collapse", "collapse-live", "content-clocks", "fleet", "live"]


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> None:
    """Bring the stack up in a folder of its own, measure, print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lines", type=int, default=200_000)
    options.add_argument("--samples", type=int, default=60)
    options.add_argument(
        "--only",
        choices=PARTS,
        help="leave the others out",
    )
    options.add_argument("--noise", type=int, default=850_000, help="lines of noise that are read")
    options.add_argument("--sizes", default="0.1,1", help="sizes in GB that are diagnosed")
    options.add_argument("--lead", type=float, default=420, help="seconds until the collapse that is played is over")
    options.add_argument("--folders", type=int, default=20, help="folders of each kind whose clocks are aligned")
    options.add_argument("--progress", type=float, default=1, help="seconds between two progress records of a node")
    given = options.parse_args()
    wanted = PARTS if given.only is None else [given.only]
    if "reading" in wanted:
        _print(lambda folder: reading.measure(folder, given.noise, [float(size) for size in given.sizes.split(",")]))
    if "collapse" in wanted:
        _print(lambda folder: collapse.post_mortem(folder, [1, 2]))
    if "collapse-live" in wanted:
        _print(lambda folder: collapse.live(folder, given.lead, given.progress))
    if "content-clocks" in wanted:
        _print(lambda folder: content_clocks.measure(folder, given.folders))
    if "fleet" in wanted:
        _print(lambda _: fleet.measure())
    if "live" in wanted:
        _live(given)


def _print(measure: Callable[[Path], Iterable[str]]) -> None:
    with tempfile.TemporaryDirectory(prefix="rootrank-bench-") as name:
        for row in measure(Path(name)):
            sys.stdout.write(row + "\n")
            sys.stdout.flush()


def _live(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="rootrank-bench-") as name:
        folder = Path(name)
        stack = Stack(Settings(data=folder / "data"), _say)
        addresses = stack.start()
        try:
            pids = {**{s.name: s.pid for s in stack.services}, "kafka broker": stack.kafka_pid,
                    "clickhouse": stack.clickhouse_pid}  # fmt: skip
            parts = Parts(
                bootstrap=addresses.kafka, clickhouse_url=addresses.clickhouse_url,
                pids={name: pid for name, pid in pids.items() if pid},
            )  # fmt: skip
            sys.stdout.write(f"{os.cpu_count()} cores, {sys.version.split()[0]}\n")
            (folder / "latency").mkdir()
            throughput.make_bare_topics(parts.bootstrap)
            for rows in (
                latency.measure(parts, addresses.web, folder / "latency", given.samples),
                throughput.measure(parts, folder / "throughput", given.lines),
            ):
                sys.stdout.write("\n".join(rows) + "\n")
                sys.stdout.flush()
        finally:
            stack.stop()


if __name__ == "__main__":
    main()
