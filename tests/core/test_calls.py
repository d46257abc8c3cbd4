"""Who waited in another call than all others, and what every rank says alike."""

import pytest

from schemas.records import Event
from tests.core.concluding import concluded
from tests.lines.reading import events_of
from tests.strategies import SECOND, T0, event, placed

C10D = "/opt/py/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
GRAPH = "/opt/py/lib/python3.11/site-packages/torch/autograd/graph.py"
WORLD = 4


def _job() -> list[Event]:
    return [placed(rank, "alpha", world=WORLD) for rank in range(WORLD)]


def _timed_out(rank: int, function: str, callers: str = "main > train", *, name: str = "gloo.timeout") -> Event:
    file = GRAPH if function == "_engine_run_backward" else C10D
    return event(
        name, source=f"rank{rank}", offset=9_000, rank=rank, at_ns=T0 + 20 * SECOND, resolution_ns=SECOND,
        attributes={"timeout_ms": "20000", "file": file, "function": function, "callers": callers},
    )  # fmt: skip


def _named(*events: Event) -> tuple[str, list[int | None]]:
    incident = concluded(*_job(), *events)
    return incident.class_, [culprit.rank for culprit in incident.culprits]


@pytest.mark.parametrize("name", ["gloo.timeout", "gloo.closed", "gloo.reset"])
def test_the_one_rank_in_another_call_is_out_of_step(name: str) -> None:
    others = [_timed_out(rank, "all_gather") for rank in (0, 1, 3)]
    assert _named(*others, _timed_out(2, "all_reduce", name=name)) == ("software/collective_mismatch", [2])


@pytest.mark.parametrize(
    ("callers", "class_"),
    [("main", "software/uneven_inputs"), ("main > train", "software/collective_mismatch"),
     ("main > evaluate", "software/collective_mismatch")],
)  # fmt: skip
def test_who_left_the_function_in_which_the_others_train_came_to_the_end_of_its_data(callers: str, class_: str) -> None:
    others = [_timed_out(rank, "_engine_run_backward") for rank in (0, 1, 2)]
    assert _named(*others, _timed_out(3, "barrier", callers)) == (class_, [3])


@pytest.mark.parametrize(
    ("calls", "ranks"),
    [
        ({0: "barrier", 1: "barrier", 2: "barrier", 3: "barrier"}, []),  # the same call
        ({0: "barrier", 1: "barrier", 2: "all_reduce", 3: "all_reduce"}, []),  # two against two
        ({0: "barrier", 1: "broadcast", 2: "all_reduce", 3: "barrier"}, []),  # no call that the others agree on
    ],
)
def test_nobody_is_out_of_step(calls: dict[int, str], ranks: list[int]) -> None:
    class_, named = _named(*(_timed_out(rank, function) for rank, function in calls.items()))
    assert (class_, named) == ("unknown/collective_timeout", ranks)


def test_a_rank_that_tells_of_no_wait_is_the_one_waited_for() -> None:
    calls = {0: "barrier", 1: "all_reduce", 3: "barrier"}
    named = _named(*(_timed_out(rank, function) for rank, function in calls.items()))
    assert named == ("unknown/silent_rank", [2])


def test_the_functions_of_the_program_are_kept_of_who_waited_only() -> None:
    frames = (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/work/run.py", line 9, in <module>\n'
        '[rank1]:   File "/work/run.py", line 5, in main\n'
        f'[rank1]:   File "{C10D}", line 3900, in barrier\n[rank1]: RuntimeError: '
    )
    told = f"{frames}[unbound_buffer.cc:81] Timed out waiting 900ms for recv operation to complete"
    (waited,) = (each for each in events_of(told) if each.name == "gloo.timeout")
    assert (waited.attributes["function"], waited.attributes["callers"]) == ("barrier", "<module> > main")
    (raised,) = (each for each in events_of(f"{frames}shape is wrong") if each.name == "python.exception")
    assert "callers" not in raised.attributes


def test_the_helper_that_a_library_makes_is_no_place_of_its_own() -> None:
    serialization = "/opt/py/lib/python3.11/site-packages/torch/serialization.py"
    text = (
        f'Traceback (most recent call last):\n  File "{serialization}", line 1491, in load\n'
        f'  File "{serialization}", line 771, in __init__\nOSError: [Errno 22] Invalid argument'
    )
    (raised,) = (e for e in events_of(text) if e.name == "python.exception")
    assert raised.attributes["function"] == "load"
    (own,) = (
        e
        for e in events_of(text.replace("/opt/py/lib/python3.11/site-packages", "/work"))
        if e.name == "python.exception"
    )
    assert own.attributes["function"] == "__init__"


def _end(rank: int) -> Event:
    said = {"rank": str(rank)}
    return event("train.end", source="job", offset=3_000 + rank, rank=rank, role="context", attributes=said)


@pytest.mark.parametrize(
    ("ends", "named"),
    [((2,), [2]), ((0,), []), ((2, 3), []), ((), [])],  # rank 0 may speak for all; two ends; none
)
def test_the_one_rank_that_tells_of_its_end_ended_early(ends: tuple[int, ...], named: list[int]) -> None:
    waits = [event("gloo.timeout", source="job", offset=9_000, at_ns=T0 + 20 * SECOND, resolution_ns=SECOND)]
    class_, ranks = _named(*waits, *(_end(rank) for rank in ends))
    assert ranks == named
    assert (class_ == "software/uneven_inputs") is bool(named)


# --- what every rank says -------------------------------------------------------------------------------------------


def _raised(rank: int, message: str) -> Event:
    return event(
        "python.exception", source=f"rank{rank}", offset=5_000, rank=rank, at_ns=T0 + SECOND, role="cause",
        attributes={"type": "KeyError", "exception": "KeyError", "message": message, "uncaught": "true",
                    "file": f"/work/{message}.py", "function": "main"},
    )  # fmt: skip


def _ended(rank: int, at_s: int, exitcode: str) -> Event:
    return event("elastic.failed", source="agent", offset=at_s, rank=rank, at_ns=T0 + at_s * SECOND,
                 attributes={"exitcode": exitcode, "pid": str(800 + rank)})  # fmt: skip


def _stopped(rank: int) -> Event:
    return event("elastic.terminate", source="agent", offset=60 + rank, rank=rank, at_ns=T0 + 3 * SECOND)


def test_what_every_rank_raises_alike_is_no_ranks_fault() -> None:
    incident = concluded(*_job(), *(_raised(rank, "settings") for rank in range(WORLD)), _ended(2, 2, "1"))
    assert (incident.class_, incident.culprits) == ("software/python_exception", [])
    assert incident.explanation.startswith("Every rank raised an exception")
    assert "what they share" in (incident.why_unknown or "")


def test_who_was_stopped_before_it_could_raise_it_does_not_count() -> None:
    raised = [_raised(rank, "settings") for rank in (0, 1)]
    assert _named(*raised, _stopped(2), _stopped(3), _ended(1, 2, "1"))[1] == []


@pytest.mark.parametrize("ranks", [(2,), (0, 1, 2)])
def test_where_one_rank_did_not_raise_it_those_that_did_are_named(ranks: tuple[int, ...]) -> None:
    raised = [_raised(rank, "settings") for rank in ranks]
    assert _named(*raised, _ended(ranks[0], 2, "1"))[1] == list(ranks)


# --- who ended first ------------------------------------------------------------------------------------------------


def _lost(rank: int | None) -> Event:
    return event("gloo.closed", source="job", offset=7_000 + (rank or 9), rank=rank, at_ns=T0 + 3 * SECOND)


@pytest.mark.parametrize(("exitcode", "named"), [("3", [1]), ("17", [1]), ("127", [1]), ("1", [1]), ("143", [])])
def test_a_code_that_the_program_chose_names_its_rank(exitcode: str, named: list[int]) -> None:
    assert _named(_ended(1, 2, exitcode), _lost(0), _lost(2), _lost(3))[1] == named


@pytest.mark.parametrize("exitcode", ["1", "-6", "134"])
@pytest.mark.parametrize(
    ("losers", "named"),
    [((0, 2, 3), [1]), ((0, 1, 2), []), ((0, 2, None), [])],  # it lost a peer itself, or may have
)
def test_an_end_without_a_word_names_its_rank_where_it_lost_nobody(
    losers: tuple[int | None, ...], named: list[int], exitcode: str
) -> None:
    assert _named(_ended(1, 2, exitcode), *(_lost(rank) for rank in losers))[1] == named


@pytest.mark.parametrize(
    ("lines", "codes", "named"),
    [
        (3, {0: "1", 1: "1", 3: "1"}, [2]),
        (2, {0: "1", 1: "1", 3: "1"}, []),  # one of the three ended for another reason
        (3, {0: "1", 1: "1", 3: "-15"}, []),  # two were stopped
    ],
)
def test_who_had_to_be_stopped_while_all_others_gave_up_is_the_one_waited_for(
    lines: int, codes: dict[int, str], named: list[int]
) -> None:
    waits = [event("gloo.timeout", source="job", offset=9_000, at_ns=T0 + 20 * SECOND, count=lines)]
    stops = [_stopped(rank) for rank, code in codes.items() if code == "-15"]
    _, ranks = _named(*waits, *stops, *(_ended(rank, 21, code) for rank, code in codes.items()))
    assert ranks == named


def test_a_sigterm_that_the_launcher_did_not_send_came_from_outside() -> None:
    lost = [_lost(rank) for rank in (0, 2, 3)]
    assert _named(_ended(1, 4, "-15"), *lost) == ("infra/process_killed", [1])
    assert _named(_stopped(1), _ended(1, 4, "-15"), *lost)[0] != "infra/process_killed"


@pytest.mark.parametrize(("silent", "named"), [(True, [2]), (False, [])])
def test_who_misses_a_monitored_barrier_fell_silent_unless_it_waits_elsewhere(silent: bool, named: list[int]) -> None:
    told = event("torch.monitored_barrier", source="rank0", offset=8_000, rank=0, at_ns=T0 + 12 * SECOND,
                 attributes={"what": "failed", "ranks": "2", "timeout_ms": "10000"})  # fmt: skip
    elsewhere = [] if silent else [_lost(2)]
    class_, ranks = _named(told, _ended(0, 13, "1"), *elsewhere)
    assert ranks == named
    assert (class_ == "unknown/silent_rank") is silent


@pytest.mark.parametrize(
    ("keys", "named"),
    [("/default_pg/0//cpu//0/1", [1]), ("/default_pg/0//cuda//0", []), ("/default_pg/0//cpu//0", []), ("", [])],
)
def test_whose_address_the_others_miss_in_the_store_did_not_come_to_the_start(keys: str, named: list[int]) -> None:
    waits = [event("tcpstore.error", source=f"rank{rank}", offset=2_000, rank=rank, attributes={"keys": keys})
             for rank in (0, 2)]  # fmt: skip
    assert _named(*waits, _ended(0, 2, "1"))[1] == named
