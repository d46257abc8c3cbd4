"""What a hung task waits for; stores that answered again, and quotas that were hardly used, before anybody waited."""

from collections import defaultdict
from typing import Final

import msgspec

from pipeline.core.chains import SECOND_NS, Resolved
from pipeline.core.derived.scene import Changes, Scene, as_event, by_file, first_where, last_of, progressed_after
from pipeline.core.order import lag_ns, order
from schemas.records import Event

# How long after the line about a hung task its stack is printed.
STACK_S: Final = 60
# Kubernetes' own alert (CPUThrottlingHigh) looks at containers above a quarter.
MIN_THROTTLED: Final = 0.25
_BLOCKED_IN: Final = {
    "storage/nfs_stall": "nfs", "storage/lustre_evict": "lustre", "storage/fs_stall": "file system",
}  # fmt: skip


def hung(scene: Scene) -> Changes:
    """What the task that hangs waits for, by the stack under its line."""
    stacks: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for stack in scene.named("host.stack"):
        first = stack.episode.first
        stacks[first.label, first.node, first.source].append(first)
    files = {place: by_file(events) for place, events in stacks.items()}
    for task in scene.named("host.hung_task"):
        event = task.episode.first
        near = (label for label in _BLOCKED_IN if _is_under(event, files.get((label, event.node, event.source), [])))
        found = _BLOCKED_IN.get(next(near, ""))
        if found:
            event = msgspec.structs.replace(event, attributes={**event.attributes, "blocked_in": found})
            yield id(task), [as_event(task, event, task.subject)]


def _is_under(task: Event, stacks: list[list[Event]]) -> bool:
    """Whether one of the stacks is printed under the line about the task."""
    first = first_where(stacks, lambda stack: order(stack, task) != "before")
    lags = [lag_ns(task, stack) for stack in first]
    return any(lag is None or lag[0] <= STACK_S * SECOND_NS for lag in lags)


def over(scene: Scene) -> Changes:
    """What was over before any rank began to wait, or before the job went on, led to nothing: it is left out."""
    stalls = scene.stalls
    answers: dict[tuple[str, str | None], list[Event]] = defaultdict(list)
    for one in scene.named("nfs.ok"):
        answers[_store(one.episode.first)].append(one.episode.first)
    files = {store: by_file(events) for store, events in answers.items()}
    for item in scene.named("nfs.stall"):
        lost = item.episode.first
        ends = _after(lost, files.get(_store(lost), []))
        waited_later = stalls and all(any(_began_after(end, stall) for end in ends) for stall in stalls)
        if ends and (waited_later or any(progressed_after(scene, end) for end in ends)):
            yield id(item), []


def _after(event: Event, files: list[list[Event]]) -> list[Event]:
    """Of each file the first line that came after a line."""
    return first_where(files, lambda one: order(event, one) == "before")


def _store(event: Event) -> tuple[str, str | None]:
    """The node, and the server that it speaks of."""
    return event.node, event.attributes.get("server")


def _began_after(end: Event, stall: Resolved) -> bool:
    """Whether the rank began to wait after it, as far as its line says for how long it had waited."""
    lag = lag_ns(end, stall.episode.first)
    ran_ms = stall.episode.attributes.get("ran_for_ms", "")
    if lag is None or not ran_ms.isdecimal() or len(ran_ms) > 9:
        return False
    return lag[0] > int(ran_ms) * 1_000_000


# --- a quota that was hardly used ---------------------------------------------------------------------------------


def hardly_throttled(scene: Scene) -> Changes:
    """A container that was held back in few of its periods was not held up: such lines are left out.

    The counters of cpu.stat only grow: what counts is what was added from the first line to the last.
    """
    for item in scene.named("host.cpu_throttle"):
        first, last = _throttled(item.episode.first), _throttled(last_of(item))
        if first is None or last is None:
            continue
        grown = (last[0] - first[0], last[1] - first[1]) if last[0] > first[0] else last
        if grown[1] < MIN_THROTTLED * grown[0]:
            yield id(item), []


def _throttled(event: Event) -> tuple[int, int] | None:
    """Periods, and those in which the quota was used up."""
    periods, throttled = (event.attributes.get(name, "") for name in ("nr_periods", "nr_throttled"))
    known = all(number.isdecimal() and len(number) < 20 for number in (periods, throttled))
    return (int(periods), int(throttled)) if known else None
