"""The corpus: whole incidents in `tests/corpus/`, each with what must be concluded of it."""

import fnmatch
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from pipeline.diagnose import Diagnosis, diagnose
from schemas.records import Culprit, Incident

CORPUS = Path(__file__).parent / "corpus"
CASES = sorted(folder.name for folder in CORPUS.iterdir() if (folder / "expected.json").is_file())


class Expected(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a corpus folder must lead to. `either`: one of these is blamed. `must_not`: class patterns; `near`: classes
    whose evidence it resembles and that must not be concluded either; `weaker`: classes that may be concluded instead
    while a file is missing; `chain`: texts that must stand on the chain; `said`: words of what ties its steps together,
    or an incident to an earlier one; `jobs`: the ids of the jobs of each incident; `notes`: classes of endings to be
    noted; `incidents`: how many there are, where it is not one.
    """

    class_: str | None = msgspec.field(name="class")
    culprits: list[dict[str, str | int]] = []
    either: list[dict[str, str | int]] = []
    must_not: list[str]
    near: list[str] = []
    weaker: list[str] = []
    interruption: str | None = None
    incidents: int = 1
    notes: list[str] = []
    chain: list[str] = []
    said: list[str] = []
    jobs: list[list[str]] | None = None

    def forbids(self, class_: str) -> bool:
        """Whether a class must not be concluded."""
        return any(fnmatch.fnmatchcase(class_, pattern) for pattern in (*self.must_not, *self.near))


@lru_cache
def expected(case: str) -> Expected:
    """What a case must lead to."""
    return msgspec.json.decode((CORPUS / case / "expected.json").read_bytes(), type=Expected)


@cache
def diagnosed(case: str) -> Diagnosis:
    """What `rootrank diagnose` makes of a case."""
    return diagnose([CORPUS / case / "logs"])


def loud() -> list[str]:
    """The cases in which something broke."""
    return [case for case in CASES if expected(case).class_]


def agrees(culprit: Culprit, wanted: dict[str, str | int]) -> bool:
    """Whether a culprit has all identifiers that are wanted."""
    return all(getattr(culprit, name) == value for name, value in wanted.items())


def unmet(case: str, found: Diagnosis) -> list[str]:
    """What a case must lead to and this does not say, and what it must not say."""
    wanted, incidents = expected(case), found.incidents
    problems = [f"class {one.class_}" for one in incidents if wanted.forbids(one.class_)]
    problems += [f"no note {name}" for name in wanted.notes if name not in {note.class_ for note in found.notes}]
    if wanted.class_ is None or not incidents:
        return problems + (["quiet"] if wanted.class_ else [f"class {one.class_}" for one in incidents])
    main = incidents[0]
    texts = [step.evidence.text for step in main.chain]
    problems += [f"no step {text}" for text in wanted.chain if not any(text in one for one in texts)]
    problems += [f"not said: {text}" for text in wanted.said if not any(text in one for one in words(incidents))]
    checks = {
        f"class {main.class_}": main.class_ == wanted.class_,
        f"{len(incidents)} incidents": len(incidents) == wanted.incidents,
        f"interruption {main.interruption}": wanted.interruption in (None, main.interruption),
        "culprits": _are_named(main, wanted),
        "jobs": wanted.jobs in (None, jobs(incidents)),
    }
    return problems + [name for name, is_met in checks.items() if not is_met]


def words(incidents: Iterable[Incident]) -> list[str]:
    """What ties the steps of incidents together, and incidents to earlier ones."""
    return [
        why for one in incidents for why in (*(e.why for e in one.edges), *(earlier.why for earlier in one.related))
    ]


def jobs(incidents: Iterable[Incident]) -> list[list[str]]:
    """The ids of the jobs of each incident."""
    return [[job.job_id for job in incident.jobs] for incident in incidents]


def _are_named(main: Incident, wanted: Expected) -> bool:
    """Whether those to blame are named, all and nobody else."""
    if wanted.either:
        return bool(main.culprits) and all(any(agrees(c, one) for one in wanted.either) for c in main.culprits)
    is_right = all(any(agrees(c, one) for c in main.culprits) for one in wanted.culprits)
    return is_right and len(main.culprits) == len(wanted.culprits)


def not_borne_out(case: str, incident: Incident) -> list[str]:
    """What an incident says, of files of a case, that the whole case does not bear out."""
    wanted = expected(case)
    allowed = {wanted.class_, *wanted.weaker}
    problems = []
    if incident.class_ not in allowed and not incident.class_.startswith("unknown/"):
        problems.append(f"class {incident.class_}")
    blamed = [*wanted.culprits, *wanted.either]
    return problems + [f"blames {_named(one)}" for one in incident.culprits if not _is_borne_out(one, blamed)]


def _is_borne_out(culprit: Culprit, blamed: list[dict[str, str | int]]) -> bool:
    """Whether it is one of those that the case blames, as far as it is named. In which process group a rank is missed
    hangs on whose dump is there.
    """
    return any(
        agrees(
            culprit, {n: value for n, value in one.items() if n != "process_group" and getattr(culprit, n) is not None}
        )
        and not (culprit.rank is not None and "rank" not in one and culprit.node != one.get("node", ""))
        and not (culprit.node is not None and "node" not in one and "rank" not in one)
        for one in blamed
    )


def _named(culprit: Culprit) -> str:
    return f"{culprit.node} rank {culprit.rank} {culprit.link or culprit.nic or ''}".strip()
