"""The page in a file: it stands alone, says everything, and holds text of logs as text."""

import hashlib
import re
from base64 import b64encode
from pathlib import Path

import msgspec
import pytest

from pipeline.notes import Note
from pipeline.report import render_html
from schemas.records import (
    Action,
    Alternative,
    BlastRadius,
    Coverage,
    Culprit,
    Evidence,
    Gap,
    Incident,
    Job,
    Recovery,
    Suppressed,
)
from tests.report.drawn import Page, fleet, incident, step

replace = msgspec.structs.replace
NOTE = Note(
    class_="scheduler/time_limit", why="the limit was reached", source="slurm.out", line_no=8, text="TIME LIMIT ***"
)
HOSTILE = [
    "<script>alert(1)</script>",
    '"onload="alert(1)" x="',
    "'><img src=http://example.invalid/x onerror=alert(1)>",
    "</pre></title></style></svg><iframe srcdoc=x>",
    "\u202ereversed\u2066 \u200b",
    "zero \x00 and escape \x1b[2J and bell \x07",
    "&lt;b&gt; &#60;script&#62;",
    "x" * 1_000_000,
]


def full(text: str = "plain") -> Incident:
    """An incident with every part that a page shows, all of it made of one text."""
    found = fleet()
    chain = [replace(s, evidence=Evidence(source=text, text=text, line_no=7), where=text) for s in found.chain]
    return replace(
        found, chain=chain, explanation=text, cluster=text, why_unknown=text, not_network_because=text, class_=text,
        culprits=[Culprit(node=text, gpu_uuid=text, nic=text, serial=text, rank=3)], labels=[text],
        alternatives=[Alternative(class_=text, culprits=[Culprit(node=text)], confidence=0.1, why_less_likely=text)],
        action=Action(kind="drain_node", target=text, why=text, reference=text),
        recovery=Recovery(last_checkpoint=text, checkpoint_at="2026-02-03T11:00:00Z"),
        coverage={text: Coverage(expected=8, seen=7, silent=[text])}, gaps=[Gap(source=text, reason=text, node=text)],
        jobs=[Job(job_id=text, owner=text)], suppressed=Suppressed(count=1, by_event={text: 1}),
    )  # fmt: skip


def _number(mark: str) -> int:
    return int(mark.split(",")[0].removeprefix("Step "))


def page_of(text: str) -> str:
    note = Note(class_=text, why=text, source=text, line_no=None, text=text)
    return render_html(
        [full(text), replace(full(text), incident_id=text[:200])], [Gap(source=text, reason=text)], [note], read=text
    )


def test_a_page_says_everything_of_an_incident() -> None:
    found = replace(
        full(), explanation="GPU lost.", class_="hardware/gpu_xid_79", not_network_because="the GPU was gone first",
        action=Action(kind="drain_node", target="big-0001", why="it comes back only with power", reference="Xid 79"),
        recovery=Recovery(last_checkpoint="step_400.pt"), blast_radius=BlastRadius(ranks=16_384, nodes=2_048),
        coverage={"kernel": Coverage(expected=8, seen=7, silent=["big-0008"])},
        gaps=[Gap(source="app.log", reason="torn")],
        alternatives=[Alternative(class_="hardware/pcie_link", confidence=0.2, why_less_likely="no port reports it")],
    )  # fmt: skip
    said = Page(render_html([found], [], [], read="./logs")).text

    for words in (
        "GPU fell off the bus", "node plain", "GPU lost.", "Drain big-0001.", "It comes back only with power.",
        "Xid 79", "Last checkpoint step_400.pt", "16,384 ranks", "2,048 nodes",
        "kernel: seen on 7 of 8 nodes, silent: big-0008",
        "app.log: torn", "PCIe link fault (20 %): no port reports it", "the GPU was gone first", "plain:7",
        "post-mortem of ./logs",
    ):  # fmt: skip
        assert words in said


def test_each_step_of_the_timeline_leads_to_its_line() -> None:
    page = Page(render_html([fleet(), replace(fleet(), incident_id="other ü/1")], [], []))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    marks = [a["href"] for tag, a in page.tags if tag == "a" and "mark" in a.get("class", "")]

    assert len(ids) == len(set(ids))
    assert len(marks) == 2 * len(fleet().chain)
    assert {f"#step-i1-{n}" for n in range(1, 30) if n != 3} < set(marks)
    assert "#step-other%20%C3%BC/1-1" in marks


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:16]))
def test_nothing_in_a_page_runs_or_loads(text: str) -> None:
    source = page_of(text)
    page = Page(source)
    kinds = {tag for tag, _ in page.tags}
    attributes = [(name, value) for _, given in page.tags for name, value in given.items()]

    assert not kinds & {
        "script",
        "link",
        "img",
        "image",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "use",
        "foreignObject",
    }
    assert not [name for name, _ in attributes if name.startswith("on") or name in ("src", "srcset", "srcdoc", "style")]
    assert not [value for name, value in attributes if name.endswith("href") and not value.startswith("#")]
    assert "url(" not in page.style
    assert "@import" not in page.style
    assert source.count("<style>") == 1
    assert all(c.isprintable() or c == "\n" for c in source)
    assert len(source) < 600_000


@pytest.mark.parametrize("text", HOSTILE[:4])
def test_text_of_a_log_is_shown_as_it_stands(text: str) -> None:
    assert text in Page(page_of(text)).text


def test_the_policy_lets_in_the_one_style_sheet_and_nothing_else() -> None:
    source = render_html([fleet()], [], [])
    policy = next(a["content"] for tag, a in Page(source).tags if a.get("http-equiv") == "Content-Security-Policy")
    style = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    digest = b64encode(hashlib.sha256(style[0].encode()).digest()).decode()

    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'"
    assert source.index("Content-Security-Policy") < source.index("<style>")


def test_only_a_reference_to_the_web_is_a_link_and_it_tells_nobody_where_from() -> None:
    found = replace(fleet(), action=Action(kind="none", reference="https://example.org/runbook"))
    links = [a for tag, a in Page(render_html([found], [], [])).tags if tag == "a" and not a["href"].startswith("#")]

    assert links == [{"href": "https://example.org/runbook", "rel": "noreferrer noopener"}]


def test_a_quiet_ending_is_shown_with_the_line_that_says_so() -> None:
    page = Page(render_html([], [Gap(source="core.7", reason="binary file")], [NOTE]))

    assert "No incident found" in page.text
    assert "Time limit of the job reached. The limit was reached." in page.text
    assert "TIME LIMIT ***" in page.text
    assert "slurm.out:8" in page.text
    assert "core.7: binary file" in page.text
    assert "article" not in {tag for tag, _ in page.tags}


def test_nothing_found_and_nothing_to_note_is_not_said_to_be_health() -> None:
    assert "Nothing in what was read proves that something broke." in Page(render_html([], [], [])).text


def test_several_incidents_are_counted_listed_and_told_one_after_the_other() -> None:
    page = Page(render_html([replace(fleet(), incident_id=name) for name in ("a", "b", "c")], [], [NOTE]))

    assert [a["id"] for tag, a in page.tags if tag == "article"] == ["incident-a", "incident-b", "incident-c"]
    assert [a["href"] for tag, a in page.tags if a.get("href", "").startswith("#incident")] == [
        "#incident-a", "#incident-b", "#incident-c",
    ]  # fmt: skip
    assert "3 incidents" in page.text


def test_many_culprits_gaps_and_notes_are_folded() -> None:
    found = replace(fleet(), culprits=[Culprit(node=f"n{n}", gpu_uuid=f"GPU-{n}") for n in range(5_000)])
    source = render_html([found], [Gap(source=f"s{n}", reason="lost") for n in range(16_384)], [NOTE] * 300)
    said = Page(source).text

    assert "… and 4,990 more" in said
    assert "… and 16,334 more" in said
    assert "… and 250 more" in said
    assert len(source) < 150_000


def test_identifiers_of_several_culprits_say_whose_they_are() -> None:
    two = [Culprit(node="n1", serial="S1"), Culprit(node="n2", serial="S2")]
    said = Page(render_html([incident(step(1, "on n1", 1), culprits=two)], [], [])).text

    assert "node n1serial S1" in said
    assert "node n2serial S2" in said


def test_the_page_of_the_same_incidents_is_the_same_page() -> None:
    assert render_html([fleet()], [], [NOTE]) == render_html([fleet()], [], [NOTE])


def test_colours_are_never_told_to_the_page_by_its_elements() -> None:
    """All colour is in the style sheet, which knows light, dark and paper."""
    page = Page(render_html([fleet()], [], []))

    assert not [a for _, a in page.tags if a.get("fill", "none") != "none" or "stroke" in a]
    assert "@media screen and (prefers-color-scheme: dark)" in page.style
    assert "size: A4" in page.style


@pytest.mark.parametrize("name", ["fell_off_the_bus", "collective_timeout", "host_oom"])
def test_incidents_as_they_come_from_the_wire_are_drawn(name: str) -> None:
    wire = Path(__file__).parents[1] / "web" / "incidents" / f"{name}.json"
    found = msgspec.json.decode(wire.read_bytes(), type=Incident)

    page = Page(render_html([found], [], []))

    marks = [a["aria-label"] for tag, a in page.tags if tag == "a" and "mark" in a.get("class", "")]
    assert len(marks) == len(found.chain)
    assert all(step.event in mark for step, mark in zip(found.chain, sorted(marks, key=_number), strict=True))


def test_lines_to_paste_stand_as_text_below_what_to_do() -> None:
    line = "kubectl cordon n1 <b>&"
    found = fleet()
    source = render_html([replace(found, action=replace(found.action, commands=[line, "a\x1bb"]))], [], [])

    assert "<pre>kubectl cordon n1 &lt;b&gt;&amp;</pre><pre>a\\x1bb</pre>" in source
