"""Whom join asks for a capture: the agents of nodes that a live, open incident blames, each once."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from pipeline.core.outputs import Output
from schemas import topics
from schemas.records import CaptureRequest, Incident

# Broker time that a request is good for: what is asked for is gone soon.
GOOD_FOR_NS: Final = 120 * 10**9
MOST_NODES: Final = 4


def requests_of(incident: Incident, asked: list[str], now_ns: int) -> Iterator[Output]:
    """Requests that are new; `asked` remembers the nodes. Unsigned: who sends them signs them."""
    if incident.run != "live" or incident.state != "open":
        return
    for culprit in incident.culprits:
        node = culprit.node
        if node is None or node in asked or len(asked) >= MOST_NODES:
            continue
        asked.append(node)
        name = f"{incident.cluster}\n{incident.incident_id}\n{node}"
        request = CaptureRequest(
            run=incident.run, run_id=incident.run_id, cluster=incident.cluster, node=node,
            request_id=blake2b(name.encode(), digest_size=8).hexdigest(), incident_id=incident.incident_id,
            why=incident.class_, rank=culprit.rank, created_unix_nano=now_ns, expires_unix_nano=now_ns + GOOD_FOR_NS,
        )  # fmt: skip
        key = topics.key_of(incident.run, incident.run_id, incident.cluster, node)
        yield Output(topic=topics.CAPTURE_REQUEST.name, key=key, record=request)
