import pytest

from pipeline.report.legend import legend
from pipeline.report.timeline import MAX_MARKS, render_timeline
from schemas.records import BlastRadius, Culprit, Recovery
from tests.report.drawn import drawing, fleet, incident, lanes, step, with_class, words_in

HOSTILE = '</svg><script>x</script>" onload="x\u202e\x00\x1b[31m' + "W" * 400


def test_roles_differ_by_shape_and_are_said() -> None:
    tree = drawing(
        incident(
            *(step(n, "rank 1", n, role=role) for n, role in enumerate(["root", "cascade", "symptom", "context"], 1))
        )
    )
    marks = with_class(tree, "mark")

    assert [next(e.tag for e in with_class(mark, "shape")) for mark in marks] == ["path", "rect", "circle", "circle"]
    said = [mark.get("aria-label", "").split(", ")[1] for mark in marks]
    assert said == ["root cause", "followed", "symptom", "context"]
    assert [with_class(mark, "number")[0].text for mark in marks] == ["1", "2", "3", "4"]


def test_a_mark_leads_to_its_proof_and_says_all_of_itself() -> None:
    mark = with_class(drawing(incident(step(1, "rank 6 on n1", 61.25, count=7))), "mark")[0]

    assert mark.get("href") == "#s1"
    assert mark.get("aria-label") == ("Step 1, root cause, rank 6 on n1, 2026-02-03 12:01:01.250 UTC ± 5 ms: event.1")
    assert words_in(mark).endswith("1event.1 ×7")


def test_a_less_certain_time_is_drawn_wider() -> None:
    steps = [step(n, f"rank {n}", 10 * n, error_ns=error) for n, error in enumerate([10**6, 10**9, 9 * 10**9], 1)]
    bars = with_class(drawing(incident(*steps, step(4, "rank 4", 300))), "bar")
    widths = [float(bar.get("width", "0")) for bar in bars[:3]]

    assert widths == sorted(widths)
    assert widths[2] > 4 * widths[1] > 4 * widths[0]


def test_a_time_known_exactly_has_no_bar() -> None:
    assert with_class(drawing(incident(step(1, "rank 1", 1, error_ns=0))), "bar") == []


def test_bars_of_bounds_that_overlap_overlap_and_others_do_not() -> None:
    tree = drawing(
        incident(step(1, "a", 10, error_ns=10**9), step(2, "b", 11, error_ns=10**9), step(3, "c", 40, error_ns=10**9))
    )
    spans = [
        (float(b.get("x", "")), float(b.get("x", "")) + float(b.get("width", ""))) for b in with_class(tree, "bar")
    ]

    assert spans[1][0] < spans[0][1]
    assert spans[1][1] < spans[2][0]


def test_a_step_without_a_time_has_a_question_mark_and_may_be_anywhere_after_a_certain_cause() -> None:
    steps = [step(1, "rank 1", 1), step(2, "rank 1"), step(3, "rank 2"), step(4, "rank 2", 60)]
    tree = drawing(incident(*steps, edges=((1, 2, "certain"), (1, 3, "concurrent"))))
    after, anywhere = (bar.get("d", "") for bar in with_class(tree, "untimed"))

    assert len(with_class(tree, "unknown-time")) == 2
    assert float(anywhere.split()[0][1:]) < float(after.split()[0][1:])


def test_where_no_line_has_a_time_that_is_said_once() -> None:
    tree = drawing(incident(step(1, "rank 1"), step(2, "rank 2")))

    assert "No clock gives these lines a time" in words_in(tree)
    assert with_class(tree, "axis") + with_class(tree, "bar") + with_class(tree, "unknown-time") == []


def test_the_time_between_is_written_and_a_long_wait_cut() -> None:
    tree = drawing(incident(step(1, "a", 0.001), step(2, "b", 0.003), step(3, "c", 0.005), step(4, "d", 605.0)))

    assert [words_in(gap) for gap in with_class(tree, "gap")] == ["2 ms", "2 ms", "10 min 5 s"]
    assert len(with_class(tree, "cut")) == 1
    assert [words_in(clock) for clock in with_class(tree, "clock")] == ["12:00:00.001", "12:10:05.000"]


def test_lines_say_how_sure_their_order_is() -> None:
    steps = [step(n, f"rank {n}", n) for n in range(1, 4)]
    edges = with_class(
        drawing(incident(*steps, edges=((1, 2, "certain"), (2, 3, "concurrent"), (2, 9, "certain")))), "edge"
    )

    assert [edge.get("class") for edge in edges] == ["edge certain", "edge concurrent"]
    assert words_in(edges[1]) == "2 to 3: because (clocks cannot order them)"


def test_a_silent_rank_and_the_start_of_the_stall_are_drawn() -> None:
    found = incident(
        step(1, "2 ranks", 600, ranks=[0, 1], role="symptom"), culprits=[Culprit(rank=2)],
        blast_radius=BlastRadius(silent_ranks=[2]), stall_started_at="2026-02-03T12:00:00Z",
        recovery=Recovery(checkpoint_at="2026-02-03T11:00:00Z"),
    )  # fmt: skip
    tree = drawing(found)

    assert lanes(tree)[0] == "▶ rank 2 culprit silent: prints nothing of its own"
    assert [words_in(moment) for moment in with_class(tree, "moment")] == ["checkpoint", "stall began"]
    silence = with_class(tree, "silence")[0]
    stall = next(c for c in with_class(tree, "column") if "stall" in c.get("class", ""))
    assert stall.get("d", "").startswith(f"M{silence.get('x')} ")


def test_a_fleet_is_readable() -> None:
    found = fleet()
    tree = drawing(found)

    assert len(lanes(tree)) == 12
    assert "16,383 ranks" in " ".join(lanes(tree))
    assert "7,692 silent ranks" in " ".join(lanes(tree))
    assert len(str(render_timeline(found, str))) < 60_000


def test_steps_beyond_what_can_be_read_are_left_to_the_list_and_that_is_said() -> None:
    found = incident(*(step(n, "rank 1", n) for n in range(1, 200)))

    assert len(with_class(drawing(found), "mark")) == MAX_MARKS
    assert f"The first {MAX_MARKS} steps of 199." in legend(found)


def test_the_legend_explains_what_is_drawn_and_nothing_else() -> None:
    said = legend(incident(step(1, "rank 1"), step(2, "rank 1", role="cascade"), edges=((1, 2, "certain"),)))

    assert "root cause" in said
    assert "order certain" in said
    assert not any(word in said for word in ("symptom", "context", "cannot order", "uncertain", "not to scale"))


def test_text_of_logs_stays_text_and_within_its_place() -> None:
    found = incident(step(1, HOSTILE, 1, event=HOSTILE), step(2, f"rank 7 {HOSTILE} on {HOSTILE}", 2))
    tree = drawing(found)

    assert {e.tag for e in tree.iter()} <= {"svg", "g", "path", "rect", "circle", "text", "tspan", "title", "a"}
    assert not [name for e in tree.iter() for name in e.attrib if name.startswith("on")]
    written = [words_in(text) for text in tree.iter("text")]
    assert max(map(len, written)) < 150
    assert all(c.isprintable() for text in written for c in text)


@pytest.mark.parametrize("number", [0, -5, 10**15])
def test_numbers_of_steps_are_whatever_was_sent(number: int) -> None:
    steps = [step(1, "rank 1", 1), step(number, "rank 2", 1, error_ns=-(10**400), lag_ns=10**400)]

    assert (
        len(with_class(drawing(incident(*steps, edges=((1, number, "certain"), (number, 1, "certain")))), "mark")) == 2
    )


def test_nothing_is_drawn_of_an_incident_without_steps() -> None:
    assert render_timeline(incident(), str) is None
