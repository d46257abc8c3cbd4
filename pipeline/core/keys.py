"""Deterministic names of things: jobs, nodes without a job, events, incidents."""

import hashlib
from typing import Final

NODE_PREFIX: Final = "node:"


def job_key(cluster: str, job_id: str, attempt: int) -> str:
    """The key of one attempt of a job."""
    return f"{cluster}/{job_id}/{attempt}"


def node_key(cluster: str, node: str, boot_id: str) -> str:
    """The key under which a node's events are investigated while no job is known there."""
    return f"{NODE_PREFIX}{cluster}/{node}/{boot_id}"


def is_node_key(key: str) -> bool:
    """Whether a key names a node investigation."""
    return key.startswith(NODE_PREFIX)


def digest(*parts: object) -> str:
    """16 hex characters that name the parts."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
