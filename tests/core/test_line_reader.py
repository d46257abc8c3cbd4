"""A line reader gives what parsing and matching give, whatever it read before."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.line_reader import LineReader
from pipeline.core.parse import parse_line
from pipeline.core.prefix_fields import _whole_seconds
from schemas import signals
from schemas.matching import load_prefixes

SIGNALS = signals.load()
PREFIXES = [match.removesuffix("hello") for prefix in load_prefixes().prefixes for match in prefix.entry.matches]
NOT_PREFIXES = [miss for prefix in load_prefixes().prefixes for miss in prefix.entry.misses]
BODIES = [e.line for signal in SIGNALS.signals for e in signal.matches]
BODIES += [e.line for signal in SIGNALS.signals for e in signal.misses]


@st.composite
def alike(draw: st.DrawFn) -> list[str]:
    """Lines that differ in their digits: in their values and, now and then, in how many there are and where."""
    start = "".join(draw(st.lists(st.sampled_from(PREFIXES), max_size=4)))
    line = start + draw(st.sampled_from(BODIES + NOT_PREFIXES))

    def other(run: re.Match[str]) -> str:
        length = len(run[0]) if draw(st.integers(0, 9)) else draw(st.integers(1, 6))
        return "".join(draw(st.lists(st.sampled_from("0123456789"), min_size=length, max_size=length)))

    def changed() -> str:
        text = re.sub(r"\d+", other, line)
        at = draw(st.one_of(st.none(), st.integers(0, len(text))))
        return text if at is None else f"{text[:at]}{draw(st.integers(0, 999))}{text[at:]}"

    return [line, *(changed() for _ in range(draw(st.integers(2, 5)))), line]


@settings(max_examples=400, deadline=None)
@given(st.lists(alike(), min_size=1, max_size=3))
def test_it_reads_every_line_as_if_it_were_the_first(groups: list[list[str]]) -> None:
    reader = LineReader(SIGNALS)
    for line in [line for group in groups for line in group * 2]:
        parsed, match = reader.read(line)
        assert parsed == parse_line(line)
        assert match == SIGNALS.match(parsed.body)


def test_a_digit_beside_a_hint_means_the_same_however_often_the_shape_was_seen() -> None:
    reader = LineReader(SIGNALS)
    for signal in SIGNALS.signals:
        example = signal.matches[0].line
        hint = next(literal for literal in (*signal.hints, *signal.parts) if literal in example)
        before, after = example.index(hint), example.index(hint) + len(hint)
        for line in (f"{example[:before]}7{example[before:]}", f"{example[:after]}7{example[after:]}"):
            for _ in range(3):
                parsed, match = reader.read(line)
                assert match == SIGNALS.match(parsed.body)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("gpu1:47:48 [3] int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t_9_10_11_12_13_14**):1234567 NCCL WARN x",
         "gpu1:47:48 [3] int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t_9_10_11_12_13_14**):123456 NCCL WARN x"),
        ("Connection closed [repe7ated x across cluster]", "Connection closed [repeated 7x across cluster]"),
    ],
)  # fmt: skip
def test_digits_that_decide_what_a_prefix_is_are_looked_at(first: str, then: str) -> None:
    reader = LineReader(SIGNALS)
    assert parse_line(first).wrappers != parse_line(then).wrappers
    for line in (first, first, first, then, first, then, then):
        assert reader.read(line)[0] == parse_line(line)


def test_a_stamp_that_is_no_time_does_not_make_the_next_one_text() -> None:
    reader = LineReader(SIGNALS)
    for day in ("99", "99", "99", "11", "12", "99", "13"):
        line = f"2026-03-{day} 05:06:07 gpu01 kernel: hello"
        assert reader.read(line)[0] == parse_line(line)


def test_lines_of_many_shapes_share_what_is_kept_of_their_stamps() -> None:
    reader = LineReader(SIGNALS)
    for name in ("one", "two", "three", "four"):
        for second in range(10, 14):
            assert reader.read(f"2026-03-04 05:06:{second} gpu01 {name}: hello")[0].stamp is not None
    assert _whole_seconds.cache_info().currsize <= len(load_prefixes().prefixes)


def test_no_prefix_but_the_kind_of_bracket_is_told_by_a_digit_of_its_own() -> None:
    """Shapes leave digits out, so a pattern that wants a certain digit would be tried in vain each time."""
    for prefix in load_prefixes().prefixes:
        outside = re.sub(r"\\.|\[[^\]]*\]|\{[\d,]+\}", "", prefix.entry.pattern)
        assert not re.search(r"\d", outside), prefix.entry.name
