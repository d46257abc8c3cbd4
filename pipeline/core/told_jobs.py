"""What the node agent is told of jobs: of which attempt a line is, and how long the scheduler gives it the node."""

from typing import Final

from pipeline.core import keys
from pipeline.core.here import Here, JobHere
from schemas.signals import Match

STARTED: Final = "job.started"
ENDED: Final = "job.ended"
RANK_ENDED: Final = "rank.ended"
# What tells that a process uses a GPU, and that it does no more.
GPU_USED: Final = "gpu.memory_process"
GPU_LEFT: Final = "gpu.process_gone"


class Named:
    """The job attempt that a line names: its key, and whether it is new here."""

    def __init__(self, here: Here, match: Match, prefix: str, at_ns: int | None, now_ns: int) -> None:
        """`prefix`: of the keys of its cluster and run (`cluster` with what `keys.run_prefix` gives in front)."""
        self._here = here
        self._prefix = prefix
        self.job_id = match.attributes["job"]
        stated = match.attributes.get("attempt")
        self.attempt = self._attempt(match.event) if stated is None else int(stated)
        self.key = self._key(self.attempt)
        self.job, self.is_new = here.job(self.key, self.job_id, self.attempt, now_ns)
        self.is_wider = self._hear(match, at_ns, is_stated=stated is not None)

    def _key(self, attempt: int) -> str:
        return keys.job_key("", self._prefix, self.job_id, attempt)

    def _attempt(self, event: str) -> int:
        """The attempt of a line that states none: the one that runs; at a start the next one."""
        running = self._here.running(self.job_id)
        if running is not None:
            return running.attempt
        known = [job for job in self._here.jobs.values() if job.job_id == self.job_id]
        last = max(known, key=lambda job: job.attempt, default=None)
        if last is None:
            return 0
        return last.attempt + 1 if event == STARTED and last.told_to_ns is not None else last.attempt

    def _hear(self, match: Match, at_ns: int | None, *, is_stated: bool) -> bool:
        """Take the times; whether the job covers more now."""
        job = self.job
        wider = at_ns is not None and job.widen(at_ns)
        if match.event == STARTED and at_ns is not None:
            wider |= _start(job, at_ns)
            job.unnumbered = not is_stated
        elif match.event == ENDED and at_ns is not None:
            job.told_from_ns = at_ns if job.told_from_ns is None else job.told_from_ns
            job.told_to_ns = max(at_ns, job.told_to_ns or 0)
        elif is_stated and self.attempt and job.told_from_ns is None:
            wider |= self._takes_over()
        return wider

    def _takes_over(self) -> bool:
        """A start that told no attempt was of this one, where a rank names it."""
        first = self._here.jobs.get(self._key(0))
        if first is None or not first.unnumbered or not first.runs:
            return False
        self.job.told_from_ns, first.told_to_ns = first.told_from_ns, first.told_from_ns
        first.unnumbered = False
        return True


def _start(job: JobHere, at_ns: int) -> bool:
    if job.told_from_ns is None or (job.told_to_ns is not None and at_ns > job.told_to_ns):
        job.told_from_ns, job.told_to_ns = at_ns, None
        return True
    return False
