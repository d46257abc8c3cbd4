"""A process that holds a processor in the kernel again and again: that is no short lack of time."""

from collections import defaultdict
from typing import Final

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import Changes, Scene, last_of

# The kernel reports a lockup after 20 s at the earliest, so that so many reports of one process are a minute of them.
REPORTS: Final = 3
LONG_S: Final = 60


def lasting(scene: Scene) -> Changes:
    """Soft lockups of one process that last a minute in all."""
    of_process: dict[tuple[str | None, str, str], list[Resolved]] = defaultdict(list)
    for item in scene.named("host.soft_lockup"):
        event = item.episode.first
        of_process[item.subject.node, event.source, event.attributes.get("pid", "")].append(item)
    for items in of_process.values():
        if sum(item.episode.count for item in items) >= REPORTS or any(_seconds(item) >= LONG_S for item in items):
            for item in items:
                event = item.episode.first
                event = msgspec.structs.replace(event, attributes={**event.attributes, "lasting": "yes"})
                episode = msgspec.structs.replace(item.episode, first=event)
                yield id(item), [Resolved(episode=episode, subject=item.subject)]


def _seconds(item: Resolved) -> int:
    events = (item.episode.first, last_of(item))
    said = (event.attributes.get("seconds", "") for event in events)
    return max((int(seconds) for seconds in said if seconds.isdecimal() and len(seconds) < 8), default=0)
