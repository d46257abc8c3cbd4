"""What a launcher's lines add: whose an error without a name is, and which rank its own process is."""

from collections import defaultdict
from typing import Final

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import Changes, Scene
from schemas.records import Entity, Event

# In place of the exit code of a process that the launcher killed.
LAUNCHER_KILLED: Final = "-9 (launcher)"
LAUNCHER_STOPPED: Final = "-15 (launcher)"
_BY_LAUNCHER: Final = {"-9": LAUNCHER_KILLED, "-15": LAUNCHER_STOPPED}
_FAILED: Final = "elastic.failed"
_TABLE: Final = "elastic.rank_failed"
# Exit codes of a process that ends by what it printed: an exception, an abort, a crash.
ABORTED: Final = frozenset(("-6", "134"))
OWN_END: Final = ABORTED | {"1", "2", "-11", "139"}
_SAVE: Final = "checkpoint.write_failed"
_LOST_A_PEER: Final = ("gloo.closed", "gloo.reset")
_OWN_ROLES: Final = ("cause", "intermediate")


def first_exit(scene: Scene) -> Changes:
    """An error that names no process is of the process whose end the launcher of the same file saw first.

    torchrun stops the others as soon as it sees one process end, and a process that raises ends before those that lose
    their connection to it. That holds for one agent's own processes only, and for an error that was printed once, or
    where all other processes that failed say that they lost a peer. Of those that it found ended in one look (every 5 s
    up to torch 2.3) it names the one with the lowest local rank: that says nothing, but of a save, which is rank 0's.
    Source: torch/distributed/elastic/agent/server/api.py (`_invoke_run`), multiprocessing/api.py (`_poll`).
    """
    first: dict[tuple[str, str], list[Resolved]] = defaultdict(list)
    rows = _rows(scene)
    for item in scene.named(_FAILED):
        first[_file(item.episode.first)].append(item)
    for item in scene.items:
        event = item.episode.first
        agents = first.get(_file(event), ())
        if len(agents) != 1 or not _is_nameless(item):
            continue
        (agent,) = agents
        if item.episode.count > 1 and _by_own_error(scene, _file(event)) != 1:
            continue
        if _is_tie(scene, agent) and not (event.name == _SAVE and agent.subject.local_rank == 0):
            continue
        if agent.episode.attributes.get("exitcode") in OWN_END and agent.episode.count == 1:
            yield (
                id(item),
                [Resolved(episode=item.episode, subject=_filled(item.subject, _process(scene, agent, rows)))],
            )


def processes(scene: Scene) -> Changes:
    """The process whose end a launcher saw, with what its table and its task number say of it."""
    rows = _rows(scene)
    for item in scene.named(_FAILED, _TABLE):
        named = _process(scene, item, rows)
        if named != item.subject:
            yield id(item), [Resolved(episode=item.episode, subject=named)]


def _rows(scene: Scene) -> dict[str, list[Entity]]:
    """Who is in the tables of launchers, by file."""
    rows: dict[str, list[Entity]] = {}
    for row in scene.named(_TABLE):
        rows.setdefault(_file(row.episode.first)[1], []).append(row.subject)
    return rows


def _process(scene: Scene, item: Resolved, rows: dict[str, list[Entity]]) -> Entity:
    """With the rank, where it is known.

    The ranks of the agent that srun started as task 0 begin at 0: agents are numbered by SLURM_NODEID (static
    rendezvous) or in the order of their host names (c10d), and so are the tasks of a job step.
    Source: torch/distributed/elastic/rendezvous/dynamic_rendezvous.py, srun(1) --label.
    """
    subject, file = item.subject, _file(item.episode.first)[1]
    if subject.rank is not None:
        return subject
    same = [
        row for row in rows.get(file, ()) if row.pid is not None and row.pid == subject.pid and row.rank is not None
    ]
    if len(same) == 1 and (subject.node is None or same[0].node in (None, subject.node)):
        return _filled(subject, same[0])
    local_rank = subject.local_rank
    if local_rank is None or item.episode.first.printer.task != 0:
        return subject
    known = scene.placement.ranks.get(local_rank)
    if known is None or (known.node in (None, subject.node) and known.pid in (None, subject.pid)):
        return msgspec.structs.replace(subject, rank=local_rank)
    return subject


def killed_by_launcher(scene: Scene) -> Changes:
    """A process that its launcher stopped, or killed because it did not stop, was not killed by somebody else."""
    rows = _rows(scene)
    done = {code: _done_to(scene, name) for name, code in (("elastic.kill", "-9"), ("elastic.terminate", "-15"))}
    for item in scene.named(_FAILED, _TABLE):
        event = item.episode.first
        code = event.attributes.get("exitcode", "")
        if not any(name in done.get(code, ()) for name in _names(item)):
            continue
        event = msgspec.structs.replace(event, attributes={**event.attributes, "exitcode": _BY_LAUNCHER[code]})
        episode = msgspec.structs.replace(item.episode, first=event)
        yield id(item), [Resolved(episode=episode, subject=_process(scene, item, rows))]


def _done_to(scene: Scene, name: str) -> set[tuple[str, str, int]]:
    return {one for item in scene.named(name) for one in _names(item)}


def _names(item: Resolved) -> set[tuple[str, str, int]]:
    """By what the lines of one file call the processes they speak of."""
    file = _file(item.episode.first)[1]
    named = {(file, "rank", rank) for rank in item.ranks}
    pids = {(member.source, member.pid) for member in item.episode.crowd.values()} | {(file, item.subject.pid)}
    return named | {(source, "pid", pid) for source, pid in pids if pid is not None}


def _is_tie(scene: Scene, agent: Resolved) -> bool:
    """Whether others of the launcher's processes had ended too, one of which lost a peer, and it names the first."""
    if all(_file(item.episode.first) != _file(agent.episode.first) for item in scene.named(*_LOST_A_PEER)):
        return False
    table = [item for item in scene.named(_TABLE) if _file(item.episode.first)[1] == _file(agent.episode.first)[1]]
    own = [item for item in table if item.episode.attributes.get("exitcode") in OWN_END]
    local = {item.subject.local_rank for item in own if item.subject.local_rank is not None}
    return len(local) > 1 and agent.subject.local_rank == min(local)


def _by_own_error(scene: Scene, file: tuple[str, str]) -> int:
    """Of the processes in the launcher's table, those that ended by themselves and do not say that they lost a peer."""
    table = [item for item in scene.named(_TABLE) if _file(item.episode.first)[1] == file[1]]
    ended = sum(item.episode.attributes.get("exitcode") in OWN_END for item in table)
    return ended - sum(item.episode.count for item in scene.named(*_LOST_A_PEER) if _file(item.episode.first) == file)


def _file(event: Event) -> tuple[str, str]:
    return event.node, event.source


def _is_nameless(item: Resolved) -> bool:
    """Whether a process prints an error of its own and no line says which process it is."""
    event, subject = item.episode.first, item.subject
    if event.source_kind != "application" or event.role not in _OWN_ROLES or event.name.startswith("elastic."):
        return False
    return subject.rank is None and subject.pid is None and subject.local_rank is None and subject.pci_bus_id is None


def _filled(nameless: Entity, named: Entity) -> Entity:
    known = {name: value for name, value in msgspec.structs.asdict(nameless).items() if value is not None}
    return msgspec.structs.replace(named, **known)
