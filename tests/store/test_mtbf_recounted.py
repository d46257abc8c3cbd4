"""Figures of an invented fleet, counted again minute by minute by a calculator that shares no code with the program."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from scipy.stats import chi2
from typer.testing import CliRunner

from pipeline.__main__ import build as command_line
from pipeline.store.clickhouse import Store
from schemas.records import Culprit
from tests.store import seed
from tests.store.conftest import put, url_of

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 10
MINUTES = DAYS * 24 * 60
NODES = [f"n{number}" for number in range(5)]
GPUS = [f"GPU-{number:02}" for number in range(20)]
SKUS = {gpu: f"S{number % 3}" for number, gpu in enumerate(GPUS)}


@dataclass
class Invented:
    """Where each GPU sits from minute to minute, and who is away then."""

    homes: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)
    away: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    failures: list[tuple[str, str, str, int]] = field(default_factory=list)

    def home(self, gpu: str, minute: int) -> str:
        return next((node for begin, end, node in self.homes[gpu] if begin <= minute < end), "")

    def works(self, unit: str, minute: int) -> bool:
        """Whether a node or GPU is there and in service."""
        names = [unit] if unit in NODES else [unit, self.home(unit, minute)]
        return all(names) and not any(a <= minute < b for name in names for a, b in self.away.get(name, []))

    def minutes(self, unit: str) -> int:
        return sum(self.works(unit, minute) for minute in range(MINUTES))


def invented(dice: Random) -> Invented:
    """Drains, repairs, two GPUs that move, one that comes late, one that goes, and twice two failures at one time."""
    fleet = Invented()
    for number, gpu in enumerate(GPUS):
        home, cut = NODES[number % 5], dice.randrange(MINUTES)
        spans = [(-MINUTES, 9 * MINUTES, home)]
        if number in (3, 9):
            spans = [(-MINUTES, cut, home), (cut, 9 * MINUTES, NODES[(number + 2) % 5])]
        elif number == 12:
            spans = [(cut, 9 * MINUTES, home)]
        elif number == 15:
            spans = [(-MINUTES, cut, home)]
        fleet.homes[gpu] = spans
    for name in (*NODES[:3], *NODES[:2], *GPUS[:6]):
        begin = dice.randrange(-600, MINUTES)
        fleet.away.setdefault(name, []).append((begin, begin + dice.randrange(10, 3000)))
    for number in range(30):
        minute, gpu = dice.randrange(MINUTES), GPUS[min(int(dice.expovariate(0.25)), 19)]
        node = fleet.home(gpu, minute) or NODES[0]
        for twin in range(2 if number < 2 else 1):
            fleet.failures.append((f"i{number}-{twin}", gpu if number % 4 else node, node, minute))
    return fleet


def at(minute: int) -> str:
    return (BEGIN + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%SZ")


def inventory(fleet: Invented) -> str:
    lines = ["unit_kind,unit,node,kind,from,to,sku", *(f"node,{node},,installed,{at(-MINUTES)},," for node in NODES)]
    for gpu, homes in fleet.homes.items():
        lines += [f"gpu,{gpu},{node},installed,{at(a)},{at(b)},{SKUS[gpu]}" for a, b, node in homes]
    for name, spans in fleet.away.items():
        kind = "node" if name in NODES else "gpu"
        lines += [f"{kind},{name},,{'drain' if kind == 'node' else 'repair'},{at(a)},{at(b)}," for a, b in spans]
    return "\n".join(lines) + "\n"


def figures(counts: Counter[str], minutes: dict[str, int]) -> dict[str, Any]:
    """n, hours, hours between failures with Garwood's limits, dispersion and the share of the worst."""
    n, total = sum(counts.values()), sum(minutes.values())
    expected = {name: n * own / total for name, own in minutes.items() if own}
    squares = sum((counts[name] - mu) ** 2 / mu for name, mu in expected.items())
    return {
        "n": n, "hours": total / 60, "between": total / 60 / n, "dispersion": squares / (len(expected) - 1),
        "least": total / 60 / (chi2.ppf(0.975, 2 * n + 2) / 2), "most": total / 60 / (chi2.ppf(0.025, 2 * n) / 2),
        "worst": max(counts.values()) / n,
    }  # fmt: skip


@pytest.fixture
def fleet() -> Invented:
    return invented(Random(7))


@pytest.fixture
def asked(store: Store, fleet: Invented, tmp_path: Path) -> Any:
    """Runs a command on the fleet; what it answers."""

    def run(*words: str) -> Any:
        answer = CliRunner().invoke(command_line(words[0]), [*words, "--clickhouse-url", url_of(store.settings)])
        assert answer.exit_code == 0, answer.output
        return msgspec.json.decode(answer.stdout) if "--json" in words else answer.stdout

    path = tmp_path / "inventory.csv"
    path.write_text(inventory(fleet), encoding="utf-8")
    run("import", "csv", str(path), "--cluster", "c1")
    for name, unit, node, minute in fleet.failures:
        culprit = Culprit(node=node, gpu_uuid=None if unit in NODES else unit, confidence=0.9)
        one = replace(seed.incident(), incident_id=name, run_id="live", culprits=[culprit], started_at=at(minute))
        put(store, one)
    run("rollup", "--from", "2026-03-01", "--to", "2026-03-10")
    return run


@pytest.mark.clickhouse
def test_the_report_says_what_a_recount_says(fleet: Invented, asked: Any) -> None:
    counted = [(unit, node) for _, unit, node, minute in fleet.failures if fleet.works(unit, minute)]
    assert 0 < len(counted) < len(fleet.failures)
    own = figures(Counter(node for _, node in counted), {node: fleet.minutes(node) for node in NODES})
    (row,) = [row for row in asked("mtbf", "--json")["rates"] if row["by"] == "all"]
    between = row["node_mtbf_hours"]
    said = {
        "n": row["n"], "hours": row["exposure_hours"], "between": between["value"], "dispersion": row["dispersion"],
        "least": between["lo"], "most": between["hi"], "worst": row["top_1_share"],
    }  # fmt: skip
    assert said == pytest.approx(own, rel=1e-9)
    assert row["gpu_hours"] == pytest.approx(sum(map(fleet.minutes, GPUS)) / 60, rel=1e-12)
    assert row["system_mtbf_hours"]["value"] == pytest.approx(DAYS * 24 / len(counted), rel=1e-12)


@pytest.mark.clickhouse
def test_sql_says_of_each_cohort_what_a_recount_says(fleet: Invented, asked: Any) -> None:
    window = ("--param", "from=2026-03-01", "--param", "to=2026-03-10")
    rows = {row["cohort"]: row for row in asked("query", "mtbf_by_cohort", "--json", *window)}
    assert rows.keys() == {"S0", "S1", "S2"}
    for sku, row in rows.items():
        gpus = [gpu for gpu in GPUS if SKUS[gpu] == sku]
        counts = Counter(unit for _, unit, _, minute in fleet.failures if unit in gpus and fleet.works(unit, minute))
        own = figures(counts, {gpu: fleet.minutes(gpu) for gpu in gpus})
        said = {
            "n": row["n"], "hours": row["unit_hours"], "between": row["mtbf_hours"], "dispersion": row["dispersion"],
            "least": row["mtbf_lo_hours"], "most": row["mtbf_hi_hours"], "worst": row["worst_unit_share"],
        }  # fmt: skip
        # The query rounds hours to a thousandth.
        assert said == pytest.approx({**own, "hours": round(own["hours"], 3)}, rel=1e-9)
