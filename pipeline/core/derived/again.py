"""Failures of one job attempt that come again at the same minute of the hour, or at the same step."""

from typing import Final

from pipeline.core.chains import SECOND_NS, Resolved
from pipeline.core.derived.scene import Changes, Scene, as_finding, last_of
from pipeline.core.order import canonical
from schemas.records import Entity

RECURS: Final = "compare.recurs"
# What a launcher or a waiting rank says at every failure.
_FAILURES: Final = (
    "elastic.failed", "elastic.group_failed", "launcher.rank_failed", "nccl.watchdog.timeout", "process.abort",
)  # fmt: skip
# Lines of failures that are not further apart are of one failure.
SAME_FAILURE_S: Final = 300
# By chance, one of about 530 jobs with three failures has them no further apart than so much on the clock face of an
# hour: n (s / 3,600)^(n - 1) for n failures within s seconds.
MIN_TIMES: Final = 3
SAME_MINUTE_S: Final = 90
_HOUR_S: Final = 3_600
# The program stops at the same step again: a mark of each attempt, and as many attempts.
MIN_STEPS: Final = 2


def recurs(scene: Scene) -> Changes:
    """The last of several failures that have their minute of the hour or their step in common."""
    failures = _failures(scene)
    if len(failures) < MIN_STEPS:
        return
    told = []
    starts_s = [one.episode.start_ns // SECOND_NS for one in failures]
    minute = _minute(starts_s)
    if len(failures) >= MIN_TIMES and minute is not None:
        told.append(f"{len(failures)} failures around minute {minute} of the hour, at most {SAME_MINUTE_S} s apart")
    steps = [
        _step_between(scene, before_ns, one.episode.start_ns)
        for before_ns, one in zip([0, *(one.episode.start_ns for one in failures)], failures, strict=False)
    ]
    if len(set(steps)) == 1 and steps[0]:
        told.append(f"{len(failures)} failures after step {steps[0]}")
    if told:
        last = failures[-1]
        finding = as_finding(
            last, last.episode.first, RECURS, Entity(), role="context", label=last.episode.first.label,
            attributes={"numbers": "; ".join(told)},
        )  # fmt: skip
        yield id(last), [last, finding]


def _failures(scene: Scene) -> list[Resolved]:
    """The first line of each failure, in the order of time."""
    lines = [item for item in scene.named(*_FAILURES) if item.episode.start_ns >= 0]
    found: list[Resolved] = []
    end_ns = 0
    for item in sorted(lines, key=lambda item: (item.episode.start_ns, canonical(item.episode.first))):
        if not found or item.episode.start_ns - end_ns > SAME_FAILURE_S * SECOND_NS:
            found.append(item)
        end_ns = max(end_ns, item.episode.end_ns)
    return found


def _minute(starts_s: list[int]) -> int | None:
    """The minute of the hour in the middle of all, which begin in different hours and close together on its face."""
    if len({start // _HOUR_S for start in starts_s}) < len(starts_s):
        return None
    first = starts_s[0] % _HOUR_S
    # From -1,800 to 1,800 s around the first one.
    offsets = [(start - first + _HOUR_S // 2) % _HOUR_S - _HOUR_S // 2 for start in starts_s]
    if max(offsets) - min(offsets) > SAME_MINUTE_S:
        return None
    return (first + (max(offsets) + min(offsets)) // 2) % _HOUR_S // 60


def _step_between(scene: Scene, since_ns: int, until_ns: int) -> str:
    """The last step that any rank reached between two failures; empty where no line says it."""
    marks = [last_of(item) for item in scene.named("train.step")]
    between = [mark for mark in marks if since_ns < (mark.aligned_time_unix_nano or 0) <= until_ns]
    return max(between, key=canonical).attributes.get("step", "") if between else ""
