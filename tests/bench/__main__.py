"""`make bench`: the figures of this path, each beside those of the field's tools, bare Kafka and Faust in the same run.

usage: python -m tests.bench [--only reading|live] [--lines 200000] [--samples 60] [--noise 850000] [--sizes 0.1,1]
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from pipeline.up import Settings, Stack
from tests.bench import latency, reading, throughput
from tests.bench.throughput import Parts


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> None:
    """Bring the stack up in a folder of its own, measure, print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lines", type=int, default=200_000)
    options.add_argument("--samples", type=int, default=60)
    options.add_argument("--only", choices=["reading", "live"], help="leave the other half out")
    options.add_argument("--noise", type=int, default=850_000, help="lines of noise that are read")
    options.add_argument("--sizes", default="0.1,1", help="sizes in GB that are diagnosed")
    given = options.parse_args()
    if given.only != "live":
        with tempfile.TemporaryDirectory(prefix="rootrank-bench-") as name:
            for row in reading.measure(Path(name), given.noise, [float(size) for size in given.sizes.split(",")]):
                sys.stdout.write(row + "\n")
                sys.stdout.flush()
    if given.only == "reading":
        return
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
