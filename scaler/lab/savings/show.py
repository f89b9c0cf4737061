"""Savings laid out for a terminal or a file, with what they assume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scaler.lab.backtest.span import Span, shown_duration, shown_time
from scaler.lab.savings.figures import Savings, Taken

#: Where the output is no terminal nothing is cut to fit one.
_FILE_WIDTH: Final = 120
#: Less of the span recorded than this, and the figures are told with a warning.
ENOUGH_RATIO: Final = 0.5

ASSUMED: Final = (
    "taken: replicas asked for (as the cluster tells, else as decided) times the GPUs of one; pods that drain or wait "
    "for a node are not told apart",
    "always on: the most replicas asked for in the span, all of the time",
    "plain HPA: its own arithmetic, default behaviour, on the requests in flight that were recorded, aimed at the "
    "capacity believed of a replica at that minute; never below 1; with other replicas there would have been other "
    "requests in flight",
    "latency is not compared: see how each would have kept its promises with loadtide simulate and loadtide backtest",
    "minutes in which nothing was recorded count for nobody",
)


def show(found: Sequence[Savings], span: Span, console: Console | None = None) -> None:
    """Print all of it."""
    console = console or Console(width=None if Console().is_terminal else _FILE_WIDTH)
    between = f"{shown_time(span.since)} to {shown_time(span.until)} UTC, {shown_duration(span.seconds)}"
    console.print(Text(f"What loadtide took, {between}", style="bold"))
    console.print(_table(found))
    for each in found:
        for line in _remarks(each):
            console.print(Text(f"{each.workload}: {line}", style="yellow"))
    console.print(Text("What is assumed", style="bold"))
    for line in ASSUMED:
        console.print(Padding(Text(f"- {line}"), (0, 0, 0, 2)))
    console.print(Text("Next", style="bold"))
    for line in _next(found):
        console.print(Padding(Text(f"- {line}"), (0, 0, 0, 2)))


def _table(found: Sequence[Savings]) -> Table:
    table = Table("workload", "", "GPU-hours", "money", "saved by loadtide", box=SIMPLE, show_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for each in found:
        table.add_row(each.workload, "loadtide", *_taken(each.ours, each.currency), "")
        rows = [(f"always on, {each.peak_replicas} replica{'' if each.peak_replicas == 1 else 's'}", each.always_on)]
        if each.hpa is not None:
            rows.append((f"plain HPA, from {max(1, each.floor)}", each.hpa))
        for name, other in rows:
            table.add_row("", name, *_taken(other, each.currency), _saved(each, other))
    return table


def _taken(taken: Taken, currency: str) -> tuple[str, str]:
    return f"{taken.gpu_hours:,.1f}", "" if taken.money is None else f"{taken.money:,.2f} {currency}".rstrip()


def _saved(each: Savings, other: Taken) -> str:
    share = each.saved(other)
    text = f"{share:.0%}" if share >= 0 else f"none: {-share:.0%} more"
    if each.ours.money is None or other.money is None or share < 0:
        return text
    return f"{text}, {other.money - each.ours.money:,.2f} {each.currency}".rstrip()


def _remarks(each: Savings) -> Iterator[str]:
    if each.known_hours < ENOUGH_RATIO * each.hours:
        yield f"only {each.known_hours:,.1f} of {each.hours:,.1f} hours were recorded"
    if each.hpa is None:
        yield "no plain HPA: its requests in flight, or what one replica serves, were not recorded"
    elif each.hpa_blind_ratio > 0.05:
        yield f"in {each.hpa_blind_ratio:.0%} of the time no demand was recorded; the HPA held what it had"
    if each.ours.money is not None and each.priced_ratio < 0.95:
        yield f"a price was recorded for {each.priced_ratio:.0%} of the time; elsewhere the one before counts"


def _next(found: Sequence[Savings]) -> Iterator[str]:
    if any(each.ours.money is None for each in found):
        yield "for money, declare gpu.hour_price in the policy, or write --gpu-hour-price 2.50 --currency EUR"
    if any(each.floor > 0 and each.ours.gpu_hours > 0 for each in found):
        yield "a lower warm.floor, or keep-warm windows in its place, is what is left to save at night"
    yield "loadtide explain NAMESPACE/NAME shows the season, the price window and the budget as they stand now"


def as_document(found: Sequence[Savings], span: Span) -> dict[str, Any]:
    """Every figure, to be written as JSON."""
    return {
        "since": span.since,
        "until": span.until,
        "assumed": list(ASSUMED),
        "workloads": [
            {
                "workload": each.workload,
                "hours": each.hours,
                "known_hours": each.known_hours,
                "gpus_per_replica": each.gpus_per_replica,
                "peak_replicas": each.peak_replicas,
                "currency": each.currency or None,
                **{
                    name: None if taken is None else {"gpu_hours": taken.gpu_hours, "money": taken.money}
                    for name, taken in (("loadtide", each.ours), ("always_on", each.always_on), ("plain_hpa", each.hpa))
                },
            }
            for each in found
        ],
    }
