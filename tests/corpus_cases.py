"""The corpus: whole incidents in `tests/corpus/`, each with what must be concluded of it."""

import fnmatch
from functools import cache, lru_cache
from pathlib import Path

import msgspec

from pipeline.diagnose import Diagnosis, diagnose
from schemas.records import Culprit

CORPUS = Path(__file__).parent / "corpus"
CASES = sorted(folder.name for folder in CORPUS.iterdir() if (folder / "expected.json").is_file())


class Expected(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a corpus folder must lead to. `either`: one of these is blamed. `must_not`: class patterns; `near`: classes
    whose evidence it resembles and that must not be concluded either; `weaker`: classes that may be concluded instead
    while a file is missing; `chain`: texts that must stand on the chain; `notes`: classes of endings to be noted;
    `incidents`: how many there are, where it is not one.
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
