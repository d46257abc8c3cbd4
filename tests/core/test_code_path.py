"""Which failures of a program are the same, and which came again in one attempt."""

import pytest
from msgspec.structs import replace

from pipeline.core.code_path import MAX_TEXT, failure_of, repeats, without_values
from pipeline.core.episodes import Episode, of_events
from schemas.records import Event
from tests.strategies import SECOND, T0, event

LATER_NS = T0 + 1_800 * SECOND


def named(body: str, **frame: str) -> str:
    return failure_of(replace(event("python.exception", attributes=frame), body=body))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("KeyError: 'loss_mask'", "KeyError: 'loss_mask'"),
        ("Tried to allocate 5.25 GiB. GPU 2 has", "Tried to allocate #.# GiB. GPU # has"),
        ("faulted @ 0x7f10_22000000. Fault", "faulted @ #. Fault"),
        ("/data/shard-0042.tar, rank3", "/data/shard-#.tar, #"),
        ("", ""),
    ],
)
def test_what_changes_from_try_to_try_is_left_out(text: str, left: str) -> None:
    assert without_values(text) == left


FRAME = {"file": "/srv/exp7/loop.py", "line": "118", "function": "run"}


def test_an_exception_is_named_by_its_type_and_the_function_that_raised_it() -> None:
    assert named("KeyError: 'a'", **FRAME) == "KeyError in run of /srv/#/loop.py"
    assert named("KeyError: 'b'", **{**FRAME, "line": "121"}) == named("KeyError: 'a'", **FRAME)
    assert named("KeyError: 'a'", **{**FRAME, "function": "validate"}) != named("KeyError: 'a'", **FRAME)
    assert named("train.errors.DataError: a", **FRAME) == "train.errors.DataError in run of /srv/#/loop.py"


def test_what_is_no_exception_or_has_no_place_is_named_by_its_line() -> None:
    assert named("loss: nan at step 120", **FRAME) == "loss: nan at step #"
    assert named("KeyError: 'a'") == "KeyError: 'a'"
    assert len(named("x" * 10_000)) == MAX_TEXT


def exception(at_ns: int | None, *, rank: int | None = 0, body: str = "KeyError: 'x'") -> Event:
    return replace(event("python.exception", at_ns=at_ns, rank=rank, offset=0 if at_ns is None else at_ns), body=body)


def counted(*events: Event) -> int:
    episodes: list[Episode] = of_events(events, {})
    return repeats(next(episode for episode in episodes if episode.name == "python.exception"), episodes)


RESTART = event("elastic.failed", at_ns=T0 + 5 * SECOND, source="agent")


def test_the_same_failure_of_a_rank_after_its_processes_ended_is_a_repeat() -> None:
    assert counted(exception(T0), RESTART, exception(LATER_NS), exception(LATER_NS + 1_800 * SECOND)) == 2


@pytest.mark.parametrize(
    "other",
    [
        exception(LATER_NS, rank=1),
        exception(LATER_NS, body="KeyError: 'y'"),
        exception(T0 + 30 * SECOND),
        exception(None),
        replace(exception(LATER_NS), lo_unix_nano=T0 - SECOND, clock_id="another", source="job.log"),
    ],
    ids=["another rank", "another failure", "soon after", "no time", "clocks cannot tell"],
)
def test_what_is_no_repeat(other: Event) -> None:
    assert counted(exception(T0), RESTART, other) == 0


def test_an_exception_that_is_logged_again_and_again_by_one_process_is_no_repeat() -> None:
    assert counted(exception(T0), exception(LATER_NS)) == 0


def test_a_failure_of_nobody_known_is_no_repeat() -> None:
    assert counted(exception(T0, rank=None), RESTART, exception(LATER_NS, rank=None)) == 0
