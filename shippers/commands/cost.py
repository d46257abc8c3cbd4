"""`rootrank-shipper cost`: what the node agent costs here, as a whole and by source, measured.

An agent with the settings as they are runs for a while in this process, on a spool of its own, and sends nothing: what
it reads is thrown away. The agent that ships from the spool of the settings, where one does, is measured beside it.
"""

import argparse
import os
import resource
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
from msgspec import Struct

from shippers import claim
from shippers.builtin import BUILT_IN, check_switches
from shippers.checked_sources import off_sources
from shippers.config import Config, load
from shippers.probed import ProbedSource
from shippers.saying import say

LIMIT_PERCENT: Final = 1.0
LIMIT_MIB: Final = 64.0
WIDTH: Final = 118
_DEFAULT_S: Final = 60.0
_WARM_UP_S: Final = 3.0
_MIB: Final = 1024 * 1024
_FILES: Final = "files"


class SourceCost(Struct, frozen=True, kw_only=True):
    """One source. A probe has `looks`; of other sources all that they did in the time is in `core_percent`."""

    source: str
    profile: str
    state: str
    reason: str | None = None
    every_s: float | None = None
    looks: int = 0
    cpu_ms_per_look: float | None = None
    wall_ms_per_look: float | None = None
    core_percent: float | None = None
    lines: int = 0


class ProcessCost(Struct, frozen=True, kw_only=True):
    """A whole agent. `core_percent` is with the programs that it starts."""

    pid: int
    core_percent: float
    resident_mib: float


class Report(Struct, frozen=True, kw_only=True):
    """All that was measured. `running` is the agent that ships from the spool of the settings, if one does."""

    seconds: float
    agent: ProcessCost
    running: ProcessCost | None
    limit_core_percent: float
    limit_resident_mib: float
    sources: list[SourceCost]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The parser of the command."""
    text = "measure what the agent costs here: processor time and memory, as a whole and by source"
    command = commands.add_parser(
        "cost", help=text, description=f"{text}. Sends nothing and leaves the spool alone.",
        epilog="example: rootrank-shipper cost --config node.toml --seconds 60",
    )  # fmt: skip
    command.add_argument("--config", type=Path, metavar="FILE", help="settings (TOML); without it the defaults")
    command.add_argument("--seconds", type=float, default=_DEFAULT_S, metavar="N", help="how long (default 60)")
    command.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    config = load(options.config or Path(os.devnull))
    check_switches(config)
    say(f"measuring for {options.seconds:.0f} s; nothing is sent")
    report = measure(config, max(1.0, options.seconds))
    if options.json:
        sys.stdout.buffer.write(orjson.dumps(msgspec.to_builtins(report), option=orjson.OPT_INDENT_2) + b"\n")
    else:
        print(as_text(report))
    return 0


def measure(config: Config, seconds: float) -> Report:
    """Run an agent that sends nothing for so long, after a few seconds in which it starts."""
    from shippers.agent import Agent, look_seldom_for_cycles

    pid = running_pid(Path(config.spool.dir))
    with tempfile.TemporaryDirectory(prefix="rootrank-cost-") as folder:
        agent = Agent(_alone(config, folder), _Nowhere(), lambda _: None)
        look_seldom_for_cycles()
        meters = _Meters()
        agent.wrap_sources(meters.around)
        works = threading.Thread(target=agent.run, name="agent", daemon=True)
        works.start()
        try:
            time.sleep(_WARM_UP_S)
            meters.begin()
            began, other = _Used.now(), _Used.of(pid)
            time.sleep(seconds)
            ended, other_ended = _Used.now(), _Used.of(pid)
            meters.end()
        finally:
            agent.request_stop()
            works.join(10)
        states = {each.source: (str(each.state), each.reason) for each in agent.source_progress()}
    return Report(
        seconds=seconds, agent=_cost(os.getpid(), began, ended, seconds),
        running=_cost(pid, other, other_ended, seconds) if pid and other and other_ended else None,
        limit_core_percent=LIMIT_PERCENT, limit_resident_mib=LIMIT_MIB,
        sources=[*meters.costs(seconds, states), *_switched_off(config)],
    )  # fmt: skip


def running_pid(spool: Path) -> int | None:
    """The process that ships from a spool now."""
    if not (spool / claim.PID_FILE).exists():
        return None
    try:
        os.close(claim.lock(spool))
    except claim.SpoolLockedError as error:
        return error.pid
    except OSError:
        return None
    return None


def as_text(report: Report) -> str:
    """The table."""
    lines = [_process_line("agent", report.agent, f"over {report.seconds:.0f} s, sending nothing")]
    if report.running is not None:
        lines.append(_process_line("running", report.running, f"process {report.running.pid}, which ships from here"))
    lines.append(f"limits    idle: {LIMIT_PERCENT:g} % of one core, {LIMIT_MIB:g} MiB resident")
    lines += [
        "",
        f"{'source':18}{'profile':9}{'looks':>7}{'every':>8}{'CPU a look':>12}{'takes':>11}{'core':>9}{'lines':>7}",
    ]
    lines += [_source_line(each) for each in report.sources]
    known = sum(each.core_percent or 0.0 for each in report.sources)
    rest = max(0.0, report.agent.core_percent - known)
    whole = {"all sources": known, "the agent itself (passes, spool, progress)": rest}
    lines += ["", *(f"{name:55}{percent:>17.3f} %" for name, percent in whole.items())]
    return "\n".join(lines)


def _process_line(name: str, cost: ProcessCost, how: str) -> str:
    return f"{name:10}{cost.core_percent:.2f} % of one core, {cost.resident_mib:.1f} MiB resident; {how}"


def _source_line(each: SourceCost) -> str:
    head = f"{each.source[:17]:18}{each.profile:9}"
    if each.state != "on":
        reason = f"{each.state}: {each.reason or ''}"
        further = " " * len(head)
        wrapped = textwrap.wrap(reason, WIDTH, initial_indent=head, subsequent_indent=further, break_on_hyphens=False)
        return "\n".join(wrapped)
    core = "" if each.core_percent is None else f"{each.core_percent:.3f} %"
    if each.every_s is None:
        return f"{head}{'':38}{core:>9}{each.lines:>7}"
    cpu, takes = (f"{ms:.2f} ms" if ms is not None else "" for ms in (each.cpu_ms_per_look, each.wall_ms_per_look))
    return f"{head}{each.looks:>7}{each.every_s:>6g} s{cpu:>12}{takes:>11}{core:>9}{each.lines:>7}"


# --- measuring ----------------------------------------------------------------------------------------------------


class _Nowhere:
    """Takes everything and keeps nothing."""

    def send(self, value: bytes) -> "_Nowhere":
        return self

    def wait(self, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


class _Used(Struct, frozen=True):
    """Processor time and memory of a process so far."""

    cpu_s: float
    resident_bytes: int

    @classmethod
    def now(cls) -> "_Used":
        """Of this process, with the programs that it waited for and those that run."""
        programs = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = cls(time.process_time() + programs.ru_utime + programs.ru_stime, _resident(os.getpid()))
        return own.with_children(os.getpid())

    def with_children(self, pid: int) -> "_Used":
        """With the processes that it has now: NVML is asked in one."""
        lists = Path(f"/proc/{pid}/task").glob("*/children")
        found = [self, *filter(None, (_Used.of(int(child)) for each in lists for child in _text(each).split()))]
        return _Used(sum(each.cpu_s for each in found), sum(each.resident_bytes for each in found))

    @classmethod
    def of(cls, pid: int | None) -> "_Used | None":
        """Of another process; None where it cannot be seen."""
        if pid is None:
            return None
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            ticks = sum(int(fields[place]) for place in range(11, 15))
            return cls(ticks / os.sysconf("SC_CLK_TCK"), _resident(pid)).with_children(pid)
        except (OSError, ValueError, IndexError):
            return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""  # the thread is gone, or the kernel keeps no list


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cost(pid: int, began: _Used, ended: _Used, seconds: float) -> ProcessCost:
    return ProcessCost(
        pid=pid, core_percent=round(100 * (ended.cpu_s - began.cpu_s) / seconds, 3),
        resident_mib=round(ended.resident_bytes / _MIB, 1),
    )  # fmt: skip


class _Metered:
    """A source whose looks and reads are timed."""

    def __init__(self, source: Any, name: str) -> None:
        self._source = source
        self.metered_name = name
        self.cpu_s = 0.0
        self.lines = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def look(self, moment: Any) -> None:
        """Look, timed."""
        self._timed(self._source.look, moment)

    def read(self, *arguments: Any) -> Any:
        """Read, timed."""
        piece = self._timed(self._source.read, *arguments)
        self.lines += len(piece.lines) if piece else 0
        return piece

    def _timed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        began_s = time.thread_time()
        try:
            return call(*arguments)
        finally:
            self.cpu_s += time.thread_time() - began_s


class _Meters:
    """All sources of an agent. Probes meter themselves; of files it is the looking for them that is metered here."""

    def __init__(self) -> None:
        self._probes: list[ProbedSource] = []
        self._others: list[_Metered] = []
        self._before: dict[str, tuple[float, int]] = {}
        self._after: dict[str, tuple[float, int]] = {}

    def around(self, source: Any) -> Any:
        """What stands in for a source from now on."""
        if isinstance(source, ProbedSource):
            self._probes.append(source)
            return source
        metered = _Metered(source, getattr(source, "name", _FILES))
        self._others.append(metered)
        return metered

    def begin(self) -> None:
        """From here on what is not a probe counts."""
        self._before = self._now()

    def end(self) -> None:
        """To here."""
        self._after = self._now()

    def costs(self, seconds: float, states: dict[str, tuple[str, str | None]]) -> list[SourceCost]:
        """By source."""
        profiles = {each.name: each.profile for each in BUILT_IN}
        costs = [_of_probe(each, str(profiles.get(each.name, "")), states) for each in self._probes]
        for name, (cpu_s, lines) in self._after.items():
            state, reason = states.get(name, ("on", None))
            before = self._before.get(name, (0.0, 0))
            costs.append(
                SourceCost(
                    source=name, profile=str(profiles.get(name, "named")), state=state, reason=reason,
                    core_percent=round(100 * (cpu_s - before[0]) / seconds, 4), lines=lines - before[1],
                )
            )  # fmt: skip
        return costs

    def _now(self) -> dict[str, tuple[float, int]]:
        found: dict[str, tuple[float, int]] = {}
        for each in self._others:
            cpu_s, lines = found.get(each.metered_name, (0.0, 0))
            found[each.metered_name] = (cpu_s + each.cpu_s, lines + each.lines)
        return found


def _of_probe(probe: ProbedSource, profile: str, states: dict[str, tuple[str, str | None]]) -> SourceCost:
    state, reason = states.get(probe.name, ("off", None))
    spent = probe.spent
    if not spent.looks:
        return SourceCost(source=probe.name, profile=profile, state=state, reason=reason, every_s=probe.every_s)
    return SourceCost(
        source=probe.name, profile=profile, state=state, reason=reason, every_s=probe.every_s, looks=spent.looks,
        cpu_ms_per_look=round(1000 * spent.cpu_s / spent.looks, 3),
        wall_ms_per_look=round(1000 * spent.wall_s / spent.looks, 3),
        core_percent=round(100 * spent.cpu_s / spent.looks / probe.every_s, 4), lines=spent.told,
    )  # fmt: skip


def _switched_off(config: Config) -> list[SourceCost]:
    """The sources that the settings leave off."""
    by_name = {each.name for each in BUILT_IN if each.by_name_only}
    return [
        SourceCost(source=each.name, profile="" if each.name in by_name else each.profile, state="off", reason=each.why)
        for each in off_sources(config)
    ]


def _alone(config: Config, folder: str) -> Config:
    """The settings, with a spool in a folder of its own; nothing that was written before is read, no beacon is sent."""
    replace = msgspec.structs.replace
    return replace(
        config, start_at="end", end_file="", spool=replace(config.spool, dir=folder),
        clock=replace(config.clock, beacon=False, kmsg_marker=False, record=""),
        source=tuple(replace(each, start_at="end") for each in config.source),
    )  # fmt: skip
