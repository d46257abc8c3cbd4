"""What the ablation asks of the engine, and whether what it answers is right."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pipeline.diagnose import Diagnosis, diagnose
from pipeline.drill.generate import LOGS, Options, incident, write
from pipeline.drill.scoring import judge
from pipeline.notes import Note
from pipeline.rulebook.stories import main_incident, story_problem
from pipeline.rules import load_rules
from schemas.records import Incident
from tests.corpus_cases import CASES, CORPUS, not_borne_out, unmet

# The largest jobs take minutes and say nothing that smaller ones do not.
MOST_RANKS: Final = 512
FROM_SEED: Final = 860_000
REMOVED: Final = 0.3


class Answer(NamedTuple):
    """What is wrong with a diagnosis, and all that it says."""

    problems: frozenset[str]
    said: object


class Case(NamedTuple):
    """Something to diagnose, in a process of its own choice: which set it is of, and how it is asked for again."""

    group: str
    name: str
    number: int = 0


# --- what is diagnosed --------------------------------------------------------------------------------------------


def cases(drills: int, folders: Path | None) -> Iterator[Case]:
    """All that is asked."""
    yield from (Case("corpus", name) for name in CASES)
    yield from (Case("corpus, a file missing", name) for name in CASES)
    yield from (Case("stories", rule.id, n) for rule in load_rules().rules for n in range(len(rule.story)))
    yield from (Case("drills", "0", FROM_SEED + n) for n in range(drills))
    yield from (Case("drills, files missing", str(REMOVED), FROM_SEED + drills + n) for n in range(drills))
    if folders is not None:
        yield from (Case("folders", str(folder)) for folder in sorted(folders.iterdir()) if folder.is_dir())


def asked(case: Case, folder: Path) -> list[Callable[[], Answer]]:
    """The questions of a case. Files are made in `folder`."""
    match case.group:
        case "corpus":
            return [lambda: _of_corpus(case.name, CORPUS / case.name / "logs")]
        case "corpus, a file missing":
            return _each_missing(case.name, folder)
        case "stories":
            return [lambda: _of_story(case)]
        case "folders":
            return [lambda: answer(diagnose([Path(case.name)]), [])]
    made = incident(Options(seed=case.number, remove_share=float(case.name)))
    if made.truth.ranks > MOST_RANKS:
        return []
    write(made, folder)

    def drill() -> Answer:
        found = diagnose([folder / LOGS])
        score = judge("", made.truth, found.incidents)
        problems = [] if score.class_right else ["class"]
        return answer(found, [*problems, *([] if score.culprit == "right" else [f"culprit {score.culprit}"])])

    return [drill]


def _of_corpus(name: str, logs: Path) -> Answer:
    found = diagnose([logs])
    return answer(found, unmet(name, found))


def _each_missing(name: str, folder: Path) -> list[Callable[[], Answer]]:
    logs = folder / "logs"
    shutil.copytree(CORPUS / name / "logs", logs)

    def without(file: Path) -> Answer:
        hidden = file.rename(folder / "hidden")
        try:
            found = diagnose([logs])
        finally:
            hidden.rename(file)
        return answer(found, (p for one in found.incidents for p in not_borne_out(name, one)))

    return [partial(without, file) for file in sorted(p for p in logs.rglob("*") if p.is_file())]


def _of_story(case: Case) -> Answer:
    rule = next(rule for rule in load_rules().rules if rule.id == case.name)
    story = rule.story[case.number]
    problem = story_problem(rule, story)
    return Answer(frozenset([problem] if problem else []), _plain(main_incident(story)))


def answer(found: Diagnosis, problems: Iterable[str]) -> Answer:
    """What a diagnosis says, and what is wrong with it."""
    said: list[Incident | Note] = [*found.incidents, *found.notes]
    return Answer(frozenset(problems), [_plain(one) for one in said])


def _plain(said: Incident | Note | None) -> object:
    """What people read of an incident, without how sure its times are."""
    if not isinstance(said, Incident):
        return said
    steps = [(one.role, one.event, one.where, one.evidence.text, one.count) for one in said.chain]
    edges = [(edge.from_, edge.to, edge.why) for edge in said.edges]
    return said.class_, said.culprits, said.explanation, said.alternatives, said.related, said.jobs, steps, edges
