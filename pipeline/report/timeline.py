"""The timeline of an incident as one SVG: lanes are places, marks are steps, lines lead from cause to effect.

Pure: an incident gives a string, without script, without style of its own (the classes are in rootrank.css) and without
ids, so that a page may hold any number of them. Roles differ by shape as well as by colour: a diamond is the root, a
square what happened to the culprit, a circle what others noticed, a dotted circle context. The number in a mark is the
step's number in the proof, and leads there. The bar through a mark is as wide as its time is uncertain; a step without
a time has a dashed one over all that its cause leaves open. How time becomes place is said in `axis`.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.report import words
from pipeline.report.axis import Axis, Moment, axis_of
from pipeline.report.lanes import Lane, lanes_of
from pipeline.report.markup import Html, joined, tag
from schemas.records import ChainStep, Edge, Incident

Anchor = Callable[[int], str]
"""From a step's number to the place on the page that proves it."""

MAX_MARKS: Final = 40
_LEAST_WIDTH: Final = 900
_MOST_WIDTH: Final = 1300
_COLUMN: Final = 40
_GUTTER: Final = 195
_RIGHT: Final = 110
_HEAD: Final = 58
_HEAD_UNTIMED: Final = 30
_LANE: Final = 56
_AXIS_Y: Final = 50
_MARK: Final = 10.0
_LETTER: Final = 6.4
_BOLD: Final = 1.25
_SHORT: Final = 9
_STALL, _SAVED = "stall", "saved"


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """A step where it is drawn. `foot`: at which height its lines leave the lane, so that those of neighbours can be
    told apart. `label`: as much of the event's name as there is room for.
    """

    step: ChainStep
    x: float
    y: float
    foot: float
    label: str


@dataclass(frozen=True, kw_only=True)
class _Drawing:
    """Everything that has its place."""

    incident: Incident
    axis: Axis
    lanes: list[Lane]
    marks: dict[int, _Mark]
    width: int
    top: int

    @property
    def height(self) -> int:
        """Height of all of it."""
        return self.top + _LANE * len(self.lanes)


def render_timeline(incident: Incident, anchor: Anchor) -> Html | None:
    """The drawing; None where the incident has no steps."""
    if not incident.chain:
        return None
    drawing = _drawing(incident)
    return tag(
        "svg",
        *_lane_rows(drawing),
        *_columns(drawing),
        *_head(drawing),
        *_bars(drawing),
        *_lines(drawing),
        *(_mark(mark, anchor, bool(drawing.axis.times)) for mark in drawing.marks.values()),
        viewBox=f"0 0 {drawing.width} {drawing.height}",
        role="group",
        aria_label=f"Timeline of {words.counted(len(drawing.marks), 'step')}, the same as in the list below",
        class_="timeline",
    )


def _drawing(incident: Incident) -> _Drawing:
    steps = incident.chain[:MAX_MARKS]
    lanes = lanes_of(incident, steps)
    moments = _moments(incident, steps)
    wanted = _GUTTER + _RIGHT + _COLUMN * (len(moments) + 2)
    width = min(max(_LEAST_WIDTH, wanted), _MOST_WIDTH)
    axis = axis_of(moments, _GUTTER, width - _RIGHT)
    lane_of = {number: row for row, lane in enumerate(lanes) for number in lane.steps}
    leading = {edge.from_ for edge in incident.edges}
    labels = _labels(steps, lanes, axis, width)
    top = _HEAD if axis.times else _HEAD_UNTIMED
    marks = {}
    for step in steps:
        row = lane_of[step.step]
        y = top + row * _LANE + 31
        causes = [n for n in lanes[row].steps if n in leading]
        foot = y + 15 + 3 * (causes.index(step.step) % 3 if step.step in causes else 0)
        x = axis.columns[str(step.step)]
        marks[step.step] = _Mark(step=step, x=x, y=y, foot=foot, label=labels.get(step.step, ""))
    return _Drawing(incident=incident, axis=axis, lanes=lanes, marks=marks, width=width, top=top)


def _labels(steps: Sequence[ChainStep], lanes: Sequence[Lane], axis: Axis, width: int) -> dict[int, str]:
    """The events' names where the lane has room for them: the root's first, then from left to right."""
    found: dict[int, str] = {}
    place = {step.step: axis.columns[str(step.step)] for step in steps}
    row_of = {number: row for row, lane in enumerate(lanes) for number in lane.steps}
    taken: dict[int, list[tuple[float, float]]] = {row: [] for row in range(len(lanes))}
    for step in sorted(steps, key=lambda s: (s.role != "root", place[s.step])):
        x, beside = place[step.step], taken[row_of[step.step]]
        name = f"{step.event} ×{words.grouped(step.count)}" if step.count > 1 else step.event
        label = _fitting(name, min((left for left, _ in beside if left > x), default=float(width)) - x - 4)
        if any(left <= x <= right for left, right in beside) or (label != name and len(label) <= _SHORT):
            continue
        found[step.step] = label
        beside.append((x, x + _width(label) + 8))
    return found


def _moments(incident: Incident, steps: Sequence[ChainStep]) -> list[Moment]:
    """What has a column: the last checkpoint and the start of the stall, where they are known, and the steps."""
    told = [
        Moment(
            key=str(step.step), at_ns=words.instant_ns(step.when) or None, error_ns=_bounded(step.error_ns or 0)
        ) for step in steps
    ]  # fmt: skip
    known = ((_SAVED, incident.recovery.checkpoint_at), (_STALL, incident.stall_started_at))
    return told + [Moment(key=key, at_ns=at_ns) for key, when in known if (at_ns := words.instant_ns(when))]


def _bounded(ns: int) -> int:
    return min(max(ns, 0), words.MAX_NS)


# --- rows and columns ---------------------------------------------------------------------------------------------


def _lane_rows(drawing: _Drawing) -> list[Html]:
    return [_lane_row(row, lane, drawing) for row, lane in enumerate(drawing.lanes)]


def _lane_row(row: int, lane: Lane, drawing: _Drawing) -> Html:
    y = drawing.top + row * _LANE
    silent = None
    if lane.silent:
        since = drawing.axis.columns.get(_STALL, drawing.axis.left)
        width = drawing.axis.right - since
        said = "silent: prints nothing of its own" if not lane.steps else "silent"
        silent = joined(
            tag("rect", x=_px(since), y=y + 18, width=_px(width), height=26, rx=3, class_="silence"),
            tag("text", said, x=_px(since + 8), y=y + 35, class_="silent-word") if not lane.steps else None,
        )
    mark = "▶ " if lane.culprit else ""
    note = " · ".join(part for part in ("culprit" if lane.culprit else "", lane.detail) if part)
    room = _GUTTER - 20 - _width(mark)
    who = _fitting(lane.who, room / _BOLD)
    node = _fitting(f" on {lane.node}", room - _BOLD * _width(who)) if lane.node else ""
    return tag(
        "g",
        tag("rect", x=0, y=y, width=drawing.width, height=_LANE, class_="row"),
        tag(
            "svg",
            tag("title", f"{lane.who}{f' on {lane.node}' if lane.node else ''}: {note}"),
            tag("text", tag("tspan", mark + who, class_="who"), node, x=10, y=25),
            tag("text", _fitting(note, _GUTTER - 20), x=10, y=42),
            x=0, y=y, width=_GUTTER - 6, height=_LANE,
        ),
        tag("path", d=f"M0 {y}H{drawing.width}", class_="rule"),
        silent,
        class_="lane accused" if lane.culprit else "lane",
    )  # fmt: skip


def _columns(drawing: _Drawing) -> list[Html]:
    bottom = drawing.height
    named = {
        drawing.axis.columns[key]: kind for key, kind in ((_SAVED, "saved"), (_STALL, "stall"))
        if key in drawing.axis.columns
    }  # fmt: skip
    return [
        tag("path", d=f"M{_px(x)} {_AXIS_Y}V{bottom}", class_=f"column {named.get(x, '')}".strip())
        for x in sorted({x for _, x in drawing.axis.times})
    ]


# --- the axis -----------------------------------------------------------------------------------------------------


def _head(drawing: _Drawing) -> list[Html]:
    axis = drawing.axis
    if not axis.times:
        said = "No clock gives these lines a time: they stand in the order of telling."
        return [tag("text", said, x=_GUTTER, y=_HEAD_UNTIMED - 10, class_="gap")]
    return [
        tag("path", d=f"M{_px(axis.left)} {_AXIS_Y}H{_px(axis.right)}", class_="axis"),
        *(_tick(left, right) for left, right in _moments_on(axis)),
        *(part for gap in axis.gaps if gap.ns for part in _gap(gap.left, gap.right, gap.ns, gap.cut)),
        *_clocks(drawing),
    ]


def _moments_on(axis: Axis) -> list[tuple[float, float]]:
    """From where to where each distinct time reaches: all columns of one time are one moment."""
    spans: dict[int, tuple[float, float]] = {}
    for at_ns, x in axis.times:
        spans[at_ns] = (spans.get(at_ns, (x, x))[0], x)
    return list(spans.values())


def _tick(left: float, right: float) -> Html:
    return tag("path", d=f"M{_px(left - 3)} {_AXIS_Y}H{_px(right + 3)}", class_="tick")


def _gap(left: float, right: float, ns: int, cut: bool) -> list[Html]:
    middle = (left + right) / 2
    said = words.duration(ns)
    parts = []
    if cut:
        strokes = f"M{_px(middle - 5)} {_AXIS_Y + 5}l4 -10M{_px(middle + 1)} {_AXIS_Y + 5}l4 -10"
        parts.append(tag("path", d=strokes, class_="cut"))
    if right - left >= _LETTER * len(said) + 4:
        parts.append(tag("text", said, x=_px(middle), y=_AXIS_Y - 8, class_="gap", text_anchor="middle"))
    return parts


def _clocks(drawing: _Drawing) -> list[Html]:
    """The time of day of the first moment, of those behind a cut and of the last, where there is room."""
    axis, incident = drawing.axis, drawing.incident
    whens = {words.instant_ns(step.when): step.when for step in incident.chain if step.when}
    named = {
        words.instant_ns(incident.stall_started_at): ("stall began", incident.stall_started_at),
        words.instant_ns(incident.recovery.checkpoint_at): ("checkpoint", incident.recovery.checkpoint_at),
    }
    behind = {gap.right for gap in axis.gaps if gap.cut}
    day = words.first_day(incident)
    drawn, free = [], 0.0
    for at_ns, x in axis.times:
        said, when = named.get(at_ns, ("", whens.get(at_ns)))
        wanted = said or x in behind or x in (axis.times[0][1], axis.times[-1][1])
        clock = words.clock(when, on_day=day)
        width = _LETTER * max(len(clock), len(said)) + 8
        if not wanted or x - 4 < free:
            continue
        free = x - 4 + width
        drawn += [
            tag("text", said, x=_px(x - 4), y=12, class_="moment") if said else None,
            tag("text", clock, x=_px(x - 4), y=26, class_="clock"),
        ]
    return [part for part in drawn if part is not None]


# --- marks and lines ----------------------------------------------------------------------------------------------


def _bars(drawing: _Drawing) -> list[Html]:
    earlier: dict[int, float] = {}
    for edge in drawing.incident.edges:
        cause = drawing.marks.get(edge.from_)
        if cause is not None and edge.order == "certain":
            earlier[edge.to] = max(cause.x, earlier.get(edge.to, 0.0))
    return [bar for mark in drawing.marks.values() if (bar := _bar(mark, drawing, earlier.get(mark.step.step)))]


def _bar(mark: _Mark, drawing: _Drawing, earlier: float | None) -> Html | None:
    """What is open of a step's time; of one without a time, all that is behind the last certain cause at `earlier`."""
    axis, at_ns = drawing.axis, words.instant_ns(mark.step.when)
    if not axis.times:
        return None
    if not at_ns:
        left = axis.left if earlier is None else earlier
        return tag("path", d=f"M{_px(left)} {_px(mark.y)}H{_px(axis.right)}", class_="bar untimed")
    error = _bounded(mark.step.error_ns or 0)
    if not error:
        return None
    left, right = min(mark.x, axis.low(at_ns - error)), max(mark.x, axis.high(at_ns + error))
    return tag(
        "rect", x=_px(left), y=_px(mark.y - 5), width=_px(right - left), height=10, rx=5,
        class_=f"bar {mark.step.role}",
    )  # fmt: skip


def _lines(drawing: _Drawing) -> list[Html]:
    lines = []
    for edge in drawing.incident.edges:
        cause, effect = drawing.marks.get(edge.from_), drawing.marks.get(edge.to)
        if cause is not None and effect is not None and cause is not effect:
            lines.append(_line(cause, effect, edge))
    return lines


def _line(cause: _Mark, effect: _Mark, edge: Edge) -> Html:
    """Down from the cause, along the foot of its lane, then up or down to the effect, which has its column alone."""
    foot = cause.foot
    down = effect.y > foot
    along = 1 if effect.x > cause.x else -1
    bend = min(6.0, abs(effect.x - cause.x) / 2)
    tip = effect.y + (-_MARK - 3 if down else _MARK + 3)
    turn = bend if down else -bend
    path = (
        f"M{_px(cause.x)} {_px(cause.y)}V{_px(foot - bend)}q0 {_px(bend)} {_px(along * bend)} {_px(bend)}"
        f"H{_px(effect.x - along * bend)}q{_px(along * bend)} 0 {_px(along * bend)} {_px(turn)}V{_px(tip)}"
    )
    size = 5 if down else -5
    head = f"M{_px(effect.x)} {_px(tip + size * 0.6)}l-3.5 {-size}h7z"
    return tag(
        "g",
        tag("title", f"{edge.from_} to {edge.to}: {edge.why} ({words.order_words(edge)})"),
        tag("path", d=path, class_="line", fill="none"),
        tag("path", d=head, class_="head"),
        class_=f"edge {edge.order}",
    )


def _mark(mark: _Mark, anchor: Anchor, some_timed: bool) -> Html:
    step = mark.step
    timed = words.instant_ns(step.when) != 0
    when = f"{words.clock(step.when)} UTC {words.error(step.error_ns)}" if timed else "time not known"
    said = f"Step {step.step}, {words.ROLE_WORDS[step.role]}, {words.short(step.where)}, {when}: {step.event}"
    return tag(
        "a",
        tag("title", said),
        _symbol(step.role, mark.x, mark.y, step.step),
        tag("text", "?", x=_px(mark.x + _MARK), y=_px(mark.y + 14), class_="unknown-time")
        if some_timed and not timed
        else None,
        tag("text", mark.label, x=_px(mark.x - 6), y=_px(mark.y - 16), class_="label") if mark.label else None,
        href=anchor(step.step),
        aria_label=said,
        class_=f"mark {step.role}",
    )


def symbol(role: str, number: int | None = None) -> Html:
    """The mark of a role alone, as the list and the legend show it."""
    return tag(
        "svg", tag("g", _symbol(role, 15, 15, number), class_=f"mark {role}"), viewBox="0 0 30 30", width=26, height=26,
        aria_hidden="true" if number is None else None, class_="timeline symbol",
    )  # fmt: skip


def _symbol(role: str, x: float, y: float, number: int | None) -> Html:
    return joined(
        _shape(role, x, y),
        None if number is None else tag("text", number, x=_px(x), y=_px(y + 4), class_="number", text_anchor="middle"),
    )


def _shape(role: str, x: float, y: float) -> Html:
    """The shape of a role around a point."""
    if role == "root":
        return tag("path", d=f"M{_px(x)} {_px(y - 14)}l14 14l-14 14l-14 -14z", stroke_linejoin="round", class_="shape")
    if role == "cascade":
        return tag("rect", x=_px(x - _MARK), y=_px(y - _MARK), width=20, height=20, rx=2, class_="shape")
    return tag("circle", cx=_px(x), cy=_px(y), r=_px(_MARK), class_="shape")


def _fitting(text: str, room: float) -> str:
    """As much of the text as fits, with a sign where something is left off; nothing where there is no room for it."""
    shown = words.visible(text)
    if _width(shown) <= room:
        return shown
    kept, used = "", _LETTER
    for character in shown:
        used += _width(character)
        if used > room:
            break
        kept += character
    return f"{kept}…" if kept else ""


def _width(text: str) -> float:
    return sum(_LETTER * (2 if unicodedata.east_asian_width(c) in "WF" else 1) for c in text)


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
