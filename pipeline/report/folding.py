"""Which steps of a long chain a person reads first. The chain itself stays whole: in JSON and behind `--full`."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from pipeline.core.signs import WAITERS
from schemas.records import ChainStep

# So many steps are read without help.
SHORT: Final = 12
_PROOF: Final = ("root", "cascade")


def folded(chain: Sequence[ChainStep]) -> Iterator[ChainStep | list[ChainStep]]:
    """The steps to show, and in their places lists of those to fold.

    Of a long chain all roots and what followed of them are shown, and where ranks first waited in vain. Of neighbouring
    steps that are only symptoms, or only context, the first is shown and the one that most ranks print.
    """
    if len(chain) <= SHORT:
        yield from chain
        return
    waited = next((step.step for step in chain if step.event in WAITERS), 0)
    for role, run in groupby(chain, key=lambda step: step.role):
        steps = list(run)
        widest = max(steps, key=lambda step: len(step.ranks))
        shown = {step.step for step in steps if role in _PROOF} | {steps[0].step, widest.step, waited}
        for is_shown, part in groupby(steps, key=lambda step: step.step in shown):
            held = list(part)
            if is_shown or len(held) == 1:
                yield from held
            else:
                yield held
