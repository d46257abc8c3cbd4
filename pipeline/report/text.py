"""Incidents for a terminal: what broke, what to do, then the proof."""

from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline.report import words
from pipeline.report.folding import folded
from schemas.records import ChainStep, Gap, Incident

_SEVERITY_STYLE: Final = {
    "critical": "bold white on red",
    "error": "bold black on yellow",
    "warning": "bold black on cyan",
}
_ROLE_STYLE: Final = {"root": "bold red", "cascade": "yellow", "symptom": "cyan", "context": "dim"}
_LINE_LIMIT: Final = 480


def render_text(incident: Incident, *, width: int = 80, color: bool = False) -> str:
    """One incident as text that a person can act on in ten seconds. Control characters of log lines are spelled out."""
    return _printed(_blocks(incident, width, full=True), width, color)


def render_table(incidents: Sequence[Incident], *, width: int = 80, color: bool = False) -> str:
    """Many incidents, one or two lines each, in the order given."""
    if not incidents:
        return "No incidents.\n"
    table = Table(box=SIMPLE_HEAD, expand=True, pad_edge=False, padding=(0, 1, 0, 0), width=width)
    table.add_column("started (UTC)", no_wrap=True, width=16)
    table.add_column("severity", no_wrap=True, width=8)
    table.add_column("what, and where", ratio=1, overflow="fold")
    table.add_column("sure", no_wrap=True, justify="right", width=4)
    table.add_column("state", no_wrap=True, width=11)
    for incident in incidents:
        table.add_row(*_row(incident))
    return _printed([table], width, color)


def render_diagnosis(
    incidents: Sequence[Incident], gaps: Sequence[Gap], notes: Sequence[str], *, read: str = "", is_read: bool = True,
    clocks: Sequence[str] = (), full: bool = False, width: int = 80, color: bool = False,
) -> str:  # fmt: skip
    """Everything that `diagnose` found: incidents, then notes, then what could not be read. `read`: in how much;
    `is_read`: whether in anything at all. `clocks`: what is known of them. `full`: with all steps of long chains.
    """
    blocks: list[RenderableType] = []
    for number, incident in enumerate(incidents):
        if number:
            blocks.append(Text("─" * width + "\n", style="dim"))
        blocks += _blocks(incident, width, full=full)
    if not incidents:
        where = f" in {read}" if read else ""
        said = f"No fault found{where}: the job ended for another reason." if notes else f"No incident found{where}."
        if not is_read:
            said = "Nothing was read: whether there was an incident is not known."
        blocks.append(Text(said, style="bold"))
    blocks += _section("NOTES", [words.visible(note) for note in notes])
    blocks += _section("NOT READ OR LOST", [words.gap_line(gap) for gap in gaps])
    blocks += _section("CLOCKS", clocks)
    return _printed(blocks, width, color)


def _printed(blocks: Iterable[RenderableType], width: int, color: bool) -> str:
    out = StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, color_system="standard" if color else None, highlight=False,
        markup=False, emoji=False, legacy_windows=False, _environ={},
    )  # fmt: skip
    for block in blocks:
        console.print(block, soft_wrap=isinstance(block, Text) and bool(block.no_wrap))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _row(incident: Incident) -> list[Text]:
    what = Text(words.headline(incident), style="bold")
    what.append(f"\n{words.culprit_line(incident)}", style="")
    if job := words.job_line(incident):
        what.append(f"\n{job}", style="dim")
    started = incident.started_at or incident.detected_at
    when = f"{words.day(started)} {words.clock(started, on_day=words.day(started))[:5]}"
    state = Text(f"{incident.state}\n{incident.verdict}")
    if incident.run != "live":
        state.append(f"\n{incident.run}", style="italic")
    sure = words.percent(incident.confidence)
    return [Text(when), _severity(incident), what, Text(sure), state]


def _severity(incident: Incident) -> Text:
    return Text(incident.severity.upper(), style=_SEVERITY_STYLE[incident.severity])


def _blocks(incident: Incident, width: int, *, full: bool) -> list[RenderableType]:
    return [
        *_top(incident),
        *_action(incident),
        *_chain(incident, width, full=full),
        *_section("NOT WATCHED", words.unwatched_lines(incident)),
        *_section("NOT THE NETWORK", [words.visible(t) for t in [incident.not_network_because] if t]),
        *_section("LESS LIKELY", _alternatives(incident)),
        *_facts(incident),
    ]


def _top(incident: Incident) -> list[RenderableType]:
    title = Text.assemble(_severity(incident), "  ", (words.headline(incident), "bold"))
    blocks: list[RenderableType] = [title, _named("culprit", _culprits(incident))]
    if incident.explanation:
        blocks += [Text(), _indented(Text(words.visible(incident.explanation)))]
    if incident.why_unknown:
        blocks += [Text(), _named("to decide", Text(words.sentence(incident.why_unknown)))]
    return blocks


def _culprits(incident: Incident) -> Text:
    if not incident.culprits:
        return Text(f"none named; {words.percent(incident.confidence)} sure of the class", style="italic")
    text = Text()
    for culprit in incident.culprits:
        if text:
            text.append("\n")
        sure = culprit.confidence or incident.confidence
        text.append(words.place(culprit), style="bold red").append(f"  {words.percent(sure)} sure")
        further = " · ".join(f"{noun} {value}" for noun, value in words.identifiers(culprit))
        if further:
            text.append(f"\n{further}", style="dim")
    return text


def _action(incident: Incident) -> list[RenderableType]:
    order = Text(words.do_now(incident.action) + ".", style="bold")
    if incident.action.why:
        order.append(f" {words.sentence(incident.action.why)}", style="not bold")
    if recovery := words.recovery_line(incident.recovery):
        order.append(f"\n{recovery}.", style="not bold")
    if incident.action.reference:
        order.append(f"\n{words.reference_line(incident.action.reference)}", style="not bold dim")
    # A line to paste is one line, however wide the terminal is.
    lines = [Text(f"{' ' * 10}{words.visible(line)}", no_wrap=True) for line in incident.action.commands]
    return [Text(), _named("do now", order, style="bold green"), *lines]


def _chain(incident: Incident, width: int, *, full: bool) -> list[RenderableType]:
    if not incident.chain:
        return []
    day = words.first_day(incident)
    because = words.because(incident)
    blocks: list[RenderableType] = [Text(), Text(f"HOW IT WENT  {day} UTC" if day else "HOW IT WENT", style="bold")]
    hidden = 0
    for step in incident.chain if full else folded(incident.chain):
        if isinstance(step, list):
            hidden += len(step)
            blocks.append(_fold(step))
            continue
        blocks.append(_step(step))
        blocks.append(Padding(_evidence(step, because.get(step.step, []), day, width), (0, 0, 0, 5)))
    if hidden:
        blocks.append(Text(f"     {hidden} of {len(incident.chain)} steps are folded; --full prints all", style="dim"))
    return blocks


def _fold(steps: list[ChainStep]) -> RenderableType:
    """A line for steps that are left out."""
    first, last = steps[0], steps[-1]
    where = words.listed([words.short(place) for place in dict.fromkeys(step.where for step in steps)], limit=3)
    span, more = f"{first.step}-{last.step}", f"{len(steps)} more"
    return Padding(Text(f"{span:>3}  {first.role:<9}{more:<13}{where}", style="dim"), 0)


def _step(step: ChainStep) -> RenderableType:
    lag = words.lag(step.lag_ns) if step.role != "root" else ""
    line = Text(f"{step.step:>3}  ")
    line.append(f"{step.role:<9}", style=_ROLE_STYLE[step.role])
    line.append(f"{lag:<13}{words.short(step.where)}", style="bold")
    if step.count > 1:
        line.append(f"  x{words.grouped(step.count)}", style="bold")
    return Padding(line, 0)


def _evidence(step: ChainStep, because: list[str], day: str, width: int) -> Text:
    found = step.evidence
    when = [words.clock(step.when, on_day=day) or "time not known", words.error(step.error_ns)]
    address = words.address(found.source, found.line_no, found.offset)
    text = Text("  ".join([" ".join(part for part in when if part), address]), style="dim")
    ranks = words.rank_list(step.ranks)
    if len(step.ranks) > 1:
        text.append(f"  {ranks}")
    text.append(f"\n{words.shortened(found.text, max(_LINE_LIMIT, 4 * width))}", style="not dim")
    for sentence in because:
        text.append(f"\n{sentence}", style="dim italic")
    return text


def _alternatives(incident: Incident) -> list[str]:
    return [
        f"{words.class_words(a.class_)} ({words.percent(a.confidence)})"
        + (f", {words.listed([words.place(c) for c in a.culprits])}" if a.culprits else "")
        + (f": {words.visible(a.why_less_likely)}" if a.why_less_likely else "")
        for a in incident.alternatives
    ]


def _facts(incident: Incident) -> list[RenderableType]:
    watched = ", ".join(words.watched(incident.coverage))
    alike = incident.suppressed.count
    facts = [
        ("job", words.job_line(incident)),
        ("reach", words.reach_line(incident)),
        ("stopped", f"{incident.interruption}, in phase {incident.phase.replace('_', ' ')}"),
        ("watched", watched),
        ("repeated", f"{words.counted(alike, 'line')} like those of the chain" if alike else ""),
        ("sure", words.sure_line(incident)),
        ("related", "; ".join(f"{words.visible(r.incident_id)}: {words.visible(r.why)}" for r in incident.related)),
        ("stands", words.standing(incident)),
        ("class", words.visible(incident.class_)),
        ("incident", f"{words.visible(incident.incident_id)}  {incident.run}, {words.visible(incident.cluster)}"),
    ]
    return [Text(), *(_named(name, Text(value, style="dim"), style="dim") for name, value in facts if value)]


def _section(title: str, lines: Sequence[str]) -> list[RenderableType]:
    if not lines:
        return []
    return [Text(), Text(title, style="bold"), *(_item(line) for line in lines)]


def _named(name: str, value: Text, *, style: str = "") -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, width=9)
    grid.add_column(overflow="fold")
    grid.add_row(Text(name, style=style), value)
    return grid


def _item(line: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, width=3)
    grid.add_column(overflow="fold")
    grid.add_row("  -", Text(line))
    return grid


def _indented(text: Text) -> RenderableType:
    return Padding(text, (0, 0, 0, 2))
