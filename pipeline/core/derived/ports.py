"""Network ports: what runs on them, and those that nobody missed."""

import re
from typing import Final

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import Changes, Scene, progressed_after
from pipeline.core.order import order
from schemas.records import Entity

# What people call Ethernet interfaces (systemd's predictable names, bonds, and the older eth0).
_ETHERNET: Final = re.compile(r"(?:en[opsx]|eth|bond|rdma_?eth|roce)[\w.-]*", re.ASCII)
_DOWN: Final = ("nic.link.down", "ib.port.down")
# What the transport itself reports; without any of it a port that failed hurt nobody.
_TRANSPORT: Final = (
    "nccl.ib.completion", "nccl.ib.fatal", "nccl.ib.async", "nccl.socket.closed", "nccl.socket.error", "gloo.closed",
    "gloo.reset", "nccl.watchdog.timeout", "torch.remote_error", "tcpstore.error",
)  # fmt: skip


def ports(scene: Scene) -> Changes:
    """A port that failed, with what runs on it. Where no transport reports anything, nobody missed the port; one that
    was up again when the job did its next steps led to nothing.
    """
    missed = bool(scene.named(*_TRANSPORT))
    for item in scene.named(*_DOWN):
        if not missed or _is_over(scene, item):
            yield id(item), []
        elif _ETHERNET.fullmatch(item.subject.nic or ""):
            event = item.episode.first
            event = msgspec.structs.replace(event, attributes={**event.attributes, "layer": "ethernet"})
            episode = msgspec.structs.replace(item.episode, first=event)
            yield id(item), [Resolved(episode=episode, subject=item.subject)]


def _is_over(scene: Scene, item: Resolved) -> bool:
    ups = (one.episode.first for one in scene.named("nic.link.up") if _is_same_port(one.subject, item.subject))
    ups = (up for up in ups if order(item.episode.first, up) == "before")
    return any(progressed_after(scene, up) for up in ups)


def _is_same_port(a: Entity, b: Entity) -> bool:
    return a.node is not None and a.node == b.node and a.nic is not None and a.nic == b.nic
