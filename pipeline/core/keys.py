"""Deterministic names of things: jobs, nodes without a job, events, incidents."""

import hashlib
from typing import Final

from schemas.topics import run_prefix

NODE_PREFIX: Final = "node:"


def job_key(run: str, cluster: str, job_id: str, attempt: int) -> str:
    """The key of one attempt of a job. `run` is the prefix of its run (`schemas.topics.run_prefix`)."""
    return f"{run}{cluster}/{job_id}/{attempt}"


def node_key(run: str, cluster: str, node: str, boot_id: str) -> str:
    """The key under which a node's events are investigated while no job is known there."""
    return f"{run}{NODE_PREFIX}{cluster}/{node}/{boot_id}"


def run_of(key: str) -> str:
    """The run prefix of a key; empty for live."""
    head, slash, _ = key.partition("/")
    return head + slash if head.startswith(("replay:", "drill:")) else ""


def bare(key: str, run: str) -> str:
    """The key without its run: what the live path, a replay and the post-mortem have in common."""
    return key.removeprefix(run)


def is_node_key(key: str, run: str) -> bool:
    """Whether a key names a node investigation."""
    return bare(key, run).startswith(NODE_PREFIX)


def digest(*parts: object) -> str:
    """16 hex characters that name the parts."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


__all__ = ["bare", "digest", "is_node_key", "job_key", "node_key", "run_of", "run_prefix"]
