"""`make ablation`: what each kind of derived evidence is worth, and the bounds of clocks. Writes docs/ablation.md.

usage: python -m tests.bench.ablation [--drills 120] [--folders FOLDER]

Each kind is switched off, one at a time, wherever it found something: in the incidents of tests/corpus, whole and
without each of their files, the stories of the rules, and invented incidents, whole and with 30 % of their files gone.
`--folders`: further folders of logs, of which only is told in how many something else is said.
"""

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec

from pipeline import VERSION
from pipeline.core import conclusion, derived, join, one_fault, silent, times, verdict
from pipeline.core.derived.flight import FlightEvidence
from pipeline.core.progress_marks import ProgressMarks
from schemas.records import ClockClaim
from tests.bench.answers import FROM_SEED, MOST_RANKS, Case, asked, cases

PROCESSES: Final = 2

Function = Callable[..., Any]


class Kind(NamedTuple):
    """Evidence that can be switched off: a function, what it finds, and what it gives where it finds nothing."""

    name: str
    what: str
    place: ModuleType | type
    function: str
    nothing: Function


def _none(*_: object, **__: object) -> None:
    return None


def _empty(*_: object, **__: object) -> list[object]:
    return []


def _no(*_: object, **__: object) -> bool:
    return False


def _first(first: Any, *_: object, **__: object) -> Any:
    return first


_bounds: Final[Function] = times._bounds


def exact(wall_ns: int, resolution_ns: int, clock_id: str, claim: ClockClaim, **said: Any) -> times.When:
    """A time as its stamp says it, as if every clock were as right as it claims."""
    sure = msgspec.structs.replace(claim, bound_ns=0)
    when = _bounds(wall_ns, resolution_ns, clock_id, sure, **said | {"off_ns": 0, "slack_ns": (0, 0)})
    quality = _bounds(wall_ns, resolution_ns, clock_id, claim, **said).quality
    return when if when is times.UNKNOWN else msgspec.structs.replace(when, quality=quality)


def _sentence(function: Function) -> str:
    """The first sentence of its docstring."""
    return re.split(r"[.:;] ", " ".join((function.__doc__ or "").split()))[0].rstrip(".")


KINDS: Final = (
    *(Kind(name, _sentence(function), derived, name, _empty) for name, function in derived.KINDS.items()),
    Kind("spans", "what happens while a node starts or is worked on", derived.spans, "inside_spans", _empty),
    Kind("flight", "where ranks stand by their dumps of the flight recorder", verdict, "flight_evidence",
         lambda items, *_: FlightEvidence(items=[derived.flight._quiet(item) for item in items])),
    Kind("unreported", "ranks that do not report what all others report", silent, "_unreported", _empty),
    Kind("unheard_of", "rank 0, where all others report", silent, "_unheard_of", _empty),
    Kind("stopped_first", "whose marks of progress stopped first", silent, "_stopped_first", _empty),
    Kind("ended_first", "whom a launcher saw end first", silent, "_ended_first", _empty),
    Kind("lost_a_peer", "who lost a peer before it ended did not fall silent", silent, "_lost_a_peer", _no),
    Kind("marks", "marks of progress that stopped", ProgressMarks, "stall", _none),
    Kind("lives_on", "what should have died speaks afterwards", verdict, "lives_on", _no),
    Kind("trained_on", "ranks trained on after the fault", verdict, "trained_on", _no),
    Kind("at_home", "faults of nodes where the job does not run", verdict, "at_home", lambda c, *_, **__: (c, [])),
    Kind("outside", "faults where every rank is known to run elsewhere", conclusion, "is_outside", _no),
    Kind("heard", "all of the job was read", verdict, "all_heard", _no),
    Kind("nameless", "of which machine a kernel log is that names none", verdict, "machines_of", lambda *_: {}),
    Kind("raised", "what tells of a failure where nothing else does", verdict, "raised", lambda *_: ([], [])),
    Kind("cuda", "the one process that CUDA failed in first", verdict, "ended_by_cuda", _empty),
    Kind("at_once", "ports of most nodes that fail in one moment", one_fault, "_at_once", _empty),
    Kind("one_place", "several lines of one device are one fault", one_fault, "_is_same_place", _no),
    Kind("equals", "who cannot be told apart by the clocks", one_fault, "_equals", _empty),
    Kind("beside", "how ranks and nodes differ, as context", verdict, "context", _first),
    Kind("companions", "what else stands beside a proof", verdict, "with_companions", lambda steps, *_, **__: [*steps]),
    Kind("filled", "what other lines say of a culprit", verdict, "filled", _first),
    Kind("related", "earlier incidents of the same machine, device or code", join, "related_of", _empty),
    Kind("one_element", "jobs that blame the same server or switch", join, "same_element", _no),
    Kind("clock_bounds", "how far a clock may be off", times, "_bounds", exact),
)  # fmt: skip


# --- switching off ------------------------------------------------------------------------------------------------


def replaced(kind: Kind, function: Function) -> AbstractContextManager[object]:
    """The engine with another function in the place of a kind's."""
    if kind.place is derived:
        return mock.patch.dict(derived.KINDS, {kind.function: function})
    return mock.patch.object(kind.place, kind.function, function)


def _watched(kind: Kind, found: set[str]) -> Function:
    """The function of a kind, which notes where it finds anything."""
    own = derived.KINDS[kind.function] if kind.place is derived else getattr(kind.place, kind.function)

    def call(*given: Any, **named: Any) -> Any:
        result = own(*given, **named)
        result = list(result) if isinstance(result, Iterator) else result
        if kind.place is times or result != kind.nothing(*given, **named):
            found.add(kind.name)
        return result

    return call


def ablated(case: Case) -> tuple[Counter[str], dict[str, Counter[str]]]:
    """Of a case: how many answers there are, and how many are right; of each kind what changes without it."""
    base, changes = Counter[str](), dict[str, Counter[str]]()
    with tempfile.TemporaryDirectory(prefix="rootrank-") as name:
        for ask in asked(case, Path(name)):
            found: set[str] = set()
            with ExitStack() as stack:
                for kind in KINDS:
                    stack.enter_context(replaced(kind, _watched(kind, found)))
                whole = ask()
            base.update(answers=1, right=not whole.problems)
            for kind in (kind for kind in KINDS if kind.name in found):
                with replaced(kind, kind.nothing):
                    without = ask()
                gained = (not without.problems) - (not whole.problems)
                count = changes.setdefault(kind.name, Counter())
                count.update(found=1, otherwise=int(without.said != whole.said), right=gained)
    return base, changes


# --- the page -----------------------------------------------------------------------------------------------------


def as_page(wanted: list[Case], results: list[tuple[Counter[str], dict[str, Counter[str]]]], drills: int) -> str:
    """docs/ablation.md."""
    groups = list(dict.fromkeys(case.group for case in wanted))
    base: dict[str, Counter[str]] = {group: Counter() for group in groups}
    changes: dict[tuple[str, str], Counter[str]] = {(kind.name, group): Counter() for kind in KINDS for group in groups}
    for case, (answers, found) in zip(wanted, results, strict=True):
        base[case.group].update(answers)
        for name, counts in found.items():
            changes[name, case.group].update(counts)

    def cell(kind: Kind, group: str) -> str:
        counts = changes[kind.name, group]
        if not counts["found"]:
            return ""
        return f"{base[group]['right'] + counts['right']} ({counts['otherwise']} of {counts['found']})"

    rows = [["all on", "", *(f"**{base[group]['right']}** of {base[group]['answers']}" for group in groups)]]
    rows += [[f"`{kind.name}`", kind.what, *(cell(kind, group) for group in groups)] for kind in KINDS]
    head = [["without", "what it finds", *groups], ["---", "---", *("---:" for _ in groups)]]
    table = "\n".join(f"| {' | '.join(row)} |" for row in [*head, *rows])
    return f"""# Ablation

Made by `make ablation`; do not edit. rootrank {VERSION}, drills of seeds {FROM_SEED} to {FROM_SEED + 2 * drills - 1}
with up to {MOST_RANKS} ranks. What changes nothing anywhere is to be removed; the bounds of clocks stay in any case.

How many answers are right with each kind of derived evidence switched off, one at a time; in parentheses in how many
anything is told otherwise (class, culprits, sentence, steps and what ties them, related incidents), of those in which
the kind finds something. Empty: it finds nothing there. Right: a corpus folder leads to all that it must lead to,
without one of its files nothing is said that the whole does not bear out, a story concludes what it says, and of a
drill class and culprit are what its files can prove.

{table}
"""


def main() -> None:
    """Measure and write the page into the checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drills", type=int, default=120, help="invented incidents of each of the two kinds")
    parser.add_argument("--folders", type=Path, help="a folder of further folders of logs")
    given = parser.parse_args()
    wanted, results = list(cases(given.drills, given.folders)), []
    with ProcessPoolExecutor(PROCESSES) as pool:
        for number, result in enumerate(pool.map(ablated, wanted, chunksize=2), 1):
            results.append(result)
            if number % 50 == 0:
                print(f"{number} of {len(wanted)}", file=sys.stderr)
    page = Path(__file__).resolve().parents[2] / "docs" / "ablation.md"
    page.write_text(as_page(wanted, results, given.drills), encoding="utf-8")


if __name__ == "__main__":
    main()
