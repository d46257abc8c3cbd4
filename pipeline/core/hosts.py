"""Names of machines: which spellings mean one machine. Never joined by guess: a name that fits two machines is neither.

A short name is the one fully qualified name that begins with it. An address is a name only where one line shows both.
A pod is not its node; it runs there, and has pids of its own.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

MAX_HOSTS: Final = 16_384
MAX_DIGITS: Final = 9
_LOCAL: Final = ("127.", "0.", "169.254.", "::1", "fe80:", "localhost")


def is_address(name: str) -> bool:
    """Whether a name is an IP address."""
    return ":" in name or (name.replace(".", "").isdigit() and name.count(".") == 3)


def is_local(name: str) -> bool:
    """Whether every machine may bear the name."""
    return name.lower().startswith(_LOCAL)


def short(name: str) -> str:
    """A host name without its domain, an address as it is; in lower case."""
    name = name.lower()
    return name if is_address(name) else name.split(".")[0]


@lru_cache(maxsize=4_096)
def may_be_one(a: str, b: str) -> bool:
    """Whether two names are one, or one is the other without its domain."""
    return a == b or (short(a) == short(b) and ("." not in a or "." not in b))


def expand_hosts(text: str) -> list[str]:
    """The hosts of a list in Slurm's bracket form (`gpu[01-03,07],r[1-2]n[1-4]`), in order; empty where it is none."""
    hosts: list[str] = []
    for item in _items(text):
        names = [] if not item or any(c.isspace() for c in item) else _hosts_of(item)
        if not names or len(hosts) + len(names) > MAX_HOSTS:
            return []
        hosts.extend(names)
    return hosts


def _hosts_of(item: str) -> list[str]:
    """The hosts of one name with any number of brackets, the last of them counting fastest; none where it is wrong."""
    hosts = [""]
    while "[" in item or "]" in item:
        head, _, rest = item.partition("[")
        ranges, closed, item = rest.partition("]")
        numbers = [] if "]" in head or not closed else _numbers(ranges)
        if not numbers or len(hosts) * len(numbers) > MAX_HOSTS:
            return []
        hosts = [f"{begun}{head}{number}" for begun in hosts for number in numbers]
    return [begun + item for begun in hosts]


def _items(text: str) -> list[str]:
    """The parts between commas that stand in no bracket."""
    items, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    return [*items, text[start:]]


def _numbers(ranges: str) -> list[str]:
    """`01-03,07` as 01, 02, 03, 07; empty where a part is no number or no range."""
    numbers: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not all(n.isascii() and n.isdigit() and len(n) <= MAX_DIGITS for n in (first, last)):
            return []
        low, high = int(first), int(last)
        if high < low or high - low + len(numbers) >= MAX_HOSTS:
            return []
        numbers.extend(str(number).zfill(len(first)) for number in range(low, high + 1))
    return numbers


class HostNames:
    """The names that lines give machines, folded into one name per machine."""

    def __init__(
        self, names: Iterable[str], shown: Iterable[tuple[str, str]] = (), *,
        pods: Mapping[str, str] | None = None, preferred: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """`shown`: pairs of names on one line. `pods`: the node of each pod. `preferred`: names to print."""
        preferred = set(preferred)
        pairs = list(shown)
        pods = dict(pods or {})
        every = sorted({*names, *preferred, *(name for pair in pairs for name in pair), *pods, *pods.values()})
        self._parent = {name: name for name in every}
        self._join_spellings(every)
        self._join_shown(pairs)
        classes: dict[str, list[str]] = {}
        for name in every:
            classes.setdefault(self._root(name), []).append(name)
        self._host = {
            name: min(group, key=lambda n: (n not in preferred, is_address(n), len(n), n != n.lower(), n))
            for group in classes.values() for name in group
        }  # fmt: skip
        self._machine = self._on_nodes(pods)

    def host(self, name: str) -> str:
        """One name for all spellings of what printed it: a machine, or a pod."""
        return self._host.get(name, name)

    def machine(self, name: str) -> str:
        """The machine: of a pod, the node it runs on."""
        host = self.host(name)
        return self._machine.get(host, host)

    def _root(self, name: str) -> str:
        while self._parent[name] != name:
            name = self._parent[name]
        return name

    def _join(self, a: str, b: str) -> None:
        first, second = sorted((self._root(a), self._root(b)))
        self._parent[second] = first

    def _join_spellings(self, names: list[str]) -> None:
        """Upper and lower case, and a short name with the only long one that begins with it."""
        by_lower: dict[str, str] = {}
        long: dict[str, set[str]] = {}
        for name in names:
            lower = name.lower()
            self._join(name, by_lower.setdefault(lower, name))
            if not is_address(name) and "." in lower:
                long.setdefault(short(name), set()).add(lower)
        for label, full in long.items():
            if label in by_lower and len(full) == 1:
                self._join(by_lower[label], by_lower[next(iter(full))])

    def _join_shown(self, pairs: list[tuple[str, str]]) -> None:
        """Names that one line shows together. An address that is shown for two machines is neither's."""
        of: dict[str, set[str]] = {}
        for a, b in pairs:
            for name, other in ((a, b), (b, a)):
                if is_address(name) or not is_address(other):
                    of.setdefault(name, set()).add(self._root(other))
        for a, b in sorted(pairs):
            if is_local(a) or is_local(b):
                continue
            addresses = [name for name in (a, b) if is_address(name)] or [a, b]
            if all(len(of.get(name, ())) <= 1 for name in addresses):
                self._join(a, b)

    def _on_nodes(self, pods: Mapping[str, str]) -> dict[str, str]:
        nodes: dict[str, set[str]] = {}
        for pod, node in pods.items():
            nodes.setdefault(self.host(pod), set()).add(self.host(node))
        return {pod: next(iter(on)) for pod, on in nodes.items() if len(on) == 1 and on != {pod}}
