"""Clocks of a folder's nodes, aligned by what its files contain."""

import json
from pathlib import Path
from random import Random

import pytest

from pipeline.core.times import DEFAULT_BOUND_NS, at_wall
from pipeline.diagnose import diagnose
from pipeline.drill.generate import Options, incident, write
from pipeline.folder import plan
from pipeline.replay import Settings, Shipper
from schemas.records import ClockClaim
from shippers.config import load
from tests.bench.content_clocks import KINDS, SECOND, Made, judged
from tests.test_diagnose_command import run

QUIET = {"only one prints"}


def made(kind: str, seed: int, folder: Path) -> Made:
    """A folder of the benchmark."""
    one = KINDS[kind](Random(f"content-clocks/{seed}"))
    for name, lines in one.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")
    return one


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_bound_of_a_folder_is_wrong(kind: str, tmp_path: Path) -> None:
    """Every emitter that the benchmark knows; where one rank prints alone nothing is known of clocks."""
    for seed in (0, 4):
        one = made(kind, seed, tmp_path / str(seed))

        tally = judged(one, tmp_path / str(seed), Random(seed))

        assert tally.wrong == 0
        assert (tally.known == 0) == (kind in QUIET)


FAULT = "NVRM: Xid (PCI:0000:5e:00): 79, pid=4242, name=python, GPU has fallen off the bus."


def skewed(folder: Path) -> Path:
    """Three nodes print their steps; a GPU of the last is lost, 2.5 s later the others fail. Its clock is 4 s ahead."""
    folder.mkdir()
    (folder / "rootrank.toml").write_text('cluster = "skewed"\njob_id = "7"\ntime_zone = "+00:00"\n')
    ahead = {"gpu-101": 0.0, "gpu-102": 0.3, "gpu-103": 4.0}
    for rank, (node, ahead_s) in enumerate(ahead.items()):
        (folder / node).mkdir()
        lines = [f"[{_wall(10 + step * 1.3 + ahead_s)}] step {step} | loss 2.31 |" for step in range(60)]
        if node != "gpu-103":
            lines.append(
                f"[{_wall(91.5 + ahead_s)}] [rank{rank}]: RuntimeError: NCCL communicator was aborted on rank {rank}."
            )
        (folder / node / f"rank{rank}.log").write_text("\n".join(lines) + "\n")
    text = f"{_wall(89.0 + 4.0).replace(' ', 'T')}+00:00 gpu-103 kernel: {FAULT}\n"
    (folder / "gpu-103" / "kern.log").write_text(text)
    return folder


def _wall(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"2026-03-04 05:{int(minutes):02d}:{rest:06.3f}"


def test_a_cause_that_is_stamped_after_its_effect_comes_before_it(tmp_path: Path) -> None:
    """The fault is stamped 1.5 s after what follows from it; what the nodes log together shows that it came first."""
    incident = diagnose([skewed(tmp_path / "logs")]).incidents[0]

    assert incident.class_ == "hardware/gpu_xid_79"
    assert {edge.order for edge in incident.edges} == {"certain"}


def test_a_replay_gets_the_claims_that_the_post_mortem_uses(tmp_path: Path) -> None:
    """Settings of its shippers say the same of every clock."""
    folder = plan([skewed(tmp_path / "logs")])
    settings = Settings(bootstrap="unused:9092", work_dir=tmp_path, run_id="r")
    assert folder.clocks.nodes == ["gpu-101", "gpu-102", "gpu-103"]
    for number, node in enumerate(folder.nodes):
        shipper = Shipper(folder.cluster, node, settings, number)
        shipper.folder.mkdir(parents=True)
        file = shipper.folder / "node.toml"
        file.write_text(shipper._toml())

        assert load(file).clock.claim == node.claim


def test_the_report_says_whose_clocks_are_aligned_how_well_and_against_what(tmp_path: Path) -> None:
    """The clocks are compared with each other: how far all are from UTC is another matter."""
    page = tmp_path / "page.html"
    shown = " ".join(run(skewed(tmp_path / "logs"), "--html", page).output.split())

    _, _, clocks = shown.partition("CLOCKS ")
    assert "3 of 3 nodes aligned by events that they all log" in clocks
    assert "furthest apart: gpu-103 is 4 s ahead of gpu-101, within" in clocks
    assert "times are relative to each other; how far all of them are from UTC is known to" in clocks
    assert "[nodes.gpu-101] clock_offset_s" in clocks
    assert "times are relative to each other" in page.read_text()
    told = json.loads(run(tmp_path / "logs", "--json").stdout)["clocks"]
    assert [line.split()[0] for line in told] == ["3", "furthest", "times"]


def test_a_clock_that_was_set_is_said_beside_the_others_once_with_what_to_do(tmp_path: Path) -> None:
    """It keeps the bound of a clock of which nothing is known."""
    folder = skewed(tmp_path / "logs")
    log = folder / "gpu-102" / "rank1.log"
    lines = log.read_text().splitlines()
    late = [f"[{_wall(10 + step * 1.3 + 0.3 + 3)}] step {step} | loss 2.31 |" for step in range(30, 60)]
    log.write_text("\n".join([*lines[:30], *late, *lines[60:]]) + "\n")

    planned = plan([folder])
    shown = " ".join(run(folder).output.split())

    said, clocks = shown.split("CLOCKS ")
    assert "gpu-102: not aligned by what it logs: its clock was set while the job ran. Look into" in clocks
    assert "its clock was set" not in said
    claim = next(node.claim for node in planned.nodes if node.reporter == "gpu-102")
    assert claim is None or not claim.knots


def test_stated_clocks_that_the_logs_contradict_are_said_and_win(tmp_path: Path) -> None:
    """Both are stated to be right to a millisecond; their steps are 4 s apart."""
    folder = skewed(tmp_path / "logs")
    both = ("gpu-101", "gpu-103")
    stated = "".join(f"\n[nodes.{node}]\nclock_offset_s = 0\nclock_bound_s = 0.001\n" for node in both)
    with (folder / "rootrank.toml").open("a") as out:
        out.write(stated)

    shown = " ".join(run(folder).output.split())

    assert "the stated clocks of gpu-101 and gpu-103 contradict what both log by 4 s" in shown
    used = [node.claim for node in plan([folder]).nodes if node.reporter in both]
    assert used == [ClockClaim(offset_ns=0, bound_ns=SECOND // 1000, by="rootrank.toml")] * 2


def test_the_report_says_what_was_measured_of_clocks(tmp_path: Path) -> None:
    """A folder with records of clocks: on how many nodes, whose wall clock was off most, whose was stepped."""
    one = incident(Options(seed=55, ranks=16, beacons=True, skew_s=5.0))
    write(one, tmp_path)
    stepped = {node.name for node in one.story.fleet.nodes if node.clock.steps}
    assert stepped

    shown = " ".join(run(tmp_path / "logs").output.split())

    _, _, clocks = shown.partition("CLOCKS ")
    assert f"clocks were measured on {len(one.story.fleet.nodes)} of" in clocks
    assert "was off most at the end" in clocks
    assert {node for node in stepped if f"{node} (by " in clocks} == stepped


def test_a_stated_clock_is_kept(tmp_path: Path) -> None:
    """The other nodes follow the one of which the manifest says something."""
    folder = skewed(tmp_path / "logs")
    with (folder / "rootrank.toml").open("a") as out:
        out.write("\n[nodes.gpu-103]\nclock_offset_s = -4.0\nclock_bound_s = 0.001\n")

    claims = {node.reporter: node.claim for node in plan([folder]).nodes}

    stated, followed = claims["gpu-103"], claims["gpu-101"]
    assert stated is not None
    assert followed is not None
    assert (stated.by, stated.offset_ns, stated.bound_ns) == ("rootrank.toml", -4 * SECOND, SECOND // 1000)
    offset_ns, bound_ns = at_wall(followed, 1_772_600_767 * SECOND)
    assert abs(offset_ns) <= bound_ns < SECOND


def test_broken_dumps_say_nothing_of_clocks(tmp_path: Path) -> None:
    """What looks like a dump and is none is a gap, as before."""
    for node in ("gpu-101", "gpu-102"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "nccl_trace_rank_0.json").write_text(
            json.dumps({"version": "2.9", "entries": 7, "pg_config": 1})
        )

    assert plan([tmp_path]).clocks.nodes == []


def test_jobs_that_share_no_node_have_timelines_of_their_own(tmp_path: Path) -> None:
    for job, seed, prefix in (("job_50010", 0, "gpu-"), ("job_60020", 4, "ib-")):
        one = KINDS["torchtitan, 1 ms stamps"](Random(f"content-clocks/{seed}"))
        for name, lines in one.files.items():
            file = tmp_path / job / name.replace("gpu-", prefix)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(lines).replace("gpu-", prefix) + "\n")
    alone = tmp_path / "job_70030" / "moss-1"
    alone.mkdir(parents=True)
    (alone / "rank0.log").write_text("2026-03-04 05:06:07 moss-1 trainer: nothing to tell\n" * 3)

    found = plan([tmp_path]).clocks

    timelines = {
        prefix: {c.timeline for n, c in found.claims.items() if n.startswith(prefix)} for prefix in ("gpu", "ib")
    }
    assert sorted(timelines.values(), key=min) == [{1}, {2}]
    others = [claim for claim in found.claims.values() if claim.timeline == 0]
    assert all(claim.bound_ns == found.others_bound_ns > DEFAULT_BOUND_NS for claim in others)
    assert all(claim.others_bound_ns == found.others_bound_ns for claim in found.claims.values())
