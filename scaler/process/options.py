"""Command-line values that every process takes: addresses, tokens in files, the log level, how a refusal is said."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import typer


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host (name or IP address) and a port, 0 for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """``HOST:PORT``. Raises ``typer.BadParameter``."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT; write for example 0.0.0.0:6000")
    return Address(host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))


def token_from(path: Path | None, variable: str) -> str | None:
    """The token from its file, else from the environment, where an empty one is none. A file that was named and has
    none is refused: what it should close would stand open. Raises ``typer.BadParameter``.
    """
    if path is None:
        return os.environ.get(variable, "").strip() or None
    instead = f"write the token into it, or leave it out and set {variable}"
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise typer.BadParameter(f"{path}: the token cannot be read ({error.strerror}); {instead}") from error
    except UnicodeError as error:
        raise typer.BadParameter(f"{path}: is not text; {instead}") from error
    if not token:
        raise typer.BadParameter(f"{path}: is empty; {instead}")
    return token


def told(error: Exception) -> str:
    """An error in a person's words: of an operating system's the file and the reason, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def failed(*lines: str) -> typer.Exit:
    """Say the lines on standard error; the exit to raise (status 2)."""
    for line in lines:
        typer.secho(line, err=True)
    return typer.Exit(2)
