import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.records import ClockClaim, ClockReading
from shippers import time_namespace
from shippers.clock import HostClock, StaticClock, make_clock
from shippers.config import ClockSettings, Config

ROOT = Path(__file__).parents[2]
CLAIM = ClockClaim(offset_ns=1, bound_ns=2, by="me")
READING = ClockReading(raw_ns=1, mono_ns=2, boottime_ns=3, wall_ns=4)


def gettime_taking(steps_ns: list[int]) -> Callable[[int], int]:
    """All clocks are one that advances by the next of these steps at each look; the last one stays."""
    now_ns = 0
    left = list(steps_ns)

    def gettime(_clock_id: int) -> int:
        nonlocal now_ns
        now_ns += left.pop(0) if len(left) > 1 else left[0]
        return now_ns

    return gettime


def test_the_four_clocks_were_read_within_the_width_after_the_raw_one() -> None:
    before_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    raw_before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    reading = HostClock("boot").read()
    raw_after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    after_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)

    assert raw_before_ns <= reading.raw_ns < reading.raw_ns + reading.width_ns <= raw_after_ns
    assert before_ns <= reading.wall_ns <= after_ns


def test_a_reading_that_was_interrupted_is_tried_again() -> None:
    reading = HostClock("boot", gettime=gettime_taking([10, 10, 5_000_000, 10, 10, 10])).read()

    assert reading.width_ns == 40
    assert reading.wall_ns - reading.raw_ns == 10


def test_where_every_reading_is_slow_the_narrowest_is_kept_and_its_width_is_said() -> None:
    looks = [1] + [50_000] * 4 + [1] + [30_000] * 4 + [1] + [40_000] * 4 + [60_000]
    reading = HostClock("boot", gettime=gettime_taking(looks)).read()

    assert reading.width_ns == 120_000


def test_a_pass_happens_at_one_wall_time() -> None:
    moment = HostClock("boot", gettime=gettime_taking([7])).moment(ending=True)

    assert (moment.observed_ns, moment.wall_ns, moment.mono_ns, moment.ending) == (7, 7, 14, True)


def test_of_a_recorded_run_no_host_clock_is_used_and_its_claim_is_the_recorded_one() -> None:
    config = Config(reporter="n", run="replay", clock=ClockSettings(static=READING, claim=CLAIM))
    clock = make_clock(config)

    assert isinstance(clock, StaticClock)
    assert (clock.read(), clock.raw_ns(), clock.observed_ns(), clock.moment().observed_ns) == (READING, 1, 0, 0)
    assert (clock.claim(), clock.boot_id, clock.zone()) == (CLAIM, "static/n", None)


def test_a_claim_of_the_settings_stands_before_that_of_the_time_service() -> None:
    assert make_clock(Config(reporter="n", clock=ClockSettings(claim=CLAIM))).claim() == CLAIM


def test_only_a_live_run_asks_the_time_service_of_this_host() -> None:
    assert make_clock(Config(reporter="n", run="drill")).claim() is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("monotonic           0         0\nboottime            0         0\n", {}),
        (
            "monotonic  -5  999999999\nboottime 7 0\n",
            {
                time.CLOCK_MONOTONIC: -4_000_000_001,
                time.CLOCK_MONOTONIC_RAW: -4_000_000_001,
                time.CLOCK_BOOTTIME: 7_000_000_000,
            },
        ),
        ("monotonic 1\n", None),
        ("monotonic one 0\n", None),
        ("", {}),
    ],
)
def test_the_offsets_of_a_time_namespace_are_those_of_the_raw_clock_too(
    text: str, expected: dict[int, int] | None
) -> None:
    assert time_namespace.parse_offsets(text) == expected


def test_offsets_that_are_only_for_children_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "ns").mkdir()
    (tmp_path / "ns/time").symlink_to("time:[1]")
    (tmp_path / "ns/time_for_children").symlink_to("time:[2]")
    (tmp_path / "timens_offsets").write_text("monotonic 5 0\n")

    assert time_namespace.offsets_ns(tmp_path) is None


def test_a_kernel_without_time_namespaces_says_nothing(tmp_path: Path) -> None:
    assert time_namespace.offsets_ns(tmp_path) is None


PRINT_READING = """
from shippers.clock import HostClock
reading = HostClock("b").read()
print(reading.raw_ns, reading.mono_ns, reading.boottime_ns)
"""


def test_inside_a_container_with_clocks_of_its_own_the_agents_clocks_are_the_hosts() -> None:
    before = HostClock("b").read()
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *as_root, "--time", "--monotonic", "1000", "--boottime", "5000", "--fork"]
    out = subprocess.run(
        [*unshare, sys.executable, "-c", PRINT_READING],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    after = HostClock("b").read()
    raw_ns, mono_ns, boottime_ns = map(int, out.split())

    assert before.raw_ns < raw_ns < after.raw_ns
    assert before.mono_ns < mono_ns < after.mono_ns
    assert before.boottime_ns < boottime_ns < after.boottime_ns
