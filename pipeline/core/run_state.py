"""What the run was doing when it broke, what it had saved, what was lost, and whose it is. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from pipeline.core.episodes import Episode
from pipeline.core.facts import Variable
from pipeline.core.order import Stamped, canonical, order
from schemas.records import Event
from schemas.vocabulary import Interruption, Phase

HOUR_NS: Final = 3_600 * 1_000_000_000
# Classes that say themselves what the run was doing.
_BY_CLASS: Final[dict[str, Phase]] = {
    "storage/checkpoint_write": "checkpoint_save",
    "storage/checkpoint_read": "checkpoint_load",
    "software/checkpoint_corrupt": "checkpoint_load",
    "software/dataloader_worker_crash": "data_loading",
    "software/dataloader_deadlock": "data_loading",
    "software/slow_preprocessing": "data_loading",
}
# What happens before the first step only, and what it takes to say that a job was there at all.
_SET_UP: Final = ("nccl.init", "torch.process_group", "elastic.launch", "train.start", "nccl.version", "tcpstore.retry")
_AT_START: Final = (
    "network/tcp_syn_dropped", "network/no_route", "network/wrong_interface", "network/name_resolution",
    "infra/node_absent", "software/driver_mismatch", "software/nccl_version_mismatch", "hardware/fabric_manager",
    "hardware/imex",
)  # fmt: skip
_ENDED: Final = ("train.end", "elastic.succeeded")
# A run begins with one of these, also when a launcher starts its processes anew.
_BEGUN: Final = (*_SET_UP, "elastic.rendezvous", "checkpoint.loaded")
_EVALUATES: Final = ("eval", "valid", "test")
# Collectives that carry gradients: DDP's all-reduce and FSDP's reduce-scatter, of more than a flag or a counter.
_GRADIENTS: Final = ("ALLREDUCE", "ALLREDUCE_COALESCED", "_REDUCE_SCATTER_BASE", "REDUCE_SCATTER", "_REDUCE_OOP")
MIN_GRADIENT_ELEMENTS: Final = 1024


class Saved(Struct, frozen=True, kw_only=True):
    """The last checkpoint from before the fault, and what was computed since.

    `lost_gpu_hours`: where the times and the number of ranks are known.
    """

    last: Event | None = None
    lost_gpu_hours: float | None = None
    resume_from: str | None = None


def phase_of(class_: str, episodes: Sequence[Episode], root: Event, waits: Iterable[Event]) -> Phase:
    """What the run was doing: what the class says, what had begun and not ended, what it waited in."""
    if class_ in _BY_CLASS:
        return _BY_CLASS[class_]
    telling = (e for e in episodes if e.name in _SET_UP or _activity(e.first) is not None)
    earlier = [e for e in telling if order(root, e.newest) != "before" or order(root, e.first) != "before"]
    going_on = _going_on(earlier, root)
    if going_on is not None:
        return going_on
    if not any(e.name == "train.step" for e in earlier):
        is_set_up = class_ in _AT_START or any(e.name in _SET_UP for e in earlier)
        has_waited = any(_elements(event) >= MIN_GRADIENT_ELEMENTS for event in waits)
        return "init" if is_set_up and not has_waited else _in_collective(waits)
    return _in_collective(waits)


def _going_on(episodes: Sequence[Episode], root: Event) -> Phase | None:
    """The activity of the last mark before the root, where that mark is no step."""
    marks = (event for e in episodes for event in (e.first, e.last) if event is not None and _activity(event))
    last = max((event for event in marks if canonical(event) <= canonical(root)), key=canonical, default=None)
    found = None if last is None else _activity(last)
    return found if found != "unknown" else None


def _activity(event: Event) -> Phase | None:
    """What begins or goes on with a mark; `unknown` where it says that training goes on, None where it is no mark."""
    if event.name == "checkpoint.started":
        return "checkpoint_save"
    if event.name in ("train.step", "checkpoint.saved", "checkpoint.loaded"):
        return "unknown"
    if event.name == "train.phase":
        evaluates = any(word in event.attributes.get("phase", "").lower() for word in _EVALUATES)
        is_over = event.attributes.get("state", "").startswith(("finish", "end", "done"))
        return "evaluation" if evaluates and not is_over else "unknown"
    if event.name in ("data.download", "data.preprocess"):
        return "data_loading"
    return "shutdown" if event.name in _ENDED else None


def _in_collective(waits: Iterable[Event]) -> Phase:
    carried = [e for e in waits if e.attributes.get("op") in _GRADIENTS and _elements(e) >= MIN_GRADIENT_ELEMENTS]
    return "gradient_sync" if carried else "unknown"


def _elements(event: Event) -> int:
    text = event.attributes.get("numel_in", "")
    return int(text) if text.isdecimal() and len(text) < 16 else 0


def saved_of(
    episodes: Sequence[Episode], root: Event, ended_ns: int | None, gpus: int | None, interruption: Interruption
) -> Saved:
    """What the run can go on from. The loss counts from that checkpoint, else from where the job began, to the end.

    One rank is one GPU. A run that goes on, slower, loses nothing it has to compute again.
    """
    saves = [e.first for e in episodes if e.name == "checkpoint.saved" and canonical(e.first) < canonical(root)]
    last = max(saves, key=canonical, default=None)
    if interruption in ("slow", "none"):
        return Saved(last=last, resume_from="in_place")
    since_ns = last.aligned_time_unix_nano if last is not None else _begun_ns(episodes)
    lost = None
    if gpus and since_ns is not None and ended_ns is not None and ended_ns >= since_ns:
        lost = round(gpus * (ended_ns - since_ns) / HOUR_NS, 3)
    return Saved(last=last, lost_gpu_hours=lost, resume_from="checkpoint" if last is not None else None)


def runs_again(episodes: Sequence[Episode], failure: Sequence[Stamped]) -> bool:
    """Whether after all lines of a failure, for certain, the job was set up anew and did steps.

    Steps alone do not tell: the ranks that did not fail do a few more until they are stopped.
    """
    begins = [e.newest for e in episodes if e.name in _BEGUN]
    steps = [e.newest for e in episodes if e.name == "train.step"]
    begun = [event for event in begins if all(order(line, event) == "before" for line in failure)]
    return any(order(begin, step) == "before" for begin in begun for step in steps)


def _begun_ns(episodes: Sequence[Episode]) -> int | None:
    """When the job began: its first line, with a time, that it is set up or does a step. None where none was read."""
    begins = [e.first for e in episodes if e.name in _BEGUN or e.name == "train.step"]
    times = [event.aligned_time_unix_nano for event in begins if _is_of_job(event)]
    return min((at for at in times if at is not None), default=None)


def _is_of_job(event: Event) -> bool:
    return event.source_kind == "application" and event.quality != "none"


def owner_of(variables: Iterable[Variable]) -> str | None:
    """Who submitted the job, where exactly one name is printed with it (Slurm's environment)."""
    names = {variable.value for variable in variables if variable.name == "SLURM_JOB_USER"} - {""}
    return names.pop() if len(names) == 1 else None
