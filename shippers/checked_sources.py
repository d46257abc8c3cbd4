"""What `check` says of sources: those that are read, summed up by setting, and those that are not, with the reason."""

import glob
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from schemas.records import SourceProgress
from schemas.vocabulary import SourceState
from shippers import builtin
from shippers.builtin import BuiltIn
from shippers.config import Config, SourceSettings
from shippers.jobs.making import MAKE_IT
from shippers.journal import INSTEAD, KERNEL

_REASONS_SHOWN: Final = 3
# Of the kernel's log: no source is asked for it, or one is and none can read it.
KernelLog = Literal["read", "off", "missing"]
_KINDS: Final = {"kernel": "kernel log", "application": "output of programs", "service": "log of a service"}


class ReadSource(Struct, frozen=True, kw_only=True):
    """A source that the settings ask for: a `[[source]]`, whose glob may match many files, or one of the agent's own.

    `on`, `off` and `refused` count its files. `reasons` are why some are not read, the most frequent ones. `is_empty`:
    a glob that no file matches.
    """

    name: str
    reads: str
    built_in: bool
    on: int = 0
    off: int = 0
    refused: int = 0
    is_glob: bool = False
    is_empty: bool = False
    backlog_bytes: int = 0
    reasons: list[str] = []

    @property
    def state(self) -> SourceState:
        """On where anything of it is read, refused where only that something is refused is known."""
        return "on" if self.on else "refused" if self.refused else "off"

    @property
    def is_needless(self) -> bool:
        """Whether another source reads the same."""
        return self.state == "off" and any(each.endswith(INSTEAD) for each in self.reasons)

    @property
    def is_to_make(self) -> bool:
        """Whether it is a folder that is made by whoever wants it."""
        return self.state == "off" and any(MAKE_IT in each for each in self.reasons)

    @property
    def is_absent(self) -> bool:
        """Whether it is one of the agent's own and this machine has nothing that it could read."""
        return self.built_in and self.state == "off" and not self.is_needless and not self.is_to_make


class OffSource(Struct, frozen=True, kw_only=True):
    """A built-in source that the settings leave out: what it would read, why it is off, how to switch it on."""

    name: str
    profile: str
    reads: str
    needs: str
    why: str
    switch_on: str


def read_sources(config: Config, found: Sequence[SourceProgress]) -> list[ReadSource]:
    """What is found, by setting; in the order of the settings, the agent's own last."""
    own = {each.name: each for each in builtin.switched_on(config)}
    members: dict[str, list[SourceProgress]] = {}
    # A glob without a name may hold any file, so it is asked last.
    asked = sorted(config.source, key=lambda settings: (_is_glob(settings), not settings.name))
    for each in found:
        owner = next((settings for settings in asked if each.source not in own and _is_of(settings, each.source)), None)
        members.setdefault(_name(owner) if owner is not None else each.source, []).append(each)
    groups = [
        _group(_name(settings), _says(settings), members.pop(_name(settings), []), is_glob=_is_glob(settings))
        for settings in config.source
    ]
    groups += [_group(name, each.reads, members.pop(name, []), built_in=True) for name, each in own.items()]
    return [*groups, *(_group(name, mine[0].kind, mine) for name, mine in members.items())]


def kernel_log(config: Config, sources: Sequence[ReadSource]) -> KernelLog | None:
    """Whether the kernel's log of this node is read; None of an agent that reads no node."""
    if config.control is not None or config.run != "live" or config.clock.static is not None:
        return None
    asked = {_name(settings) for settings in config.source if settings.kind == "kernel" or settings.type == "kmsg"}
    asked |= {each.name for each in builtin.switched_on(config) if each.name == KERNEL}
    if not asked:
        return "off"
    return "read" if any(each.on for each in sources if each.name in asked) else "missing"


def off_sources(config: Config) -> list[OffSource]:
    """The built-in sources that are not switched on. The agent of a control plane can have none of them."""
    if config.control is not None:
        return []
    on = {each.name for each in builtin.switched_on(config)}
    return [_off(each, config) for each in builtin.BUILT_IN if each.name not in on]


def _group(
    name: str, reads: str, mine: Sequence[SourceProgress], *, built_in: bool = False, is_glob: bool = False
) -> ReadSource:
    states = Counter(each.state for each in mine)
    reasons = Counter(each.reason for each in mine if each.reason and each.state != "on")
    return ReadSource(
        name=name, reads=reads, built_in=built_in, is_glob=is_glob, on=states["on"], off=states["off"],
        refused=states["refused"], is_empty=is_glob and [each.source for each in mine] == [name],
        backlog_bytes=sum(each.backlog_bytes for each in mine),
        reasons=[reason for reason, _ in reasons.most_common(_REASONS_SHOWN)],
    )  # fmt: skip


def _name(settings: SourceSettings) -> str:
    return settings.name or settings.path


def _says(settings: SourceSettings) -> str:
    return f"{settings.path} ({_KINDS[settings.kind]})"


def _is_glob(settings: SourceSettings) -> bool:
    return glob.has_magic(settings.path)


def _is_of(settings: SourceSettings, source: str) -> bool:
    if not _is_glob(settings):
        return source == _name(settings)
    return not settings.name or source == settings.name or source.startswith(f"{settings.name}/")


def _off(each: BuiltIn, config: Config) -> OffSource:
    if config.run != "live" or config.clock.static is not None:
        why, switch = "recorded lines say nothing of this machine", 'run = "live", without [clock.static]'
    elif config.sources.get(each.name) is False:
        why, switch = "switched off in the settings", "take out NAME = false in [sources]"
    elif each.by_name_only:
        why, switch = "no profile holds it", "NAME = true in [sources]"
    else:
        why = f'profile = "{config.profile}" does not hold it'
        switch = f'profile = "{each.profile}", or a single one by NAME = true in [sources]'
    return OffSource(
        name=each.name, profile=each.profile, reads=each.reads, needs=each.needs, why=why, switch_on=switch
    )
