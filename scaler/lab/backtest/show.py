"""A backtest laid out for a terminal or a file."""

from __future__ import annotations

from typing import Final

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scaler.lab.backtest.findings import Verdict
from scaler.lab.backtest.limits import minutes, percent, what_it_cannot_know
from scaler.lab.backtest.study import Backtest
from scaler.lab.backtest.summary import basis, compared, heading, next_steps, remarks, shares

_STYLES: Final[dict[Verdict, str]] = {
    "covered": "green",
    "seen": "cyan",
    "unseen": "yellow",
    "short": "red",
    "unjudged": "dim",
}
_BAR_WIDTH: Final = 12
#: Where the output is no terminal nothing is cut to fit one.
_FILE_WIDTH: Final = 120


def show(backtest: Backtest, *, drawn: bool, console: Console | None = None) -> None:
    """Print all of it. ``drawn``: whether the page is written too. Words of the server are text: they style nothing."""
    console = console or Console(width=None if Console().is_terminal else _FILE_WIDTH)
    console.print(Text(heading(backtest), style="bold"))
    for line in basis(backtest):
        console.print(Padding(Text(line, style="dim"), (0, 0, 0, 2)))
    for warning in backtest.setting.policy_warnings:
        console.print(Padding(Text(f"warning: {warning}", style="yellow"), (0, 0, 0, 2)))
    console.print(_comparison(backtest))
    hours = backtest.findings.data_minutes
    console.print(Text(f"Where latency stands, of {minutes(hours)} with data", style="bold"))
    console.print(_shares(backtest))
    for line in remarks(backtest):
        console.print(Text(line))
    _bullets(console, "What this cannot know", what_it_cannot_know(backtest))
    _bullets(console, "Next", next_steps(backtest, drawn=drawn))


def _comparison(backtest: Backtest) -> Table:
    table = Table("", "ran", "loadtide", "", box=SIMPLE, show_edge=False)
    table.columns[1].justify = table.columns[2].justify = "right"
    for row in compared(backtest):
        table.add_row(*map(Text, row))
    return table


def _shares(backtest: Backtest) -> Table:
    table = Table(box=SIMPLE, show_edge=False)
    whole = backtest.findings.data_minutes
    table.add_column("")
    table.add_column("share", no_wrap=True, justify="right")
    table.add_column("time", no_wrap=True, justify="right")
    table.add_column("GPU-hours saved", no_wrap=True, justify="right")
    table.add_column("")
    for verdict, value, words, saved in shares(backtest):
        share = value / whole if whole else 0.0
        bar = "█" * round(_BAR_WIDTH * share) or ("▏" if value else "")
        cells = (percent(value, whole), minutes(value), f"{saved:,.1f}", words)
        table.add_row(Text(bar, style=_STYLES[verdict]), *map(Text, cells))
    return table


def _bullets(console: Console, title: str, lines: list[str]) -> None:
    console.print(Text(f"\n{title}", style="bold"))
    for line in lines:
        marked = Table.grid(padding=(0, 1))
        marked.add_row("-", Text(line))
        console.print(Padding(marked, (0, 0, 0, 2)))
