"""A launcher's answer as text: JSON, a host list for Slurm, an affinity for Kubernetes. Names are checked."""

from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec import Struct

from pipeline.core.launcher import Advice
from pipeline.core.node_names import host_list, is_kubernetes_name, is_slurm_name, node_affinity
from pipeline.report.words import shortened


class Form(StrEnum):
    """What standard output holds."""

    JSON = "json"
    SLURM = "slurm-exclude"
    KUBERNETES = "k8s-affinity"


class Written(Struct, frozen=True, kw_only=True):
    """Text for standard output, and lines for standard error."""

    out: str
    err: list[str]


def write_advice(advice: Advice, form: Form) -> Written:
    """The answer in one of its forms."""
    match form:
        case Form.SLURM:
            names, refused = _checked(advice, is_slurm_name, "Slurm")
            return Written(out=f"{host_list(names)}\n", err=[_comment(advice), *refused])
        case Form.KUBERNETES:
            names, refused = _checked(advice, is_kubernetes_name, "Kubernetes")
            affinity = msgspec.json.format(msgspec.json.encode(node_affinity(names)), indent=2).decode()
            return Written(out=f"{affinity}\n", err=[_comment(advice), *refused])
        case Form.JSON:
            shape = msgspec.json.format(msgspec.json.encode(advice), indent=2).decode()
            refused = [f"rootrank: not left out: {shortened(one.name, 120)} ({one.why})" for one in advice.refused]
            return Written(out=f"{shape}\n", err=refused)


def _checked(advice: Advice, is_name: Callable[[str], bool], system: str) -> tuple[list[str], list[str]]:
    names = [one.node for one in advice.nodes]
    return [name for name in names if is_name(name)], [
        f"rootrank: not left out: {shortened(name, 120)} (not a node name that {system} takes)"
        for name in names
        if not is_name(name)
    ]


def _comment(advice: Advice) -> str:
    """The answer on one line that a shell takes for a comment."""
    return f"# {advice.answer}: {shortened(advice.reason, 1_000)}"
