"""The command line: every room's commands under one name. Each is a small function in its room's ``command.py``."""

from __future__ import annotations

from typing import Annotated

import typer

from scaler import __version__
from scaler.agent.command import agent
from scaler.check.command import check
from scaler.lab.backtest.command import backtest
from scaler.lab.commands import lab
from scaler.lab.savings.command import savings
from scaler.pack.command import rules
from scaler.pack.dashboards.command import dashboards
from scaler.probe.command import probe
from scaler.process.help_text import let_flow
from scaler.serve.ask_command import explain
from scaler.serve.command import serve
from scaler.serve.override_command import override

app = typer.Typer(
    name="loadtide",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    # Lines of its own break a paragraph where they end, however wide the terminal is.
    help="A KEDA external scaler for GPU inference: replicas [bold]and[/bold] batch size, decided together, with "
    "reasons.\n\n"
    "[bold]loadtide demo[/bold] shows it at work on this machine, without a cluster and without a GPU.\n\n"
    "Start with [bold]loadtide serve --policy policy.yaml[/bold], register it in a ScaledObject (deploy/examples), and "
    "ask [bold]loadtide explain NAMESPACE/NAME[/bold] why it decided what it did. [bold]loadtide check FILE...[/bold] "
    "finds mistakes in ScaledObjects and policies before they cost anything.",
)
for command in (serve, agent, explain, override, check, probe, backtest, savings, rules, dashboards):
    app.command()(command)
let_flow([*app.registered_commands, *lab.registered_commands])
app.add_typer(lab)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loadtide {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A callback only so that --version can stand alone."""
