"""Slurm's lists of hosts: `gpu[01-03,07],login1`."""

from typing import Final

MAX_HOSTS: Final = 16_384


def expand(text: str) -> list[str]:
    """The hosts of a list, in order; none where it is no list, or one of more than there are anywhere."""
    hosts: list[str] = []
    for item in _items(text):
        found = _hosts(item)
        if not found or len(hosts) + len(found) > MAX_HOSTS:
            return []
        hosts += found
    return hosts


def _items(text: str) -> list[str]:
    """The parts between commas that stand in no bracket."""
    items, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            items.append(text[start:place])
            start = place + 1
    return [*items, text[start:]]


def _hosts(item: str) -> list[str]:
    hosts = [""]
    while "[" in item:
        head, _, rest = item.partition("[")
        ranges, closed, item = rest.partition("]")
        numbers = _numbers(ranges) if closed else []
        if not numbers or len(hosts) * len(numbers) > MAX_HOSTS:
            return []
        hosts = [f"{host}{head}{number}" for host in hosts for number in numbers]
    return [] if "]" in item or not (hosts[0] + item) else [host + item for host in hosts]


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and len(first) < 10 and len(last) < 10):
            return []
        if not 0 <= int(last) - int(first) < MAX_HOSTS - len(numbers):
            return []
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
