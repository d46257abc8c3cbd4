"""Who waits for whom: stories of ranks that stop before or inside a collective, differ, wait for each other."""

import random
from typing import Any

import msgspec
import pytest

from pipeline.core.flight import table
from pipeline.core.flight.analysis import Findings, analyse
from pipeline.core.flight.state import RankState
from pipeline.core.flight.words import crossed_said, mismatch_said, missing_said, stuck_said, together_said
from tests.dumps import Call, Job, even, one_behind, world


def _stuck(found: Findings) -> dict[int, tuple[str, int, str]]:
    return {one.rank: (one.kind, one.seq, one.op) for one in found.stuck}


def _ranks(size: int, calls: list[Call], **others: list[Call]) -> dict[int, list[Call]]:
    return {rank: others.get(f"rank{rank}", calls) for rank in range(size)}


# --- one group --------------------------------------------------------------------------------------------------------


def test_a_rank_that_never_entered_what_others_wait_in_stopped_on_its_host() -> None:
    found = analyse(one_behind(size=4, rank=2).states())
    assert _stuck(found) == {2: ("before", 4, "all_reduce")}
    assert found.stuck[0].waiting == (0, 1, 3)
    assert found.stuck[0].pending == 0
    assert "Rank 2 never entered all_reduce number 4 of process group 0 (default_pg)" in stuck_said(found)[0]
    assert "py-spy" in stuck_said(found)[1]


def test_several_ranks_that_never_entered_are_all_named() -> None:
    job = even(8, pending=2)
    for rank in (3, 6):
        job.calls[rank] = job.calls[rank][:3]
    assert _stuck(analyse(job.states())) == dict.fromkeys((3, 6), ("before", 4, "all_reduce"))


def test_a_rank_that_did_not_complete_what_others_completed_is_stuck_inside() -> None:
    job = even(4, done=3, pending=1)
    job.calls[1] = [Call("0"), Call("0"), Call("0", done=False), Call("0", done=False)]
    found = analyse(job.states())
    assert _stuck(found) == {1: ("inside", 3, "all_reduce")}
    assert "entered all_reduce number 3" in stuck_said(found)[0]
    assert "kernel log" in stuck_said(found)[1]


def test_a_rank_whose_device_is_stuck_is_the_one_although_its_host_ran_ahead_of_the_others() -> None:
    groups = {"0": ("default_pg", [0, 1, 2, 3]), "5": ("pair", [0, 1])}
    ahead = [Call("0"), Call("0", done=False), Call("5", done=False), Call("5", done=False)]
    rest = [Call("0"), Call("0"), Call("0", done=False)]
    found = analyse(Job(groups, _ranks(4, rest, rank1=ahead)).states())
    assert _stuck(found) == {1: ("inside", 2, "all_reduce")}
    assert [wait.rank for wait in found.waiting] == [0, 2, 3]


def test_with_timing_a_collective_that_has_not_started_on_one_device_names_it() -> None:
    waits = [Call("0", started=True), Call("0", done=False, started=True)]
    late = [Call("0", started=True), Call("0", done=False)]
    found = analyse(Job(world(3), _ranks(3, waits, rank2=late)).states())
    assert _stuck(found) == {2: ("inside", 2, "all_reduce")}


def test_without_timing_nobody_is_named_where_all_are_inside() -> None:
    found = analyse(even(4, pending=1).states())
    assert found.stuck == []
    assert [(one.op.seq, one.ranks) for one in found.together] == [(4, [0, 1, 2, 3])]
    assert "All 4 ranks" in together_said(found)[0]


def test_all_equal_says_nothing() -> None:
    found = analyse(even(4).states())
    empty: list[Any] = []
    assert (found.stuck, found.waiting, found.together, found.groups, found.mismatches) == (empty,) * 5
    assert (found.missing, found.awaited, found.circle, found.crossed) == (empty, empty, empty, None)


def test_what_had_only_just_begun_when_it_was_dumped_is_no_wait() -> None:
    states = [msgspec.structs.replace(state, fresh=True) for state in one_behind().states()]
    found = analyse(states)
    assert (found.stuck, found.waiting, found.groups) == ([], [], [])


def test_a_rank_that_has_no_communicator_of_the_group_yet_never_entered() -> None:
    groups = {"0": ("default_pg", [0, 1, 2]), "3": ("data", [0, 1, 2])}
    job = Job(groups, _ranks(3, [Call("0"), Call("3", done=False)], rank1=[Call("0")]))
    states = [
        msgspec.structs.replace(state, groups=[g for g in state.groups if g.name == "0" or state.rank != 1])
        for state in job.states()
    ]
    assert _stuck(analyse(states)) == {1: ("before", 1, "all_reduce")}


# --- several groups ---------------------------------------------------------------------------------------------------

GRID = {
    "0": ("default_pg", [0, 1, 2, 3]), "1": ("tensor", [0, 1]), "2": ("tensor", [2, 3]), "3": ("data", [0, 2]),
    "4": ("data", [1, 3]),
}  # fmt: skip


def test_a_rank_that_waits_in_one_group_because_of_another_leads_to_the_cause() -> None:
    # 3 stopped; 2 waits for it in its tensor group, so 0 waits for 2 in its data group, and 1 for 0.
    job = Job(GRID, {
        0: [Call("1"), Call("3", done=False)],
        1: [Call("1"), Call("1", done=False)],
        2: [Call("2"), Call("2", done=False)],
        3: [Call("2")],
    })  # fmt: skip
    found = analyse(job.states())
    assert _stuck(found) == {3: ("before", 2, "all_reduce")}
    assert {wait.rank: wait.on for wait in found.waiting} == {0: (2,), 1: (0,), 2: (3,)}


def test_two_causes_are_two() -> None:
    job = Job(GRID, {
        0: [Call("1"), Call("1", done=False)], 1: [Call("1")], 2: [Call("2"), Call("2", done=False)], 3: [Call("2")],
    })  # fmt: skip
    assert sorted(_stuck(analyse(job.states()))) == [1, 3]


def test_groups_of_one_name_and_other_ranks_are_not_mixed() -> None:
    job = Job(GRID, {
        0: [Call("1"), Call("1", done=False)], 1: [Call("1"), Call("1", done=False)], 2: [*[Call("2")] * 9],
        3: [*[Call("2")] * 9],
    })  # fmt: skip
    states = [
        msgspec.structs.replace(
            s, groups=[msgspec.structs.replace(g, name="9") if g.name in "12" else g for g in s.groups]
        )
        for s in job.states()
    ]  # fmt: skip
    found = analyse(states)
    assert found.stuck == []
    assert [one.ranks for one in found.together] == [[0, 1]]


def test_members_of_an_inner_group_that_all_wait_together_are_not_blamed() -> None:
    # 0 and 1 are inside their tensor group and nobody completes it; 2 and 3 wait for them.
    job = Job(GRID, {
        0: [Call("1"), Call("1", done=False)], 1: [Call("1"), Call("1", done=False)],
        2: [Call("3", done=False)], 3: [Call("4", done=False)],
    })  # fmt: skip
    found = analyse(job.states())
    assert found.stuck == []
    assert [one.ranks for one in found.together] == [[0, 1]]


# --- sends and receives -----------------------------------------------------------------------------------------------


def test_a_receive_waits_for_the_rank_that_never_sent() -> None:
    job = Job({"0": ("stage", [4, 5])}, {4: [Call("0", "send 0->1")], 5: [
        Call("0", "recv 1<-0"), Call("0", "recv 1<-0", done=False)]})  # fmt: skip
    found = analyse(job.states())
    assert _stuck(found) == {4: ("before", 0, "recv 1<-0")}
    assert "the other half of recv 1<-0" in stuck_said(found)[0]


def test_a_send_and_its_receive_that_are_both_pending_hold_up_each_other_not_one_rank() -> None:
    job = Job({"0": ("stage", [4, 5])}, {
        4: [Call("0", "send 0->1", done=False)], 5: [Call("0", "recv 1<-0", done=False)],
    })  # fmt: skip
    found = analyse(job.states())
    assert found.stuck == []
    assert [one.ranks for one in found.together] == [[4, 5]]


def test_the_end_of_a_pipeline_leads_to_its_beginning() -> None:
    ranks = list(range(4))
    waits = {rank: [Call("0", f"recv {rank}<-{rank - 1}", done=False)] for rank in ranks[1:]}
    found = analyse(Job({"0": ("pipeline", ranks)}, {0: [], **waits}).states(ranks))
    assert sorted(_stuck(found)) == [0]


def test_numbers_that_count_sends_too_are_not_compared() -> None:
    # Rank 0 sent a lot and so has a higher number of operations than rank 1: nobody is behind.
    calls = [*[Call("0", "send 0->1") for _ in range(9)], Call("0", done=False)]
    other = [*[Call("0", "recv 1<-0") for _ in range(9)], Call("0", done=False)]
    found = analyse(Job(world(3), {0: calls, 1: other, 2: [Call("0", done=False)]}).states())
    assert found.stuck == []
    assert [one.ranks for one in found.together] == [[0, 1, 2]]


# --- ranks without a dump ---------------------------------------------------------------------------------------------


def test_a_rank_without_a_dump_for_which_all_wait_is_named() -> None:
    found = analyse(even(8, pending=1).states([0, 1, 2, 3, 4, 6, 7]))
    assert (found.missing, found.awaited, found.stuck) == ([5], [5], [])
    assert "Of rank 5 there is no flight-recorder dump" in missing_said(found)[0]


def test_a_rank_that_waits_for_one_without_a_dump_is_not_blamed_for_those_behind_it() -> None:
    job = Job(GRID, {
        0: [Call("1"), Call("3", done=False)], 1: [Call("1"), Call("1", done=False)], 2: [Call("2", done=False)],
    })  # fmt: skip
    found = analyse(job.states())
    assert (found.stuck, found.awaited) == ([], [3])


def test_of_a_job_of_which_most_dumps_are_missing_nobody_is_named() -> None:
    found = analyse(even(64, pending=1).states([0, 1, 2, 3]))
    assert found.awaited == []
    assert len(found.missing) == 60


def test_a_missing_dump_hides_nobody_who_is_seen_to_have_stopped() -> None:
    found = analyse(one_behind(size=8, rank=2).states([0, 1, 2, 3, 4, 5, 6]))
    assert sorted(_stuck(found)) == [2]
    assert (found.awaited, found.missing) == ([], [7])


# --- what differs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "what"),
    [
        (Call("0", "_all_gather_base", done=False), "operation"), (Call("0", size=513, done=False), "size"),
        (Call("0", dtype="Half", done=False), "data type"),
    ],
)  # fmt: skip
def test_what_one_rank_calls_otherwise_under_one_number_is_named(odd: Call, what: str) -> None:
    waits = [Call("0"), Call("0", done=False)]
    (mismatch,) = analyse(Job(world(4), _ranks(4, waits, rank3=[Call("0"), odd])).states()).mismatches
    assert (mismatch.what, mismatch.seq, mismatch.odd, mismatch.others) == (what, 2, [3], [0, 1, 2])
    assert mismatch_said(mismatch).startswith(f"Rank 3: another {what} at number 2")


def test_of_two_ranks_that_differ_nobody_is_the_odd_one() -> None:
    job = Job(world(2), {0: [Call("0", done=False)], 1: [Call("0", "broadcast", done=False)]})
    (mismatch,) = analyse(job.states()).mismatches
    assert (mismatch.odd, mismatch.others) == ([], [0, 1])
    assert "half of them" in mismatch_said(mismatch)


def test_a_mismatch_that_was_completed_before_the_stall_is_seen() -> None:
    # Rank 1 skipped a broadcast: its numbers are one behind, until nobody is there for the last all_reduce.
    others = [Call("0"), Call("0", "broadcast"), Call("0", done=False)]
    found = analyse(Job(world(4), _ranks(4, others, rank1=[Call("0"), Call("0")])).states())
    assert [(one.seq, one.what, one.odd) for one in found.mismatches] == [(2, "operation", [1])]


@pytest.mark.parametrize("name", ["all_to_all", "alltoall_base", "all_to_all_v_single"])
def test_an_exchange_may_have_any_size_on_any_rank(name: str) -> None:
    calls = {rank: [Call("0", name, size=100 + rank, done=False)] for rank in range(4)}
    assert analyse(Job(world(4), calls).states()).mismatches == []


def test_what_differs_is_nothing_as_long_as_all_goes_on() -> None:
    calls = {rank: [Call("0", size=100 + rank)] for rank in range(4)}
    assert analyse(Job(world(4), calls).states()).mismatches == []


# --- ranks that wait for each other -----------------------------------------------------------------------------------

PAIR = {"0": ("default_pg", [0, 1, 2]), "1": ("tensor", [0, 1, 2]), "2": ("data", [0, 1, 2])}
ONE_WAY = [Call("1", done=False), Call("2", done=False)]


def test_two_groups_that_one_rank_calls_in_another_order_are_named() -> None:
    job = Job(PAIR, _ranks(3, ONE_WAY, rank1=ONE_WAY[::-1]))
    found = analyse(job.states())
    assert found.stuck == []
    assert found.crossed is not None
    assert (found.crossed.odd, found.crossed.others) == ([1], [0, 2])
    assert "Rank 1 enqueued all_reduce number 1 of process group 1 (tensor)" in crossed_said(found.crossed)[0]


def test_one_order_on_all_ranks_is_no_deadlock() -> None:
    assert analyse(Job(PAIR, _ranks(3, ONE_WAY)).states()).crossed is None


def test_an_order_that_differs_behind_the_first_operation_is_no_deadlock() -> None:
    first = Call("0", done=False)
    job = Job(PAIR, _ranks(3, [first, *ONE_WAY], rank1=[first, *ONE_WAY[::-1]]))
    assert analyse(job.states()).crossed is None


def test_ranks_that_each_wait_for_the_other_are_a_circle() -> None:
    job = Job(PAIR, {0: [Call("1", done=False)], 1: [Call("2", done=False)], 2: [*ONE_WAY]})
    found = analyse(job.states())
    assert (found.stuck, found.circle) == ([], [0, 1])


# --- many -------------------------------------------------------------------------------------------------------------


def _large() -> Job:
    tensor = {f"t{n}": ("tensor", list(range(n * 8, n * 8 + 8))) for n in range(64)}
    data = {f"d{n}": ("data", list(range(n, 512, 8))) for n in range(8)}
    calls = {}
    for rank in range(512):
        own, across = f"t{rank // 8}", f"d{rank % 8}"
        if rank == 77:
            calls[rank] = [Call(own), Call(across)]
        elif rank // 8 == 9:
            calls[rank] = [Call(own), Call(across), Call(own, done=False)]
        else:
            calls[rank] = [Call(own), Call(across), Call(own), Call(across, done=False)]
    return Job({**world(512), **tensor, **data}, calls)


def test_one_rank_of_512_is_found() -> None:
    found = analyse(_large().states())
    assert _stuck(found) == {77: ("before", 2, "all_reduce")}
    assert len(found.waiting) == 511
    text = stuck_said(found)[0]
    assert "Rank 77 never entered" in text
    assert len(text) < 600


def test_the_order_of_dumps_does_not_matter() -> None:
    states: list[RankState] = _large().states()[:120]
    first = analyse(states)
    random.Random(7).shuffle(states)
    assert analyse(states) == first


def test_of_two_dumps_of_a_rank_the_last_one_counts() -> None:
    early = [msgspec.structs.replace(state, last_ns=state.last_ns - 10**9) for state in one_behind(rank=0).states()]
    assert sorted(_stuck(analyse([*early, *one_behind(rank=2).states()]))) == [2]


# --- lines that anybody may have written ------------------------------------------------------------------------------


def _claims(rank: int, **listed: str) -> RankState:
    """A rank that waits in groups with these members, in each at another number."""
    (state,) = even(1, pending=1).states()
    (group,) = state.groups
    groups = [
        msgspec.structs.replace(
            group, name=name, desc="default_pg" if name == "world" else name, ranks=ranks, enqueued=9_999, completed=-1,
            ops=[msgspec.structs.replace(op, seq=op.seq + rank) for op in group.ops],
        )
        for name, ranks in listed.items()
    ]  # fmt: skip
    return msgspec.structs.replace(state, rank=rank, groups=groups)


def test_a_group_has_no_more_members_than_the_job_has_ranks() -> None:
    assert analyse([_claims(0, world="0-3", wide="0-4")]).missing == [1, 2, 3]
    assert analyse([_claims(0, wide="0-4")]).missing == [1, 2, 3, 4]


def test_the_members_of_all_groups_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [_claims(rank, **{f"g{rank}": f"{rank}-99"}) for rank in range(20)]
    assert len(analyse(states).missing) == 80
    monkeypatch.setattr(table, "MAX_MEMBERS", 250)
    found = table.Table(table.latest(states))
    assert sum(len(found.absent(key)) for key in found.members) <= 250
    monkeypatch.setattr(table, "MAX_MEMBERS", 50)
    assert analyse(states).missing == []


def test_all_who_wait_for_the_same_missing_ranks_share_one_list() -> None:
    found = analyse([_claims(rank, world="0-999") for rank in range(600, 900)])
    assert len(found.waiting) == 300
    assert len({id(wait.on) for wait in found.waiting}) == 1
