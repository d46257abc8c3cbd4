"""What is known of a job, for whoever asks before a deadline: from a folder of logs, the feed, the store.

Nothing here raises for what cannot be learned: it becomes a remark, and the answer is given with what there is.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from pipeline.core.launcher import Asked, Told, is_settled
from pipeline.core.other_runs import left_out
from pipeline.engine import Engine
from pipeline.folder import missing_in, plan
from pipeline.logfiles import UnreadableFileError
from pipeline.manifest import ManifestError
from pipeline.reader import records
from pipeline.web.answers import JobView
from pipeline.web.client import FeedClient, FeedRefusedError, FeedUnreachableError
from schemas.records import Incident, RawBatch

T = TypeVar("T")

_POLL_S: Final = 0.5
# What is read of a folder must also be concluded from: this share of the time is for reading.
_READING: Final = 0.75


class TooLateError(Exception):
    """The deadline passed before the answer came."""


class Deadline(Struct, frozen=True, kw_only=True):
    """A moment on the monotonic clock, in s."""

    at_s: float

    @property
    def left_s(self) -> float:
        """Time left in s; never negative."""
        return max(0.0, self.at_s - time.monotonic())


def after(wait_s: float) -> Deadline:
    """The moment so many seconds from now."""
    return Deadline(at_s=time.monotonic() + wait_s)


class Asking(Generic[T]):
    """A question on its way, in a thread of its own: a name server knows no time-out of ours. Nobody waits for it."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._answers: SimpleQueue[Callable[[], T]] = SimpleQueue()
        threading.Thread(target=self._run, args=(ask,), daemon=True).start()

    def _run(self, ask: Callable[[], T]) -> None:
        try:
            answer = ask()
        except BaseException as error:
            self._answers.put(partial(_raise, error))
        else:
            self._answers.put(lambda: answer)

    def answer(self, deadline: Deadline) -> T:
        """What was answered, or what was raised. Raises TooLateError at the deadline."""
        try:
            return self._answers.get(timeout=deadline.left_s)()
        except Empty:
            raise TooLateError from None


def _raise(error: BaseException) -> Any:
    raise error


def within(deadline: Deadline, ask: Callable[[], T]) -> T:
    """What `ask` gives, or what it raises. Raises TooLateError at the deadline."""
    return Asking(ask).answer(deadline)


# --- a folder -----------------------------------------------------------------------------------------------------


def ask_folder(path: Path, asked: Asked, wait_s: float) -> tuple[Told, Asked]:
    """What a file or folder of logs says, and which job that is of where none is asked for."""
    missing = missing_in([path])
    if missing is not None:
        return Told(remarks=[missing]), asked
    deadline, until = after(wait_s), after(wait_s * _READING)
    try:
        told = within(deadline, lambda: read_folder(path, until))
    except TooLateError:
        return Told(remarks=[f"the logs could not be read and understood within {wait_s:g} s; give --wait-s"]), asked
    except ManifestError as error:
        return Told(remarks=[str(error)]), asked
    return told, asked if asked.job is not None else _main_job(told, asked)


def read_folder(path: Path, until: Deadline) -> Told:
    """What the logs say that can be read until then: what is not settled, where that is not all of them."""
    cut: set[str] = set()

    def on_read(source: str, _size_bytes: int) -> None:
        if until.left_s <= 0:
            cut.add(source)
            raise UnreadableFileError("there was no time to read it to its end")

    folder, engine = plan([path]), Engine()
    unread = list(folder.unreadable)
    for keyed in records(folder, on_read=on_read):
        if isinstance(keyed.record, RawBatch):
            unread += [gap for gap in keyed.record.gaps if gap.source not in cut]
            if until.left_s <= 0:
                cut |= keyed.record.source_attributes.keys()
                continue
        engine.feed(keyed.key, keyed.record)
    told = Told(incidents=engine.incidents(), notes=engine.notes(), nodes=engine.nodes())
    remarks = [f"cannot read {gap.reason}" for gap in unread]
    if cut:
        remarks.append(f"there was no time to read all logs to their end ({len(cut)} were not); give --wait-s")
        told = _as_provisional(told)
    if not folder.nodes and not remarks:
        remarks.append(f"no log to read in {path}")
    return msgspec.structs.replace(told, remarks=remarks)


def _as_provisional(told: Told) -> Told:
    """The same, with no more certainty than half of the lines give."""

    def provisional(incidents: list[Incident]) -> list[Incident]:
        return [msgspec.structs.replace(incident, verdict="provisional") for incident in incidents]

    return msgspec.structs.replace(told, incidents=provisional(told.incidents), notes=provisional(told.notes))


def _main_job(told: Told, asked: Asked) -> Asked:
    """The job of the first incident, else of the first note."""
    first = next(iter([*told.incidents, *told.notes]), None)
    job = first.jobs[0].job_id if first is not None and first.jobs else None
    return msgspec.structs.replace(asked, job=job)


# --- the feed -----------------------------------------------------------------------------------------------------


class Source(Struct, frozen=True, kw_only=True):
    """Which feed to ask, and for what run and cluster (empty: any)."""

    url: str
    run: str = "live"
    cluster: str = ""


def ask_feed(source: Source, asked: Asked, deadline: Deadline) -> Told:
    """What the feed says of a job, asked until all of the attempt is settled or the deadline comes."""
    told = Told(remarks=[f"the feed at {source.url} did not answer in time"])
    while True:
        try:
            told = _once(source, asked, deadline)
        except FeedRefusedError as error:
            return Told(remarks=[f"the feed refuses: {error}"])
        except FeedUnreachableError as error:
            told = msgspec.structs.replace(told, remarks=[f"no feed answers at {source.url} ({error})"])
        except TooLateError:
            return told
        if is_settled(told, asked) or deadline.left_s <= _POLL_S:
            return told
        time.sleep(_POLL_S)


def _once(source: Source, asked: Asked, deadline: Deadline) -> Told:
    client = FeedClient(url=source.url)
    query = {"run": source.run, "cluster": source.cluster}
    jobs = (asked.job or "", *asked.earlier)
    return of_views([within(deadline, partial(client.job, job, query)) for job in jobs])


def joined(first: Told, second: Told) -> Told:
    """What two sources tell of one job; of an incident that both have, the newer revision."""
    newest: dict[tuple[str, str], Incident] = {}
    for incident in (*first.incidents, *second.incidents):
        name = (incident.run_id, incident.incident_id)
        if name not in newest or newest[name].revision < incident.revision:
            newest[name] = incident
    nodes = {*(first.nodes or ()), *(second.nodes or ())}
    return Told(
        incidents=list(newest.values()), notes=[*first.notes, *second.notes],
        attempts=sorted({*first.attempts, *second.attempts}), nodes=sorted(nodes) or None,
        remarks=list(dict.fromkeys([*first.remarks, *second.remarks])),
    )  # fmt: skip


def of_views(views: list[JobView]) -> Told:
    """What the feed's answers for a job, and for the jobs that were earlier attempts at the same work, tell."""
    told = of_view(views[0])
    earlier = [of_view(view) for view in views[1:]]
    nodes = {node for one in (told, *earlier) for node in one.nodes or ()}
    return msgspec.structs.replace(
        told, incidents=[*told.incidents, *(i for one in earlier for i in one.incidents)], nodes=sorted(nodes) or None
    )


def of_view(view: JobView) -> Told:
    """What the feed's answer tells. Nothing, where the same job id is in two clusters."""
    clusters = {one.cluster for one in view.attempts} | {incident.cluster for incident in view.incidents}
    if len(clusters) > 1:
        return Told(
            remarks=[f"job {view.job_id} is in several clusters, give --cluster: {', '.join(sorted(clusters))}"]
        )
    return Told(
        incidents=view.incidents, notes=view.notes, attempts=[one.attempt for one in view.attempts],
        nodes=sorted({node for one in view.attempts for node in one.nodes}) or None,
        remarks=_doubts(view),
    )  # fmt: skip


def _doubts(view: JobView) -> list[str]:
    """What may be wrong with an answer, one sentence each."""
    behind = [] if view.following else [f"the feed may be behind: {view.reason}"]
    return behind if view.attempts or view.incidents else [*behind, *left_out(view.other_runs)]
