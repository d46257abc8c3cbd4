"""Who runs on a node, as far as its own lines and other reporters say, and which of the node's events concern whom."""

from typing import Final

from msgspec import Struct, field

from pipeline.core.hosts import may_be_one
from pipeline.core.times import SECOND_NS
from schemas.records import TIME_MAX_NS, TIME_MIN_NS, Event

# A fault of the node may come before the job prints its first line, and the job may hang in silence for the longest
# default time-out (30 min) before it prints the next one.
BEFORE_JOB_NS: Final = 600 * SECOND_NS
# What is lost at the start of a node is still lost for the jobs of the next day.
LASTS_NS: Final = 24 * 3600 * SECOND_NS
_UNTIL_RESET: Final = ("hardware/gpu_fell_off_bus",)
AFTER_JOB_NS: Final = 2_400 * SECOND_NS
# Broker time. A job that printed nothing for so long while another one did is over here (often only rank 0 prints); an
# event of the node waits no longer for its job.
FORGET_JOB_NS: Final = 24 * 3600 * SECOND_NS
FORGET_ANY_JOB_NS: Final = 7 * FORGET_JOB_NS
FORGET_EVENT_NS: Final = 6 * 3600 * SECOND_NS
RECENT_EVENTS: Final = 2_000
# Reference time. What comes later than this after the job has torn itself down in peace is not its any more.
AFTER_END_NS: Final = 60 * SECOND_NS


class JobHere(Struct, kw_only=True):
    """A job attempt on this node, and the time its lines cover (reference ns).

    `always`: somebody says that all of the node's lines belong to it. `undated`: none of its lines has a stamp; it may
    have been here long before and after what times they name. `heard_ns`: broker time of its last line. `passed_ns`:
    when it was told last how far the node was read. `ended_ns`: when it last tore a communicator down in peace.
    """

    job_id: str
    attempt: int
    first_ns: int = TIME_MAX_NS
    last_ns: int = TIME_MIN_NS
    always: bool = False
    undated: bool = False
    heard_ns: int = 0
    passed_ns: int = 0
    ended_ns: int = TIME_MIN_NS
    nodes: list[str] = field(default_factory=list)
    # Its last lines have no time: it may have been here long after the last one that has.
    open_end: bool = False
    # What the scheduler says of its time on the node; without an end it runs.
    told_from_ns: int | None = None
    told_to_ns: int | None = None
    # The scheduler did not say which attempt it is: taken for the first until a rank names another.
    unnumbered: bool = False

    @property
    def runs(self) -> bool:
        """Whether the scheduler says that it is here now."""
        return self.told_from_ns is not None and self.told_to_ns is None

    def may_be_of(self, at_ns: int) -> bool:
        """Whether the scheduler says that it was here at that time; it may have been while it says nothing."""
        if self.told_from_ns is None:
            return True
        until_ns = TIME_MAX_NS if self.told_to_ns is None else self.told_to_ns + AFTER_END_NS
        return self.told_from_ns <= at_ns <= until_ns

    def widen(self, at_ns: int) -> bool:
        """Take a time at which the job was here; whether that is news."""
        news = at_ns < self.first_ns or at_ns > self.last_ns
        self.first_ns, self.last_ns = min(self.first_ns, at_ns), max(self.last_ns, at_ns)
        return news

    def covers(self, event: Event, reporter: str) -> bool:
        """Whether an event of the node may concern this job: the right machine, and near in time."""
        if self.always:
            return True
        if event.node not in self.nodes and not any(may_be_one(event.node, n) for n in (reporter, *self.nodes)):
            return False
        if event.aligned_time_unix_nano is None:
            return True
        if self.told_from_ns is not None:
            return self._covers_as_told(event, self.told_from_ns)
        if self.first_ns == TIME_MAX_NS:
            return self.undated
        in_peace = self.ended_ns != TIME_MIN_NS and self.last_ns <= self.ended_ns + AFTER_END_NS
        until_ns = self.last_ns + (LASTS_NS if self.open_end or self.undated else AFTER_JOB_NS)
        until_ns = self.ended_ns + AFTER_END_NS if in_peace else until_ns
        since_ns = self.first_ns - (LASTS_NS if lasts(event) or self.undated else BEFORE_JOB_NS)
        return since_ns <= event.hi_unix_nano and event.lo_unix_nano <= until_ns

    def _covers_as_told(self, event: Event, from_ns: int) -> bool:
        """Whether an event may concern a job of which the scheduler says when it was here."""
        since_ns = from_ns - (LASTS_NS if lasts(event) else BEFORE_JOB_NS)
        until_ns = TIME_MAX_NS if self.told_to_ns is None else self.told_to_ns + AFTER_END_NS
        return since_ns <= event.hi_unix_nano and event.lo_unix_nano <= until_ns


def lasts(event: Event) -> bool:
    """Whether a fault stays until somebody resets the device or restarts the node: a GPU that is gone."""
    return event.label in _UNTIL_RESET and event.severity in ("critical", "fatal")


class Recent(Struct, kw_only=True, gc=False):
    """An event of the node itself, when it arrived (broker time), and the keys it was sent to.

    `jobs`: names of the only job that it concerns; `reporter`: who else than the node told it.
    """

    event: Event
    arrived_ns: int
    sent_to: list[str]
    jobs: list[str] = []
    reporter: str = ""


class Here(Struct, kw_only=True):
    """Jobs on a node and the recent events of the node."""

    jobs: dict[str, JobHere] = field(default_factory=dict)
    recent: list[Recent] = field(default_factory=list)

    def job(self, key: str, job_id: str, attempt: int, now_ns: int) -> tuple[JobHere, bool]:
        """The job under a key, and whether it is new here."""
        known = self.jobs.get(key)
        if known is None:
            known = self.jobs[key] = JobHere(job_id=job_id, attempt=attempt, heard_ns=now_ns)
            return known, True
        known.heard_ns = max(known.heard_ns, now_ns)
        return known, False

    def running(self, job_id: str) -> JobHere | None:
        """The newest attempt of a job that the scheduler says is here."""
        found = [job for job in self.jobs.values() if job.job_id == job_id and job.runs]
        return max(found, key=lambda job: job.attempt, default=None)

    def only_told(self, at_ns: int) -> JobHere | None:
        """The only job that the scheduler says was here at that time."""
        found = [job for job in self.jobs.values() if job.told_from_ns is not None and job.may_be_of(at_ns)]
        return found[0] if len(found) == 1 else None

    def covering(self, event: Event, reporter: str) -> list[str]:
        """Keys of the jobs that an event of the node may concern."""
        return [key for key, job in self.jobs.items() if job.covers(event, reporter)]

    def late(self, keys: set[str], reporter: str) -> dict[str, list[Event]]:
        """Events that these jobs cover by now and did not get yet; marks them as sent."""
        found: dict[str, list[Event]] = {}
        jobs = [(key, self.jobs[key]) for key in self.jobs if key in keys]
        for recent in self.recent if jobs else ():
            if recent.reporter:
                continue  # see pipeline.core.relays
            for key, job in jobs:
                if key not in recent.sent_to and job.covers(recent.event, reporter):
                    recent.sent_to.append(key)
                    found.setdefault(key, []).append(recent.event)
        return found

    def forget(self, now_ns: int) -> tuple[list[str], int]:
        """Drop what is over: the keys of jobs that ended here, and how many events were dropped for lack of room."""
        newest_ns = max((job.heard_ns for job in self.jobs.values()), default=0)
        over = [
            key
            for key, job in self.jobs.items()
            if now_ns - job.heard_ns > FORGET_ANY_JOB_NS
            or (now_ns - job.heard_ns > FORGET_JOB_NS and newest_ns > job.heard_ns and not job.runs)
        ]
        for key in over:
            del self.jobs[key]
        return over, self.forget_events(now_ns)

    def forget_events(self, now_ns: int) -> int:
        """Drop events that wait for their job no longer; how many of them only for lack of room."""
        if self.recent and now_ns - self.recent[0].arrived_ns > FORGET_EVENT_NS:
            self.recent = [recent for recent in self.recent if now_ns - recent.arrived_ns <= FORGET_EVENT_NS]
        crowded = max(0, len(self.recent) - RECENT_EVENTS)
        del self.recent[:crowded]
        return crowded
