"""``loadtide explain``: a running scaler asked about one workload, answered in words."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from scaler.process.options import failed, token_from
from scaler.serve.ask import ScalerUnreachable, fetch_workload
from scaler.serve.explain import explain as explain_document

#: Columns where the output is no terminal.
FILE_WIDTH = 120


def explain(
    workload: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The ScaledObject's namespace and name.")],
    url: Annotated[
        str, typer.Option(help="HTTP address of a running scaler.", envvar="LOADTIDE_URL")
    ] = "http://127.0.0.1:8080",
    read_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with its read token, where it has one. Or set LOADTIDE_READ_TOKEN.",
            envvar="LOADTIDE_READ_TOKEN_FILE",
        ),
    ] = None,
) -> None:
    """Ask a running scaler about one workload: its state, its signals, what it wants and why, in words.

    [bold]Example:[/bold]  loadtide explain chat/llama-8b --url http://127.0.0.1:8080
    """
    try:
        document = asyncio.run(fetch_workload(url, workload, token_from(read_token_file, "LOADTIDE_READ_TOKEN")))
    except ScalerUnreachable as error:
        raise failed(str(error)) from error
    # Into a file or a pipe nothing is folded to fit a terminal of 80 columns; COLUMNS still says otherwise.
    wide = None if Console().is_terminal or "COLUMNS" in os.environ else FILE_WIDTH
    Console(width=wide).print(explain_document(document))
