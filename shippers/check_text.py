"""What `check` found, for people: grouped, no line over 120 columns, problems last, then one line that sums up."""

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

from schemas.topics import CLOCK_BEACON, RAW
from shippers.check import ClockState, KafkaState, Report, SpoolState
from shippers.checked_sources import OffSource, ReadSource
from shippers.fileset import NONE_YET
from shippers.jobs.making import make_commands
from shippers.probes.self_test import NAME as SELF_TEST
from shippers.self_test import SelfTest

WIDTH: Final = 118
_NAME: Final = 12
_QUALITIES: Final = ((1_000_000, "very good"), (20_000_000, "good"), (1_000_000_000, "rough"))
_STEPS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_RUNS: Final = {"live": "", "replay": "; sends recorded lines (run replay)", "drill": "; sends a drill (run drill)"}


def check_lines(report: Report, settings: str, test: SelfTest | None = None) -> list[str]:
    """The whole text."""
    return [
        *_fact("Node", f"{_quoted(report.reporter)} of cluster {_quoted(report.cluster)}{_RUNS.get(report.run, '')}"),
        *_fact("Settings", f"{_quoted(settings)}; profile {report.profile}"),
        *_fact("Kafka", _kafka_text(report.kafka)),
        *_fact("Clock", _clock_text(report)),
        *_fact("Spool", _spool_text(report.spool)),
        *_kernel_lines(report),
        *_read_lines(report),
        *_unneeded_lines(report.read),
        *_to_make_lines(report),
        *_absent_lines(report.read),
        *_off_lines(report.not_read),
        *(test_lines(test) if test is not None else ()),
        *_problem_lines(report),
        "",
        *_fact("Summary", summary(report, test)),
    ]


def summary(report: Report, test: SelfTest | None = None) -> str:
    """All in one line."""
    reading = sum(1 for each in report.read if each.on)
    files = sum(each.on for each in report.read if each.is_glob)
    more = f" ({_count(files, 'file')} of globs)" if files else ""
    parts = [f"{_count(reading, 'source')} can be read{more}"]
    if absent := sum(1 for each in report.read if each.is_absent):
        parts.append(f"{absent} would find nothing on this machine")
    if any(each.is_to_make for each in report.read):
        parts.append("no folder for jobs yet")
    parts.append("Kafka answers" if report.kafka.answers else "Kafka does not answer")
    if test is not None:
        parts.append("the marked line arrived" if test.passed else f"the marked line got stuck: {test.stuck_at}")
    if report.problems or test is None or test.passed:
        parts.append(_count(len(report.problems), "problem") if report.problems else "no problem")
    return ", ".join(parts) + "."


def test_lines(test: SelfTest) -> Iterator[str]:
    """How far the marked line came, station by station."""
    yield ""
    yield f"Self-test: the marked line {test.token}"
    for each in test.stations:
        word = {True: "yes", False: "NO", None: "?"}[each.reached]
        after = f" after {each.after_s:.1f} s" if each.after_s is not None else ""
        yield from _item(each.name, f"{word:4}{each.says}{after}")
    if test.do:
        yield from _item("to do", test.do)


def _kernel_lines(report: Report) -> Iterator[str]:
    if report.kernel_log == "off":
        yield from _fact("Kernel log", "not read: the settings name no source of it, so no Xid in it is seen")


def _read_lines(report: Report) -> Iterator[str]:
    yield ""
    here = [each for each in report.read if not (each.is_absent or each.is_needless or each.is_to_make)]
    on = sum(1 for each in here if each.on)
    many = f"{on}" if on == len(here) else f"{on} of {len(here)}"
    yield f"Read ({many})" if here else "Read: nothing; name files in [[source]] or choose a profile"
    for each in here:
        yield from _item(each.name, f"{each.reads}: {_read_text(each)}")


def _unneeded_lines(sources: Iterable[ReadSource]) -> Iterator[str]:
    needless = [each for each in sources if each.is_needless]
    if needless:
        yield ""
        yield "Not needed"
    for each in needless:
        yield from _item(each.name, f"{each.reads}: {each.reasons[0]}")


def _to_make_lines(report: Report) -> Iterator[str]:
    """The commands are pasted, so they are not wrapped."""
    for each in report.read:
        if each.is_to_make:
            yield ""
            yield "Read once you have made its folder, as root"
            yield from _item(each.name, f"{each.reads}:")
            yield from (f"    {visible(command)}" for command in make_commands(report.jobs_dir))


def _absent_lines(sources: Iterable[ReadSource]) -> Iterator[str]:
    absent = [each for each in sources if each.is_absent]
    if absent:
        yield ""
        yield f"Not on this machine ({len(absent)}; looked for again now and then)"
    for each in absent:
        yield from _item(each.name, f"{each.reads}: {each.reasons[0] if each.reasons else 'nothing is there'}")


def _read_text(each: ReadSource) -> str:
    if not each.on:
        reason = each.reasons[0] if each.reasons else "nothing is known of it"
        if each.is_empty:
            why = reason.rpartition(NONE_YET)[2] if NONE_YET in reason else ""
            return f"no file matches yet{why and f', {why}'}; each is read once it is there"
        return f"NOT READ, {reason.partition('; ')[0]}"  # what to do stands under Problems
    if each.name == SELF_TEST:
        return "ready; none is sent unless asked for"
    if each.built_in:
        return "can be read"
    waiting = f"{size_text(each.backlog_bytes)} to read" if each.backlog_bytes else "nothing new to read"
    if not each.is_glob:
        return waiting
    unread = f"; {each.refused:,} cannot be read" if each.refused else ""
    return f"{_count(each.on + each.refused + each.off, 'file')}, {waiting}{unread}"


def _off_lines(sources: Iterable[OffSource]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[OffSource]] = {}
    for each in sources:
        groups.setdefault((each.why, each.switch_on), []).append(each)
    for (why, switch), members in groups.items():
        it = "it" if len(members) == 1 else "them"
        yield ""
        yield from _wrapped("", f"Not read: {re.sub(r'it$', it, why)}; to switch {it} on: {switch}", indent=2)
        for each in members:
            needs = f" Needs {each.needs}." if each.needs else ""
            yield from _item(each.name, f"{each.reads}.{needs}")


def _problem_lines(report: Report) -> Iterator[str]:
    if report.problems:
        yield ""
        yield f"Problems ({len(report.problems)})"
    for number, problem in enumerate(report.problems, 1):
        yield from _wrapped(f"  {number}. ", visible(problem.what))
        yield from _wrapped("     To do: ", visible(problem.do), indent=5)


def _kafka_text(kafka: KafkaState) -> str:
    if not kafka.answers:
        return f"{kafka.bootstrap} does not answer; lines would wait in the spool"
    if kafka.missing_topics:
        return f"{kafka.bootstrap} answers; missing there: topic {', '.join(kafka.missing_topics)}"
    beacons = f" and {CLOCK_BEACON.name} (for clocks)" if kafka.beacon_brokers is not None else ""
    there = "are" if beacons else "is"
    return f"{kafka.bootstrap} answers; topic {RAW.name} (for lines){beacons} {there} there"


def _clock_text(report: Report) -> str:
    clock = report.clock
    if clock.is_static:
        return "recorded: the settings say what the clocks showed ([clock.static])"
    parts = [_wall_clock_text(clock)]
    parts.append(_measuring_text(report))
    moved = ", ".join(f"{name} {offset / 1e9:+.3f} s" for name, offset in clock.namespace_offset_ns.items())
    if moved:
        parts.append(f"this container shifts its clocks; that is taken off ({moved})")
    return "; ".join(parts)


def _wall_clock_text(clock: ClockState) -> str:
    if clock.bound_ns is None:
        sets = {
            True: "a time service sets the wall clock", False: "no time service sets the wall clock",
            None: "whether a time service sets the wall clock is not known",
        }  # fmt: skip
        return f"unknown: {sets[clock.is_synchronised]}, and nobody says how wrong it may be"
    quality = next((word for limit_ns, word in _QUALITIES if clock.bound_ns < limit_ns), "poor")
    said_by = {"settings": "say the settings", "chrony": "says chrony", "kernel": "says the kernel"}
    server = f" (time server {clock.server}, stratum {clock.stratum})" if clock.stratum else ""
    by = said_by.get(clock.source, f"says {clock.source}")
    return f"{quality}: wrong by at most {duration_text(clock.bound_ns)}, {by}{server}"


def _measuring_text(report: Report) -> str:
    kafka = report.kafka
    if not report.sends_beacons:
        return "it is not measured ([clock] beacon = false)"
    if kafka.measures_clocks:
        return f"rootrank measures it against {_count(kafka.beacon_brokers or 0, 'broker')}"
    return "rootrank does not measure it while Kafka does not answer" if not kafka.answers else "it is not measured"


def _spool_text(spool: SpoolState) -> str:
    free = f", {size_text(spool.free_bytes)} free on its disk" if spool.free_bytes is not None else ""
    agent = f"the agent runs (process {spool.agent_pid})" if spool.agent_pid else "no agent runs on it now"
    return f"{_quoted(spool.dir)}: {size_text(spool.used_bytes)} of at most {size_text(spool.max_bytes)}{free}; {agent}"


def size_text(size_bytes: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    for step, unit in _STEPS:
        if size_bytes >= step:
            return f"{size_bytes / step:.1f} {unit}"
    return _count(size_bytes, "byte")


def duration_text(duration_ns: int) -> str:
    """Ns as ms below a second, else as s."""
    return f"{duration_ns / 1e6:.3g} ms" if duration_ns < 1_000_000_000 else f"{duration_ns / 1e9:.3g} s"


def visible(text: str) -> str:
    """Text without control characters: file names are made by others."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def _quoted(text: str) -> str:
    return visible(text) or '""'


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _fact(name: str, text: str) -> Iterator[str]:
    yield from _wrapped(f"{name:{_NAME}}", visible(text))


def _item(name: str, text: str) -> Iterator[str]:
    shown = visible(name)
    if len(shown) < _NAME:
        yield from _wrapped(f"  {shown:{_NAME}}", visible(text))
    else:
        yield from _wrapped("  ", f"{shown}: {visible(text)}", indent=_NAME + 2)


def _wrapped(head: str, text: str, *, indent: int | None = None) -> list[str]:
    """Text behind a head, its further lines under its beginning; a word that is too long is broken."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * (len(head) if indent is None else indent),
        break_on_hyphens=False,
    ) or [head.rstrip()]  # fmt: skip
