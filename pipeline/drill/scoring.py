"""Compares what the diagnosis says of drill folders with their truth."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from pipeline.diagnose import diagnose
from pipeline.drill.generate import LOGS, TRUTH
from pipeline.drill.truth import Claim, Truth, Who
from schemas.records import Culprit, Incident

CulpritVerdict = Literal["right", "wrong", "missing"]
PROCESSES: Final = 2
NOTHING: Final = "nothing"
_IDENTIFIERS: Final = ("rank", "local_rank", "pci_bus_id", "gpu_uuid", "serial", "gpu_index")


class Score(Struct, frozen=True, kw_only=True):
    """One folder. `class_right` and `culprit` are judged against what its files can prove."""

    folder: str
    chain: str
    variant: str
    seed: int
    ranks: int
    removed: int
    expected: str
    said: str
    quiet_right: bool
    class_right: bool
    culprit: CulpritVerdict
    why: str
    confidence: float | None
    seconds: float
    error: str = ""

    @property
    def right(self) -> bool:
        """Class and culprit are as good as the files allow."""
        return self.class_right and self.culprit == "right"

    @property
    def problem(self) -> str:
        """What is not right, in words."""
        if self.error:
            return f"the diagnosis failed: {self.error}"
        parts = [] if self.class_right else [f"said {self.said}, true is {self.expected}"]
        return "; ".join([*parts, *([f"culprit {self.culprit}: {self.why}"] if self.culprit != "right" else [])])


class FolderError(ValueError):
    """A folder that is no drill; the text says what is missing."""


def folders(root: Path) -> list[Path]:
    """The drill folders in a folder, or the folder itself."""
    if (root / TRUTH).is_file():
        return [root]
    found = sorted(path.parent for path in root.glob(f"*/{TRUTH}"))
    if not found:
        raise FolderError(f"{root}: no drill in it (no {TRUTH}); make some with `rootrank drill --out {root}`")
    return found


def score_all(
    found: Sequence[Path], done: Callable[[int], None] = lambda number: None, *, processes: int = PROCESSES
) -> list[Score]:
    """Diagnose all folders, two at a time, and judge each."""
    scores: list[Score] = []
    with ProcessPoolExecutor(processes) as pool:
        for score in pool.map(score_folder, found, chunksize=4):
            scores.append(score)
            done(len(scores))
    return scores


def score_folder(folder: Path) -> Score:
    """Diagnose one folder in this process and judge it."""
    truth = msgspec.json.decode((folder / TRUTH).read_bytes(), type=Truth)
    began = time.perf_counter()
    error = ""
    incidents: list[Incident] = []
    try:
        incidents = diagnose([folder / LOGS]).incidents
    except Exception as raised:  # the engine failing on a folder is a result
        error = f"{type(raised).__name__}: {raised}"
    return judge(folder.name, truth, incidents, seconds=time.perf_counter() - began, error=error)


def judge(folder: str, truth: Truth, incidents: Sequence[Incident], *, seconds: float = 0.0, error: str = "") -> Score:
    """The first incident is the one that speaks for the job."""
    claim = truth.knowable
    main = incidents[0] if incidents else None
    said = main.class_ if main else NOTHING
    right = {claim.class_, *claim.also}
    quiet_right = main is None and claim.quiet
    verdict, why = culprit_verdict(truth, claim, main)
    return Score(
        folder=folder,
        chain=truth.chain,
        variant=truth.variant,
        seed=truth.seed,
        ranks=truth.ranks,
        removed=len(truth.removed),
        expected=claim.class_,
        said=said,
        quiet_right=quiet_right,
        class_right=quiet_right or (said in right and not error),
        culprit=verdict,
        why=why,
        confidence=main.confidence if main else None,
        seconds=round(seconds, 3),
        error=error,
    )


def culprit_verdict(truth: Truth, claim: Claim, main: Incident | None) -> tuple[CulpritVerdict, str]:
    """Whether all who are named are to blame, and a node or rank is named where the logs can name one."""
    if main is None:
        return ("right", "") if claim.quiet or claim.silent_ok else ("missing", "nothing said")
    named = [culprit for culprit in main.culprits if _names(culprit)]
    blamed = [*truth.whole.culprits, *claim.culprits]
    for culprit in named:
        reasons = [_disagreement(culprit, who) for who in blamed]
        if not reasons or all(reasons):
            return "wrong", next(iter(reasons), f"names {_text(culprit)}, nobody is to blame")
    if not claim.culprits or claim.silent_ok or claim.shared:
        return "right", ""
    if any(culprit.node is not None or culprit.rank is not None for culprit in named):
        return "right", ""
    return "missing", f"names {', '.join(map(_text, named)) or 'nobody'}, no node or rank"


def _names(culprit: Culprit) -> bool:
    return any(getattr(culprit, name) is not None for name in ("node", "nic", *_IDENTIFIERS))


def _text(culprit: Culprit) -> str:
    said = {name: value for name in ("node", "nic", *_IDENTIFIERS) if (value := getattr(culprit, name)) is not None}
    return ", ".join(f"{name}={value}" for name, value in said.items())


def _disagreement(culprit: Culprit, who: Who) -> str:
    """What a named culprit says that is not true of who is to blame; empty where all agrees, node or rank named."""
    known = {_node(name) for name in (who.node, *who.aliases) if name is not None}
    if culprit.node is not None and known and _node(culprit.node) not in known:
        return f"node {culprit.node}, not {who.node}"
    for name in _IDENTIFIERS:
        said, true = getattr(culprit, name), getattr(who, name)
        if said is not None and true is not None and _plain(name, said) != _plain(name, true):
            return f"{name} {said}, not {true}"
    if culprit.nic is not None and who.nics and _nic(culprit.nic) not in {_nic(name) for name in who.nics}:
        return f"nic {culprit.nic}, not {who.nics}"
    if culprit.pid is not None and who.pids and culprit.pid not in who.pids:
        return f"pid {culprit.pid}, not {who.pids}"
    return ""


def _nic(name: str) -> str:
    return name.lower().split(":1")[0] if name.startswith("mlx") else name.lower()


def _node(name: str) -> str:
    lower = name.lower()
    return lower if lower.replace(".", "").isdigit() else lower.split(".")[0]


def _plain(name: str, value: object) -> str:
    text = str(value).lower()
    if name == "pci_bus_id":
        text = text.rsplit(".", 1)[0] if "." in text else text
        domain, _, rest = text.partition(":")
        return f"{int(domain, 16):04x}:{rest}" if rest.count(":") else text
    return text


HEAD: Final = (
    "chain", "folders", "class exact", "culprit right", "culprit wrong", "culprit missing", "both right",
    "said nothing",
)  # fmt: skip


class Row(Struct, frozen=True, kw_only=True):
    """A chain's counts."""

    chain: str
    folders: int
    class_exact: int
    culprit_right: int
    culprit_wrong: int
    culprit_missing: int
    both_right: int
    said_nothing: int


def summary(scores: Iterable[Score]) -> list[Row]:
    """Counts by chain, in the catalogue's order, and of all."""
    by_chain: dict[str, list[Score]] = {}
    for score in scores:
        by_chain.setdefault(score.chain, []).append(score)
    ordered = sorted(by_chain.items(), key=lambda item: (int(item[0][1:]) if item[0][1:].isdigit() else 1000, item[0]))
    return [
        *(_row(name, group) for name, group in ordered),
        _row("all", [one for _, group in ordered for one in group]),
    ]


def _row(name: str, group: Sequence[Score]) -> Row:
    return Row(
        chain=name, folders=len(group), class_exact=sum(one.class_right for one in group),
        culprit_right=sum(one.culprit == "right" for one in group),
        culprit_wrong=sum(one.culprit == "wrong" for one in group),
        culprit_missing=sum(one.culprit == "missing" for one in group), both_right=sum(one.right for one in group),
        said_nothing=sum(one.said == NOTHING for one in group),
    )  # fmt: skip


def table(scores: Iterable[Score]) -> list[tuple[str, ...]]:
    """The summary as cells: shares in percent."""
    return [_cells(row) for row in summary(scores)]


def _cells(row: Row) -> tuple[str, ...]:
    counts = (
        row.class_exact,
        row.culprit_right,
        row.culprit_wrong,
        row.culprit_missing,
        row.both_right,
        row.said_nothing,
    )
    return (row.chain, str(row.folders), *(f"{100 * count / row.folders:.1f} %" for count in counts))
