"""Which readings are told: thresholds with hysteresis, growth and change."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from shippers.nvml.judge import OVER, SECOND_NS, Change, Judge, Line, Readings, changes
from shippers.nvml.messages import Value

GPU = "GPU-0a1b2c3d"


def told(judge: Judge, *looks: tuple[float, Readings]) -> list[Line]:
    return [line for at_s, readings in looks for line in judge.take(GPU, readings, int(at_s * SECOND_NS))]


def things(lines: Iterable[Line]) -> list[str]:
    return [thing for thing, _ in lines]


def test_what_is_as_of_a_healthy_gpu_is_never_told() -> None:
    healthy: dict[str, Value] = {
        "ecc_uncorrected": 0, "ecc_corrected": 3, "remap_pending": 0, "clock_reasons": 0x4, "margin_celsius": 30,
        "width_missing": 8, "is_loaded": 0, "recovery_action": "none", "fabric": "completed", "pcie_replays": 12,
        "nvlink_replay.3": 7, "power_limit_missing_watts": 0, "thermal_violation_ms": 60_000,
    }  # fmt: skip
    judge = Judge(changes())
    assert told(judge, *((10.0 * n, healthy) for n in range(400))) == []
    assert '"remap_pending"' not in judge.memo()


def test_a_count_is_told_when_it_grows_and_not_what_it_was_at_first_sight() -> None:
    lines = told(
        Judge(changes()), (0, {"ecc_uncorrected": 5}), (10, {"ecc_uncorrected": 7}), (20, {"ecc_uncorrected": 7})
    )
    assert lines == [("gpu.ecc_uncorrected", {"uncorrected": 7, "added": 2})]


def test_a_count_that_began_anew_is_told_from_there() -> None:
    looks = [(0.0, 5), (10.0, 0), (20.0, 1)]
    lines = told(Judge(changes()), *((at_s, {"ecc_uncorrected": count}) for at_s, count in looks))
    assert lines == [("gpu.ecc_uncorrected", {"uncorrected": 1, "added": 1})]


def test_what_grew_while_nobody_looked_is_told_after_a_restart() -> None:
    first = Judge(changes())
    told(first, (0, {"ecc_uncorrected": 0, "remap_pending": 1}))
    lines = told(Judge(changes(), first.memo()), (900, {"ecc_uncorrected": 2, "remap_pending": 1}))
    assert lines == [("gpu.ecc_uncorrected", {"uncorrected": 2, "added": 2})]


def test_a_memo_that_cannot_be_read_is_none() -> None:
    assert things(told(Judge(changes(), "{torn"), (0, {"remap_pending": 1}))) == ["gpu.row_remap_pending"]


def test_a_rate_is_told_and_the_same_growth_spread_over_hours_is_not() -> None:
    slowly = told(Judge(changes()), *((10.0 * n, {"pcie_replays": 10 * n}) for n in range(400)))
    assert slowly == []
    fast = told(Judge(changes()), *((10.0 * n, {"pcie_replays": 40 * n}) for n in range(30)))
    assert fast == [("gpu.pcie_replay", {"replays": 120, "added": 120})]


def test_links_are_told_apart() -> None:
    lines = told(
        Judge(changes()), (0, {"nvlink_recovery.0": 0, "nvlink_recovery.7": 2}),
        (60, {"nvlink_recovery.0": 0, "nvlink_recovery.7": 3}),
    )  # fmt: skip
    assert lines == [("gpu.nvlink_errors", {"link": "7", "errors": 3, "added": 1, "metric": "recovery"})]


def test_a_moment_of_heat_is_not_told_a_lasting_one_is_with_its_end() -> None:
    hot: dict[str, Value] = {"clock_reasons": 0x40, "temperature_celsius": 91}
    cool: dict[str, Value] = {"clock_reasons": 0x4}
    judge = Judge(changes())
    assert told(judge, (0, cool), (10, hot), (20, cool), (30, hot), (40, hot)) == []
    assert told(judge, (50, hot), (60, hot)) == [
        ("gpu.clocks_reduced", {"clock_reasons": "0x40", "temperature_celsius": 91})
    ]
    assert told(judge, (70, cool), (80, hot), (90, cool), (100, cool)) == []
    assert told(judge, (110, cool)) == [(OVER, {"what": "gpu.clocks_reduced", "lasted_s": 80})]


def test_between_both_thresholds_heat_stays_as_it_was() -> None:
    margins = [(0, 5), (10, 2), (30, 2), (40, 6), (80, 6), (90, 8), (110, 8)]
    lines = told(Judge(changes()), *((at_s, {"margin_celsius": margin}) for at_s, margin in margins))
    assert things(lines) == ["gpu.hot", OVER]


def test_a_narrow_link_counts_under_load_alone() -> None:
    idle: dict[str, Value] = {"width_missing": 8, "width": 8, "width_max": 16, "is_loaded": 0}
    busy: dict[str, Value] = {**idle, "is_loaded": 1}
    judge = Judge(changes())
    assert told(judge, (0, idle), (60, idle), (70, busy), (80, idle), (90, busy)) == []
    assert told(judge, (100, busy), (110, busy)) == [
        ("gpu.pcie_below_max", {"lanes_missing": 8, "width": 8, "width_max": 16})
    ]


def test_a_state_is_told_when_it_changes_with_what_it_was() -> None:
    looks = ["none", "gpu_reset", "gpu_reset", "none"]
    lines = told(Judge(changes()), *((10.0 * n, {"recovery_action": action}) for n, action in enumerate(looks)))
    assert lines == [
        ("gpu.recovery_action", {"action": "gpu_reset", "before": "none"}),
        ("gpu.recovery_action", {"action": "none", "before": "gpu_reset"}),
    ]


def test_every_change_says_where_its_threshold_is_from() -> None:
    assert all(change.reference and change.says for change in changes())


@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.integers(1, 3))
def test_a_level_is_told_on_and_off_in_turn_whatever_it_does(values: list[int], on: int) -> None:
    change = Change(
        thing="gpu.any", reading="any", kind="level", says="any", reference="a test", on=on + 1, off=on - 1, for_s=15
    )  # fmt: skip
    said = things(told(Judge([change]), *((10.0 * n, {"any": value}) for n, value in enumerate(values))))
    assert said == ["gpu.any" if n % 2 == 0 else OVER for n in range(len(said))]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60))
def test_a_count_that_only_grows_is_told_in_full(steps: list[int]) -> None:
    change = Change(thing="gpu.any", reading="any", kind="counter", says="any", reference="a test", by=1)
    total, looks = 100, [(0.0, 100)]
    for number, step in enumerate(steps, 1):
        total += step
        looks.append((10.0 * number, total))
    lines = told(Judge([change]), *((at_s, {"any": count}) for at_s, count in looks))
    assert sum(int(values["added"]) for _, values in lines) == sum(steps)
