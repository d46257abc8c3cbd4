"""Job attempts from sacct's text."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.fleet.imports.sacct import parse_sacct
from pipeline.core.fleet.imports.told import ImportFormatError, Told
from tests.core.fleet.inventories import exposed

HEAD = "JobID|JobIDRaw|User|Submit|Eligible|Start|End|State|NNodes|NodeList|AllocTRES|Restarts"
BERLIN = ZoneInfo("Europe/Berlin")
SECOND = 10**9


def ns(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * SECOND


def line(
    job: str = "100", raw: str = "", start: str = "2026-03-01T10:00:00", end: str = "2026-03-01T12:00:00",
    state: str = "COMPLETED", nodes: str = "gpu[01-02]", tres: str = "billing=64,cpu=64,gres/gpu=16,node=2",
    restarts: str = "0",
) -> str:  # fmt: skip
    times = f"2026-03-01T08:00:00|2026-03-01T09:30:00|{start}|{end}"
    return f"{job}|{raw or job}|ada|{times}|{state}|2|{nodes}|{tres}|{restarts}"


def told(*lines: str, head: str = HEAD, zone: object = UTC) -> Told:
    return parse_sacct("\n".join([head, *lines]), cluster="c1", source="sacct.txt", zone=zone)  # type: ignore[arg-type]


def test_a_line_is_an_attempt_and_its_nodes_are_busy() -> None:
    found = told(line())
    [attempt] = found.attempts
    assert (attempt.job_id, attempt.attempt, attempt.owner, attempt.end) == ("100", 0, "ada", "completed")
    assert (attempt.nodes, attempt.gpus, attempt.row) == (("gpu01", "gpu02"), 16, 2)
    assert (attempt.from_ns, attempt.to_ns) == (ns("2026-03-01T10:00:00Z"), ns("2026-03-01T12:00:00Z"))
    assert attempt.queued_ns == 1800 * SECOND
    busy = [s for s in found.spans if s.kind == "busy"]
    assert [(s.unit, s.facts, s.job_id, s.outcome) for s in busy] == [
        ("gpu01", {"gpus": "8"}, "100", "completed"), ("gpu02", {"gpus": "8"}, "100", "completed"),
    ]  # fmt: skip
    assert len({s.row for s in found.spans}) == len(found.spans)
    assert found.defects == []


def test_nodes_are_installed_from_their_first_job_to_their_last() -> None:
    late = line("101", start="2026-03-01T14:00:00", end="2026-03-01T15:00:00", nodes="gpu01")
    rows, defects = exposed(told(line(), late).spans, ns("2026-03-01T00:00:00Z"), ns("2026-03-02T00:00:00Z"))
    hours = {e.unit: (e.installed_ns // 3600 // SECOND, e.busy_ns // 3600 // SECOND) for e in rows}
    assert hours == {"gpu01": (5, 3), "gpu02": (2, 2)}
    assert defects == []


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("COMPLETED", "completed"), ("FAILED", "failed"), ("NODE_FAIL", "node_failure"), ("BOOT_FAIL", "node_failure"),
        ("CANCELLED by 1000", "cancelled"), ("CANCELLED+", "cancelled"), ("PREEMPTED", "preempted"),
        ("TIMEOUT", "timed_out"), ("DEADLINE", "timed_out"), ("OUT_OF_MEMORY", "failed"), ("REQUEUED", "unknown"),
    ],
)  # fmt: skip
def test_every_state_is_an_end(state: str, end: str) -> None:
    assert [a.end for a in told(line(state=state)).attempts] == [end]


def test_a_job_that_still_runs_has_no_end_and_is_busy_up_to_the_last_stamp() -> None:
    found = told(line(state="RUNNING", end="Unknown"), line("101", end="2026-03-01T18:00:00", nodes="gpu03"))
    assert [(a.end, a.to_ns) for a in found.attempts if a.job_id == "100"] == [("running", None)]
    assert {s.to_ns for s in found.spans if s.job_id == "100"} == {ns("2026-03-01T18:00:00Z")}


def test_steps_and_jobs_that_never_started_are_left_out_and_counted() -> None:
    found = told(
        line(), line("100.batch"), line("100.extern"), line("100.0"),
        line("102", start="Unknown", end="Unknown", state="PENDING", nodes="None assigned"),
        line("103_[5-9%2]", start="Unknown", end="2026-03-01T12:00:00", state="CANCELLED by 0", nodes="None assigned"),
    )  # fmt: skip
    assert (len(found.attempts), found.skipped) == (1, {"job steps": 3, "jobs that never started": 2})
    assert found.defects == []


def test_the_end_of_parsable_lines_and_array_tasks_are_understood() -> None:
    found = told(line("100_3", raw="103") + "|", line("100_4", raw="104") + "|", head=HEAD + "|")
    assert [a.job_id for a in found.attempts] == ["103", "104"]


def test_a_job_that_was_requeued_has_one_attempt_for_each_start() -> None:
    first = line(state="NODE_FAIL", end="2026-03-01T11:00:00", restarts="0")
    second = line(start="2026-03-01T11:10:00", restarts="1")
    for lines in ((first, second), (second, first)):
        assert [(a.attempt, a.end) for a in told(*lines).attempts] == [(0, "node_failure"), (1, "completed")]
    unnumbered = (first, second.removesuffix("1") + "0")
    assert [a.attempt for a in told(*unnumbered).attempts] == [0, 1]


def test_an_attempt_told_twice_counts_once_and_is_named() -> None:
    found = told(line(), line())
    assert len(found.attempts) == 1
    assert [(d.kind, d.unit, d.row) for d in found.defects] == [("duplicate_attempt", "job 100", 2)]


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("billing=8,cpu=8,gres/gpu:h100=4,gres/gpu=4", 4), ("cpu=8,gres/gpu:h100=4,gres/gpu:a100=2", 6),
        ("billing=8,cpu=8,mem=10G,node=1", 0), ("", None), ("gres/gpu=x", None),
    ],
)  # fmt: skip
def test_gpus_are_those_that_were_allocated(tres: str, gpus: int | None) -> None:
    found = told(line(tres=tres), line("999"))
    assert next(a.gpus for a in found.attempts if a.job_id == "100") == gpus


def test_where_no_job_names_gpus_their_number_is_not_known() -> None:
    assert [a.gpus for a in told(line(tres="cpu=8,node=2")).attempts] == [None]
    head = HEAD.replace("AllocTRES", "AllocGRES")
    assert [a.gpus for a in told(line(tres="gpu:h100:4,gpu:2"), head=head).attempts] == [12]


def test_stamps_are_of_the_zone_that_is_given() -> None:
    [attempt] = told(line(), zone=BERLIN).attempts
    assert attempt.from_ns == ns("2026-03-01T09:00:00Z")
    [offset] = told(line(start="2026-03-01T10:00:00+05:00"), zone=BERLIN).attempts
    assert offset.from_ns == ns("2026-03-01T05:00:00Z")


@pytest.mark.parametrize(
    ("start", "end", "elapsed", "hours", "named"),
    [
        # Clocks go back from 03:00 to 02:00 on 2026-10-25.
        ("2026-10-25T01:30:00", "2026-10-25T03:30:00", "10800", 3, []),
        ("2026-10-25T01:30:00", "2026-10-25T02:30:00", "7200", 2, []),
        ("2026-10-25T01:30:00", "2026-10-25T02:30:00", "3600", 1, []),
        ("2026-10-25T01:30:00", "2026-10-25T02:30:00", "", 1, ["ambiguous_time"]),
        ("2026-10-25T02:50:00", "2026-10-25T02:20:00", "1800", 0.5, []),
        ("2026-10-25T02:50:00", "2026-10-25T02:20:00", "", 0.5, []),
        ("2026-10-25T02:10:00", "2026-10-25T02:40:00", "1800", 0.5, ["ambiguous_time"]),
        # Clocks go forward from 02:00 to 03:00 on 2026-03-29.
        ("2026-03-29T01:30:00", "2026-03-29T03:30:00", "", 1, []),
        ("2026-03-29T02:30:00", "2026-03-29T04:30:00", "", 1, ["no_such_local_time"]),
    ],
)
def test_the_hour_that_comes_twice_is_told_by_the_elapsed_time(
    start: str, end: str, elapsed: str, hours: float, named: list[str]
) -> None:
    row = line(start=start, end=end) + f"|{elapsed}"
    found = told(row, head=HEAD + "|ElapsedRaw", zone=BERLIN)
    [attempt] = found.attempts
    assert attempt.to_ns is not None
    assert (attempt.to_ns - attempt.from_ns) / SECOND / 3600 == hours
    assert [d.kind for d in found.defects] == named


@given(
    st.integers(1_761_000_000, 1_793_000_000), st.integers(0, 40 * 86_400),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
)  # fmt: skip
def test_local_times_with_the_elapsed_time_are_exact_across_changes_of_the_clock(
    from_s: int, length_s: int, zone: str
) -> None:
    local = ZoneInfo(zone)
    start, end = (
        datetime.fromtimestamp(t, tz=local).strftime("%Y-%m-%dT%H:%M:%S") for t in (from_s, from_s + length_s)
    )
    found = told(line(start=start, end=end) + f"|{length_s}", head=HEAD + "|ElapsedRaw", zone=local)
    [attempt] = found.attempts
    assert attempt.to_ns is not None
    assert attempt.to_ns - attempt.from_ns == length_s * SECOND
    if not found.defects:
        assert attempt.from_ns == from_s * SECOND


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (line(end="2026-03-01T09:00:00"), "inverted_span"),
        (line(start="yesterday"), "bad_time"),
        (line(start="1970-01-01T00:00:01"), "bad_time"),
        (line(state="DANCING"), "bad_value"),
        (line(nodes="gpu[01-"), "no_node"),
        (line(nodes="None assigned"), "no_node"),
        ("only|three|values", "unreadable_line"),
        ("\x1b[2J" + "|" * 11, "bad_value"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_with_its_number(wrong: str, kind: str) -> None:
    found = told(line(), wrong, line("105"))
    named = [(d.kind, d.source, d.row) for d in found.defects]
    skipped = sum(found.skipped.values())
    assert len(found.attempts) == 2
    assert named == [(kind, "sacct.txt", 3)] or (wrong.startswith("\x1b") and skipped == 1)


@pytest.mark.parametrize("odd", ["\x0b", "\x1c", "\x85", "\u2028"])
def test_a_name_with_what_unicode_calls_the_end_of_a_line_costs_no_job(odd: str) -> None:
    found = told(line().replace("ada", f"a{odd}da"), line("101"))
    assert [(a.owner, a.row) for a in found.attempts] == [(f"a{odd}da", 2), ("ada", 3)]
    assert found.defects == []


@pytest.mark.parametrize(
    ("head", "value"), [("ElapsedRaw", "9" * 5000), ("AllocGRES", "gpu:\u00b2"), ("NNodes", "9" * 5000)]
)
def test_a_number_that_is_none_breaks_nothing(head: str, value: str) -> None:
    names = f"JobID|Start|End|State|NodeList|{head}"
    found = told(f"7|2026-03-01T10:00:00|2026-03-01T12:00:00|FAILED|n1|{value}", head=names)
    assert [(a.job_id, a.gpus) for a in found.attempts] == [("7", None)]


def test_what_is_no_output_of_sacct_is_refused_with_what_to_do() -> None:
    with pytest.raises(ImportFormatError, match="start, end, state, nodelist is not there"):
        parse_sacct("JobID|User\n1|ada", cluster="c1", source="x")
    with pytest.raises(ImportFormatError, match="--parsable2"):
        parse_sacct("", cluster="c1", source="x")


@given(st.text(alphabet="0129|.:T-_[]%\n \x00é", max_size=300))
def test_no_text_breaks_the_reading(text: str) -> None:
    found = parse_sacct(f"JobID|Start|End|State|NodeList\n{text}", cluster="c1", source="x")
    lines = [row for row in text.splitlines() if row.strip()]
    assert len(found.attempts) + len(found.defects) + sum(found.skipped.values()) >= len(lines)
