"""The parts of a fleet report behind its rates."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pipeline.core.fleet.answers import FleetReport
from pipeline.core.fleet.costs import costs_of, shares_over_time
from pipeline.core.fleet.jobs import Saving, goodput_of, jobs_of
from pipeline.core.fleet.lifetimes import survival_of
from pipeline.core.fleet.peers import lemons_of
from pipeline.core.fleet.rates import How
from pipeline.core.fleet.records import Cohort, Defect, EpisodeCount, Fleet, JobAttempt, Life, Repair
from pipeline.core.fleet.repair_times import repair_times, repeat_rows
from pipeline.core.fleet.report import Options, fleet_report
from pipeline.core.fleet.sensitive import sensitivity_of
from pipeline.core.fleet.trends import trends_of
from tests.core.fleet.small_fleets import HOUR_NS, T0, UNKNOWN, failed, fleet, gpu, unit

DAY = 24


def life(name: str, from_hour: float, to_hour: float | None = None) -> Life:
    end = None if to_hour is None else T0 + int(to_hour * HOUR_NS)
    return Life(cluster="c1", unit_kind="node", unit=name, from_ns=T0 + int(from_hour * HOUR_NS), to_ns=end)


def attempt(job: str, nodes: int, hours: tuple[float, float | None], **more: Any) -> JobAttempt:
    begin, end = hours
    return JobAttempt(
        cluster="c1", job_id=job, attempt=0, nodes=tuple(f"n{n}" for n in range(nodes)), gpus=8 * nodes,
        from_ns=T0 + int(begin * HOUR_NS), to_ns=None if end is None else T0 + int(end * HOUR_NS), **more,
    )  # fmt: skip


def repair(
    failed_hour: float, drained: float | None, ended: float | None, trusted: float | None, **more: Any
) -> Repair:
    at = [None if hour is None else T0 + int(hour * HOUR_NS) for hour in (drained, ended, trusted)]
    return Repair(
        cluster="c1", unit_kind="node", unit="n1", failed_ns=T0 + int(failed_hour * HOUR_NS), drained_ns=at[0],
        begun_ns=at[1] and at[1] - 1, ended_ns=at[1], trusted_ns=at[2], **more,
    )  # fmt: skip


def test_units_enter_at_their_age_and_leave_at_failure_removal_or_the_end() -> None:
    of = replace(
        fleet([unit(f"n{n}", 240) for n in range(4)], [failed(48, "n0"), failed(90, "n0"), failed(72, "n1")]),
        lives=[life("n0", 0), life("n1", -100), life("n2", 24, 100), life("n3", 0)],
    )
    found = survival_of(of, "node", 0.95)
    assert found is not None
    curve, causes = found
    # n0 fails at 48 h of age, n1 at 172 h and is at risk from 100 h on, n2 is removed at 76 h, n3 lives 240 h.
    assert (curve.clock, curve.units, curve.failed, curve.horizon_hours) == ("age", 4, 2, 240)
    assert [(p.hours, p.at_risk) for p in curve.points] == [(48, 3), (172, 2)]
    assert [p.survival for p in curve.points] == pytest.approx([2 / 3, 1 / 3])
    assert [(row.component, row.failed) for row in causes] == [("GPU", 2)]
    assert causes[0].share == pytest.approx(2 / 3)
    assert 0 < causes[0].lo < causes[0].share < causes[0].hi < 1


def test_one_young_unit_does_not_end_the_curve_of_all() -> None:
    nodes = [unit(f"n{n}", 240) for n in range(21)]
    lives = [life("n0", 0), *(life(f"n{n}", -10 * n) for n in range(1, 21))]
    found = survival_of(replace(fleet(nodes, [failed(3, "n0"), failed(50, "n9")]), lives=lives), "node", 0.95)
    assert found is not None
    curve = found[0]
    # At 50 h of age five units are at risk; n0 failed before, alone. n9 fails at 140 h, when n1 to n13 are at risk.
    assert (curve.from_hours, curve.units, curve.failed) == (50, 20, 1)
    assert [(p.hours, p.at_risk) for p in curve.points] == [(140, 13)]


def test_without_installations_time_counts_from_the_begin_of_the_window() -> None:
    found = survival_of(fleet([unit("n1", 240), unit("n2", 100)], [failed(30, "n1")]), "node", 0.95)
    assert found is not None
    assert (found[0].clock, found[0].points[0].hours, found[0].horizon_hours) == ("window", 30, 100)


def test_one_unit_has_no_survival_curve_and_what_a_program_did_ends_no_life() -> None:
    assert survival_of(fleet([unit("n1", 240)]), "node", 0.95) is None
    found = survival_of(
        fleet([unit("n1", 9), unit("n2", 9)], [failed(3, "n1", class_="software/cuda_oom")]), "node", 0.95
    )
    assert found is not None
    assert (found[0].failed, found[0].exponential_mttf_hours) == (0, None)


def test_a_constant_rate_is_called_wrong_where_units_wear_out() -> None:
    ages = [1000 + 2 * n for n in range(100)]
    nodes = [unit(f"n{n}", 2000) for n in range(100)]
    of = fleet(nodes, [failed(age, f"n{n}") for n, age in enumerate(ages)], hours=2000)
    found = survival_of(replace(of, lives=[life(f"n{n}", 0) for n in range(100)]), "node", 0.95)
    assert found is not None
    assert found[0].exponential_is_wrong
    assert found[0].why.endswith("; by 110 h a constant rate expects 9.52% dead, 0.00% were")
    assert found[0].weibull_shape is not None
    assert found[0].weibull_shape > 5


def test_open_repairs_are_censored_beside_the_mean_of_the_closed() -> None:
    made = [repair(0, 1, 10, 12), repair(0, 3, 20, None), repair(0, None, None, None)]
    rows = {row.step: row for row in repair_times(replace(fleet([]), repairs=made))}
    assert (rows["repair"].n, rows["repair"].still_open) == (3, 1)
    assert (rows["repair"].closed_mean_hours, rows["repair"].median_hours) == (15, 20)
    assert rows["repair"].restricted_mean_hours == pytest.approx((10 + 20 + 240) / 3)
    assert (rows["drain"].n, rows["trusted"].still_open) == (3, 2)


def test_a_repair_from_before_the_window_is_seen_from_the_begin_of_the_window_on() -> None:
    made = [repair(-100, -90, 20, None), repair(0, 5, 40, None), repair(-50, -40, -10, None)]
    rows = {row.step: row for row in repair_times(replace(fleet([]), repairs=made))}
    # The long one is at risk from its hour 100 on: at 40 h only the other one was seen.
    assert (rows["repair"].n, rows["repair"].median_hours) == (2, 40)
    assert rows["drain"].n == 1


def test_a_drain_that_nobody_told_of_is_not_open_once_the_repair_began() -> None:
    made = [repair(0, None, 10, None), repair(0, 2, 10, None)]
    rows = {row.step: row for row in repair_times(replace(fleet([]), repairs=made))}
    assert (rows["drain"].n, rows["drain"].still_open, rows["drain"].median_hours) == (1, 0, 2)
    assert "trusted" not in rows


def test_nobody_waited_for_the_drain_of_a_repair_that_no_failure_led_to() -> None:
    made = [repair(0, 0, 10, None, has_failure=False), repair(0, 2, 10, None)]

    rows = {row.step: row for row in repair_times(replace(fleet([]), repairs=made))}

    assert (rows["drain"].n, rows["drain"].closed_mean_hours) == (1, 2)
    assert rows["repair"].n == 2
    assert "drain" not in {row.step for row in repair_times(replace(fleet([]), repairs=made[:1]))}


def test_repairs_too_recent_are_not_judged() -> None:
    made = [repair(0, 1, 10, 12, action="reset"), repair(1000, 1001, 1010, None, action="reset")]
    of = replace(fleet([], [failed(11, "n1"), failed(10 + 20 * DAY, "n1")], hours=1100), repairs=made)
    (row,) = repeat_rows(of)
    assert (row.action, row.repairs) == ("reset", 2)
    assert (row.judged_7_days, row.within_7_days, row.judged_28_days, row.within_28_days) == (1, 1, 1, 1)


def test_jobs_are_measured_beside_the_law_and_ettr_beside_what_can_be_expected() -> None:
    attempts = [
        attempt("a", 2, (0, 100), end="node_failure", queued_ns=HOUR_NS),
        attempt("b", 2, (0, 100), end="completed", queued_ns=HOUR_NS),
        attempt("c", 16, (0, 10), end="completed"),
    ]
    failures = [replace(failed(100, "n0", lost=32), job_ids=("a",))]
    jobs = jobs_of(replace(fleet([], failures), attempts=attempts), Saving(write_s=60, restart_s=300), 0.95)
    small, large = jobs.rows
    assert (small.gpus_from, small.gpus_to, small.jobs, small.failures, small.nodes) == (9, 16, 2, 1, 2)
    assert small.mttf_hours.value == 200
    assert small.ettr == pytest.approx((200 - 2) / 202)
    assert (large.failures, large.mttf_hours.value, large.queue_unknown) == (0, None, 1)
    assert jobs.above_gpus == 0
    assert jobs.per_1000_node_days.value == pytest.approx(1000 / (560 / 24))
    assert small.save_every_s == pytest.approx((2 * 60 / (2 * 24 / 560 / 86_400)) ** 0.5)
    assert small.ettr_expected is not None
    assert 0.9 < small.ettr_expected < 1


def test_what_a_job_did_before_the_window_is_in_no_figure_of_the_window() -> None:
    old = attempt("a", 2, (-1000, 10), end="node_failure", queued_ns=500 * HOUR_NS)
    failures = [replace(failed(10, "n0", lost=16 * 5), job_ids=("a",))]
    (row,) = jobs_of(replace(fleet([], failures), attempts=[old]), Saving(), 0.95).rows
    assert (row.busy_hours, row.ettr) == (10, 0.5)


def test_goodput_is_what_was_kept_of_what_was_there() -> None:
    parts = [unit(f"g{n}", 200, kind="gpu", node="n1", busy=100, installed=240) for n in range(2)]
    own = failed(3, "n1", lost=5, class_="software/cuda_oom")
    found = goodput_of(fleet(parts, [failed(1, "n1", lost=20), failed(2, "n1", lost=None), own]))
    assert (found.capacity_gpu_hours, found.busy_gpu_hours) == (480, 200)
    assert found.lost_gpu_hours == {"infrastructure": 20, "planned": 0, "user_code": 5, "unknown": 0}
    assert (found.share, found.without_a_price) == (175 / 480, 1)


def test_cost_and_count_rank_differently_and_each_category_by_itself() -> None:
    failures = [
        *(failed(h, "n1", class_="hardware/gpu_error", lost=1) for h in range(1, 4)),
        failed(5, "n1", class_="hardware/nvlink_fault", lost=100),
        failed(6, "n1", class_="software/cuda_oom", lost=None),
    ]
    rows = {row.class_: row for row in costs_of(failures)}
    dear, often, own = rows["hardware/nvlink_fault"], rows["hardware/gpu_error"], rows["software/cuda_oom"]
    assert (dear.rank_by_cost, dear.rank_by_count, often.rank_by_cost, often.rank_by_count) == (1, 2, 2, 1)
    assert (dear.share_of_cost, often.share_of_n) == (100 / 103, 3 / 4)
    assert (own.rank_by_cost, own.share_of_cost, own.without_a_price) == (1, None, 1)


def test_every_share_over_time_carries_that_of_the_unknown() -> None:
    failures = [failed(1, "n1"), failed(2, class_="unknown/silent_rank"), failed(3, "n1"), failed(24 * 8, "n1")]
    rows = shares_over_time(fleet([unit("n1", 240)], failures))
    assert [(row.class_, row.n, row.share, row.unknown_share) for row in rows] == [
        ("hardware/gpu_xid_79", 2, 2 / 3, 1 / 3),
        ("unknown/silent_rank", 1, 1 / 3, 1 / 3),
        ("hardware/gpu_xid_79", 1, 1.0, 0.0),
    ]
    assert rows[0].period < rows[2].period
    assert "-W" in rows[0].period


def test_long_windows_are_told_in_months() -> None:
    rows = shares_over_time(fleet([], [failed(1, "n1"), failed(24 * 40, "n1")], hours=24 * 200))
    assert [row.period for row in rows] == ["2024-10", "2024-11"]


def test_a_trend_is_told_by_category_and_only_where_there_is_enough() -> None:
    late = [failed(240 - n / 2, "n1") for n in range(1, 11)]
    rows = {row.category: row for row in trends_of(fleet([], [*late, failed(1, class_="unknown/silent_rank")]), 0.95)}
    assert rows["infrastructure"].verdict == "more frequent"
    assert rows["infrastructure"].beta is not None
    assert rows["infrastructure"].beta.lo is not None
    assert rows["infrastructure"].beta.lo > 1
    assert (rows["unknown"].verdict, rows["unknown"].laplace_z) == ("too few to say", None)


def test_a_lemon_is_named_and_a_window_that_is_too_short_says_so() -> None:
    nodes = [unit(f"n{n}", 240) for n in range(50)]
    found = lemons_of(fleet(nodes, [*(failed(h, "n7") for h in range(1, 9)), failed(9, "n1")]), How())
    assert [row.unit for row in found.rows if row.is_lemon] == ["n7"]
    assert (found.tested, found.rows[0].n) == (50, 8)
    assert found.smallest_window_days is not None
    assert found.smallest_window_days > 10
    assert "is needed" in found.warning
    assert "Nothing failed" in lemons_of(fleet(nodes), How()).warning


def test_a_node_is_compared_with_those_whose_gpus_are_like_its_own() -> None:
    of_sku = [Cohort(sku="H100" if n < 20 else "A100") for n in range(40)]
    parts = [part for n in range(40) for part in (unit(f"n{n}", 240), gpu(f"g{n}", f"n{n}", 240, cohort=of_sku[n]))]
    found = lemons_of(fleet(parts, [failed(1 + h, f"n{n}") for n in range(20, 40) for h in range(3)]), How())
    assert {row.cohort for row in found.rows} == {"A100"}
    assert [row.expected for row in found.rows] == pytest.approx([3] * 20)


def test_how_much_the_healthy_differ_stands_beside_each_unit() -> None:
    counts = [0, 0, 0, 0, 0, 1, 1, 2, 3, 5, 8, 9, 10, 12, 15, 18, 20, 22, 25, 30]
    failures = [failed(1 + h, f"n{n}") for n, count in enumerate(counts) for h in range(count)]
    worst = lemons_of(fleet([unit(f"n{n}", 240) for n in range(20)], failures), How()).rows[0]
    assert worst.cohort_cv is not None
    assert worst.cohort_p_value is not None
    assert worst.cohort_cv > 0.5
    assert worst.cohort_p_value > worst.p_value


def test_episodes_are_shown_for_every_window_that_joins_lines() -> None:
    counts = [
        EpisodeCount(
            cluster="c1", unit_kind="gpu", unit=f"g{n}", cohort=UNKNOWN, name="gpu.xid", xid=119, lines=10, episodes=1,
            by_window={5: 5, 60: 2},
        )
        for n in range(2)
    ]  # fmt: skip
    of = replace(fleet([gpu("g0", "n1", 240), gpu("g1", "n1", 240), gpu("g2", "n1", 240)]), episodes=counts)
    rows = sensitivity_of(of, How())
    assert [(row.window_s, row.episodes, row.lines) for row in rows] == [(None, 2, 20), (5, 10, 20), (60, 4, 20)]
    assert (rows[0].exposure_hours, rows[0].top_1_share) == (720, 0.5)
    assert rows[0].rate.value == pytest.approx(2 / 30 * 1000)


def test_episodes_of_units_without_time_at_risk_are_in_no_rate_and_said() -> None:
    counts = [
        EpisodeCount(
            cluster="c1", unit_kind="gpu", unit=name, cohort=UNKNOWN, name="gpu.xid", xid=119, lines=10, episodes=3,
            by_window={5: 5},
        )
        for name in ("g0", "nobody-installed-it")
    ]  # fmt: skip
    rows = sensitivity_of(replace(fleet([gpu("g0", "n1", 240)]), episodes=counts), How())
    assert [(row.episodes, row.uncounted, row.lines) for row in rows] == [(3, 3, 20), (5, 5, 20)]
    assert rows[0].rate.value == pytest.approx(3 / 10 * 1000)
    assert rows[0].top_1_share == 1


def test_an_empty_window_is_a_report_that_claims_nothing() -> None:
    found = fleet_report(Fleet(from_ns=T0, to_ns=T0 + 24 * HOUR_NS), Options())
    (row,) = found.rates
    assert (row.n, row.rate.value, row.rate.hi, row.system_mtbf_hours.lo) == (0, None, None, None)
    assert (found.nodes, found.unknown_share, found.shares, found.survival) == (0, None, [], [])


def test_a_report_is_its_json_and_defects_keep_their_first_examples() -> None:
    defects = [
        Defect(kind="inverted_span", cluster="c1", unit=f"n{n}", detail="ends before it begins") for n in range(9)
    ]
    of = replace(fleet([unit("n1", 240), unit("n2", 240)], [failed(5, "n1")]), defects=defects)
    found = fleet_report(of, Options())
    assert msgspec.json.decode(msgspec.json.encode(found), type=FleetReport) == found
    assert found == fleet_report(of, Options())
    (kind,) = found.defects
    assert (kind.kind, kind.n, [d.unit for d in kind.examples]) == ("inverted_span", 9, ["n0", "n1", "n2", "n3", "n4"])
    assert (found.from_, found.to) == ("2024-10-04", "2024-10-13")
