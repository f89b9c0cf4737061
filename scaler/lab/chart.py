"""Time charts as inline SVG: panels over one time axis, drawn with lines, steps, areas and bands. Colours are CSS
variables of the page, so that light and dark are the page's business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Literal

from scaler.value import frozen

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960.0, 52.0, 12.0, 8.0, 20.0
#: Lines are thinned to about so many points: more than one per pixel is not seen.
MOST_POINTS = 700


@frozen
class Series:
    """One line: (seconds, value) in order of time. ``colour`` is a CSS colour. ``step``: it keeps each value until the
    next point. ``area``: filled down to 0. ``dashed``: what was asked for, rather than what is.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    step: bool = False
    area: bool = False
    dashed: bool = False


@frozen
class Band:
    """A stretch of time with a meaning: ``name`` in the legend, ``told`` in a tooltip."""

    start: float
    end: float
    name: str
    colour: str
    told: str = ""


@frozen
class Panel:
    """One chart. ``rule``: (label, value) of a horizontal line, an objective. ``least_top``: the axis reaches at least
    up to there; ``most_bottom``: a logarithmic one at least down to there. ``bands``: with no series, the whole panel
    is a band.
    """

    title: str
    series: Sequence[Series] = ()
    bands: Sequence[Band] = ()
    rule: tuple[str, float] | None = None
    scale: Literal["linear", "log"] = "linear"
    height: float = 120.0
    least_top: float = 0.0
    most_bottom: float | None = None
    note: str = ""


def draw(panel: Panel, seconds: float, begin: datetime | None = None) -> str:
    """The panel as an HTML figure: a caption with its legend, and the SVG. ``begin``: what time of the calendar 0 is;
    None counts from there.
    """
    band_only = not panel.series
    height = 18.0 if band_only else panel.height
    total = TOP + height + (2.0 if band_only else BOTTOM)
    parts = [f'<svg viewBox="0 0 {WIDTH:g} {total:g}" role="img" aria-label="{escape(panel.title)}">']
    parts += [_band(band, seconds, height) for band in panel.bands]
    if not band_only:
        low, high = _range(panel)
        parts += _grid(panel.scale, low, high, height)
        parts += _times(height, seconds) if begin is None else _calendar(height, seconds, begin)
        parts += [_line(series, panel.scale, low, high, height, seconds) for series in panel.series]
        if panel.rule is not None:
            parts.append(_rule(panel.rule, _y(panel.rule[1], panel.scale, low, high, height)))
    legend = " ".join(
        [
            f'<span class="key"><i style="border-top:3px {"dashed" if each.dashed else "solid"} {each.colour}"></i>'
            f"{escape(each.name)}</span>"
            for each in panel.series
            if each.name
        ]
        + [
            f'<span class="key"><i class="swatch" style="background:{colour}"></i>{escape(name)}</span>'
            for name, colour in dict.fromkeys((band.name, band.colour) for band in panel.bands)
        ]
    )
    note = f'<span class="note">{escape(panel.note)}</span>' if panel.note else ""
    caption = f"<figcaption><b>{escape(panel.title)}</b> {legend}{note}</figcaption>"
    return f"<figure>{caption}{''.join(parts)}</svg></figure>"


def _x(at: float, seconds: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(max(at / seconds, 0.0), 1.0)


def _y(value: float, scale: str, low: float, high: float, height: float) -> float:
    if scale == "log":
        share = (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))
    else:
        share = (value - low) / (high - low)
    return TOP + height * (1.0 - min(max(share, 0.0), 1.0))


def _range(panel: Panel) -> tuple[float, float]:
    values = [value for series in panel.series for _, value in series.points if math.isfinite(value)]
    values += [panel.rule[1]] if panel.rule else []
    top = max([*values, panel.least_top], default=1.0)
    if panel.scale == "log":
        positive = [value for value in values if value > 0]
        positive += [panel.most_bottom] if panel.most_bottom else []
        low = 10 ** math.floor(math.log10(min(positive, default=0.1)))
        # A little room above: a line at the very top is hard to tell from the frame.
        return low, max(10 ** math.ceil(math.log10(max(1.5 * top, 1e-9))), low * 10)
    return 0.0, (top or 1.0) * 1.08


def _grid(scale: str, low: float, high: float, height: float) -> list[str]:
    marks = _decades(low, high) if scale == "log" else _round_steps(high)
    lines = []
    for mark in marks:
        y = _y(mark, scale, low, high, height)
        lines.append(f'<line class="grid" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="tick" x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>')
    return lines


def _times(height: float, seconds: float) -> list[str]:
    unit, name = next((unit, name) for limit, unit, name in _TIMES if seconds / unit <= limit)
    return [
        _time(_x(mark * unit, seconds), height, f"{mark:g} {name}" if mark == 0 else f"{mark:g}")
        for mark in _round_steps(seconds / unit)
    ]


def _calendar(height: float, seconds: float, begin: datetime) -> list[str]:
    """Marks at whole steps of the clock: a midnight is its day, everything else the time."""
    step = next((each for each in _STEPS if seconds / each <= _MOST_MARKS), _STEPS[-1])
    first = begin.timestamp()
    mark = (first // step + 1) * step
    texts = []
    while mark <= first + seconds * _LABELLED_SHARE:
        moment = datetime.fromtimestamp(mark, UTC)
        label = f"{moment:%a} {moment.day} {moment:%b}" if mark % 86_400 == 0 else f"{moment:%H:%M}"
        texts.append(_time(_x(mark - first, seconds), height, label))
        mark += step
    return texts


def _time(x: float, height: float, label: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{TOP + height + 15:g}" text-anchor="middle">{label}</text>'


#: Distances of calendar marks, seconds, and the most marks on one axis.
_STEPS = (300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)
_MOST_MARKS = 8
#: At the very end of the axis a label would be cut.
_LABELLED_SHARE = 0.985
#: The axis counts in the first unit of which there are at most so many.
_TIMES = ((300.0, 1.0, "s"), (120.0, 60.0, "min"), (math.inf, 3600.0, "h"))


def _decades(low: float, high: float) -> list[float]:
    first, last = round(math.log10(low)), round(math.log10(high))
    return [float(f"1e{exponent}") for exponent in range(first, last + 1)]


def _round_steps(high: float) -> list[float]:
    """0 and the multiples of 1, 2 or 5 × 10^k up to ``high``, four to seven of them."""
    raw = high / 5
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if raw <= size * factor)
    return [round(step * index, 10) for index in range(int(high / step) + 1)]


def _line(series: Series, scale: str, low: float, high: float, height: float, seconds: float) -> str:
    points = thin(series.points)
    corners: list[str] = []
    last_y = ""
    for at, value in points:
        x, y = f"{_x(at, seconds):.1f}", f"{_y(value, scale, low, high, height):.1f}"
        if series.step and corners:
            if y == last_y:
                continue
            corners.append(f"{x},{last_y}")
        corners.append(f"{x},{y}")
        last_y = y
    if series.step and points:
        corners.append(f"{_x(points[-1][0], seconds):.1f},{last_y}")
    dash = ' stroke-dasharray="5 3"' if series.dashed else ""
    line = f'<polyline fill="none" stroke="{series.colour}" stroke-width="1.6"{dash} points="{" ".join(corners)}"/>'
    if not series.area or not corners:
        return line
    floor = f"{TOP + height:.1f}"
    outline = [f"{corners[0].split(',')[0]},{floor}", *corners, f"{corners[-1].split(',')[0]},{floor}"]
    return f'<polygon fill="{series.colour}" opacity="0.18" points="{" ".join(outline)}"/>{line}'


def thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most :data:`MOST_POINTS` points: of each stretch the highest, so that no peak is lost."""
    if len(points) <= MOST_POINTS:
        return list(points)
    size = math.ceil(len(points) / MOST_POINTS)
    return [max(points[index : index + size], key=lambda point: point[1]) for index in range(0, len(points), size)]


def _rule(rule: tuple[str, float], y: float) -> str:
    label, _ = rule
    return (
        f'<line class="rule" x1="{LEFT:g}" x2="{WIDTH - RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="rule" x="{WIDTH - RIGHT - 4:g}" y="{y - 4:.1f}" text-anchor="end">{escape(label)}</text>'
    )


def _band(band: Band, seconds: float, height: float) -> str:
    left, right = _x(band.start, seconds), _x(band.end, seconds)
    return (
        f'<rect x="{left:.1f}" y="{TOP:g}" width="{max(right - left, 0.5):.1f}" height="{height:g}" '
        f'fill="{band.colour}"><title>{escape(band.told or band.name)}</title></rect>'
    )
