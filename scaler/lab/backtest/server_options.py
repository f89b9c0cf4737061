"""Options of every command that asks a Prometheus of the user's: how it is told who asks, and whom it trusts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

SERVER_PANEL = "The server"

Headers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="'NAME: VALUE'", help="Send this header too.", rich_help_panel=SERVER_PANEL),
]
BearerTokenFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="File with a bearer token.", rich_help_panel=SERVER_PANEL)
]
BasicUser: TypeAlias = Annotated[
    str | None, typer.Option(help="User of HTTP basic authentication.", rich_help_panel=SERVER_PANEL)
]
BasicPasswordFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="File with that user's password.", rich_help_panel=SERVER_PANEL)
]
CaFile: TypeAlias = Annotated[
    Path | None, typer.Option(help="Certificates (PEM) to trust.", rich_help_panel=SERVER_PANEL)
]
CertFile: TypeAlias = Annotated[Path | None, typer.Option(help="Our certificate (PEM).", rich_help_panel=SERVER_PANEL)]
KeyFile: TypeAlias = Annotated[Path | None, typer.Option(help="Its private key (PEM).", rich_help_panel=SERVER_PANEL)]
SkipVerify: TypeAlias = Annotated[
    bool, typer.Option("--insecure-skip-verify", help="Accept any certificate.", rich_help_panel=SERVER_PANEL)
]
