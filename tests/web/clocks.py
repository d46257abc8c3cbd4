"""Clock segments of an invented fleet, as align publishes them."""

from typing import Any

import msgspec

from schemas.records import ClockSegment

S = 1_000_000_000
MS = 1_000_000
# 2026-03-01T10:00:00Z
T0_MS = 1_772_359_200_000
UNMEASURED = "no beacon was acknowledged for 90 s"


def segment(node: str = "gpu-001", **more: Any) -> ClockSegment:
    """16 s of a good clock that booted at T0 and is 2.1 ms ahead."""
    plain = ClockSegment(
        run="live", run_id="", cluster="alpha", node=node, boot_id="b1", broker_id=1, epoch=0, t_from_raw_ns=0,
        t_to_raw_ns=16 * S, a_ns=T0_MS * MS, b_ppb=-1_840, lo_ns=-610_000, hi_ns=655_000, u99_ns=480_000,
        quality="good", wall_offset_ns=-2_113_482,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **more)


def unmeasured(node: str, reason: str = UNMEASURED) -> ClockSegment:
    """What is published of a node without a measured clock."""
    return segment(
        node, broker_id=-1, a_ns=0, b_ppb=0, lo_ns=0, hi_ns=0, u99_ns=0, quality="none", wall_offset_ns=None,
        reason=reason,
    )  # fmt: skip


def fleet(nodes: int, cluster: str = "alpha") -> list[ClockSegment]:
    """Mostly good clocks, and one of each other kind among forty."""
    told = []
    for n in range(nodes):
        name = f"gpu-{n:03d}"
        if n % 40 == 7:
            told.append(unmeasured(name))
            continue
        half = 397_000 + (n * 7_919) % 300_000
        more: dict[str, Any] = {}
        if n % 40 == 13:
            more = {"wall_step_ns": -5 * S, "wall_offset_ns": 12 * MS}
        elif n % 40 == 21:
            more = {"quality": "holdover", "reason": "no beacon was acknowledged for 41 s"}
            half = 4 * MS
        elif n % 40 == 33:
            more = {"quality": "stepped", "epoch": 1}
        told.append(
            segment(
                name, cluster=cluster, b_ppb=(n * 104_729) % 60_000 - 30_000, lo_ns=-half, hi_ns=half + 9_000,
                **{"wall_offset_ns": ((n * 7_919) % 600 - 300) * 1_013, **more},
            )
        )  # fmt: skip
    return told
