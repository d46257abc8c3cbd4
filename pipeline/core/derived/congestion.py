"""Packets that the network drops while a job runs: what its counters have added from the first line to the last."""

from typing import Final

import msgspec

from pipeline.core.derived.scene import Changes, Scene, as_event
from schemas.records import Entity, Event

CONGESTED: Final = "network.congested"
COUNTERS: Final = ("nic.counters", "ib.counters", "host.tcp_counters")
# Drops for lack of room and what has to be sent again for it; pauses alone are how a lossless network works.
_DROPS: Final = (
    "rx_discards_phy", "rx_prio3_discards", "rx_prio0_discards", "port_xmit_discards", "out_of_sequence",
    "packet_seq_err", "roce_adp_retrans", "tx_discards_phy",
)  # fmt: skip
_RETRANSMITS: Final = ("retrans_segs", "lost_retransmit", "timeouts")
# TCP sends a few in a million again at any time.
MIN_RETRANSMITS: Final = 100_000
# A few are lost at any time; collectives feel it when thousands are.
MIN_DROPS: Final = 1_000


def congested(scene: Scene) -> Changes:
    """The counters of a port that dropped much between two readings. The network is shared: it names no culprit."""
    for item in scene.named(*COUNTERS):
        first, last = item.episode.first, item.episode.last
        if last is None or last.generation != first.generation:
            continue
        names = (*_DROPS, *_RETRANSMITS)
        grown = {name: _count(last, name) - _count(first, name) for name in names if _count(first, name) >= 0}
        worst = max(grown, key=lambda name: grown[name], default=None)
        if worst is not None and grown[worst] >= (MIN_RETRANSMITS if worst in _RETRANSMITS else MIN_DROPS):
            said = {**last.attributes, "counter": worst, "numbers": str(grown[worst])}
            event = msgspec.structs.replace(
                first, name=CONGESTED, role="cause", label="network/congestion", attributes=said
            )
            yield id(item), [as_event(item, event, Entity())]


def _count(event: Event, name: str) -> int:
    text = event.attributes.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 20 else -1
