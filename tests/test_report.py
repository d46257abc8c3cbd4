import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from pipeline.notes import Note
from pipeline.report import look_of, render_diagnosis, render_html, render_table, render_text, words
from pipeline.report.class_words import CLASS_WORDS
from schemas.records import Action, ChainStep, Coverage, Culprit, Gap, Incident
from schemas.vocabulary import CLASSES, ActionKind

replace = msgspec.structs.replace
INCIDENTS = Path(__file__).parent / "web" / "incidents"
HOSTILE = "<script>alert(1)</script>[red]x[/red]\x1b[2J\x9b\r\n\u202eevil\u2028"


def load(name: str) -> Incident:
    return msgspec.json.decode((INCIDENTS / f"{name}.json").read_bytes(), type=Incident)


def every() -> list[Incident]:
    return [load(path.stem) for path in sorted(INCIDENTS.glob("*.json"))]


def bare() -> Incident:
    full = load("fell_off_the_bus")
    return Incident(
        incident_id="x", engine=full.engine, run="post_mortem", run_id="x", cluster="c", class_="unknown/silent_rank"
    )


def with_text(incident: Incident, text: str) -> Incident:
    evidence = replace(incident.chain[0].evidence, text=text, source=text)
    chain = [replace(incident.chain[0], evidence=evidence, where=text)]
    culprits = [replace(incident.culprits[0], node=text, gpu_uuid=text)]
    action = replace(incident.action, target=text, why=text, reference=text)
    return replace(incident, chain=chain, culprits=culprits, action=action, explanation=text, class_=text)


def note(text: str) -> Note:
    return Note(class_="scheduler/time_limit", why=text, source=text, line_no=None, text=text)


def test_the_first_lines_say_what_broke_where_and_what_to_do() -> None:
    lines = render_text(load("fell_off_the_bus")).splitlines()

    assert lines[0] == "CRITICAL  GPU fell off the bus (Xid 79)"
    assert "node aur-g017 · GPU 3 · rank 27" in lines[1]
    assert "97 % sure" in lines[1]
    assert any("Drain node aur-g017." in line for line in lines[:12])


def test_the_chain_shows_role_place_time_error_lag_address_and_text() -> None:
    text = render_text(load("fell_off_the_bus"), width=140)

    assert "  1  root                  aur-g017 GPU 3\n     02:11:07.482 ± 820 µs  aur-g017/kern.log:8812\n" in text
    assert "cascade  +128 ms" in text
    assert "GPU has fallen off the bus." in text
    assert "after 1: rank 27 runs on this GPU and lost it (order certain)" in text


def test_what_was_not_watched_is_said() -> None:
    text = render_text(load("fell_off_the_bus"), width=120)

    assert "kernel: seen on 7 of 8 nodes, silent: aur-g022" in text
    assert "kmsg on aur-g022: not read: permission denied" in text


def test_without_a_culprit_nobody_is_named_and_the_deciding_evidence_is() -> None:
    text = render_text(load("collective_timeout"), width=120)

    assert "none named" in text
    assert "flight recorder dump" in text


@pytest.mark.parametrize("incident", [*every(), bare()], ids=lambda i: i.class_)
@pytest.mark.parametrize("width", [40, 80, 132])
def test_no_line_is_wider_than_the_terminal(incident: Incident, width: int) -> None:
    for text in (
        render_text(incident, width=width),
        render_table([incident], width=max(width, 60)),
        render_diagnosis([incident], [Gap(source="a" * 200, reason="b " * 200)], ["n " * 200], width=width),
    ):
        assert max(len(line) for line in text.splitlines()) <= max(width, 60)


def test_colour_comes_only_when_asked_for() -> None:
    assert "\x1b[" in render_text(load("host_oom"), color=True)
    assert "\x1b" not in render_text(load("host_oom"))
    assert "\x1b" not in render_table(every())


def test_no_color_and_pipes_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "97")
    assert look_of(Terminal()).color
    assert look_of(Terminal()).width == 97
    assert not look_of(io.StringIO()).color
    monkeypatch.setenv("NO_COLOR", "1")
    assert not look_of(Terminal()).color


def test_control_characters_and_markup_of_a_log_line_never_reach_the_terminal() -> None:
    incident = with_text(load("fell_off_the_bus"), HOSTILE)

    for text in (render_text(incident), render_table([incident]), render_diagnosis([incident], [], [HOSTILE])):
        assert all(c == "\n" or c.isprintable() for c in text)
        assert "[red]x[/red]" in text.replace("\n", "").replace(" ", "")


def test_a_page_in_a_file_needs_nothing_else_and_runs_nothing() -> None:
    page = render_html([with_text(load("fell_off_the_bus"), HOSTILE)], [], [note(HOSTILE)])

    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "default-src 'none'" in page
    assert " src=" not in page
    assert "<link" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_a_page_with_several_incidents_lists_them_and_links_to_each() -> None:
    page = render_html(every(), [Gap(source="core.bin", reason="kind is not read yet")], [note("its time was up")])

    for incident in every():
        assert f'href="#incident-{incident.incident_id}"' in page
        assert f'id="incident-{incident.incident_id}"' in page
    assert "core.bin: kind is not read yet" in page
    assert "Its time was up." in page


def test_a_page_without_incidents_says_so() -> None:
    assert "<h1>No incident found</h1>" in render_html([], [], [])
    assert render_diagnosis([], [], []).startswith("No incident found.")


def test_only_web_addresses_become_links() -> None:
    incident = load("host_oom")
    code = replace(incident, action=replace(incident.action, reference="javascript:alert(1)"))
    web = replace(incident, action=replace(incident.action, reference="https://example.org/a?b=1&c=2"))

    assert "Look up: <code>javascript:alert(1)</code>" in render_html([code], [], [])
    assert "Look up: javascript:alert(1)" in render_text(code)
    assert "See https://example.org/a?b=1&c=2" in render_text(web)
    assert 'href="https://example.org/a?b=1&amp;c=2"' in render_html([web], [], [])


def test_a_very_long_line_is_cut_and_says_so() -> None:
    incident = with_text(load("host_oom"), "x" * 10_000)

    assert "(+8,000 characters)" in render_html([incident], [], [])
    assert "characters)" in render_text(incident)


def test_lone_surrogates_of_undecodable_bytes_can_be_printed() -> None:
    incident = with_text(load("host_oom"), "bad \udcff byte")

    render_text(incident).encode("utf-8")
    render_html([incident], [], []).encode("utf-8")
    assert "\\udcff" in render_text(incident)


def test_every_class_of_the_vocabulary_has_words() -> None:
    assert set(CLASS_WORDS) == CLASSES


@pytest.mark.parametrize("kind", get_args(ActionKind))
def test_every_action_is_an_order_with_and_without_a_target(kind: ActionKind) -> None:
    with_target = words.do_now(Action(kind=kind, target="node n7"))
    without = words.do_now(Action(kind=kind))

    assert "{" not in with_target + without
    assert without[0].isupper()
    assert not without.endswith((":", "about "))


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (0, "0 ns"), (340, "340 ns"), (12_300, "12.3 µs"), (820_000, "820 µs"), (999_999, "1000 µs"),
        (4_200_000_000, "4.2 s"),
        (119_900_000_000, "120 s"), (600_248_000_000, "10 min 0 s"), (7_260_000_000_000, "2 h 1 min"),
        (172_800_000_000_000, "2.0 days"), (-1_500_000, "1.5 ms"),
    ],
)  # fmt: skip
def test_a_length_of_time_is_said_in_the_unit_a_person_would_use(ns: int, said: str) -> None:
    assert words.duration(ns) == said


@pytest.mark.parametrize(
    ("ranks", "said"), [([], ""), ([3], "rank 3"), ([2, 1, 0, 5], "ranks 0-2, 5"), ([4, 4], "rank 4")]
)
def test_runs_of_ranks_are_folded(ranks: list[int], said: str) -> None:
    assert words.rank_list(ranks) == said


@pytest.mark.parametrize(
    ("culprit", "said"),
    [
        (Culprit(node="n1", gpu_index=0, rank=0), "node n1 · GPU 0 · rank 0"),
        (Culprit(node="n1", pci_bus_id="0000:3b:00.0"), "node n1 · GPU 0000:3b:00.0"),
        (Culprit(switch="leaf-3"), "switch leaf-3"),
        (Culprit(), "unnamed"),
    ],
)
def test_a_culprit_is_named_by_what_is_known(culprit: Culprit, said: str) -> None:
    assert words.place(culprit) == said


@pytest.mark.parametrize(
    ("when", "check"),
    [
        ("2026-03-14T02:11:07.482913Z", lambda ns: ns == 1_773_454_267_482_913_000),
        ("not a time", lambda ns: ns == 0),
        (None, lambda ns: ns == 0),
    ],
)
def test_a_time_that_is_none_sorts_last_and_breaks_nothing(when: str | None, check: Callable[[int], bool]) -> None:
    assert check(words.instant_ns(when))


@pytest.mark.parametrize(
    ("confidence", "said"),
    [(0.42, "42 %"), (1.0, "99 %"), (1e308, "99 %"), (-1e308, "0 %"), (float("nan"), "0 %"), (float("inf"), "99 %")],
)
def test_a_confidence_is_a_percentage_whatever_was_sent(confidence: float, said: str) -> None:
    assert words.percent(confidence) == said


def test_numbers_beyond_reason_break_no_report() -> None:
    full = load("fell_off_the_bus")
    chain = [replace(step, lag_ns=10**400, error_ns=-(10**400)) for step in full.chain]
    recovery = replace(full.recovery, lost_gpu_hours=1e308)
    incident = replace(full, confidence=1e308, chain=chain, recovery=recovery)

    for text in (render_text(incident), render_table([incident]), render_html([incident], [], [])):
        assert len(text) < 100_000


def test_long_names_and_long_lists_are_cut_and_say_so() -> None:
    full = load("fell_off_the_bus")
    silent = [f"n{number:04d}" for number in range(5_000)]
    culprits = [replace(full.culprits[0], node="n" * 5_000)]
    reach = replace(full.blast_radius, silent_ranks=list(range(0, 9_000, 2)))
    gaps = [Gap(source=f"s{number}", reason="gone") for number in range(3_000)]
    incident = replace(
        full, culprits=culprits, gaps=gaps, blast_radius=reach,
        coverage={"kernel": Coverage(expected=5_008, seen=8, silent=silent)},
    )  # fmt: skip

    shown = (render_text(incident, width=200), render_html([incident], [], []))
    usual = (render_text(full, width=200), render_html([full], [], []))
    for text, without in zip(shown, usual, strict=True):
        assert "n0000" in text
        assert "… and 4,990 more" in text
        assert "… and 4,480 more" in text
        assert "characters)" in text
        assert len(text) - len(without) < 4_000


def long(roles: str) -> Incident:
    """An incident whose chain has a step for each letter: root, cascade, symptom (S: of many ranks, w: a watchdog's),
    x for context.
    """
    full = load("fell_off_the_bus")
    names: dict[str, str] = {
        "r": "root",
        "c": "cascade",
        "s": "symptom",
        "S": "symptom",
        "w": "symptom",
        "x": "context",
    }
    watchdog = "nccl.watchdog.timeout"
    one = msgspec.to_builtins(full.chain[0])
    steps = [
        {**one, "step": number, "role": names.get(letter, "symptom"), "where": f"place {number}",
         "ranks": [1, 2, 3] if letter == "S" else [], "event": watchdog if letter == "w" else "any"}
        for number, letter in enumerate(roles, 1)
    ]  # fmt: skip
    return replace(full, chain=msgspec.convert(steps, type=list[ChainStep]), edges=[])


def shown_steps(text: str) -> list[str]:
    """The numbers at the beginnings of steps, in order."""
    return [found[1] for line in text.splitlines() if (found := re.match(r" {0,2}(\d+(?:-\d+)?)  \w", line))]


def test_of_a_long_chain_symptoms_and_context_are_folded_and_the_way_to_see_them_is_said() -> None:
    incident = long("xxxxrccssSsssc")
    text = render_diagnosis([incident], [], [])

    assert shown_steps(text) == ["1", "2-4", "5", "6", "7", "8", "9", "10", "11-13", "14"]
    assert "\n2-4  context  3 more       place 2, place 3, place 4\n" in text
    assert "\n11-13  symptom  3 more       place 11, place 12, place 13\n" in text
    assert "\n     6 of 14 steps are folded; --full prints all\n" in text
    assert shown_steps(render_diagnosis([incident], [], [], full=True)) == [str(n) for n in range(1, 15)]
    assert shown_steps(render_text(incident)) == [str(n) for n in range(1, 15)]


def test_where_ranks_first_waited_in_vain_is_never_folded() -> None:
    text = render_diagnosis([long("rcccccsssswwss")], [], [])

    assert shown_steps(text) == ["1", "2", "3", "4", "5", "6", "7", "8-10", "11", "12-14"]


@pytest.mark.parametrize("roles", ["xxxxrccssSss", "r" + 13 * "c"], ids=["twelve steps", "nothing to leave out"])
def test_a_short_chain_and_what_proves_are_shown_whole(roles: str) -> None:
    text = render_diagnosis([long(roles)], [], [])

    assert len(shown_steps(text)) == len(roles)
    assert "--full" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_a_line_to_paste_is_one_line_however_narrow_the_terminal(width: int) -> None:
    line = "scontrol update nodename='gx[07-08]' state=drain reason='rootrank hardware/gpu_xid_79, incident 637c'"
    incident = load("fell_off_the_bus")
    incident = replace(incident, action=replace(incident.action, commands=[line, "a\x1b[2Jb"]))

    assert f"\n{' ' * 10}{line}\n{' ' * 10}a\\x1b[2Jb\n" in render_text(incident, width=width)


def test_how_final_a_verdict_is_and_whether_it_is_over_is_said_in_words() -> None:
    live = replace(load("fell_off_the_bus"), run="live", revision=3)
    text = render_text(live, width=120)
    page, given_page = (render_html([replace(live, run=run)], [], []) for run in ("live", "post_mortem"))

    assert ">final<" in page
    assert ">final<" not in given_page
    assert ">open<" not in given_page
    assert "\nstands    final, all lines of that time are in (revision 3); nothing says yet that it is over\n" in text
    assert "settled" not in text
    early = render_text(replace(live, verdict="provisional", state="superseded", superseded_by="abc"), width=120)
    assert "may still change, lines are coming in (revision 3); it is replaced by incident abc" in early
    given = render_text(replace(live, run="post_mortem"), width=120)
    assert "\nstands    the verdict on all files that were given\n" in given


def test_what_a_figure_was_measured_on_is_said_with_what_is_missing() -> None:
    incident = load("fell_off_the_bus")
    incident = replace(incident, engine=replace(incident.engine, calibrated_on="simulated incidents"))
    every = {kind: Coverage(expected=2, seen=2) for kind in ("application", "kernel")}
    said = "percentages say how often such verdicts{} were right on simulated incidents; excerpts were not among them"

    assert words.sure_line(replace(incident, coverage=every)) == said.format("")
    without = every | {"kernel": Coverage(expected=2, seen=0)}
    assert words.sure_line(replace(incident, coverage=without)) == said.format(" without any kernel log")
    without = every | {"application": Coverage(expected=2, seen=0)}
    assert words.sure_line(replace(incident, coverage=without)) == said.format(" without any log of the job")
    assert words.sure_line(replace(incident, coverage={})) == said.format(" without the log of any known node")
    assert words.sure_line(replace(incident, engine=replace(incident.engine, calibrated_on=""))) == ""
