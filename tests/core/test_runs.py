"""Runs never meet: live lines, replays and drills go through one set of folds, kept apart by key."""

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from pipeline import VERSION
from pipeline.core import keys
from pipeline.core.align import NodeFold
from pipeline.core.investigation import Investigation
from pipeline.core.join import Join, JoinState
from pipeline.core.outputs import Output
from pipeline.folder import plan
from pipeline.reader import Keyed, node_records
from pipeline.rules import load_rules
from schemas import signals, topics
from schemas.records import ClockReading, Engine, Incident, Job, Progress, RawBatch, Verdict
from schemas.vocabulary import Run
from tests.strategies import CLUSTER, SECOND, T0, incidents, text

SIGNALS = signals.load()
RULES = load_rules()
DEMO = Path(str(files("pipeline").joinpath("demo", "fell_off_bus")))
# Less than a quarter of an hour after the fault in the demo: to a live agent it is news.
NOW_NS = 1_773_225_750 * SECOND
T = TypeVar("T")


class Stages:
    """The stages as workers run them: one fold per Kafka key, of whatever run."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, NodeFold] = {}
        self.investigations: dict[bytes, Investigation] = {}
        self.join = Join()
        self.said: dict[bytes, list[Incident]] = {}

    def feed(self, keyed: Keyed) -> None:
        """Take one record of the raw topic and everything that follows from it."""
        waiting = [Output(topic=topics.RAW.name, key=keyed.key, record=keyed.record)]
        while waiting:
            waiting.extend(self._step(waiting.pop(0)))

    def _step(self, message: Output) -> Iterable[Output]:
        if message.topic == topics.RAW.name:
            node = self.nodes.setdefault(message.key, NodeFold(SIGNALS))
            return node.apply(message.record, now_ns=NOW_NS)
        if message.topic == topics.EVENTS.name:
            fresh = Investigation.new(RULES, VERSION, message.key.decode())
            return self.investigations.setdefault(message.key, fresh).apply(message.record, now_ns=NOW_NS)
        if message.topic == topics.VERDICTS.name:
            return self.join.apply(message.record, now_ns=NOW_NS)
        if isinstance(message.record, Incident):
            self.said.setdefault(message.key, []).append(message.record)
        return []

    def incidents(self, run: str) -> dict[str, list[str]]:
        """Every revision of every incident of one run, as published."""
        return {key: [text(i) for i in said] for key, said in _of(run, self.said).items()}

    def state(self, run: str) -> dict[str, bytes]:
        """The state of every fold of one run."""
        joined = msgspec.json.decode(self.join.snapshot(), type=JoinState).standing
        return {
            **{f"node {key}": fold.snapshot() for key, fold in _of(run, self.nodes).items()},
            **{f"investigation {key}": fold.snapshot() for key, fold in _of(run, self.investigations).items()},
            **{f"join {name}": msgspec.json.encode(one) for name, one in joined.items() if keys.run_of(name) == run},
        }


def _of(run: str, by_key: Mapping[bytes, T]) -> dict[str, T]:
    return {key.decode(): value for key, value in by_key.items() if keys.run_of(key.decode()) == run}


@lru_cache
def _records(run: Run, run_id: str) -> list[Keyed]:
    """The demo as the shippers of one run send it, both nodes by turns."""
    planned = plan([DEMO])
    streams = [list(node_records(planned.cluster, node, run, run_id)) for node in planned.nodes]
    return [_read_now(keyed) for stream in streams for keyed in stream]


def _read_now(keyed: Keyed) -> Keyed:
    """A record whose node read its clocks just now; a live clock that does not run is at fault."""
    assert isinstance(keyed.record, RawBatch | Progress)
    clock = ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=NOW_NS)
    return Keyed(key=keyed.key, record=msgspec.structs.replace(keyed.record, clock=clock))


def _mixed(seed: int, *streams: Sequence[Keyed]) -> list[Keyed]:
    waiting = [iter(stream) for stream in streams]
    order = [number for number, stream in enumerate(streams) for _ in stream]
    random.Random(seed).shuffle(order)
    return [next(waiting[number]) for number in order]


def _played(records: Iterable[Keyed]) -> Stages:
    stages = Stages()
    for keyed in records:
        stages.feed(keyed)
    return stages


LIVE, REPLAY, SECOND_REPLAY, DRILL = "", "replay:r1/", "replay:r2/", "drill:d1/"


def test_the_demo_is_an_incident_of_each_run() -> None:
    live = _played(_records("live", "")).incidents(LIVE)
    replayed = _played(_records("replay", "r1")).incidents(REPLAY)
    assert any("hardware/gpu_xid_79" in revisions[-1] for revisions in live.values())
    assert any("hardware/gpu_xid_79" in revisions[-1] for revisions in replayed.values())
    assert {f"{REPLAY}{name}" for name in live} == set(replayed), "one id for all runs, kept apart by its prefix"


@pytest.mark.parametrize("seed", range(4))
def test_a_replay_beside_the_live_stream_changes_nothing_of_it_and_the_other_way_round(seed: int) -> None:
    live, replay = _records("live", ""), _records("replay", "r1")
    both = _played(_mixed(seed, live, replay))
    for run, alone in ((LIVE, _played(live)), (REPLAY, _played(replay))):
        assert both.incidents(run) == alone.incidents(run)
        assert both.state(run) == alone.state(run)
        assert len(alone.state(run)) > 3


def test_all_runs_together_are_nothing_but_their_sum() -> None:
    streams = {
        LIVE: _records("live", ""),
        REPLAY: _records("replay", "r1"),
        SECOND_REPLAY: _records("replay", "r2"),
        DRILL: _records("drill", "d1"),
    }
    together = _played(_mixed(9, *streams.values()))
    runs = {keys.run_of(key.decode()) for key in (*together.nodes, *together.investigations, *together.said)}
    assert runs == set(streams)
    for run, stream in streams.items():
        assert together.incidents(run) == _played(stream).incidents(run)


def _last_content(stages: Stages, run: str) -> list[bytes]:
    last = [said[-1] for said in _of(run, stages.said).values()]
    return sorted(msgspec.json.encode(msgspec.structs.replace(one, run_id="")) for one in last)


def test_a_second_replay_of_a_folder_counts_nothing_twice() -> None:
    once = _played(_records("replay", "r1"))
    twice = _played([*_records("replay", "r1"), *_records("replay", "r2")])
    assert _last_content(twice, SECOND_REPLAY) == _last_content(once, REPLAY)
    assert _last_content(twice, REPLAY) == _last_content(once, REPLAY)
    counts = [step.count for said in twice.said.values() for step in said[-1].chain]
    assert sorted(counts) == sorted(2 * [step.count for said in once.said.values() for step in said[-1].chain])


# --- join ---------------------------------------------------------------------------------------------------------


def _verdict(name: str, run: str, key: str, *, jobs: Sequence[str] = ()) -> Verdict:
    incident = Incident(
        incident_id=name, engine=Engine(version="1", rules_digest="x"), run="live", run_id="", cluster=CLUSTER,
        class_="hardware/gpu_xid_79", confidence=0.9, jobs=[Job(job_id=job) for job in jobs],
    )  # fmt: skip
    return Verdict(
        verdict_id=name, job_key=f"{run}{key}", incident=incident, root_events=["line-1"], explained_events=["line-1"]
    )


def _joined(join: Join, *verdicts: Verdict) -> list[tuple[bytes, str, int]]:
    outputs = [output for verdict in verdicts for output in join.apply(verdict, now_ns=T0)]
    return [(o.key, i.state, i.revision) for o, i in zip(outputs, incidents(outputs), strict=True)]


@pytest.mark.parametrize("run", [REPLAY, DRILL])
def test_a_job_of_another_run_does_not_supersede_a_node_that_shares_its_line(run: str) -> None:
    node, job = f"node:{CLUSTER}/beta/boot-beta", f"{CLUSTER}/1/0"
    join = Join()
    assert _joined(join, _verdict("node", LIVE, node), _verdict("job", run, job)) == [
        (b"node", "open", 1),
        (f"{run}job".encode(), "open", 1),
    ]
    assert _joined(join, _verdict("job", LIVE, job)) == [(b"job", "open", 1), (b"node", "superseded", 2)]


def test_jobs_of_two_runs_that_rest_on_one_line_are_not_merged() -> None:
    join = Join()
    for run in (LIVE, REPLAY, SECOND_REPLAY):
        verdict = _verdict("a", run, f"{CLUSTER}/1/0", jobs=["1"])
        assert _joined(join, verdict) == [(f"{run}a".encode(), "open", 1)]
        assert _joined(join, verdict) == []


def test_withdrawing_a_verdict_of_one_run_leaves_the_others() -> None:
    join = Join()
    verdict = _verdict("a", LIVE, f"{CLUSTER}/1/0")
    _joined(join, verdict, _verdict("a", REPLAY, f"{CLUSTER}/1/0"))
    gone = Verdict(verdict_id="a", job_key=f"{REPLAY}{CLUSTER}/1/0", withdrawn=True)
    assert _joined(join, gone) == [(f"{REPLAY}a".encode(), "retracted", 2)]
    assert _joined(join, verdict) == []


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "run_id", "prefix"),
    [("live", "", ""), ("post_mortem", "", ""), ("replay", "r1", "replay:r1/"), ("drill", "d1", "drill:d1/")],
)
def test_every_key_of_a_run_says_which_run_it_is(run: str, run_id: str, prefix: str) -> None:
    start = topics.run_prefix(run, run_id)
    assert start == prefix
    assert topics.key_of(run, run_id, "c", "n1").decode() == f"{prefix}c/n1"
    for key in (keys.job_key(start, "c", "7", 0), keys.node_key(start, "c", "n1", "b")):
        assert keys.run_of(key) == prefix
        assert prefix + keys.bare(key, prefix) == key
        assert not keys.bare(key, prefix).startswith(("replay:", "drill:"))
