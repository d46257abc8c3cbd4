"""What an operator can paste to act on an incident, where its lines show what runs the nodes.

Names in logs are text of whoever wrote the log: a name that could be anything but a name makes no command, and what
makes one is quoted. A node of a drill is nobody's to drain.
"""

import shlex
import string
from collections.abc import Iterable
from typing import Final

from pipeline.core.calibration import CERTAIN
from pipeline.core.episodes import Episode
from pipeline.core.hosts import is_address
from pipeline.core.node_names import host_list, is_drill_name, is_kubernetes_name, is_slurm_name
from schemas.records import Culprit
from schemas.vocabulary import ActionKind, Run

MAX_LINES: Final = 8
_TAKES_OUT: Final[frozenset[ActionKind]] = frozenset({"drain_node", "replace_gpu", "reset_gpu"})
_HEX: Final = frozenset(string.hexdigits)
_UUID_LENGTH: Final = len("GPU-00000000-0000-0000-0000-000000000000")
_LONGEST_ADDRESS: Final = len("00000000:00:00.0")


def operator_lines(
    kind: ActionKind, culprits: Iterable[Culprit], episodes: Iterable[Episode], *, run: Run, reason: str
) -> list[str]:
    """Shell commands: take the nodes out of service, then reset the GPU where that is the action."""
    blamed = [c for c in culprits if c.node and not is_drill_name(c.node) and (c.confidence or 0) >= CERTAIN]
    if kind not in _TAKES_OUT or run == "drill" or not blamed:
        return []
    slurm, pods_ran_on = False, set[str]()
    for episode in episodes:
        slurm = slurm or episode.name.startswith("slurm.")
        if episode.name.startswith(("pod.", "node.")):
            pods_ran_on.add(episode.attributes.get("node", ""))
    names = list(dict.fromkeys(c.node for c in blamed if c.node))
    of_kubernetes = [n for n in names if n in pods_ran_on and is_kubernetes_name(n) and not is_address(n)]
    of_slurm = [n for n in names if is_slurm_name(n)] if slurm else []
    if bool(of_kubernetes) == bool(of_slurm):
        # Neither is known to run them, or both: then who does is not known.
        return []
    lines = [f"kubectl cordon {shlex.quote(name)}" for name in of_kubernetes]
    if of_slurm:
        nodes = shlex.quote(host_list(of_slurm))
        lines.append(f"scontrol update nodename={nodes} state=drain reason={shlex.quote(reason)}")
    if kind == "reset_gpu":
        lines += [line for c in blamed if c.node in (*of_kubernetes, *of_slurm) and (line := _reset(c))]
    return lines[:MAX_LINES]


def _reset(culprit: Culprit) -> str:
    uuid, bus = culprit.gpu_uuid or "", culprit.pci_bus_id or ""
    gpu = uuid if _is_uuid(uuid) else bus if _is_address_on_the_bus(bus) else ""
    return f"nvidia-smi -r -i {shlex.quote(gpu)}  # on {culprit.node}, when nothing uses the GPU" if gpu else ""


def _is_uuid(name: str) -> bool:
    return name.startswith("GPU-") and len(name) == _UUID_LENGTH and set(name[4:]) <= _HEX | {"-"}


def _is_address_on_the_bus(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_ADDRESS and ":" in name and set(name) <= _HEX | set(":.") and name[0] in _HEX
