"""The command line: one small function per command, no logic."""

from __future__ import annotations

import asyncio
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scaler import __version__
from scaler.policy.errors import PolicyError
from scaler.serve.ask import ScalerUnreachable, fetch_workload
from scaler.serve.explain import explain as explain_document
from scaler.serve.logs import configure_logs
from scaler.serve.server import Address, run_scaler
from scaler.serve.store import MemoryStore, SqliteStore

app = typer.Typer(
    name="loadtide",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""A KEDA external scaler for GPU inference: replicas [bold]and[/bold] batch size, decided together, with
    reasons.

    Start with [bold]loadtide serve --policy policy.yaml[/bold], register it in a ScaledObject (deploy/examples), and
    ask [bold]loadtide explain NAMESPACE/NAME[/bold] why it decided what it did.""",
)


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT; write for example 0.0.0.0:6000")
    return Address(host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))


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


@app.command()
def serve(
    policy: Annotated[
        Path | None,
        typer.Option(
            help="Policy file (YAML: defaults, policies, workloads), read again when it changes. "
            "Unset: ScaledObject metadata says everything.",
            envvar="LOADTIDE_POLICY",
        ),
    ] = None,
    store: Annotated[
        str,
        typer.Option(
            help="Where timers, batches and states survive a restart: a file (SQLite), or 'memory' for nowhere.",
            envvar="LOADTIDE_STORE",
        ),
    ] = "loadtide.db",
    grpc: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where KEDA calls us.", envvar="LOADTIDE_GRPC")
    ] = "0.0.0.0:6000",
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Page, API and /metrics.", envvar="LOADTIDE_HTTP")
    ] = "0.0.0.0:8080",
    tick_seconds: Annotated[
        float, typer.Option(min=0.1, max=300.0, help="How often each workload is read and judged.")
    ] = 5.0,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the bearer token that gateways show to POST /demand and /wake. Or set LOADTIDE_TOKEN. "
            "Without either nobody can push.",
            envvar="LOADTIDE_TOKEN_FILE",
        ),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="One JSON line per event, on standard error.")] = LogLevel.INFO,
) -> None:
    """Run the scaler: read engines, decide, answer KEDA, publish targets.

    [bold]Try it:[/bold]  loadtide serve --policy policy.yaml --store memory --http 127.0.0.1:8080 --grpc 127.0.0.1:6000

    A first policy.yaml for one vLLM:

    [dim]workloads:
      chat/llama-8b:            # the ScaledObject's namespace/name
        scrape: {urls: ["http://localhost:8000/metrics"]}
        replicas: {max: 4}      # equal to its maxReplicaCount
        batch: {max: 64}        # the engine's --max-num-seqs[/dim]

    Next: open the page at the HTTP address, and [bold]loadtide explain chat/llama-8b[/bold].
    """
    configure_logs(log_level.value)
    try:
        asyncio.run(
            run_scaler(
                policy,
                MemoryStore() if store == "memory" else SqliteStore(Path(store)),
                grpc_address=_address(grpc),
                http_address=_address(http),
                tick_seconds=tick_seconds,
                token=_token(token_file),
            )
        )
    except PolicyError as error:
        raise _failed("the policy cannot be meant:", *error.problems) from error
    except (OSError, RuntimeError) as error:
        raise _failed(f"cannot serve: {error}") from error


@app.command()
def explain(
    workload: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The ScaledObject's namespace and name.")],
    url: Annotated[
        str, typer.Option(help="HTTP address of a running scaler.", envvar="LOADTIDE_URL")
    ] = "http://127.0.0.1:8080",
) -> None:
    """Ask a running scaler about one workload: its state, its signals, what it wants and why, in words.

    [bold]Example:[/bold]  loadtide explain chat/llama-8b --url http://127.0.0.1:8080
    """
    try:
        document = asyncio.run(fetch_workload(url, workload))
    except ScalerUnreachable as error:
        raise _failed(str(error)) from error
    Console().print(explain_document(document))


def _token(path: Path | None) -> str | None:
    """The token from its file, else from the environment; an empty one is none. Raises OSError, ``UnicodeError``."""
    text = path.read_text(encoding="utf-8") if path else os.environ.get("LOADTIDE_TOKEN", "")
    return text.strip() or None


def _failed(*lines: str) -> typer.Exit:
    for line in lines:
        typer.secho(line, err=True)
    return typer.Exit(2)
