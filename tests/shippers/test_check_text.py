"""The text of `check`: a new user understands each line, and it fits a terminal."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.records import ClockReading, SourceProgress
from schemas.vocabulary import SourceState
from shippers.builtin import BUILT_IN, BuiltIn
from shippers.check import ClockState, KafkaState, Report, SpoolState
from shippers.check_text import check_lines, duration_text, size_text, summary
from shippers.checked_sources import ReadSource, kernel_log, off_sources, read_sources
from shippers.config import Config, Profile, SourceSettings, parse_start_at
from shippers.control.settings import ControlSettings
from shippers.fileset import FileSet
from shippers.jobs.making import MAKE_IT
from shippers.pieces import Moment
from shippers.positions import SourcePosition
from shippers.probed import ProbedSource
from shippers.problems import kernel_problems, source_problems
from shippers.self_test import SelfTest
from tests.shippers.test_probed import Counter

READING = ClockReading(raw_ns=1, mono_ns=2, boottime_ns=3, wall_ns=4)
GLOB = SourceSettings(name="train", path="/var/log/training/**/*.log")
ONE = SourceSettings(name="sshd", path="/var/log/auth.log", kind="service")


def counter(config: Config, saved: SourcePosition | None) -> ProbedSource:
    return ProbedSource(Counter([]), saved)


def own(name: str, profile: Profile) -> BuiltIn:
    return BuiltIn(name=name, profile=profile, reads=f"what {name} says", needs="a device", make=counter)


@pytest.fixture(autouse=True)
def sources_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = (own("pressure", "minimal"), own("nvml", "gpu"), own("ipmi", "full"))
    monkeypatch.setattr("shippers.builtin.BUILT_IN", (*BUILT_IN[:1], *fakes))


def progress(source: str, state: SourceState = "on", reason: str | None = None, backlog: int = 0) -> SourceProgress:
    return SourceProgress(source=source, state=state, reason=reason, backlog_bytes=backlog)


def report(config: Config, found: list[SourceProgress], **changes: Any) -> Report:
    read = read_sources(config, found)
    clock = ClockState(boot_id="b", reading=READING, is_static=False, source="chrony", bound_ns=302_000)
    whole = Report(
        cluster="c", reporter="n", machine_id="m", run="live", profile=config.profile, read=read,
        not_read=off_sources(config), sources=found, clock=clock, sends_beacons=True, problems=source_problems(read),
        kafka=KafkaState(bootstrap="k:9092", answers=True, beacon_timestamp_type="LogAppendTime", beacon_brokers=3),
        spool=SpoolState(dir="/var/lib/spool", used_bytes=5, max_bytes=1 << 30),
    )  # fmt: skip
    return msgspec.structs.replace(whole, **changes)


def text(config: Config, found: list[SourceProgress], **changes: Any) -> str:
    return "\n".join(check_lines(report(config, found, **changes), "node.toml"))


def test_ten_thousand_files_of_a_glob_are_one_line() -> None:
    config = Config(source=(GLOB, ONE))
    files = [progress(f"train/{number}.log", backlog=1024) for number in range(10_000)]
    refused = [progress(f"train/x{number}.log", "refused", "/x: permission denied") for number in range(3)]
    lines = check_lines(report(config, [*files, *refused, progress("sshd")]), "node.toml")

    (line,) = [line for line in lines if line.startswith("  train ")]
    assert "10,003 files, 9.8 MiB to read; 3 cannot be read" in line
    assert len(lines) < 40
    assert any("3 files of source train cannot be read: /x: permission denied" in line for line in lines)


def test_files_of_a_glob_that_come_with_a_job_are_no_problem_before_it(tmp_path: Path) -> None:
    settings = SourceSettings(name="train", path=f"{tmp_path}/*.log")
    config = Config(source=(settings,))
    files = FileSet(settings, parse_start_at("end"), {})
    said = report(config, files.progress())

    text = " ".join(" ".join(check_lines(said, "node.toml")).split())
    assert "(output of programs): no file matches yet; each is read once it is there" in text
    assert "NOT READ" not in text
    assert said.problems == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("no/*.log", "there is no folder {}/no"),
        ("folders/*", "only folders, pipes or devices do, which are not read"),
        ("pipes/*", "only folders, pipes or devices do, which are not read"),
    ],
)
def test_why_no_file_matches_is_said_where_it_is_known(tmp_path: Path, pattern: str, why: str) -> None:
    (tmp_path / "folders" / "a.log").mkdir(parents=True)
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / "a.log")
    settings = SourceSettings(name="train", path=f"{tmp_path}/{pattern}")
    files = FileSet(settings, parse_start_at("end"), {})
    files.look(Moment(observed_ns=1, mono_ns=1, wall_ns=1))
    said = report(Config(source=(settings,)), files.progress())
    text = " ".join(" ".join(check_lines(said, "node.toml")).split())
    assert f"no file matches yet, {why.format(tmp_path)}; each is read once it is there" in text
    assert said.problems == []


def test_no_line_is_wider_than_a_terminal() -> None:
    config = Config(source=(GLOB, ONE, SourceSettings(name="n" * 150, path="/" + "p" * 300)))
    found = [progress("sshd", "refused", "word " * 80), progress("n" * 150, "off", "q" * 400)]
    lines = check_lines(report(config, found), "/" + "s" * 300)

    assert max(len(line) for line in lines) <= 120


def test_what_is_off_says_why_and_how_it_is_switched_on() -> None:
    config = Config(source=(ONE,), sources={"pressure": False})
    said = text(config, [progress("sshd")])

    assert "Not read: switched off in the settings; to switch it on: take out NAME = false in [sources]" in said
    assert 'Not read: profile = "minimal" does not hold it; to switch it on: profile = "gpu", or ' in said
    assert "  nvml        what nvml says. Needs a device." in said


def test_what_this_machine_does_not_have_is_no_problem_and_a_file_that_is_named_is() -> None:
    config = Config(source=(ONE,), profile="gpu")
    found = [progress("sshd", "off", "/var/log/auth.log: does not exist"), progress("self_test"), progress("pressure")]
    found.append(progress("nvml", "off", "no NVIDIA driver"))
    said = text(config, found)

    assert "(1; looked for again now and then)\n  nvml        what nvml says: no NVIDIA driver\n" in said
    assert "1 would find nothing on this machine" in said
    assert "Problems (1)" in said
    assert "source sshd has nothing to read: /var/log/auth.log: does not exist" in said


def test_what_is_not_needed_or_to_be_made_is_not_called_missing() -> None:
    instead, to_make = "/dev/kmsg is read instead", f"/srv/x/jobs: No such file{MAKE_IT}`install`"
    found = [progress("sshd"), progress("pressure", "off", instead), progress("nvml", "off", to_make)]
    config = Config(source=(ONE,), profile="gpu", sources={"self_test": False})
    lines = check_lines(report(config, found, jobs_dir="/srv/" + "x" * 150), "node.toml")

    assert lines[lines.index("Not needed") + 1] == "  pressure    what pressure says: /dev/kmsg is read instead"
    assert f"    install -d -m 1733 /srv/{'x' * 150}/marks" in lines
    assert "Read (1)" in lines
    assert lines[-1] == "Summary     1 source can be read, no folder for jobs yet, Kafka answers, no problem."


def test_the_kernels_log_is_a_problem_where_nothing_reads_it_and_a_line_where_that_is_meant() -> None:
    kernel = SourceSettings(name="kern", path="/var/log/kern.log", kind="kernel")
    cases = {
        "read": (Config(source=(kernel,)), [progress("kern")]),
        "missing": (Config(source=(kernel,), profile="none"), [progress("kern", "off", "gone")]),
        "off": (Config(source=(ONE,), profile="none"), [progress("sshd")]),
        None: (Config(source=(ONE,), run="replay"), [progress("sshd")]),
    }
    for expected, (config, found) in cases.items():
        assert kernel_log(config, read_sources(config, found)) == expected
    (problem,) = kernel_problems("missing", [])
    assert problem.what == "the kernel's log is not read, so no Xid is seen"
    nvml = ReadSource(name="nvml", reads="GPUs", built_in=True, on=1)
    assert "but those that NVML tells" in kernel_problems("missing", [nvml])[0].what
    assert kernel_problems("off", []) == kernel_problems("read", []) == kernel_problems(None, []) == []
    assert "Kernel log  not read: the settings name no source of it" in text(*cases["off"], kernel_log="off")
    assert "Kernel log" not in text(*cases["read"], kernel_log="read")


def test_a_refused_device_is_a_problem_with_what_to_do() -> None:
    config = Config(source=(), profile="gpu")
    said = text(config, [progress("nvml", "refused", "/dev/nvidiactl: permission denied")])

    assert "source nvml cannot be read: /dev/nvidiactl: permission denied" in said
    assert "or set nvml = false in [sources]" in said


@pytest.mark.parametrize(
    ("bound_ns", "word"),
    [(302_000, "very good: wrong by at most 0.302 ms, says chrony"), (5_000_000, "good: "), (50_000_000, "rough: "),
     (3_000_000_000, "poor: wrong by at most 3 s"), (None, "unknown: no time service sets the wall clock")],
)  # fmt: skip
def test_the_quality_of_the_clock_is_a_word(bound_ns: int | None, word: str) -> None:
    clock = ClockState(
        boot_id="b", reading=READING, is_static=False, source="chrony", bound_ns=bound_ns, is_synchronised=False
    )
    said = text(Config(source=()), [], clock=clock)

    assert word in said
    assert "rootrank measures it against 3 brokers" in " ".join(said.split())


def test_it_ends_with_the_problems_and_one_line_that_sums_up() -> None:
    lines = text(Config(source=(ONE,)), [progress("sshd", "off", "gone")]).splitlines()

    assert lines[-5] == "Problems (1)"
    assert lines[-1] == (
        "Summary     0 sources can be read, 2 would find nothing on this machine, Kafka answers, 1 problem."
    )


def test_a_reason_that_says_what_to_do_is_a_problem_with_that() -> None:
    reason = "/dev/kmsg: the kernel asks for CAP_SYSLOG; give it, or read the journal"
    said = text(Config(), [progress("kmsg", "refused", reason)])

    assert "kmsg        /dev/kmsg (kernel log): NOT READ, /dev/kmsg: the kernel asks for CAP_SYSLOG\n" in said
    assert "source kmsg cannot be read: /dev/kmsg: the kernel asks for CAP_SYSLOG\n" in said
    assert "To do: give it, or read the journal; or take it out of the settings" in said


def test_the_agent_of_a_control_plane_is_not_told_to_read_its_host() -> None:
    said = text(Config(source=(), profile="none", control=ControlSettings()), [])

    assert "Not read" not in said


def test_a_mark_that_did_not_arrive_is_not_summed_up_as_no_problem() -> None:
    test = SelfTest(token="5f0c2ab19d3e4871", passed=False, stations=[], stuck_at="worker")
    whole = report(Config(source=()), [])

    assert summary(whole, test).endswith("Kafka answers, the marked line got stuck: worker.")
    assert summary(whole, msgspec.structs.replace(test, passed=True)).endswith("the marked line arrived, no problem.")


def test_every_source_of_the_agent_says_what_it_reads() -> None:
    for each in BUILT_IN:
        assert each.reads, each.name
        assert each.reads == each.reads.strip().rstrip("."), each.name


def test_a_source_is_counted_under_the_setting_that_it_is_of() -> None:
    config = Config(source=(SourceSettings(path="/logs/*/a.log"), ONE), sources={"self_test": False})
    found = [progress("node1/a.log"), progress("node2/a.log"), progress("sshd"), progress("pressure")]

    read = {each.name: each.on for each in read_sources(config, found)}

    assert read == {"/logs/*/a.log": 2, "sshd": 1, "pressure": 1}


def test_text_of_others_cannot_steer_the_terminal() -> None:
    said = text(Config(source=(ONE,)), [progress("sshd", "refused", "\x1b[2Jgone")])

    assert "\x1b" not in said
    assert "\\x1b[2Jgone" in said


def test_sizes_and_durations_are_read_at_a_glance() -> None:
    assert [size_text(each) for each in (1, 999, 1536, 3 << 30)] == ["1 byte", "999 bytes", "1.5 KiB", "3.0 GiB"]
    assert [duration_text(each) for each in (302_000, 12_345_678, 2_500_000_000)] == ["0.302 ms", "12.3 ms", "2.5 s"]


def test_what_is_not_named_by_the_settings_is_listed_by_its_own_name() -> None:
    read = read_sources(Config(source=()), [progress("elsewhere")])

    assert [each.name for each in read if isinstance(each, ReadSource) and each.on] == ["elsewhere"]
