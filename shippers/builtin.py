"""The sources that the agent has of its own: what each reads, in which profile it is on, and how it is made.

A profile holds those of the ones before it. `[sources] NAME = true` or `false` in the settings switches a single one.
"""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from schemas.clock_notes import SOURCE as CLOCK
from shippers.config import Config, ConfigError, Profile
from shippers.dropping import NAME as SPOOL
from shippers.pieces import Source
from shippers.positions import Positions, SourcePosition
from shippers.probes.host_sources import HOST, maker
from shippers.redact_open import NAME as REDACTION

if TYPE_CHECKING:
    from shippers.control.plane import ControlPlane

PROFILES: Final[tuple[Profile, ...]] = ("none", "minimal", "gpu", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """One source. `profile` is the first that has it; `reads` and `needs` are for people.

    `by_name_only`: no profile holds it, a switch does.
    `make` is called when the agent starts, with the settings and how far it was read; it imports what it needs itself.
    """

    name: str
    profile: Profile
    reads: str
    needs: str
    make: Callable[[Config, SourcePosition | None], Source]
    by_name_only: bool = False


def _self_test(config: Config, saved: SourcePosition | None) -> Source:
    from shippers.probed import ProbedSource
    from shippers.probes.self_test import SelfTestMarks

    return ProbedSource(SelfTestMarks(Path(config.spool.dir)), saved)


def _capture(config: Config, saved: SourcePosition | None) -> Source:
    from shippers.capture.capture import capture_source

    return capture_source(config, saved)


def _nvml(config: Config, saved: SourcePosition | None) -> Source:
    from shippers.clock import read_boot_id
    from shippers.nvml.inventory import node_facts
    from shippers.nvml.source import NvmlSource

    boot_id = config.clock.boot_id or read_boot_id()
    return NvmlSource(config.nvml, saved, facts=partial(node_facts, config, boot_id))


def _job_map(config: Config, saved: SourcePosition | None) -> Source:
    from shippers.probed import ProbedSource
    from shippers.probes.job_map import JobMap

    return ProbedSource(JobMap(config.nvml.job_map), saved)


def _journal(config: Config, saved: SourcePosition | None) -> Source:
    from shippers.journal import of_services

    return of_services(config, saved)


def _journal_kernel(config: Config, saved: SourcePosition | None) -> Source:
    from shippers.journal import of_kernel

    return of_kernel(config, saved)


def _jobs(config: Config, saved: SourcePosition | None) -> Source:
    from shippers.jobs.folder import JobsFolder

    return JobsFolder(config, saved)


def _processes(config: Config, saved: SourcePosition | None) -> Source:
    from shippers.probed import ProbedSource
    from shippers.probes.processes import Processes

    return ProbedSource(Processes(config.jobs.processes_every_s), saved)


# In the order in which `check` lists them.
BUILT_IN: Final[tuple[BuiltIn, ...]] = (
    BuiltIn(
        name="self_test", profile="minimal", reads="marked lines of `check --self-test`", needs="", make=_self_test,
    ),
    BuiltIn(
        name="capture", profile="full", by_name_only=True, make=_capture,
        reads="stacks, GPU state and sockets when a GPU fails or a rank stands still (set up in [capture])",
        needs="root, to see stacks and sockets of others",
    ),
    BuiltIn(
        name="nvml", profile="gpu", reads="events and changes of the GPUs (NVML)",
        needs="the NVIDIA driver, its devices and libnvidia-ml.so.1 ([nvml] driver_root)", make=_nvml,
    ),
    BuiltIn(
        name="job_map", profile="gpu", reads="which job has which GPU, from the folder of dcgm-exporter",
        needs="[nvml] job_map", make=_job_map,
    ),
    BuiltIn(
        name="journal", profile="minimal", reads="what services write into the journal",
        needs="journalctl, and root or the group systemd-journal", make=_journal,
    ),
    BuiltIn(
        name="journal_kernel", profile="minimal", reads="the kernel's log in the journal, where /dev/kmsg is not read",
        needs="journalctl, and root or the group systemd-journal", make=_journal_kernel,
    ),
    BuiltIn(
        name="jobs", profile="minimal", reads="job starts and ends, ranks and marks that scripts write",
        needs="the folder of [jobs] dir", make=_jobs,
    ),
    BuiltIn(
        name="processes", profile="full", reads="the ranks that run here, by the environments of processes",
        needs="root, and the host's processes (a container: hostPID)", make=_processes,
    ),
    *(
        BuiltIn(name=name, profile=profile, reads=reads, needs=needs, make=maker(where))
        for name, profile, reads, needs, where in HOST
    ),
)  # fmt: skip


_OWN_NAMES: Final = frozenset((REDACTION, SPOOL, CLOCK))


def switched_on(config: Config) -> Iterator[BuiltIn]:
    """The built-in sources that the settings ask for. Only a live agent on a running clock has any."""
    if config.run == "live" and config.clock.static is None:
        yield from (each for each in BUILT_IN if is_on(each, config))


def is_on(each: BuiltIn, config: Config) -> bool:
    """Whether a source is on by its switch, else by the profile."""
    by_profile = not each.by_name_only and PROFILES.index(each.profile) <= PROFILES.index(config.profile)
    return config.sources.get(each.name, by_profile)


def make(config: Config, saved: Positions) -> list[Source]:
    """The sources that are on."""
    return [each.make(config, saved.get(each.name)) for each in switched_on(config)]


def control_plane(config: Config, saved: Positions) -> "ControlPlane | None":
    """What is read of the cluster's control plane, where the settings ask for it. Raises ConfigError."""
    if config.control is None or config.run != "live" or config.clock.static is not None:
        return None
    from shippers.control.plane import ControlPlane

    return ControlPlane(config, saved)


def check_switches(config: Config) -> None:
    """Raises ConfigError where a switch is of no source that there is, or a file is called as one of the agent's own.

    What is known of two sources of one name would be one: lines of a file would count as the agent's, or come again.
    """
    names = {each.name for each in BUILT_IN}
    for source in config.source:
        if source.name in names | _OWN_NAMES:
            raise ConfigError(f'a source is called "{source.name}", as one of the agent\'s own; give it another name')
    for name in config.sources:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(names))}"
            raise ConfigError(f"[sources] {name} is no source; {hint}")
