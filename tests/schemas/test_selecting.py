"""Both selectors find the same lines, and none that could mean something is left out."""

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import selecting, signals
from schemas.matching import load_prefixes, needs_of
from schemas.selecting import NEAR_END_BYTES, NEAR_LINE_BYTES, Watch, selector
from schemas.signal_files import Signal
from schemas.signals import Worth

SIGNALS = signals.load()
FAST, PLAIN = selector(SIGNALS), selector(SIGNALS, plain=True)
PREFIXES = ["", *(match.removesuffix("hello") for p in load_prefixes().prefixes for match in p.entry.matches)]
BODIES = [e.line for signal in SIGNALS.signals for e in signal.matches]
BODIES += [e.line for signal in SIGNALS.signals for e in signal.misses]
BODIES = [body for body in BODIES if "\n" not in body]
NOISE = ["", "hello", "gpu01:4711:4890 [3] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "x" * 300]
MARK = next(signal.matches[0].line for signal in SIGNALS.signals if signal.sampled)
CAUSE = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."


def picked(block: bytes) -> list[bytes]:
    spans = FAST.select(block)
    assert PLAIN.select(block) == spans
    assert spans == sorted(set(spans))
    return [block[start:end] for start, end, _ in spans]


def test_the_fast_library_is_there_to_be_tested() -> None:
    assert type(FAST) is not type(PLAIN)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(NOISE).map(str.encode),
            st.tuples(st.sampled_from(PREFIXES), st.sampled_from(BODIES)).map(lambda pair: "".join(pair).encode()),
            st.sampled_from(BODIES).map(lambda body: json.dumps({"log": body}).encode()),
            st.sampled_from(BODIES).map(lambda body: f"\x1b[31m{body}\x1b[0m".encode()),
            st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")),
        ),
        max_size=30,
    ),
    st.booleans(),
)
def test_both_selectors_find_the_same_lines(lines: list[bytes], ends: bool) -> None:
    block = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    kept = picked(block)
    wanted = [line for line in lines if SIGNALS.worth(line) > Worth.MARK]
    assert [line for line in kept if SIGNALS.worth(line) > Worth.MARK] == wanted


@pytest.mark.parametrize("signal", SIGNALS.signals, ids=lambda signal: signal.id)
def test_no_line_that_a_signal_would_match_is_left_out(signal: Signal) -> None:
    for example in signal.matches:
        for prefix in ("", "[rank3]: ", "2026-03-04T05:06:07.000001+00:00 gpu03 kernel: "):
            worth = SIGNALS.worth((prefix + example.line).encode())
            assert worth != Worth.NOTHING or signal.role == "noise"


@pytest.mark.parametrize("signal", SIGNALS.signals, ids=lambda signal: signal.id)
def test_what_a_pattern_cannot_do_without_is_in_every_line_that_it_fits(signal: Signal) -> None:
    for text in (*signal.patterns, *signal.details):
        pattern = re.compile(text, re.ASCII)
        for example in signal.matches:
            if pattern.search(example.line):
                assert all(any(one in example.line for one in needed) for needed in needs_of(pattern)), pattern


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        ("one (?:and|some (?:more|less))", [{"one "}, {"and", "some "}]),
        ("(?:(?:ab|cdef)x|yy)", [{"ab", "cdef", "yy"}]),
        ("(?:(?:abc|def)|gh[0-9])", [{"abc", "def", "gh"}]),
        ("(?i)failed", []),
        ("at (?i:lost) once", [{"at "}, {" once"}]),
        ("(?:perhaps)? surely", [{" surely"}]),
    ],
)
def test_needs_of_a_pattern(pattern: str, needs: list[set[str]]) -> None:
    assert needs_of(re.compile(pattern)) == needs


def test_a_line_with_a_hint_that_no_pattern_can_fit_is_read_and_is_no_fault() -> None:
    line = b"kernel: watchdog: NMI watchdog: Enabled. Permanently consumes one hw-PMU counter."
    assert SIGNALS.worth(line) == Worth.CONTEXT
    assert SIGNALS.worth(b"kernel: watchdog: BUG: soft lockup - CPU#7 stuck for 23s! [python3:411]") == Worth.FAULT


def test_of_many_marks_of_progress_those_near_the_ends_and_before_a_line_that_means_more_are_kept() -> None:
    far = b"x" * 99 + b"\n"
    middle = far * (3 * NEAR_END_BYTES // len(far))
    marks = {name: f"{MARK} {name}".encode() for name in ("first", "lost", "before", "after", "last")}
    gap = far * (NEAR_LINE_BYTES // len(far) // 2)
    block = b"\n".join(
        [marks["first"], middle, marks["lost"], middle, marks["before"], gap, CAUSE.encode(), gap, marks["after"],
         middle, marks["last"], b""]
    )  # fmt: skip
    assert picked(block) == [marks["first"], marks["before"], CAUSE.encode(), marks["last"]]


def test_the_last_mark_of_a_block_is_kept_wherever_it_stands() -> None:
    far = b"x" * 99 + b"\n"
    middle = far * (3 * NEAR_END_BYTES // len(far))
    lost, last = (f"{MARK} {name}".encode() for name in ("lost", "last"))
    assert picked(b"\n".join([middle, lost, middle, last, middle])) == [last]


def test_a_fault_near_the_end_of_a_block_leaves_the_marks_there() -> None:
    far = b"x" * 99 + b"\n"
    marks = [f"{MARK} {name}".encode() for name in ("before", "after")]
    lines = [far * (3 * NEAR_END_BYTES // len(far)), marks[0], far * 400, CAUSE.encode(), marks[1], b""]
    assert picked(b"\n".join(lines)) == [marks[0], CAUSE.encode(), marks[1]]


def test_a_machine_without_the_library_gets_the_plain_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selecting, "is_fast", lambda: False)
    assert type(selecting.selector(SIGNALS)) is type(PLAIN)


def test_literals_of_noise_alone_select_nothing() -> None:
    noise = [s for s in SIGNALS.signals if s.role == "noise" and not s.by]
    only = {hint for s in noise for hint in s.hints} - SIGNALS.line_hints - SIGNALS.mark_hints
    for hint in only:
        if not any(re.search(re.escape(other), hint) for other in SIGNALS.line_hints | SIGNALS.mark_hints):
            assert picked(hint.encode()) == []


# --- single lines ---------------------------------------------------------------------------------------------------

_WATCH = Watch(SIGNALS)
_EXAMPLES = sorted({e.line for s in SIGNALS.signals if s.role != "noise" for e in s.matches if "\n" not in e.line})
_HIDINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda line: line,
    "stamped": lambda line: f"2026-03-04T05:06:07Z gpu01 trainer[7]: {line}",
    "JSON": lambda line: json.dumps({"log": f"{line}\n", "stream": "stderr"}),
    "JSON in JSON": lambda line: json.dumps({"message": json.dumps({"msg": line})}),
    "colours": lambda line: f"\x1b[31m{line}\x1b[0m",
    "logfmt": lambda line: f"level=error msg={json.dumps(line, ensure_ascii=False)}",
}


@pytest.mark.parametrize("hiding", _HIDINGS)
def test_no_line_that_means_something_is_passed_over_whatever_is_around_it(hiding: str) -> None:
    hidden = [line for line in _EXAMPLES if _WATCH.worth(_HIDINGS[hiding](line)) == Worth.NOTHING]

    assert hidden == []


@pytest.mark.parametrize("hiding", _HIDINGS)
def test_chatter_is_worth_nothing_whatever_is_around_it(hiding: str) -> None:
    assert _WATCH.worth(_HIDINGS[hiding]("reading shard 12 of many")) == Worth.NOTHING
