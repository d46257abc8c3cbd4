"""What people let run beside jobs: nvidia-smi queries, ethtool, ibstat, cgroup and TCP counters, the BMC's event log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.drill.clocks import local
from pipeline.drill.fleet import Node
from pipeline.drill.prefixes import iso
from pipeline.drill.story import Story

IDLE: Final = 0x1
POWER_CAP: Final = 0x4
HW_SLOWDOWN: Final = 0x8
SW_THERMAL: Final = 0x20
HW_THERMAL: Final = 0x40
POWER_BRAKE: Final = 0x80


@dataclass(frozen=True)
class Sample:
    """One GPU at one moment."""

    temperature_c: int
    clock_mhz: int
    power_w: float
    reasons: int
    used_mib: int
    busy_percent: int


def header(story: Story, node: Node, t: float) -> None:
    """The head of `nvidia-smi --query-gpu=… --format=csv -l`; the field was renamed with R555."""
    reasons = "clocks_event_reasons.active" if story.fleet.versions.branch >= 555 else "clocks_throttle_reasons.active"
    story.service(
        node,
        "gpu.csv",
        t,
        "timestamp, index, uuid, pci.bus_id, temperature.gpu, clocks.current.sm [MHz], power.draw [W], "
        f"utilization.gpu [%], memory.used [MiB], memory.total [MiB], {reasons}",
    )


def sample(story: Story, node: Node, t: float, samples: Mapping[int, Sample], tag: str | None = None) -> None:
    """One round over the GPUs of a node; those without a sample are healthy and busy."""
    at, rest = local(node.clock, story.ns(t))
    stamp = f"{at.tm_year:04d}/{at.tm_mon:02d}/{at.tm_mday:02d} {at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}.{rest // 1_000_000:03d}"
    for gpu in node.gpus:
        s = samples.get(gpu.index) or healthy(story)
        story.service(
            node,
            "gpu.csv",
            t,
            f"{stamp}, {gpu.index}, {gpu.uuid}, {gpu.nvml}, {s.temperature_c}, {s.clock_mhz} MHz, {s.power_w:.2f} W, "
            f"{s.busy_percent} %, {s.used_mib} MiB, {story.fleet.gpu_memory_mib} MiB, 0x{s.reasons:016x}",
            tag if gpu.index in samples or not samples else None,
        )


def healthy(story: Story) -> Sample:
    """A GPU at work."""
    r, fleet = story.r, story.fleet
    top = fleet.gpu_clock_mhz
    return Sample(r.randrange(52, 68), top - r.choice((0, 0, 15, 45)), r.uniform(420, 640), r.choice((0, 0, POWER_CAP)),
                  round(fleet.gpu_memory_mib * r.uniform(0.78, 0.86)), r.randrange(96, 101))  # fmt: skip


def inventory(story: Story, node: Node, t: float) -> None:
    """`nvidia-smi -L`."""
    lines = [f"GPU {gpu.index}: {story.fleet.gpu_name} (UUID: {gpu.uuid})" for gpu in node.gpus]
    story.service(node, "nvidia-smi-L.txt", t, lines)


def counters(
    story: Story, node: Node, t: float, file: str, command: str, values: Sequence[str], tag: str | None = None
) -> None:
    """A dump of counters by a script that prints the date and the command first."""
    story.service(node, file, t, "\n".join((f"# {iso(node.clock, story.ns(t))} {command}", *values)), tag)


def bmc(story: Story, node: Node, t: float, number: int, sensor: str, text: str, tag: str | None = None) -> None:
    """A row of `ipmitool sel list`; the BMC shows the node's local time."""
    at, _ = local(node.clock, story.ns(t))
    story.service(
        node,
        "sel.txt",
        t,
        f"{number:4x} | {at.tm_mon:02d}/{at.tm_mday:02d}/{at.tm_year:04d} | {at.tm_hour:02d}:{at.tm_min:02d}:"
        f"{at.tm_sec:02d} | {sensor} | {text} | Asserted",
        tag,
    )
