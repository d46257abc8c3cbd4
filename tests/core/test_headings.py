"""Tracebacks of which only the first line names its writer, and what is printed because nobody caught it."""

import pytest

from schemas.records import Event
from tests.lines.reading import events_of

RECORD = """\
[2026-02-11 04:10:02 TP5] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/serve/scheduler.py", line 2401, in run_scheduler_process
    scheduler.event_loop_overlap()
ValueError: page 7 is freed twice
"""
SCRIPT = """\
Traceback (most recent call last):
  File "/work/train.py", line 80, in <module>
    main()
  File "/work/train.py", line 61, in main
    batch["mask"]
KeyError: 'mask'
"""
CAUGHT = SCRIPT.replace("<module>", "run_one")
HOOK = "".join(f"[rank3]: {line}\n" for line in CAUGHT.splitlines())


def _raised(text: str) -> list[Event]:
    return [event for event in events_of(text) if event.name == "python.exception"]


def test_the_lines_behind_a_heading_are_of_its_writer() -> None:
    (event,) = _raised(RECORD)
    assert (event.subject.rank, event.attributes["line"]) == (5, "2401")


def test_what_follows_the_exception_is_nobodys() -> None:
    events = _raised(RECORD + "KeyError: 'other'\n")
    assert [event.subject.rank for event in events] == [5, None]


def test_a_chained_exception_is_of_the_same_writer() -> None:
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    events = _raised(RECORD + chain + SCRIPT)
    assert [event.subject.rank for event in events] == [5, 5]


def test_a_line_that_names_another_writer_ends_it() -> None:
    head, *rest = RECORD.splitlines()
    events = _raised("\n".join([head, "[2026-02-11 04:10:02 TP2] Decode batch", *rest]))
    assert [event.subject.rank for event in events] == [None]


def test_a_process_of_spawn_is_the_local_rank() -> None:
    (event,) = _raised("-- Process 2 terminated with the following error:\n" + SCRIPT)
    assert event.subject.local_rank == 2


@pytest.mark.parametrize(
    ("text", "uncaught"),
    [(SCRIPT, "true"), (CAUGHT, None), (HOOK, "true"), (HOOK.replace("]: ", "]:"), None), (RECORD, "true")],
    ids=["from the script on", "from a function on", "the hook of torch", "the tee of torchrun", "the outermost one"],
)
def test_what_nobody_caught_shows_in_its_frames(text: str, uncaught: str | None) -> None:
    (event,) = _raised(text)
    assert event.attributes.get("uncaught") == uncaught


def test_two_tracebacks_that_nothing_tells_apart_say_nothing_of_each_other() -> None:
    lines = SCRIPT.splitlines()
    events = _raised("\n".join([lines[0], lines[0], *lines[1:5], *lines[1:5], lines[5], "ValueError: 7"]))
    assert [event.attributes.get("uncaught") for event in events] == [None, None]
