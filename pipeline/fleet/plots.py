"""The plots of a fleet report as SVG: no script, no style of their own, readable in print and by a screen reader.

Every plot has a title in words, and what it shows stands in a table beside it. Lines differ by dashes as well as by
colour; classes are in rootrank.css.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import exp, floor
from typing import Final

from pipeline.core.fleet.answers import FleetReport, RateRow, ShareRow, SizeRow, Survival
from pipeline.fleet import numbers, remarks
from pipeline.fleet.job_sections import size_words
from pipeline.fleet.scales import Scale, linear, logarithmic
from pipeline.report.markup import Html, tag
from pipeline.report.words import counted, short

WIDTH: Final = 620
HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 14, 44
_ROW: Final = 21
_MOST_NAMES: Final = 205
_SAID: Final = 138
_LETTERS: Final = 28
_LETTER: Final = 6.9
_NOT_KNOWN: Final = "not known"
MOST_ROWS: Final = 24
SHADES: Final = 7
_CLOCKS: Final = {"age": "days since installed", "window": "days since the begin of the window"}
_CLIP: Final = 3.0


def forest(rows: Sequence[RateRow], total: RateRow) -> Html | None:
    """Rates with their intervals, one row each, and the rate of all where they are of parts of the units.

    Rates over the time of nodes and over that of GPUs have no axis in common: drawn are those of the first row's kind.
    """
    shown = [row for row in rows if row.rate.value is not None and row.unit_kind == rows[0].unit_kind][:MOST_ROWS]
    if not shown or total.rate.value is None:
        return None
    # Components and classes are parts of the failures: the rate of all is no mean of theirs.
    is_part = shown[0].by not in ("component", "class") and shown[0].unit_kind == total.unit_kind
    reference = total.rate.value if is_part else None
    most = max(reference or 0, *(row.rate.value or 0 for row in shown)) * _CLIP or max(r.rate.hi or 1 for r in shown)
    highest = max(min(most, row.rate.hi if row.rate.hi is not None else most) for row in shown)
    names = min(_MOST_NAMES, max(_LETTER * min(_LETTERS, len(short(row.value) or _NOT_KNOWN)) for row in shown) + 14)
    scale = linear(max(highest, reference or 0), names, WIDTH - _SAID)
    bottom = 8 + _ROW * len(shown)
    height = bottom + 36
    unit = remarks.UNIT_WORDS[shown[0].unit_kind]
    return _svg(
        height,
        f"Rates per 1,000 {unit}-days with {counted(len(shown), 'interval')}",
        *_ticks_below(scale, 4, bottom),
        None if reference is None else _line(scale.at(reference), 4, scale.at(reference), bottom, "reference"),
        *(_forest_row(row, scale, 8 + _ROW * place + _ROW / 2) for place, row in enumerate(shown)),
        _text((names + WIDTH - _SAID) / 2, height - 4, f"per 1,000 {unit}-days", anchor="middle"),
    )


def _forest_row(row: RateRow, scale: Scale, y: float) -> Html:
    name = short(row.value) or _NOT_KNOWN
    said = numbers.estimate(row.rate)
    value, lo, hi = row.rate.value or 0.0, row.rate.lo or 0.0, row.rate.hi
    right = scale.at(scale.hi if hi is None else hi)
    is_cut = hi is None or hi > scale.hi
    style = "nothing" if row.n == 0 else "clustered" if row.interval != "Garwood" else "exact"
    return tag(
        "g",
        tag("title", f"{name}: {said} from {counted(row.n, 'failure')}, interval by {row.interval}"),
        _text(scale.begin - 10, y + 4, _cut(name), "name", anchor="end"),
        _line(scale.at(lo), y, right, y, "interval"),
        _line(scale.at(lo), y - 4, scale.at(lo), y + 4, "interval"),
        _arrow(right, y) if is_cut else _line(right, y - 4, right, y + 4, "interval"),
        _point(scale.at(value), y),
        _text(WIDTH - _SAID + 8, y + 4, f"{said}{'*' if style == 'clustered' else ''}", "said"),
        class_=style,
    )


def _cut(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


def _arrow(x: float, y: float) -> Html:
    return tag("path", d=f"M{x - 6:.1f} {y - 4:.1f}L{x:.1f} {y:.1f}L{x - 6:.1f} {y + 4:.1f}", class_="interval")


def survival_plot(found: Survival) -> Html | None:
    """The share without a failure over time with its band, the Weibull and the exponential beside it."""
    if not found.points:
        return None
    begin, end = found.from_hours / 24, found.horizon_hours / 24
    x = Scale(lo=begin, hi=end + (end - begin) * 0.03, begin=_LEFT, end=WIDTH - _RIGHT)
    lowest = min(point.lo for point in found.points)
    y = Scale(lo=0.0 if lowest < 0.4 else floor(lowest * 10) / 10, hi=1.0, begin=HEIGHT - _BOTTOM, end=_TOP)
    steps = [(begin, 1.0, 1.0, 1.0), *((p.hours / 24, p.survival, p.lo, p.hi) for p in found.points)]
    unit = remarks.UNIT_WORDS[found.unit_kind]
    models = []
    if found.weibull_scale_hours and found.weibull_shape:
        scale_days, shape = found.weibull_scale_hours / 24, found.weibull_shape
        models.append(_curve(_after(begin, end, lambda t: exp(-((t / scale_days) ** shape))), x, y, "weibull"))
    if found.exponential_mttf_hours:
        mean_days = found.exponential_mttf_hours / 24
        models.append(_curve(_after(begin, end, lambda t: exp(-t / mean_days)), x, y, "exponential"))
    return _svg(
        HEIGHT,
        f"Share of {unit}s without a failure by age in days, falling to "
        f"{numbers.percent(found.points[-1].survival)} after {numbers.number(end)} days",
        *_frame(x, y, _CLOCKS[found.clock], "share without a failure"),
        tag("path", d=_band([(t, lo, hi) for t, _, lo, hi in steps], end, x, y), class_="band"),
        tag("path", d=_stairs([(t, s) for t, s, _, _ in steps], end, x, y), class_="measured"),
        *models,
    )


def law_plot(rows: Sequence[SizeRow]) -> Html | None:
    """Mean time to failure of jobs by size, measured with its interval, and the prediction, 1/N."""
    known = [row for row in rows if row.gpus_to and row.mttf_hours.lo]
    if not known:
        return None
    values = [v for row in known for v in (row.mttf_hours.lo, row.mttf_hours.hi, row.predicted_hours) if v]
    x = logarithmic(min(row.gpus_to for row in known), max(row.gpus_to for row in known), _LEFT, WIDTH - _RIGHT - 10)
    y = logarithmic(min(values), max(values), HEIGHT - _BOTTOM, _TOP)
    law = [(float(row.gpus_to), row.predicted_hours) for row in known if row.predicted_hours]
    return _svg(
        HEIGHT,
        f"Hours to failure of jobs in {counted(len(known), 'size')}, measured and predicted",
        *_frame(x, y, "GPUs of the job", "hours to failure"),
        _curve(law, x, y, "law") if len(law) > 1 else None,
        *(_size(row, x, y) for row in known),
    )


def _size(row: SizeRow, x: Scale, y: Scale) -> Html:
    at, found = x.at(row.gpus_to), row.mttf_hours
    top = y.at(found.hi if found.hi is not None else y.hi)
    return tag(
        "g",
        tag(
            "title",
            f"{size_words(row)} GPUs: {numbers.estimate(found)} h; predicted {numbers.number(row.predicted_hours)} h",
        ),
        _line(at, y.at(found.lo or y.lo), at, top, "interval"),
        _point(at, y.at(found.value)) if found.value is not None else None,
        _text(at, top - 6, "not as predicted", "said", anchor="middle") if row.is_misfit else None,
        class_="misfit" if row.is_misfit else "exact",
    )


def shares_plot(rows: Sequence[ShareRow]) -> Html | None:
    """Interruptions by class in each period, one bar a period; unknown ones on top, hollow, with their share."""
    periods = list(dict.fromkeys(row.period for row in rows))
    if not periods:
        return None
    names = drawn_classes(rows)
    most = max(sum(row.n for row in rows if row.period == period) for period in periods)
    y = linear(most * 1.06, HEIGHT - _BOTTOM, _TOP)
    room = (WIDTH - _LEFT - _RIGHT) / len(periods)
    every = max(1, -(-len(periods) // 9))
    return _svg(
        HEIGHT,
        f"Interruptions by class in {counted(len(periods), 'period')}; above each the share of unknown cause",
        *_ticks_left(y, "interruptions"),
        *(
            _bar(period, [row for row in rows if row.period == period], names, _LEFT + room * place, room, y)
            for place, period in enumerate(periods)
        ),
        *(
            _text(_LEFT + room * (place + 0.5), HEIGHT - _BOTTOM + 16, period, anchor="middle")
            for place, period in enumerate(periods)
            if place % every == 0
        ),
        _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6, "% above a bar: of unknown cause", anchor="middle"),
    )


def drawn_classes(rows: Iterable[ShareRow]) -> list[str]:
    """The known classes that have a shade of their own, the most frequent first; the others share the last."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.category != "unknown":
            counts[row.class_] = counts.get(row.class_, 0) + row.n
    return sorted(counts, key=lambda name: (-counts[name], name))[: SHADES - 1]


def _bar(period: str, rows: Sequence[ShareRow], names: Sequence[str], left: float, room: float, y: Scale) -> Html:
    parts = [(name, f"s{place + 1}", [r for r in rows if r.class_ == name]) for place, name in enumerate(names)]
    rest = [row for row in rows if row.class_ not in names]
    parts.append(("other classes", f"s{SHADES}", [row for row in rest if row.category != "unknown"]))
    parts.append(("cause not known", "unknown", [row for row in rest if row.category == "unknown"]))
    base, shapes, width = 0, [], min(46.0, room * 0.76)
    for name, style, of_one in parts:
        n = sum(row.n for row in of_one)
        if not n:
            continue
        top = y.at(base + n)
        shapes.append(
            tag(
                "rect",
                tag("title", f"{period}: {short(name)} {n} of {sum(row.n for row in rows)}"),
                x=f"{left + (room - width) / 2:.1f}",
                y=f"{top:.1f}",
                width=f"{width:.1f}",
                height=f"{y.at(base) - top:.1f}",
                class_=style,
            )
        )
        base += n
    said = f"{100 * rows[0].unknown_share:.0f}%"
    shapes.append(_text(left + room / 2, y.at(base) - 4, said, "said", anchor="middle"))
    return tag("g", *shapes)


def _after(begin: float, end: float, survival: Callable[[float], float]) -> list[tuple[float, float]]:
    """A model's survival of those that are alive at the begin."""
    alive = survival(begin) or 1.0
    times = [begin + (end - begin) * number / 80 for number in range(81)]
    return [(time, survival(time) / alive) for time in times]


def _curve(points: Sequence[tuple[float, float]], x: Scale, y: Scale, style: str) -> Html:
    return tag("path", d="M" + "L".join(f"{x.at(a):.1f} {y.at(b):.1f}" for a, b in points), class_=style)


def _stairs(points: Sequence[tuple[float, float]], end: float, x: Scale, y: Scale) -> str:
    path = f"M{x.at(points[0][0]):.1f} {y.at(points[0][1]):.1f}"
    for _, (time, share) in pairwise(points):
        path += f"H{x.at(time):.1f}V{y.at(share):.1f}"
    return f"{path}H{x.at(end):.1f}"


def _band(points: Sequence[tuple[float, float, float]], end: float, x: Scale, y: Scale) -> str:
    upper = _stairs([(time, hi) for time, _, hi in points], end, x, y)
    back = f"L{x.at(end):.1f} {y.at(points[-1][1]):.1f}"
    for (_, before, _), (time, _, _) in reversed(list(pairwise(points))):
        back += f"H{x.at(time):.1f}V{y.at(before):.1f}"
    return f"{upper}{back}Z"


def _frame(x: Scale, y: Scale, below: str, beside: str) -> Iterable[Html]:
    yield from _ticks_left(y, beside)
    yield from _ticks_below(x, _TOP, HEIGHT - _BOTTOM)
    yield _text((x.begin + x.end) / 2, HEIGHT - 6, below, anchor="middle")


def _ticks_below(scale: Scale, top: float, bottom: float) -> Iterable[Html]:
    for value in scale.ticks():
        at = scale.at(value)
        yield _line(at, top, at, bottom, "rule")
        yield _text(at, bottom + 16, _tick(value), anchor="middle")


def _ticks_left(scale: Scale, name: str) -> Iterable[Html]:
    for value in scale.ticks(5):
        at = scale.at(value)
        yield _line(_LEFT, at, WIDTH - _RIGHT, at, "rule")
        yield _text(_LEFT - 8, at + 4, _tick(value), anchor="end")
    middle = (scale.begin + scale.end) / 2
    yield tag("text", name, transform=f"translate(13 {middle:.0f}) rotate(-90)", text_anchor="middle")


def _tick(value: float) -> str:
    return f"{value:,.6g}"


def _svg(height: float, title: str, *children: Html | None) -> Html:
    return tag(
        "svg", tag("title", title), *children, viewBox=f"0 0 {WIDTH} {height:.0f}", role="img", aria_label=title,
        class_="plot",
    )  # fmt: skip


def _point(x: float, y: float) -> Html:
    return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4", class_="point")


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> Html:
    return tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=style)


def _text(x: float, y: float, said: str, style: str | None = None, anchor: str = "start") -> Html:
    return tag("text", said, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=style)


def legend(report: FleetReport) -> Html:
    """Which shade is which class."""
    names = drawn_classes(report.shares)
    others = {row.class_ for row in report.shares if row.category != "unknown"} - set(names)
    items = [(name, f"s{place + 1}") for place, name in enumerate(names)]
    if others:
        items.append((f"other ({len(others)})", f"s{SHADES}"))
    items.append(("cause not known", "unknown"))
    return tag("ul", *(tag("li", _swatch(style), short(name)) for name, style in items), class_="legend")


def _swatch(style: str) -> Html:
    box = tag("rect", x="0.5", y="0.5", width="11", height="11", class_=style)
    return tag("svg", box, viewBox="0 0 12 12", width=12, height=12, aria_hidden="true", class_="plot swatch")


def line_legend(items: Sequence[tuple[str, str]]) -> Html:
    """Which kind of line is what."""
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag(
                    "svg", _line(0, 6, 26, 6, style), viewBox="0 0 26 12", width=26, height=12, aria_hidden="true",
                    class_="plot swatch",
                ),
                said,
            )
            for style, said in items
        ),
        class_="legend",
    )  # fmt: skip
