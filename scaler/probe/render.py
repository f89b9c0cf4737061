"""A report laid out for a terminal or a file."""

from __future__ import annotations

from typing import Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaler.probe.report import FamilyFound, Report
from scaler.serve.quantities import duration

_STYLE: Final = {
    "found": "green",
    "estimated": "yellow",
    "nothing yet": "cyan",
    "missing": "red",
    "not applicable": "dim",
}
#: Where the output is no terminal nothing is cut to fit one.
_FILE_WIDTH: Final = 160


def show(report: Report, url: str, console: Console | None = None) -> None:
    """Print all of ``report``. What comes from the page is shown as text: it cannot style or move anything."""
    console = console or Console(width=None if Console().is_terminal else _FILE_WIDTH)
    console.print(Text(f"{_clean(url)}: {_clean(report.what)}", style="bold"))
    for fact in report.facts:
        console.print(Text(f"  {_clean(fact)}"))
    if report.families:
        console.print(_table(report.families))
    for warning in report.warnings:
        console.print(Text(f"warning: {_clean(warning)}", style="yellow"))
    if report.policy:
        console.print(Text("\nPolicy lines (loadtide serve --policy FILE; loadtide check FILE finds mistakes):\n"))
        console.print(Text(report.policy), soft_wrap=True)
    elif not report.usable:
        console.print(Text("nothing here that loadtide can use", style="red"))


def _table(families: tuple[FamilyFound, ...]) -> Table:
    aged = any(family.age_seconds is not None for family in families)
    table = Table(box=SIMPLE, show_edge=False, pad_edge=True)
    for column in ("family", "", "read from", "says", *(("age",) if aged else ()), "note"):
        table.add_column(column, overflow="fold")
    for family in families:
        age = () if not aged else (("" if family.age_seconds is None else duration(family.age_seconds)),)
        cells = (family.family, family.status, family.name, family.value, *age, family.note)
        table.add_row(*(Text(_clean(cell)) for cell in cells), style=_STYLE[family.status])
    return table


def _clean(text: str) -> str:
    return "".join(each if each.isprintable() else "�" for each in text)
