"""How many ordinary lines redaction changes, how many planted secrets it finds, and what a line costs.

usage: python -m tests.bench.redaction [--lines 1000000] [--seed 20261129]

Ordinary are lines of healthy and of failing clusters: of `tests/noise.py`, of drills, and all of the corpus.
Exit code 1 where a planted secret is left or one ordinary line in a thousand is changed.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from random import Random
from typing import Final

from pipeline.drill.generate import Options, incident
from schemas.records import RawLine
from shippers.config import RedactSettings
from shippers.redact import Redactor
from shippers.redact_open import Memory
from tests import noise
from tests.corpus_cases import CORPUS
from tests.shippers.secrets.planted import planted

BATCH: Final = 50  # lines of one read at a thousand lines a second
SHOWN: Final = 20
FALSE_SHARE: Final = 0.001


@dataclass
class Figures:
    """What became of lines of one origin."""

    lines: int = 0
    changed: int = 0
    cpu_s: float = 0.0
    examples: list[str] = field(default_factory=list)

    @property
    def us_a_line(self) -> float:
        """Processor time of a line."""
        return 1e6 * self.cpu_s / max(1, self.lines)


def drilled(seed: int) -> Iterator[str]:
    """Lines of invented incidents, one after another, without an end."""
    chance = Random(seed)
    while True:
        made = incident(Options(seed=chance.randrange(2**31)))
        for written in made.files.values():
            yield from (line.text for line in written)


def recorded() -> Iterator[str]:
    """All lines of the corpus."""
    for path in sorted(CORPUS.glob("*/logs/**/*")):
        if path.is_file():
            yield from path.read_text(encoding="utf-8", errors="replace").split("\n")


def of_lines(redactor: Redactor, texts: Iterable[str]) -> Figures:
    """Redact lines as an agent does, some at a time."""
    figures, memory, all_texts = Figures(), Memory(), iter(texts)
    while bodies := list(islice(all_texts, BATCH)):
        lines = [RawLine(seq=at, source="s", generation="g", offset=at, body=body) for at, body in enumerate(bodies)]
        began_s = time.process_time()
        left = redactor.lines(lines, memory)
        figures.cpu_s += time.process_time() - began_s
        figures.lines += len(lines)
        for before, after in zip(lines, left, strict=True):
            if before.body != after.body:
                figures.changed += 1
                if len(figures.examples) < SHOWN:
                    figures.examples.append(f"{before.body[:120]}  =>  {after.body[:120]}")
    return figures


def left_over(redactor: Redactor, rounds: int) -> tuple[int, list[str]]:
    """How many secrets were planted, and the lines in which one is left."""
    secrets = list(planted(rounds=rounds))
    left = [each.line for each in secrets if each.value in _alone(redactor, each.line)]
    return len(secrets), left


def _alone(redactor: Redactor, body: str) -> str:
    line = RawLine(seq=0, source="s", generation="g", offset=0, body=body)
    return redactor.lines([line], Memory())[0].body


def main() -> None:
    """Print the figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lines", type=int, default=1_000_000)
    options.add_argument("--seed", type=int, default=20261129)
    given = options.parse_args()
    redactor = Redactor(RedactSettings())
    count, left = left_over(redactor, rounds=5)
    corpus = list(recorded())
    rest = max(0, given.lines - len(corpus))
    found = {
        "corpus": of_lines(redactor, corpus),
        "drills": of_lines(redactor, islice(drilled(given.seed), rest // 2)),
        "noise": of_lines(redactor, noise.lines(rest - rest // 2, given.seed)),
    }
    sys.stdout.write(f"planted {count:>9}   left {len(left)}\n")
    for name, each in found.items():
        sys.stdout.write(f"{name:<8}{each.lines:>9}   changed {each.changed:>6}   {each.us_a_line:5.1f} us a line\n")
    for line in chain(left, *(each.examples for each in found.values())):
        sys.stdout.write(f"  {line}\n")
    lines, changed = sum(each.lines for each in found.values()), sum(each.changed for each in found.values())
    raise SystemExit(bool(left) or changed >= FALSE_SHARE * lines)


if __name__ == "__main__":
    main()
