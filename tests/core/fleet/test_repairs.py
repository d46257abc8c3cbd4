"""From failure to trusted service."""

from pipeline.core.fleet.records import Failure, FleetSpan, Repair
from pipeline.core.fleet.repairs import Repeats, Stage, repairs, repeats, waits
from tests.core.fleet.inventories import BEGIN, SECOND, span

HOUR = 3600
DAY = 24 * HOUR


def failure(unit: str, at_s: float, node: str = "") -> Failure:
    return Failure(
        cluster="a", incident_id=f"{unit}@{at_s}", at_ns=BEGIN + round(at_s * SECOND), class_="C10", node=node,
        category="infrastructure", component="gpu", unit_kind="gpu" if unit.startswith("g") else "node", unit=unit,
    )  # fmt: skip


def well(unit: str, from_s: float, to_s: float) -> FleetSpan:
    return span(unit, "busy", from_s, to_s, job_id=f"j{from_s}", outcome="completed")


def stages(repair: Repair) -> tuple[float | None, ...]:
    """Seconds after the failure: drained, begun, ended, trusted."""
    times = (repair.drained_ns, repair.begun_ns, repair.ended_ns, repair.trusted_ns)
    return tuple(None if t is None else (t - repair.failed_ns) / SECOND for t in times)


def test_a_way_back_goes_through_drain_repair_and_the_first_job_that_ends_well() -> None:
    spans = [
        span("n1", "drain", 100, 900, ticket="T-1"), span("n1", "repair", 300, 800, action="swap", outcome="fixed"),
        well("n1", 850, 870), span("n1", "busy", 910, 950, job_id="8", outcome="failed"), well("n1", 960, 1500),
    ]  # fmt: skip
    [repair] = repairs([failure("n1", 60)], spans)
    assert stages(repair) == (40, 240, 740, 1440)
    assert (repair.action, repair.outcome, repair.ticket) == ("swap", "fixed", "T-1")


def test_a_repair_that_has_not_ended_stays_open_and_takes_up_later_failures() -> None:
    spans = [span("n1", "drain", 100, None), span("n1", "repair", 300, None, action="reseat")]
    [repair] = repairs([failure("n1", 60), failure("n1", 70), failure("n1", 400)], spans)
    assert (repair.failed_ns, stages(repair)) == (BEGIN + 60 * SECOND, (40, 240, None, None))


def test_a_failure_before_the_unit_is_trusted_again_is_another_repair() -> None:
    spans = [
        span("n1", "repair", 100, 200, action="reset"), span("n1", "repair", 300, 400, action="swap"),
        well("n1", 500, 600),
    ]  # fmt: skip
    first, second = repairs([failure("n1", 50), failure("n1", 250)], spans)
    assert (first.action, stages(first)) == ("reset", (None, 50, 150, None))
    assert (second.action, stages(second)) == ("swap", (None, 50, 150, 350))


def test_two_repairs_without_a_failure_between_are_one_way_back_and_the_last_action_is_named() -> None:
    spans = [span("n1", "repair", 100, 200, action="reset"), span("n1", "repair", 300, 400, action="swap")]
    [repair] = repairs([failure("n1", 50)], spans)
    assert (repair.action, stages(repair)) == ("swap", (None, 50, 350, None))


def test_a_unit_on_which_a_job_went_well_before_it_was_touched_needed_no_repair() -> None:
    [repair, later] = repairs(
        [failure("n1", 50), failure("n1", 5000)],
        [well("n1", 60, 100), span("n1", "reset", 5010, 5020), well("n1", 5030, 6000)],
    )
    assert (repair.action, stages(repair)) == ("", (None, None, None, 50))
    assert (later.action, stages(later)) == ("reset", (None, 10, 20, 1000))


def test_a_span_may_say_that_the_unit_is_trusted() -> None:
    [repair] = repairs([failure("n1", 50)], [span("n1", "repair", 100, 200, action="reboot", outcome="trusted")])
    assert stages(repair) == (None, 50, 150, 150)


def test_a_gpu_is_mended_with_its_node() -> None:
    spans = [span("n1", "drain", 100, 200), span("n1", "boot", 110, 150), well("n1", 300, 400)]
    [repair] = repairs([failure("g1", 90, node="n1")], spans)
    assert (repair.unit, repair.action, stages(repair)) == ("g1", "reboot", (10, 20, 60, 310))


def test_the_repair_of_a_node_for_its_gpu_is_the_gpus_and_the_next_one_is_the_nodes_own() -> None:
    spans = [
        span("n1", "drain", 100, 500), span("n1", "repair", 300, 500, action="swap"), well("n1", 600, 700),
        span("n1", "repair", 900, 950, action="reseat"),
    ]  # fmt: skip

    of_gpu, own = repairs([failure("g1", 60, "n1")], spans)

    assert (of_gpu.unit, of_gpu.action, of_gpu.has_failure, stages(of_gpu)) == ("g1", "swap", True, (40, 240, 440, 640))
    assert (own.unit, own.action, own.has_failure, stages(own)) == ("n1", "reseat", False, (None, 0, 50, None))


def test_a_repair_of_a_node_for_its_gpu_counts_once() -> None:
    spans = [span("n1", "drain", 90, 210), span("n1", "repair", 100, 200), well("n1", 300, 400)]
    spans.append(span("n1", "repair", 9000, 9100))
    found = repairs([failure("g1", 50, node="n1")], spans)
    assert [(r.unit, r.failed_ns) for r in found] == [("g1", BEGIN + 50 * SECOND), ("n1", BEGIN + 9000 * SECOND)]


def test_a_repair_that_no_failure_leads_to_counts_from_when_the_unit_was_taken_away() -> None:
    spans = [span("n1", "drain", 100, 900), span("n1", "repair", 300, 800, action="swap"), span("n2", "drain", 1, 5)]
    [repair] = repairs([], spans)
    assert (repair.failed_ns, stages(repair)) == (BEGIN + 100 * SECOND, (0, 200, 700, None))


def test_repeat_failures_are_counted_by_action_and_recent_repairs_are_not_judged_yet() -> None:
    def made(unit: str, ended_s: float | None, action: str) -> Repair:
        end = None if ended_s is None else BEGIN + round(ended_s * SECOND)
        return Repair(cluster="a", unit_kind="node", unit=unit, failed_ns=BEGIN, ended_ns=end, action=action)

    done = [
        made("n1", HOUR, "reset"), made("n2", HOUR, "reset"), made("n3", 25 * DAY, "reset"), made("n4", HOUR, "swap"),
        made("n5", None, "swap"),
    ]  # fmt: skip
    again = [failure("n1", 7 * DAY + HOUR), failure("n2", 7 * DAY + HOUR + 1), failure("n4", 0)]
    until_ns = BEGIN + 30 * DAY * SECOND
    assert repeats(done, again, 7, until_ns=until_ns) == [
        Repeats(action="reset", within_days=7, repairs=2, repeated=1, too_recent=1),
        Repeats(action="swap", within_days=7, repairs=1, repeated=0, too_recent=0),
    ]
    assert repeats(done, again, 28, until_ns=until_ns)[0].repeated == 2


def test_what_has_not_come_by_the_end_of_the_data_is_a_censored_wait() -> None:
    spans = [span("n1", "repair", HOUR, 3 * HOUR, action="swap"), span("n2", "repair", HOUR, None)]
    found = repairs([failure("n1", 0), failure("n2", 0)], spans)

    def seen(stage: Stage, until_hours: int, from_hours: int = 0) -> list[tuple[float, bool, float]]:
        window = (BEGIN + hours * HOUR * SECOND for hours in (from_hours, until_hours))
        return [(wait.hours, wait.came, wait.entered) for wait in waits(found, stage, *window)]

    assert seen("ended", 10) == [(3, True, 0), (10, False, 0)]
    assert seen("ended", 2) == seen("drained", 2) == [(2, False, 0), (2, False, 0)]
    assert seen("ended", 10, 2) == [(3, True, 2), (10, False, 2)]
    assert seen("ended", 10, 4) == [(10, False, 4)]


def test_the_order_of_failures_and_spans_does_not_matter() -> None:
    spans = [span("n1", "repair", 100, 200, action="reset"), span("n1", "repair", 300, 400), well("n1", 500, 600)]
    failed = [failure("n1", 50), failure("n1", 250), failure("n2", 1)]
    assert repairs(failed, spans) == repairs(failed[::-1], spans[::-1])
