"""Network ports: what runs on them, and those that nobody missed."""

import re
from typing import Final

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import Changes, Scene

# What people call Ethernet interfaces (systemd's predictable names, bonds, and the older eth0).
_ETHERNET: Final = re.compile(r"(?:en[opsx]|eth|bond|rdma_?eth|roce)[\w.-]*", re.ASCII)
_DOWN: Final = ("nic.link.down", "ib.port.down")
# What the transport itself reports; without any of it a port that failed hurt nobody.
_TRANSPORT: Final = (
    "nccl.ib.completion", "nccl.ib.fatal", "nccl.ib.async", "nccl.socket.closed", "nccl.socket.error", "gloo.closed",
    "gloo.reset", "nccl.watchdog.timeout", "torch.remote_error", "tcpstore.error",
)  # fmt: skip


def ports(scene: Scene) -> Changes:
    """A port that failed, with what runs on it. Where no transport reports anything, nobody missed the port."""
    missed = bool(scene.named(*_TRANSPORT))
    for item in scene.named(*_DOWN):
        if not missed:
            yield id(item), []
        elif _ETHERNET.fullmatch(item.subject.nic or ""):
            event = item.episode.first
            event = msgspec.structs.replace(event, attributes={**event.attributes, "layer": "ethernet"})
            episode = msgspec.structs.replace(item.episode, first=event)
            yield id(item), [Resolved(episode=episode, subject=item.subject)]
