"""When a measure is told: above its threshold, again when it grew, and when it is over; never because it was read."""

import random

import pytest

from shippers.probes.counted import Counters
from shippers.probes.host_sources import HOST
from shippers.probes.thresholds import Threshold, Watch, thresholds
from tests.shippers.host import SIGNALS

LEVEL = Threshold(
    line="a.b", event="a.b", what="", unit="percent", tell_above=25, over_below=10, over_after_s=60, again_factor=2
)
COUNT = Threshold(
    line="a.b", event="a.b", what="", unit="times", kind="count", tell_above=0, over_after_s=60, again_factor=4
)


def told(watch: Watch, values: list[float], every_s: float = 30.0) -> list[str | None]:
    return [watch.see("place", value, number * every_s) for number, value in enumerate(values)]


def test_a_level_is_told_when_it_begins_when_it_has_doubled_and_when_it_is_over() -> None:
    values: list[float] = [20, 26, 40, 52, 60, 20, 9, 9, 9]
    assert told(Watch(LEVEL), values) == [None, "began", None, "grew", None, None, None, None, "over"]


def test_what_dips_for_less_than_its_time_goes_on() -> None:
    assert told(Watch(LEVEL), [30, 5, 30, 5, 30, 5, 30]) == ["began", *[None] * 6]


def test_a_count_is_told_by_what_it_gained_since_it_began() -> None:
    watch = Watch(COUNT)
    assert told(watch, [0, 1, 1, 1, 1, 0, 0, 0]) == [None, "began", None, None, "grew", None, None, "over"]


def test_places_are_apart_and_those_that_are_gone_are_forgotten() -> None:
    watch = Watch(LEVEL)
    assert (watch.see("a", 30, 0), watch.see("b", 30, 0)) == ("began", "began")
    assert watch.keep({"b"}) == ["a"]
    assert watch.see("a", 30, 1) == "began"


def test_a_counter_gains_nothing_at_first_sight_and_all_of_it_after_it_was_set_back() -> None:
    counters = Counters()
    assert counters.gain("x", 100) == 0
    counters.end_look()
    assert (counters.gain("x", 130), counters.gain("new", 7)) == (30, 7)
    counters.end_look()
    assert counters.gain("x", 5) == 5


@pytest.mark.parametrize("name", thresholds().threshold)
def test_a_noisy_healthy_day_tells_a_handful_of_lines_at_most(name: str) -> None:
    rule = thresholds().threshold[name]
    dice = random.Random(name)
    watch = Watch(rule)
    lines = 0
    for second in range(0, 86_400, 10):
        # Up to nine tenths of what is told, all day, and a spike now and then.
        value = dice.uniform(0, 0.9 * rule.tell_above) if rule.kind == "level" else 0.0
        if dice.random() < 3 / 8640:
            value = rule.tell_above * 1.5 + 1
        lines += watch.see("place", value, float(second)) is not None
    assert lines <= 20, f"{name} tells {lines} lines a day"


@pytest.mark.parametrize("name", thresholds().threshold)
def test_a_measure_that_flaps_all_day_tells_less_than_a_line_an_hour(name: str) -> None:
    rule = thresholds().threshold[name]
    watch = Watch(rule)
    high = rule.tell_above + 1
    values = ((high if second % 20 else 0.0, float(second)) for second in range(0, 86_400, 10))
    assert sum(watch.see("place", value, now_s) is not None for value, now_s in values) <= 24


@pytest.mark.parametrize("name", thresholds().threshold)
def test_every_threshold_is_read_by_a_signal_that_believes_the_agent_alone(name: str) -> None:
    rule = thresholds().threshold[name]
    of_line = [signal for signal in SIGNALS.signals if f"rootrank: {rule.line}" in signal.hints]
    assert rule.event in {signal.event for signal in of_line}
    assert not rule.over_event or rule.over_event in {signal.event for signal in of_line}
    assert {signal.told_by for signal in of_line} == {"telemetry"}
    assert rule.what
    assert rule.over_below <= rule.tell_above


def test_every_source_says_how_often_it_looks() -> None:
    assert {row[0] for row in HOST} == set(thresholds().every_s)
