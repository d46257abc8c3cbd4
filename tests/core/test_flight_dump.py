"""Dumps of every version, as pickle and as JSON, become the same records; what is odd in them is left out."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.facts import MAX_WORLD
from pipeline.core.flight import dump as flight_dump
from pipeline.core.flight.dump import FlightError, dumps_of_json, dumps_of_value, own_rank
from pipeline.core.flight.state import (
    MAX_STATE,
    GroupState,
    Op,
    RankState,
    folded,
    lines_of,
    read_state,
    state_of,
    unfolded,
)
from pipeline.core.pickles import read_pickle
from tests.dumps import T0_NS, VERSIONS, Call, Job, even, one_behind, world

JOB = Job(
    {"0": ("default_pg", [0, 1, 2, 3]), "7": ("tensor", [2, 3])},
    {2: [Call("0"), Call("7", "_all_gather_base", size=64, dtype="BFloat16"), Call("0", done=False)]},
)


def _read(dump: Any, form: str) -> Any:
    data = pickle.dumps(dump, 2) if form == "pickle" else json.dumps(dump).encode()
    (read,) = dumps_of_value(read_pickle(data)) if form == "pickle" else dumps_of_json(data)
    return read


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_gives_the_operations(version: str, form: str) -> None:
    dump = _read(JOB.dump(2, version, form), form)
    assert dump.version == version
    assert [(e.backend, e.op, e.seq, e.state) for e in dump.entries] == [
        ("nccl", "all_reduce", 1, "completed"), ("nccl", "_all_gather_base", 1, "completed"),
        ("nccl", "all_reduce", 2, "scheduled"),
    ]  # fmt: skip
    assert dump.entries[1].sizes == (128, 128, "[[64, 2]]")
    assert abs(dump.entries[0].created_ns - T0_NS) < 1_000_000


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("version", [v for v in VERSIONS if v not in ("", "1.1")])
def test_each_version_with_groups_gives_their_ranks(version: str, form: str) -> None:
    dump = _read(JOB.dump(2, version, form), form)
    assert sorted(group.ranks for group in dump.groups.values()) == [(0, 1, 2, 3), (2, 3)]
    assert {entry.group for entry in dump.entries} <= set(dump.groups)


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_numbers_of_a_group_are_those_of_its_status(form: str) -> None:
    state = state_of(_read(JOB.dump(2, "2.9", form), form), 2)
    numbers = {group.name: (group.enqueued, group.started, group.completed) for group in state.groups}
    assert numbers == {"0": (2, -1, 1), "7": (1, -1, 1)}


def test_where_a_collective_was_called_is_the_first_frame_that_is_not_pytorch() -> None:
    assert {entry.where for entry in _read(JOB.dump(2), "pickle").entries} == {"fit.py:77"}


def test_numbers_without_entries_find_their_group_by_the_order_in_which_groups_were_made() -> None:
    groups = {"0": ("default_pg", [0, 1]), "4": ("tensor", [0]), "11": ("data", [0, 1])}
    job = Job(groups, {0: [Call("0"), Call("4"), Call("4"), *([Call("11")] * 5)]}, only_active=True)
    state = state_of(_read(job.dump(0), "pickle"), 0)
    assert {group.name: group.completed for group in state.groups} == {"0": 1, "4": 2, "11": 5}


def test_numbers_find_no_group_where_a_group_may_have_none() -> None:
    groups = {"0": ("default_pg", [0, 1]), "4": ("tensor", [0]), "11": ("data", [0, 1])}
    job = Job(groups, {0: [Call("0"), Call("11")]}, only_active=True)
    state = state_of(_read(job.dump(0), "pickle"), 0)
    assert {group.enqueued for group in state.groups} == {-1}


def test_hashed_names_have_no_order() -> None:
    groups = {"d0e1": ("default_pg", [0, 1]), "a9f3": ("data", [0, 1])}
    job = Job(groups, {0: [Call("d0e1"), Call("a9f3")]}, only_active=True)
    assert {group.enqueued for group in state_of(_read(job.dump(0), "pickle"), 0).groups} == {-1}


# --- what is pending --------------------------------------------------------------------------------------------------


def _pending(*calls: Call, backend: str = "nccl", version: str = "2.9") -> list[str]:
    job = Job(world(4), {0: list(calls)}, backend=backend)
    (group,) = state_of(_read(job.dump(0, version), "pickle"), 0).groups
    return [f"{op.name} {op.seq}" for op in group.ops]


def test_parts_of_a_coalesced_operation_are_done_when_it_is() -> None:
    sends = [Call("0", "send 0->1", done=False), Call("0", "recv 0<-1", done=False, seq=1)]
    job = Job(world(4), {0: [*sends, Call("0", "coalesced", seq=1)]})
    dump = job.dump(0)
    dump["entries"][-1] |= {"is_p2p": True, "p2p_seq_id": 1}
    del dump["pg_status"]
    state = state_of(_read(dump, "pickle"), 0)
    assert state.pending == 0
    dump["entries"][-1] |= {"state": "scheduled", "time_discovered_completed_ns": None}
    assert state_of(_read(dump, "pickle"), 0).pending == 3


def test_what_stands_before_a_collective_that_is_done_is_done() -> None:
    assert _pending(Call("0", done=False), Call("0"), Call("0", done=False), version="2.0") == ["all_reduce 3"]


def test_a_send_that_is_done_says_nothing_of_another_end() -> None:
    calls = [Call("0", "send 0->1", done=False), Call("0", "send 0->2"), Call("0", "send 0->1", done=False)]
    assert _pending(*calls) == ["send 0->1 0"]


def test_of_gloo_what_is_retired_is_done() -> None:
    job = Job(world(2), {0: [Call("0", done=False), Call("0", done=False)]}, backend="gloo")
    dump = job.dump(0, "2.10")
    dump["entries"][0]["retired"] = True
    (group,) = state_of(_read(dump, "pickle"), 0).groups
    assert [op.seq for op in group.ops] == [2]


# --- whose it is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dump", "name", "rank"),
    [
        (even(4).dump(0), "nccl_trace_rank_3", 3),
        (even(4).dump(0), "out/comm_lib_trace_rank_12", 12),
        (even(4).dump(0), "nccl_trace_rank_box-07_5", 5),
        (even(4).dump(0), "rank08.fr.json", 8),
        (even(4).dump(0), "rank_2.json.gz", 2),
        (even(4).dump(0), "trace.pkl", None),
        (even(4).dump(0), "run7/trace", None),
        (JOB.dump(2), "nccl_trace_rank_9", 9),
        (Job({"0": ("default_pg", [0, 1, 2]), "5": ("x", [1])}, {1: [Call("0")]}).dump(1), "trace_9", 1),
        (Job({"0": ("default_pg", [0, 1, 2]), "5": ("x", [1, 2]), "6": ("y", [0, 2])}, {2: []}).dump(2), "a", 2),
        (Job({"0": ("d", [4, 6])}, {6: [Call("0", "send 1->0")]}).dump(6), "trace_9", 6),
        (Job({"0": ("d", [4, 6])}, {6: [Call("0", "recv 0<-1")]}).dump(6), "trace_9", 4),
        ({**even(4).dump(0), "rank": 3}, "trace_9", 3),
    ],
)  # fmt: skip
def test_the_rank_is_what_the_content_gives_and_else_the_end_of_the_name(
    dump: Any, name: str, rank: int | None
) -> None:
    assert own_rank(_read(dump, "pickle"), name) == rank


@pytest.mark.parametrize("form", ["by rank", "by name", "list"])
def test_one_document_may_hold_the_dumps_of_many_ranks(form: str) -> None:
    said = [even(3).dump(rank, "2.9", "json") for rank in range(3)]
    document: Any = {
        "by rank": {str(rank): dump for rank, dump in enumerate(said)},
        "by name": {f"nccl_trace_rank_{rank}": dump for rank, dump in enumerate(said)},
        "list": [{"rank": rank, **dump} for rank, dump in enumerate(said)],
    }[form]
    assert [own_rank(dump, "all.json") for dump in dumps_of_json(json.dumps(document).encode())] == [0, 1, 2]


# --- odd and hostile --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"{}", b"null", b"7", b'{"entries": []}', b'{"entries": [1, 2]}', b'{"pg_config": {}}',
        b'{"log": {"version": "1.2", "entries": [{"time": 3}]}}', b'{"version": "2", "entries": [{"a": 1}]}',
        b'{"pg_config": {"host": "a"}, "port": 5432}', b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b'{"a": NaN}',
    ],
)  # fmt: skip
def test_what_is_no_dump_is_a_named_error(data: bytes) -> None:
    with pytest.raises(FlightError):
        dumps_of_json(data)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.data())
def test_any_value_in_any_place_is_left_out_or_read(data: st.DataObject) -> None:
    dump = JOB.dump(2, data.draw(st.sampled_from(VERSIONS[2:])))
    for place in (dump, *dump["entries"], *dump["pg_config"].values(), *dump.get("pg_status", {}).values()):
        if isinstance(place, dict) and data.draw(st.booleans()):
            place[data.draw(st.sampled_from(sorted(place, key=str)))] = data.draw(ODD)
    try:
        found = dumps_of_value(dump)
    except FlightError:
        return
    for line in lines_of(state_of(found[0], 2), "2026-03-04T05:06:07Z"):
        assert line.isprintable()
        assert len(line) < MAX_STATE + 1_000


def test_names_are_shortened_and_hold_no_control_characters() -> None:
    nasty = "a\x1b[31m\n[repeated 5x across cluster]" + "b" * 500
    job = Job({nasty: (nasty, [0, 1])}, {0: [Call(nasty, done=False)]})
    (group,) = state_of(_read(job.dump(0), "pickle"), 0).groups
    assert group.name.isprintable()
    assert len(group.name) == 80
    assert "[repeated" not in group.name


def test_numbers_beyond_all_bounds_are_not_known() -> None:
    dump = even(2, pending=1).dump(0)
    dump["entries"][-1] |= {"collective_seq_id": 2**70, "input_sizes": [[2**62, 2**62]], "time_created_ns": -5}
    entry = _read(dump, "pickle").entries[-1]
    assert (entry.seq, entry.sizes[0], entry.created_ns) == (-1, 2**63 - 1, 0)


def test_a_list_of_ranks_that_cannot_be_one_is_not_known() -> None:
    dump = even(2).dump(0)
    for ranks in ("[0, -1]", "[0, x]", "[0, 99999999]", "nothing", 7, [0, "a"], {"a": 1}):
        dump["pg_config"]["0"]["ranks"] = ranks
        assert _read(dump, "pickle").groups["0"].ranks == ()


@pytest.mark.parametrize("ranks", [list(range(1_000)), str(list(range(1_000))), [*range(1_000), -1]])
def test_a_list_that_a_pickle_shows_again_and_again_is_a_named_error(
    ranks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [{"profiling_name": "nccl:all_reduce"}] * 1_000
    groups = {str(name): {"name": str(name), "ranks": ranks} for name in range(64)}
    files: list[Any] = [
        {"version": "2.4", "pg_config": groups, "entries": []},
        {str(rank): {"version": "2.4", "pg_config": {"0": {"ranks": ranks}}, "entries": []} for rank in range(64)},
        {str(rank): {"version": "2.4", "pg_status": {}, "entries": entries} for rank in range(64)},
    ]
    read = [read_pickle(pickle.dumps(file)) for file in files]
    assert [len(dumps_of_value(file)) for file in read] == [1, 64, 64]
    monkeypatch.setattr(flight_dump, "MAX_ASKED", 32_000)
    for file in read:
        with pytest.raises(FlightError, match="asks to read more"):
            dumps_of_value(file)


# --- as lines ---------------------------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 300), max_size=60))
def test_folded_ranks_unfold(ranks: set[int]) -> None:
    found = unfolded(folded(ranks))
    assert list(found) == sorted(ranks)
    assert len(found) == len(ranks)
    assert all(rank in found for rank in ranks)
    assert max(ranks, default=0) + 1 not in found


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (range(512), "0-511"), (range(0, 64, 8), "0-56:8"), ([7, 3], "3, 7"), ([0, 1, 2, 8, 9, 10], "0-2, 8-10"),
        ([5], "5"), ([6, 8, 10], "6, 8, 10"), ([], ""),
    ],
)  # fmt: skip
def test_ranks_are_folded_as_a_person_would(ranks: Any, text: str) -> None:
    assert folded(ranks) == text


@pytest.mark.parametrize("text", ["0-", "a", "1-9999999999", "5:0", "0-3:x", "²", "3, 0-7", "5-2", f"0-{MAX_WORLD}"])
def test_what_was_not_folded_unfolds_to_nothing(text: str) -> None:
    assert list(unfolded(text)) == []


def _wide(groups: int, ops: int) -> RankState:
    op = Op(1, 5, 0, "nccl:all_reduce", "scheduled", 8, 8, "Float", "Float", "[[8]]", T0_NS, 600_000)
    made = [
        GroupState(str(n), "group", "0-7", 5, -1, 4, 5, 4, False, ops, [op] * ops, [op]) for n in range(groups)
    ]  # fmt: skip
    return RankState(0, "2.9", "", groups * ops, T0_NS, False, made)


def test_a_rank_with_many_groups_is_told_in_several_lines() -> None:
    lines = lines_of(_wide(100, 3), "")
    assert len(lines) > 1
    assert max(map(len, lines)) < MAX_STATE + 300
    read = [state for line in lines if (state := read_state(line.partition(", state ")[2]))]
    assert sum(len(state.groups) for state in read) == 100
    assert all(state.whole for state in read)


def test_where_it_has_to_be_short_numbers_come_before_operations() -> None:
    (line,) = lines_of(_wide(40, 3), "", most=1)
    state = read_state(line.partition(", state ")[2])
    assert state is not None
    assert len(state.groups) == 40
    assert 0 < sum(len(group.ops) for group in state.groups) < 120
    (cut,) = lines_of(_wide(200, 3), "", most=1)
    short = read_state(cut.partition(", state ")[2])
    assert short is not None
    assert len(short.groups) < 200
    assert not short.whole


def test_a_dump_of_many_entries_stays_one_short_line() -> None:
    job = even(8, done=5_000, pending=2_000)
    state = state_of(_read(job.dump(3, "2.9", "json"), "json"), 3)
    (line,) = lines_of(state, "")
    assert state.pending == 2_000
    assert len(line) < 1_500


def test_the_stamp_of_a_dump_is_its_last_sign_of_life() -> None:
    state = state_of(_read(one_behind().dump(0), "pickle"), 0)
    assert state.last_ns == T0_NS + 3_000_000
    assert lines_of(state, "2026-03-04T05:06:07Z")[0] == "2026-03-04T05:06:07Z flight recorder: last entry of rank 0"
