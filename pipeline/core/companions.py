"""What stands beside a proof: what the culprit itself also says, what others notice, the last sign of progress.

The steps of a chain prove its root. These are lines that belong to the same story and that no rule names: whoever reads
the chain would look for them next. Pure; they change nothing of what is concluded.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from pipeline.core.chains import SECOND_NS, Resolved, Step, on_one_machine, step
from pipeline.core.marks import STALLED
from pipeline.core.order import Place, canonical, lag_ns, order, sureness
from schemas.records import Entity, Event
from schemas.vocabulary import StepRole

# What the culprit says so long before its fault and after it belongs to the fault.
BEFORE_S: Final = 600
AFTER_S: Final = 1_800
# Of each kind so many; what many ranks print alike is folded into one step later.
MAX_OWN: Final = 8
MAX_NOTICED: Final = 64
MAX_HEALTHY: Final = 2
# Marks that the job went on, the best first: what ended well says more than a step.
_HEALTHY: Final = ("train.step", "progress.bar", "checkpoint.saved", "checkpoint.started", "train.phase")
_TELLING: Final = ("warning", "error", "critical", "fatal")


def with_companions(
    steps: Sequence[Step], root: int, culprits: Sequence[Entity], items: Sequence[Resolved], *, speaks_for_job: bool
) -> list[Step]:
    """The steps and what stands beside them. `speaks_for_job`: others' lines of the failure belong to it."""
    told = list(steps)
    taken = {id(one.item) for one in steps}
    free = [item for item in items if not _is_mark(item.episode.first) and id(item) not in taken]
    first = steps[root].item
    labels = {one.item.episode.first.label for one in steps if one.role in ("root", "cascade")}
    for one in steps:
        last = one.item.episode.last
        if one.role in ("root", "cascade") and last is not None and last.body != one.item.episode.first.body:
            told.append(step(_of(last, one.item), "cascade", root, "the same again, the last time", told))
    for item in _first(MAX_OWN, (i for i in free if _is_own(i, first, culprits, labels))):
        role: StepRole = "context" if item.episode.first.role == "context" else "cascade"
        if _is_before(item, first):
            told.append(_earlier(item, told, root, "the same device or process, before"))
        else:
            told.append(step(item, role, root, "the same device or process, at that time", told))
        taken.add(id(item))
    if not speaks_for_job:
        return told
    for item in _first(MAX_NOTICED, (i for i in free if id(i) not in taken and _is_noticed(i, first))):
        told.append(step(item, "symptom", root, "the same failure, as another line reports it", told))
    if any(one.item.episode.name == STALLED for one in steps):
        # Its line is the last sign.
        return told
    healthy = sorted(_last_marks(items, first, told), key=lambda item: canonical(item.episode.first))[-MAX_HEALTHY:]
    written = {canonical(one.item.episode.first) for one in told}
    healthy = [item for item in healthy if canonical(item.episode.first) not in written]
    return [*told, *(_earlier(item, told, root, "the last sign that the job went on") for item in healthy)]


def _earlier(item: Resolved, steps: Sequence[Step], root: int, why: str) -> Step:
    """What stands before the beginning of the story, or else before the line that defines it."""
    number = 0 if _is_before(item, steps[0].item) or not _is_before(item, steps[root].item) else root
    sure, odds = sureness(item.episode.first, steps[number].item.episode.first)
    return Step(item=item, role="context", leads_to=number, why=why, order=sure, odds=odds)


def _first(limit: int, items: Iterable[Resolved]) -> list[Resolved]:
    return sorted(items, key=lambda item: canonical(item.episode.first))[:limit]


def _is_mark(event: Event) -> bool:
    """Whether a line says that all is well."""
    return event.role == "noise" or event.name in _HEALTHY


def _is_own(item: Resolved, root: Resolved, culprits: Sequence[Entity], labels: set[str]) -> bool:
    """Whether a line is of the culprit, and of the time and kind of its fault."""
    event = item.episode.first
    if not _is_near(root.episode.first, event):
        return False
    pairs = [on_one_machine(culprit, root.episode.first, item) for culprit in culprits]
    if any(_is_same_part(culprit, subject) for culprit, subject in pairs):
        return event.role != "context" or event.severity in _TELLING or event.label in labels
    on_node = any(culprit.node is not None and culprit.node == subject.node for culprit, subject in pairs)
    return on_node and event.source_kind != "application" and event.label in labels


def _is_same_part(a: Entity, b: Entity) -> bool:
    """The same GPU, NIC, rank or process."""
    if a.rank is not None and a.rank == b.rank:
        return True
    if a.node is None or a.node != b.node:
        return False
    pairs = ((a.gpu_uuid, b.gpu_uuid), (a.pci_bus_id, b.pci_bus_id), (a.nic, b.nic), (a.pid, b.pid))
    return any(mine is not None and mine == other for mine, other in pairs)


def _is_near(root: Event, event: Event) -> bool:
    lag = lag_ns(root, event)
    if lag is None:
        return (root.node, root.source) == (event.node, event.source)
    return lag[0] <= AFTER_S * SECOND_NS and lag[1] >= -BEFORE_S * SECOND_NS


def _is_before(item: Resolved, root: Resolved) -> bool:
    return order(item.episode.first, root.episode.first) == "before"


def _is_noticed(item: Resolved, root: Resolved) -> bool:
    """Whether processes of the job report the failure: symptoms that are not from before it."""
    event = item.episode.first
    return event.role == "symptom" and event.source_kind == "application" and not _is_before(item, root)


def _last_marks(items: Sequence[Resolved], root: Resolved, told: Sequence[Step]) -> Iterator[Resolved]:
    """Of each kind of mark the last one that is not after the failure was noticed."""
    noticed = [canonical(one.item.episode.first) for one in told if one.role == "symptom"]
    begun = min(noticed or [canonical(one.item.episode.first) for one in told if one.role != "context"], default=None)
    for name in _HEALTHY:
        marks = [_last(item, begun) for item in items if item.episode.name == name]
        known = [item for item in marks if begun is None or canonical(item.episode.first) < begun]
        known = [item for item in known if order(root.episode.first, item.episode.first) != "before"]
        if known:
            yield max(known, key=lambda item: canonical(item.episode.first))


def _last(item: Resolved, begun: Place | None) -> Resolved:
    """The mark as its last line says it, where that is from before the failure; else as its first line does: what a job
    that was started anew goes on with is no part of the failure.
    """
    last = item.episode.last
    if last is None:
        return item
    is_later = begun is not None and canonical(last) >= begun
    return _of(item.episode.first if is_later else last, item)


def _of(line: Event, item: Resolved) -> Resolved:
    """One line of an episode, as an item of its own."""
    at_ns = -1 if line.aligned_time_unix_nano is None else line.aligned_time_unix_nano
    episode = msgspec.structs.replace(item.episode, first=line, last=None, count=1, start_ns=at_ns, end_ns=at_ns)
    return Resolved(episode=episode, subject=item.subject)


# --- the culprit, with what its own lines add ---------------------------------------------------------------------

_LINK_XID: Final = "74"
# Who calls a GPU that fails is innocent: the process is named where the process is at fault.
_OF_PROCESSES: Final = ("software/", "resource/")


def filled(culprit: Entity, steps: Sequence[Step], class_: str, items: Sequence[Resolved] = ()) -> Entity:
    """The culprit with identifiers that the lines of its own device or process give, all alike."""
    if culprit.nic is not None:
        # Who uses a network card is not at fault for it.
        return culprit
    root = next((one.item.episode.first for one in steps if one.role == "root"), None)
    lines = [one.item for one in steps if one.role in ("root", "cascade")]
    lines = [i for i in lines if _is_same_part(*(on_one_machine(culprit, root, i) if root else (culprit, i.subject)))]
    own = [item.subject for item in lines] + _names_of_gpu(culprit, steps, items)
    pids = {int(pid) for item in lines if (pid := item.episode.attributes.get("pid", "")).isdecimal() and len(pid) < 10}
    if culprit.switch is not None and culprit.pci_bus_id is None:
        # The GPU at the other end of the failed link.
        ends = [one.item.subject for one in steps if one.item.episode.attributes.get("xid") == _LINK_XID]
        own += [end for end in ends if end.node == culprit.node]
    added: dict[str, object] = {}
    for name, known in msgspec.structs.asdict(culprit).items():
        said = {getattr(subject, name) for subject in own} - {None}
        if name == "pid":
            said |= pids
        if known is None and len(said) == 1 and (name != "pid" or class_.startswith(_OF_PROCESSES)):
            added[name] = said.pop()
    return msgspec.structs.replace(culprit, **added)


# Lines that give two names of one GPU.
_NAMES_OF_GPU: Final = ("gpu.uuid", "gpu.serial")


def _names_of_gpu(culprit: Entity, steps: Sequence[Step], items: Sequence[Resolved]) -> list[Entity]:
    """What the file of the root also calls the GPU: tables of GPUs hold none of machines without a name."""
    if culprit.pci_bus_id is None:
        return []
    files = {_file(one.item) for one in steps if one.role == "root"}
    known = (item for item in items if item.episode.name in _NAMES_OF_GPU and _file(item) in files)
    return [i.subject for i in known if (i.subject.node, i.subject.pci_bus_id) == (culprit.node, culprit.pci_bus_id)]


def _file(item: Resolved) -> tuple[str, str]:
    event = item.episode.first
    return event.source, event.generation
