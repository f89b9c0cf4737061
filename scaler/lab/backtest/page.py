"""A backtest as a page without any other file: its figures, its timelines, and what it cannot know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from typing import Final

from scaler.control.model import LoadState
from scaler.lab.backtest.limits import minutes, percent, what_it_cannot_know
from scaler.lab.backtest.play import Moment
from scaler.lab.backtest.span import shown_time
from scaler.lab.backtest.study import Backtest
from scaler.lab.backtest.summary import VERDICT_WORDS, basis, compared, heading, next_steps, remarks, shares
from scaler.lab.chart import Band, Panel, Series, draw
from scaler.lab.report_page import PAGE

#: Averages have one point per so many equal parts of the time, bands at most one stretch.
_PARTS: Final = 480
#: Of the changes of the number so many are listed, the newest.
_CHANGES_LISTED: Final = 60
_COLOURS: Final = {
    "covered": "var(--state-normal)",
    "seen": "var(--state-low)",
    "unseen": "var(--state-high)",
    "short": "var(--state-critical)",
    "unjudged": "var(--state-idle)",
    "gap": "var(--grid)",
}
#: Of several kinds of time within one part of the picture the worst is shown.
_WORST_VERDICT: Final = ("gap", "covered", "seen", "unjudged", "unseen", "short")
_WORST_STATE: Final = ("idle", "low", "normal", "high", "unknown", "stalled", "critical")
_RAN, _OURS, _NEED, _GAP = "var(--series-2)", "var(--series-1)", "var(--load)", _COLOURS["gap"]

_HEADING: Final = 'style="font-size: 17px; margin: 26px 0 8px"'

_Read = Callable[[Moment], float | None]


def page(backtest: Backtest) -> str:
    """The page."""
    begin = datetime.fromtimestamp(backtest.span.since, UTC)
    panels = "".join(draw(panel, backtest.span.seconds, begin) for panel in _Pictures(backtest).panels())
    return PAGE.format(
        title=escape(f"Backtest of {backtest.setting.workload}"),
        heading=escape(heading(backtest)),
        lead="<br>".join(map(escape, (*basis(backtest), *_warnings(backtest)))),
        table=_comparison(backtest)
        + _shares(backtest)
        + "".join(f"<p>{escape(line)}</p>" for line in remarks(backtest)),
        states=_legend(
            [(_COLOURS[verdict], words.partition(":")[0]) for verdict, words in VERDICT_WORDS.items()]
            + [(_GAP, "no data")]
        )
        + '</div><div class="states">'
        + _legend([(f"var(--state-{state})", state) for state in LoadState]),
        panels=f"<div>{panels}</div>"
        + _list("What this cannot know", what_it_cannot_know(backtest))
        + _list("Next", next_steps(backtest, drawn=True))
        + _changes(backtest),
    )


def _warnings(backtest: Backtest) -> list[str]:
    return [f"warning: {warning}" for warning in backtest.setting.policy_warnings]


def _comparison(backtest: Backtest) -> str:
    rows = "".join(
        f"<tr><td>{escape(row.what)}</td><td>{escape(row.ran)}</td><td>{escape(row.ours)}</td>"
        f"<td>{escape(row.note)}</td></tr>"
        for row in compared(backtest)
    )
    return f"<table><tr><th></th><th>ran</th><th>loadtide</th><th></th></tr>{rows}</table>"


def _shares(backtest: Backtest) -> str:
    whole = backtest.findings.data_minutes
    rows = "".join(
        f'<tr><td><i class="dot" style="background:{_COLOURS[verdict]}"></i>{escape(words)}</td>'
        f"<td>{percent(value, whole)}</td><td>{minutes(value)}</td><td>{saved:,.1f}</td></tr>"
        for verdict, value, words, saved in shares(backtest)
    )
    head = f"Where latency stands, of {minutes(whole)} with data"
    return f"<table><tr><th>{escape(head)}</th><th>share</th><th>time</th><th>GPU-hours saved</th></tr>{rows}</table>"


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    return " ".join(
        f'<span class="key"><i class="swatch" style="background:{colour}"></i>{escape(words)}</span>'
        for colour, words in entries
    )


def _list(title: str, lines: Iterable[str]) -> str:
    return f"<h2 {_HEADING}>{escape(title)}</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _changes(backtest: Backtest) -> str:
    changes = list(backtest.changes)[-_CHANGES_LISTED:]
    if not changes:
        return ""
    rows = []
    for change in reversed(changes):
        reason = change.reason
        why = "" if reason is None else str(reason.code.value)
        figures = [
            "" if value is None else f"{value:.3g}" for value in ((reason.value, reason.threshold) if reason else ())
        ]
        about = " / ".join(filter(None, figures))
        signal = (reason.signal or "") if reason else ""
        cells = (shown_time(change.unix), f"{change.before} → {change.after}", change.state, why, signal, about)
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    more = len(backtest.changes) - len(changes)
    head = ("UTC", "replicas wished", "state", "reason", "signal", "value / threshold")
    title = "Changes of its wish" + (f", the last {len(changes)} of {len(backtest.changes)}" if more else "")
    names = "".join(f"<th>{name}</th>" for name in head)
    return f'<h2 {_HEADING}>{title}</h2><div class="wide"><table><tr>{names}</tr>{"".join(rows)}</table></div>'


class _Pictures:
    """The timelines of one backtest."""

    def __init__(self, backtest: Backtest) -> None:
        self.backtest = backtest
        self.begin = backtest.span.since
        self.moments = backtest.moments
        self.seconds = backtest.span.seconds

    def panels(self) -> list[Panel]:
        """All of them, from what came in to what was promised."""
        gaps = self._gaps()
        most = max((max(moment.asked, moment.paid or 0) for moment in self.moments), default=1)
        arrivals = self._averages(lambda moment: moment.arrivals)
        panels = [
            Panel("Load, requests per second", self._lines("", arrivals, _NEED, area=True), gaps, height=80),
            Panel(
                "Replicas",
                [
                    *self._lines("ready, as it ran", self._points(lambda each: each.ran), _RAN, step=True),
                    *self._lines("ready, with loadtide", self._points(_ready), _OURS, step=True, area=True),
                    *self._lines("asked for by loadtide", self._points(_asked), _OURS, step=True, dashed=True),
                    *self._lines("needed", self._averages(lambda each: each.need), _NEED),
                ],
                gaps,
                height=150,
                least_top=float(most),
                note="the highest of each stretch; the need is averaged",
            ),
            Panel("Where latency stands", bands=self._verdicts()),
            Panel("State, as loadtide would have named it", bands=self._states()),
        ]
        objectives = self.backtest.setting.policy.objectives
        for name, words in (
            ("ttft", "time to first token"),
            ("tpot", "time per output token"),
            ("e2e", "whole request"),
        ):
            objective = getattr(objectives, f"{name}_seconds")
            points = self._points(lambda each, name=name: getattr(each, f"{name}_p95"))  # type: ignore[misc]
            if objective is not None and any(points):
                lines = self._lines("as it was", points, _RAN)
                rule = (f"objective {objective:g}", objective)
                panels.append(Panel(f"P95 {words}, s", lines, gaps, rule, "log", 120, note="middle of its bucket"))
        load = [
            *self._lines("as it ran", self._averages(_load_as_it_ran), _RAN),
            *self._lines("with loadtide", self._averages(_load_instead), _OURS),
        ]
        kept = self.backtest.findings.kept_up_to
        rule_of_load = None if kept is None else (f"kept the objectives up to {kept:.3g}", kept)
        panels.append(Panel("In flight per ready replica", load, gaps, rule_of_load, height=120))
        return panels

    def _points(self, read: _Read) -> list[list[tuple[float, float]]]:
        """The values in stretches without a gap."""
        stretches = []
        for known, group in groupby(self.moments, key=lambda moment: moment.kind != "gap" and read(moment) is not None):
            if known:
                stretches.append([(each.unix - self.begin, float(read(each) or 0.0)) for each in group])
        return stretches

    def _averages(self, read: _Read) -> list[list[tuple[float, float]]]:
        """The same, averaged over equal parts of the time."""
        return [self._averaged(stretch) for stretch in self._points(read)]

    def _averaged(self, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        means = []
        for _, group in groupby(points, key=lambda point: int(point[0] / self.seconds * _PARTS)):
            part = list(group)
            means.append((sum(at for at, _ in part) / len(part), sum(value for _, value in part) / len(part)))
        return means

    def _lines(
        self,
        name: str,
        stretches: Sequence[Sequence[tuple[float, float]]],
        colour: str,
        *,
        step: bool = False,
        area: bool = False,
        dashed: bool = False,
    ) -> list[Series]:
        """A line for each stretch; only the first is named."""
        return [
            Series(name if index == 0 else "", points, colour, step, area, dashed)
            for index, points in enumerate(stretches)
        ]

    def _gaps(self) -> list[Band]:
        stretches = self._bands([moment.kind for moment in self.moments], ("measured", "none ready", "gap"))
        return [Band(start, end, "no data", _GAP) for kind, start, end in stretches if kind == "gap"]

    def _verdicts(self) -> list[Band]:
        named = [verdict or "gap" for verdict in self.backtest.findings.verdicts]
        words_of = {str(verdict): words for verdict, words in VERDICT_WORDS.items()}
        bands = []
        for verdict, start, end in self._bands(named, _WORST_VERDICT):
            words = words_of.get(verdict, "no data")
            bands.append(Band(start, end, f"{self._between(start, end)}: {words}", _COLOURS[verdict]))
        return bands

    def _states(self) -> list[Band]:
        stretches = self._bands([moment.state for moment in self.moments], _WORST_STATE)
        return [
            Band(start, end, f"{self._between(start, end)}: {state}", f"var(--state-{state})")
            for state, start, end in stretches
        ]

    def _between(self, start: float, end: float) -> str:
        return f"{shown_time(self.begin + start)} to {shown_time(self.begin + end)}"

    def _bands(self, kinds: Sequence[str], worst: Sequence[str]) -> list[tuple[str, float, float]]:
        """Equal neighbours joined; within one part of the picture only the worst is seen."""
        parts: list[tuple[str, float, float]] = []
        pairs = zip(self.moments, kinds, strict=True)
        tick = self.backtest.tick_seconds
        for _, group in groupby(pairs, key=lambda pair: int((pair[0].unix - self.begin) / self.seconds * _PARTS)):
            part = list(group)
            kind = max((each for _, each in part), key=worst.index)
            parts.append((kind, part[0][0].unix - tick - self.begin, part[-1][0].unix - self.begin))
        joined = []
        for kind, group_of in groupby(parts, key=lambda part: part[0]):
            stretch = list(group_of)
            joined.append((kind, stretch[0][1], stretch[-1][2]))
        return joined


def _ready(moment: Moment) -> float:
    return float(moment.ready)


def _asked(moment: Moment) -> float:
    return float(moment.asked)


def _load_as_it_ran(moment: Moment) -> float | None:
    return None if moment.in_flight is None or not moment.ran else moment.in_flight / moment.ran


def _load_instead(moment: Moment) -> float | None:
    return None if moment.instead is None or not moment.ready else moment.instead / moment.ready
