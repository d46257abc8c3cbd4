"""Which stories there are: by chain of the catalogue and variant."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from pipeline.drill.fleet import Node, Wants
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim

_MODULES: Final = ("gpu", "program", "network", "memory", "slow", "storage", "host", "launch", "endings", "hang")


@dataclass(frozen=True)
class Told:
    """What a story leads to. `spare` is the node at fault: distractions keep off it."""

    claims: list[Claim]
    spare: Node | None = None


Tell = Callable[[Story], Told]


@dataclass(frozen=True)
class Chain:
    """A story: how to tell it, and what it needs of its fleet."""

    chain: str
    variant: str
    tell: Tell
    wants: Wants
    quiet: bool


_CHAINS: dict[tuple[str, str], Chain] = {}


def chain(name: str, variant: str, wants: Wants | None = None, *, quiet: bool = False) -> Callable[[Tell], Tell]:
    """Register a story."""

    def register(tell: Tell) -> Tell:
        _CHAINS[(name, variant)] = Chain(name, variant, tell, wants or Wants(), quiet)
        return tell

    return register


def chains() -> dict[str, list[Chain]]:
    """All stories by chain, in the catalogue's order."""
    for module in _MODULES:
        import_module(f"pipeline.drill.chains.{module}")
    found: dict[str, list[Chain]] = {}
    for one in sorted(_CHAINS.values(), key=lambda one: (_number(one.chain), one.chain, one.variant)):
        found.setdefault(one.chain, []).append(one)
    return found


def _number(name: str) -> int:
    return int(name[1:]) if name[1:].isdigit() else 1000
