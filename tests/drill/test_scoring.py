"""How a diagnosis is judged against the truth of a drill, and what the command makes of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.drill.scoring import Score, judge, summary
from pipeline.drill.truth import Claim, Truth, Who
from schemas.codec import decode
from schemas.records import Culprit, Incident

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "schemas" / "v1" / "examples" / "incident" / "minimal.json"
WHO = Who(
    node="drill-n7.hpc.example", aliases=["drill-pod-3", "10.0.0.7"], rank=12, local_rank=4, pids=[311, 90210],
    pci_bus_id="0000:3b:00.0", gpu_uuid="GPU-1", nics=["mlx5_3", "ens4np0"],
)  # fmt: skip
LOST = Claim(class_="hardware/gpu_xid_79", also=["hardware/pcie_link"], culprits=[WHO])


def truth(*claims: Claim, tags: list[str] | None = None) -> Truth:
    return Truth(
        chain="C1", variant="x", seed=4, ranks=16, gpus_per_node=8, claims=list(claims), job_id="1", started_at_ns=0,
        clocks_claimed=True, tags_left=tags or [],
    )  # fmt: skip


def said(class_: str, *culprits: Culprit) -> Incident:
    incident = decode("incidents", EXAMPLE.read_bytes())
    assert isinstance(incident, Incident)
    return msgspec.structs.replace(incident, class_=class_, culprits=list(culprits))


def judged(claim: Claim, *incidents: Incident) -> Score:
    return judge("0001-c1-x", truth(claim), incidents)


@pytest.mark.parametrize(
    "culprit",
    [
        {"node": "drill-n7", "rank": 12},
        {"node": "drill-pod-3", "pid": 311},
        {"rank": 12},
        {"node": "drill-n7.hpc.example", "pci_bus_id": "00000000:3B:00.0", "gpu_uuid": "GPU-1"},
        {"node": "drill-n7", "nic": "mlx5_3:1"},
        {"node": "drill-n7", "nic": "ens4np0"},
    ],
)
def test_whoever_is_named_rightly_by_any_of_its_names_is_right(culprit: dict[str, Any]) -> None:
    score = judged(LOST, said("hardware/gpu_xid_79", Culprit(**culprit)))
    assert (score.class_right, score.culprit, score.right) == (True, "right", True)


@pytest.mark.parametrize(
    "culprit",
    [
        {"node": "drill-n8", "rank": 12},
        {"node": "drill-n7", "rank": 13},
        {"node": "drill-n7", "pci_bus_id": "0000:3c:00.0"},
        {"node": "drill-n7", "nic": "mlx5_4"},
        {"node": "drill-n7", "pid": 7},
    ],
)
def test_one_identifier_that_is_not_true_makes_it_wrong(culprit: dict[str, Any]) -> None:
    score = judged(LOST, said("hardware/gpu_xid_79", Culprit(node="drill-n7"), Culprit(**culprit)))
    assert (score.class_right, score.culprit) == (True, "wrong")


def test_the_class_may_be_one_that_the_catalogue_leaves_open_and_no_other() -> None:
    assert judged(LOST, said("hardware/pcie_link", Culprit(node="drill-n7"))).right
    other = judged(LOST, said("unknown/silent_rank", Culprit(node="drill-n7")))
    assert (other.class_right, other.culprit) == (False, "right")
    assert other.problem == "said unknown/silent_rank, true is hardware/gpu_xid_79"


def test_a_device_alone_is_not_enough() -> None:
    score = judged(LOST, said("hardware/gpu_xid_79", Culprit(nic="mlx5_3")))
    assert score.problem == "culprit missing: names nic=mlx5_3, no node or rank"


def test_naming_nobody_is_missing_and_only_the_first_incident_counts() -> None:
    assert (
        judged(LOST, said("hardware/gpu_xid_79"), said("hardware/gpu_xid_79", Culprit(node="drill-n7"))).culprit
        == "missing"
    )
    assert judged(LOST).culprit == "missing"


def test_a_quiet_ending_is_right_when_nothing_is_said_and_wrong_when_somebody_is_blamed() -> None:
    ended = Claim(class_="scheduler/time_limit", quiet=True, silent_ok=True)
    assert judged(ended).right
    loud = judged(ended, said("external/supervisor_sigterm", Culprit(node="drill-n7")))
    assert (loud.class_right, loud.culprit) == (False, "wrong")


def test_what_broke_beside_the_nodes_needs_no_name_and_takes_those_it_hit() -> None:
    server = Claim(class_="storage/nfs_unresponsive", culprits=[WHO], shared=True)
    assert judged(server, said("storage/nfs_unresponsive")).right
    assert judged(server, said("storage/nfs_unresponsive", Culprit(node="drill-n7"))).right
    assert judged(server, said("storage/nfs_unresponsive", Culprit(node="drill-n1"))).culprit == "wrong"


def test_with_files_gone_the_weaker_claim_is_what_is_expected_but_nobody_else_may_be_blamed() -> None:
    weak = Claim(class_="unknown/silent_rank", silent_ok=True, quiet=True)
    both = truth(msgspec.structs.replace(LOST, needs=["xid"]), weak)
    assert judge("f", both, []).right
    assert judge("f", both, [said("unknown/silent_rank", Culprit(rank=12))]).right
    assert judge("f", both, [said("unknown/silent_rank", Culprit(rank=3))]).culprit == "wrong"


def test_a_diagnosis_that_fails_is_never_right() -> None:
    score = judge("f", truth(LOST), [], error="KeyError: 'x'")
    assert not score.right
    assert score.problem == "the diagnosis failed: KeyError: 'x'"


def test_the_table_counts_by_chain_in_the_catalogues_order() -> None:
    one = judged(LOST, said("hardware/gpu_xid_79", Culprit(node="drill-n7")))
    two = msgspec.structs.replace(one, chain="C10", culprit="wrong")
    three = msgspec.structs.replace(one, chain="benign", class_right=False, said="nothing")
    rows = summary([three, two, one, one])
    assert [(row.chain, row.folders, row.both_right, row.culprit_wrong, row.said_nothing) for row in rows] == [
        ("C1", 2, 2, 0, 0), ("C10", 1, 0, 1, 0), ("benign", 1, 0, 0, 1), ("all", 4, 2, 1, 1),
    ]  # fmt: skip


# --- the command ----------------------------------------------------------------------------------------------------


def drill(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "drill", *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_drills_are_made_and_scored(tmp_path: Path) -> None:
    made = drill("--out", str(tmp_path / "d"), "--chain", "C3", "--count", "3", "--ranks", "8")
    assert made.returncode == 0, made.stderr
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == [f"000{n}-c3-double_bit" for n in (1, 2, 3)]

    scored = drill("--score", str(tmp_path / "d"), "--json")
    shape = json.loads(scored.stdout)
    assert scored.returncode in (0, 1)
    assert [one["seed"] for one in shape["folders"]] == [1, 2, 3]
    assert [row["folders"] for row in shape["table"]] == [3, 3]
    assert not any(one["error"] for one in shape["folders"])

    table = drill("--score", str(tmp_path / "d"))
    assert table.returncode == scored.returncode
    assert table.stdout.splitlines()[0].split()[:2] == ["chain", "folders"]


def test_removed_files_are_named_in_the_truth_and_are_not_there(tmp_path: Path) -> None:
    assert (
        drill("--out", str(tmp_path / "d"), "--chain", "C1", "--ranks", "64", "--remove-files", "0.5").returncode == 0
    )
    (folder,) = (tmp_path / "d").iterdir()
    gone = json.loads((folder / "truth.json").read_bytes())["removed"]
    assert gone
    assert not any((folder / "logs" / path).exists() for path in gone)


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        ([], 2, "--out FOLDER, --score FOLDER, --live or --list"),
        (["--out", "x", "--chain", "C99"], 2, "no chain 'C99': use one of C1, C2"),
        (["--out", "x", "--chain", "c10"], 2, "no chain 'c10': did you mean C10?"),
        (["--out", "x", "--chain", "only_79"], 2, "it is a variant of C1, use --chain C1;"),
        (["--out", "x", "--chain", "gsp_hnag"], 2, "did you mean C8 (variant gsp_hang)?"),
        (["--out", "x", "--ranks", "12"], 2, "multiple of 8 from 8 to 16384"),
        (["--out", "x", "--gpus-per-node", "3"], 2, "use 8 or 4"),
        (["--score", "/nonexistent"], 3, "make some with"),
        (["--out", "tests"], 2, "not empty"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_to_do(arguments: list[str], code: int, hint: str) -> None:
    ended = drill(*arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert hint in ended.stderr


def test_the_chains_are_listed() -> None:
    listed = json.loads(drill("--list", "--json").stdout)
    assert {f"C{number}" for number in range(1, 33)} | {"benign", "hang"} == set(listed)
