"""Network ports: what runs on them, and those that nobody missed."""

import re
from typing import Final

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import Changes, Scene, progressed_after
from pipeline.core.order import lag_ns, order
from schemas.records import Entity, Event

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
    for item in scene.named(*_DOWN):
        if not missed or _is_over(scene, item) or (not broken and _is_short(scene, item)):
            yield id(item), []
        elif _ETHERNET.fullmatch(item.subject.nic or ""):
            event = item.episode.first
            event = msgspec.structs.replace(event, attributes={**event.attributes, "layer": "ethernet"})
            episode = msgspec.structs.replace(item.episode, first=event)
            yield id(item), [Resolved(episode=episode, subject=item.subject)]


def _is_over(scene: Scene, item: Resolved) -> bool:
    return any(progressed_after(scene, up) for up in _ups(scene, item))


def _is_short(scene: Scene, item: Resolved) -> bool:
    """Whether it failed once and came back before any transport gave up."""
    if item.episode.end_ns - item.episode.start_ns > _SENT_AGAIN_NS:
        return False
    lags = (lag_ns(item.episode.first, up) for up in _ups(scene, item))
    return any(lag is not None and lag[1] <= _SENT_AGAIN_NS for lag in lags)


def _ups(scene: Scene, item: Resolved) -> list[Event]:
    """When the same port came back after it had failed."""
    ups = (one.episode.first for one in scene.named(*_UP) if _is_same_port(one.subject, item.subject))
    return [up for up in ups if order(item.episode.first, up) == "before"]


def _is_same_port(a: Entity, b: Entity) -> bool:
    return a.node is not None and a.node == b.node and a.nic is not None and a.nic == b.nic
