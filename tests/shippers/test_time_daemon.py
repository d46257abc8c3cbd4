import stat
from pathlib import Path

import pytest

from schemas.records import ClockReading
from shippers.clock import HostClock
from shippers.time_daemon import (
    TimeDaemon,
    Tracking,
    ask_chrony,
    ask_kernel,
    chrony_claim,
    parse_timex,
    parse_tracking,
)
from tests.shippers.fakes import SECOND_NS, eventually

SYNCHRONISED = (
    "A9FEA97B,169.254.169.123,4,1796050123.123456789,0.000002000,0.000001163,0.000005208,-12.345,-0.010,0.040,"
    "0.000400000,0.000100000,16.3,Normal\n"
)
# As chrony 4.3 prints it: of a server on the same machine, of its own clock, of nothing.
OF_A_SERVER = (
    "7F000001,127.0.0.1,4,1796053430.422702611,0.000000913,0.000000038,0.000000590,-0.013,0.001,0.037,0.000001435,"
    "0.000009837,1.0,Normal\n"
)
LOCAL = (
    "7F7F0101,,10,1796053402.679343176,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,0.000000000,0.000000000,"
    "0.0,Normal\n"
)
UNSYNCHRONISED = (
    "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,1.000000000,1.000000000,0.0,"
    "Not synchronised\n"
)
TRACKING = Tracking(source="s", stratum=2, bound_ns=300_000, ppm=1.5)


def reading(raw_s: float, wall_s: float) -> ClockReading:
    raw_ns = round(raw_s * SECOND_NS)
    return ClockReading(raw_ns=raw_ns, mono_ns=raw_ns, boottime_ns=raw_ns, wall_ns=round(wall_s * SECOND_NS))


def timex(offset: int = 0, max_error_us: int = 1500, est_error_us: int = 20, status: int = 0x2001) -> bytes:
    numbers = [0, offset, 0, max_error_us, est_error_us]
    return b"".join(each.to_bytes(8, "little", signed=True) for each in numbers) + status.to_bytes(4, "little")


def test_chronys_bound_is_dispersion_half_the_delay_and_what_is_left_to_correct() -> None:
    tracking = parse_tracking(SYNCHRONISED)

    assert tracking is not None
    assert (tracking.source, tracking.stratum) == ("169.254.169.123", 4)
    assert abs(tracking.bound_ns - (100_000 + 200_000 + 2_000)) <= 1
    assert tracking.ppm == pytest.approx(1.05)


def test_what_chrony_prints_is_understood() -> None:
    tracking = parse_tracking(OF_A_SERVER)

    assert tracking is not None
    assert (tracking.source, tracking.stratum, tracking.bound_ns) == ("127.0.0.1", 4, 11_468)


def test_a_correction_in_either_direction_widens_the_bound() -> None:
    slow = parse_tracking(SYNCHRONISED.replace(",0.000002000,", ",-0.000002000,"))

    assert slow == parse_tracking(SYNCHRONISED)


@pytest.mark.parametrize(
    "text",
    [
        UNSYNCHRONISED,
        LOCAL,
        SYNCHRONISED.replace("Normal", "Not synchronised"),
        SYNCHRONISED.replace(",4,", ",0,"),
        SYNCHRONISED.replace(",4,", ",16,"),
        SYNCHRONISED.replace("0.000100000", "nan"),
        SYNCHRONISED.replace("0.000100000", "inf"),
        SYNCHRONISED.replace("0.000100000", "-0.000100000"),
        SYNCHRONISED.replace("0.040", "nan"),
        SYNCHRONISED.replace("0.000400000", ""),
        SYNCHRONISED.replace("Normal", ""),
        SYNCHRONISED.rsplit(",", 1)[0],
        SYNCHRONISED.strip() + ",more",
        "506 Cannot talk to daemon\n",
        "",
        "," * 13,
        "\x00\ufffd" * 100,
    ],
)
def test_what_is_not_synchronised_or_not_understood_bounds_nothing(text: str) -> None:
    assert parse_tracking(text) is None


def test_chronys_claim_grows_with_its_age_and_holds_until_the_next_batch() -> None:
    fresh = chrony_claim(TRACKING, reading(100, 1000), reading(100, 1000))
    older = chrony_claim(TRACKING, reading(100, 1000), reading(130, 1030))

    assert fresh is not None
    assert older is not None
    assert (fresh.offset_ns, fresh.by) == (0, "chrony")
    assert fresh.bound_ns == 300_000 + 7_500  # 5 s at 1.5 ppm
    assert older.bound_ns == 300_000 + 52_500


def test_an_answer_that_could_not_be_renewed_is_none() -> None:
    assert chrony_claim(TRACKING, reading(100, 1000), reading(221, 1121)) is None


@pytest.mark.parametrize("step_s", [-0.5, 0.02, 3600.0])
def test_a_wall_clock_that_was_set_since_is_not_the_one_chrony_spoke_of(step_s: float) -> None:
    assert chrony_claim(TRACKING, reading(100, 1000), reading(110, 1010 + step_s)) is None


def test_a_correction_that_chrony_itself_announced_keeps_the_claim() -> None:
    assert chrony_claim(TRACKING, reading(100, 1000), reading(110, 1010.0003)) is not None


def test_the_kernels_bound_is_maxerror_with_the_offset_that_is_left_and_a_second_of_growth() -> None:
    assert parse_timex(0, timex(offset=-3000)).bound_ns == 1_500_000 + 3_000 + 500_000
    assert parse_timex(0, timex(offset=3, status=1)).bound_ns == 1_500_000 + 3_000 + 500_000


@pytest.mark.parametrize(("state", "status"), [(5, 0x2001), (0, 0x2041)])
def test_a_kernel_clock_that_is_not_synchronised_has_no_bound(state: int, status: int) -> None:
    kernel = parse_timex(state, timex(status=status))

    assert (kernel.is_synchronised, kernel.bound_ns) == (False, None)


def test_errors_that_a_service_sets_to_zero_are_no_bound() -> None:
    kernel = parse_timex(0, timex(max_error_us=500, est_error_us=0))

    assert (kernel.is_synchronised, kernel.bound_ns) == (True, None)


def test_the_kernel_of_this_machine_is_asked() -> None:
    kernel = ask_kernel()

    assert kernel is not None
    assert kernel.max_error_ns >= 0


def chronyc(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program `chronyc` that is found before any other."""
    program = folder / "chronyc"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_the_program_is_asked_without_looking_up_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chronyc(tmp_path, f'[ "$*" = "-c -n tracking" ] && echo "{SYNCHRONISED.strip()}"', monkeypatch)

    assert ask_chrony() == parse_tracking(SYNCHRONISED)


@pytest.mark.parametrize("script", [f'echo "{SYNCHRONISED.strip()}"; exit 1', "exec sleep 30", "echo garbage"])
def test_a_program_that_fails_hangs_or_prints_something_else_says_nothing(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chronyc(tmp_path, script, monkeypatch)

    assert ask_chrony() is None


def test_a_host_without_chrony_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert ask_chrony() is None


def test_the_claim_of_a_host_comes_from_chrony_and_nobody_waits_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    chronyc(tmp_path, f'until [ -e {gate} ]; do :; done; echo "{SYNCHRONISED.strip()}"', monkeypatch)
    clock = HostClock("boot", daemon=TimeDaemon())
    first = clock.claim()  # would never come back if it waited
    gate.touch()
    claim = eventually(lambda: (found := clock.claim()) and found.by == "chrony" and found, "chrony's claim")

    assert first is None or first.by == "kernel"
    assert claim.bound_ns > 302_000
