"""Network ports: what runs on them, and those that nobody missed."""

import re
from collections import defaultdict
from typing import Final

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import Changes, Scene, by_file, first_where, progressed_after
from pipeline.core.order import lag_ns, order
from schemas.records import Event

# Node and interface.
Port = tuple[str | None, str | None]
# What people call Ethernet interfaces (systemd's predictable names, bonds, and the older eth0).
_ETHERNET: Final = re.compile(r"(?:en[opsx]|eth|bond|rdma_?eth|roce)[\w.-]*", re.ASCII)
_DOWN: Final = ("nic.link.down", "ib.port.down")
_UP: Final = ("nic.link.up", "ib.port.up")
# What the transport itself reports of a connection that failed.
_BROKEN: Final = (
    "nccl.ib.completion", "nccl.ib.fatal", "nccl.ib.async", "nccl.socket.closed", "nccl.socket.error", "gloo.closed",
    "gloo.reset", "torch.remote_error", "tcpstore.error",
)  # fmt: skip
# Without any of this a port that failed hurt nobody.
_MISSED: Final = (*_BROKEN, "nccl.watchdog.timeout")
# The transport of InfiniBand and RoCE sends again for at least so long (4.096 us x 2^18 x 8 with NCCL's older default),
# TCP for minutes: a shorter outage only delays, and what it breaks all the same is reported as broken, not as late.
_SENT_AGAIN_NS: Final = 8_500_000_000


def ports(scene: Scene) -> Changes:
    """A port that failed, with what runs on it. Where no transport reports anything, nobody missed the port; one that
    was up again when the job did its next steps, or before a connection broke, led to nothing.
    """
    missed, broken = bool(scene.named(*_MISSED)), bool(scene.named(*_BROKEN))
    ups = _ups(scene)
    for item in scene.named(*_DOWN):
        back = _back(item, ups)
        if not missed or _is_over(scene, back) or (not broken and _is_short(item, back)):
            yield id(item), []
        elif _ETHERNET.fullmatch(item.subject.nic or ""):
            event = item.episode.first
            event = msgspec.structs.replace(event, attributes={**event.attributes, "layer": "ethernet"})
            episode = msgspec.structs.replace(item.episode, first=event)
            yield id(item), [Resolved(episode=episode, subject=item.subject)]


def _is_over(scene: Scene, back: list[Event]) -> bool:
    return any(progressed_after(scene, up) for up in back)


def _is_short(item: Resolved, back: list[Event]) -> bool:
    """Whether it failed once and came back before any transport gave up."""
    if item.episode.end_ns - item.episode.start_ns > _SENT_AGAIN_NS:
        return False
    lags = (lag_ns(item.episode.first, up) for up in back)
    return any(lag is not None and lag[1] <= _SENT_AGAIN_NS for lag in lags)


def _ups(scene: Scene) -> dict[Port, list[list[Event]]]:
    """When each port came up, by file."""
    ups: dict[Port, list[Event]] = defaultdict(list)
    for one in scene.named(*_UP):
        ups[one.subject.node, one.subject.nic].append(one.episode.first)
    return {port: by_file(events) for port, events in ups.items() if None not in port}


def _back(item: Resolved, ups: dict[Port, list[list[Event]]]) -> list[Event]:
    """When the same port first came back after it had failed, by each file."""
    files = ups.get((item.subject.node, item.subject.nic), [])
    return first_where(files, lambda up: order(item.episode.first, up) == "before")
