"""Lines that were broken at the width of a page are read as one."""

from schemas.records import Event
from tests.lines.reading import events_of

LINE = (
    "[rank6]:[E310 11:21:33.160857258 ProcessGroupNCCL.cpp:629] [Rank 6] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=44, OpType=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800010 "
    "milliseconds before timing out."
)


def _timeouts(text: str) -> list[Event]:
    return [event for event in events_of(text) if event.name == "nccl.watchdog.timeout"]


def _broken(line: str, width: int) -> str:
    return "\n".join(line[at : at + width] for at in range(0, len(line), width))


def test_a_line_broken_anywhere_is_one() -> None:
    for width in (140, 150, 161, 175):
        (event,) = _timeouts(_broken(LINE, width))
        assert (event.subject.rank, event.attributes["seq"], event.line_no) == (6, "44", 1)
        assert event.attributes["joined"] == "true"


def test_three_parts_are_one() -> None:
    (event,) = _timeouts(_broken(LINE, 116))
    assert (event.subject.rank, event.attributes["ran_for_ms"]) == (6, "1800010")


def test_a_blank_that_the_copy_lost_is_put_back() -> None:
    (event,) = _timeouts("\n".join(LINE.rsplit(" ran ", 1)).replace("\nfor", "\nran for"))
    assert event.attributes["ran_for_ms"] == "1800010"


def test_a_line_with_a_prefix_of_its_own_is_no_rest() -> None:
    head, rest = _broken(LINE, 150).split("\n")[:2]
    assert _timeouts(f"{head}\n[rank7]: {rest}") == []


def test_nothing_is_joined_over_a_line_in_between() -> None:
    head, rest = _broken(LINE, 150).split("\n")[:2]
    assert _timeouts(f"{head}\n\n{rest}") == []
    assert _timeouts(f"{head}\nstep 7: loss 2.1\n{rest}") == []
