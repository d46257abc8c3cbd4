"""Names that a scheduler takes for a node, and lists of them. What a log calls a node is text of who wrote the log."""

import string
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from pipeline.core.hosts import MAX_DIGITS, is_address, is_local

# Linux's HOST_NAME_MAX: Slurm compares a NodeName with what gethostname says.
SLURM_LONGEST: Final = 64
# The label kubernetes.io/hostname is matched: a label's value has at most so many characters.
KUBERNETES_LONGEST: Final = 63
# How the nodes of a drill begin, and what nothing real ever ends with (RFC 2606).
DRILL: Final = "drill-"
NEVER_REAL: Final = ".invalid"
# Slurm's scontrol takes this word for every node there is, in any case (slurmctld: nodespec_to_hostlist).
EVERY_NODE: Final = "all"
_LETTERS: Final = frozenset(string.ascii_letters + string.digits)
_PLAIN: Final = _LETTERS | set("._-")
_LABEL: Final = frozenset(string.ascii_lowercase + string.digits + "-")


def is_plain_name(name: str) -> bool:
    """Whether a name can stand in a list and in a shell: letters, digits, `.`, `_`, `-`, no option, not every node."""
    if name.lower() == EVERY_NODE or not 0 < len(name) <= SLURM_LONGEST:
        return False
    return set(name) <= _PLAIN and name[0] in _LETTERS and name[-1] in _LETTERS


def is_slurm_name(name: str) -> bool:
    """Whether a name can be a Slurm node's: a plain one that is no address and not every machine's."""
    return is_plain_name(name) and not is_address(name) and not is_local(name)


def is_kubernetes_name(name: str) -> bool:
    """Whether a name is one of a Kubernetes node (an RFC 1123 subdomain) that its hostname label can hold."""
    return 0 < len(name) <= KUBERNETES_LONGEST and all(
        label and set(label) <= _LABEL and label[0] != "-" and label[-1] != "-" for label in name.split(".")
    )


def is_drill_name(name: str) -> bool:
    """Whether a name is one that nobody gives a real node: such a node cannot be left out or drained."""
    return name.lower().startswith(DRILL) or name.lower().endswith(NEVER_REAL)


def host_list(names: Iterable[str]) -> str:
    """Slurm's compressed form (`gpu[07,11-13],login1`), sorted; numbers keep their zeros. Empty for no names."""
    parts = sorted(_split(name) for name in set(names))
    return ",".join(
        _folded(head, [digits for _, _, digits in group])
        for (head, _), group in groupby(parts, key=lambda part: part[:2])
    )


def node_affinity(names: Iterable[str]) -> dict[str, Any]:
    """The value of a pod's `spec.affinity` that keeps it off these nodes; an empty mapping for no names."""
    values = sorted(set(names))
    if not values:
        return {}
    off = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": values}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [off]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _split(name: str) -> tuple[str, int, str]:
    """Head, number of digits, and the digits at the end of a name; a name whose number is too long has none."""
    head = name.rstrip(string.digits)
    digits = name[len(head) :]
    return (name, 0, "") if not head or len(digits) > MAX_DIGITS else (head, len(digits), digits)


def _folded(head: str, numbers: list[str]) -> str:
    """Names of one head whose numbers have as many digits, in ascending order."""
    if len(numbers) == 1:
        return head + numbers[0]
    runs: list[list[str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][-1]) + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return f"{head}[{','.join('-'.join(run) for run in runs)}]"
