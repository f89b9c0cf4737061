"""``loadtide override``: an operator's own numbers for a while, told to a running scaler."""

from __future__ import annotations

import asyncio
import getpass
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from scaler.process.options import failed, token_from
from scaler.serve.ask import ScalerUnreachable, end_override, put_override
from scaler.serve.quantities import duration

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_UNIT_SECONDS = (86_400, 3600, 60, 1)


def _seconds(text: str) -> float:
    """``1h30m`` as seconds."""
    match = _DURATION.fullmatch(text)
    seconds = (
        sum(int(part or 0) * unit for part, unit in zip(match.groups(), _UNIT_SECONDS, strict=True)) if match else 0
    )
    if not seconds:
        raise typer.BadParameter(f"{text!r} is no duration; write for example 30m, 2h or 1h30m")
    return float(seconds)


def override(
    workload: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The ScaledObject's namespace and name.")],
    replicas: Annotated[
        int | None, typer.Option(min=0, help="Replicas meanwhile, at most replicas.max. 0 takes it to zero.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Batch meanwhile, within batch.min .. batch.max.")] = None,
    lasting: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="For how long: 30m, 2h, 1h30m; at most 7d.")
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="End the override before its time.")] = False,
    by: Annotated[
        str | None, typer.Option(help="Who says so, as the reasons will name it. Unset: your user name.")
    ] = None,
    url: Annotated[
        str, typer.Option(help="HTTP address of a running scaler.", envvar="LOADTIDE_URL")
    ] = "http://127.0.0.1:8080",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that it was given as --token-file. Or set LOADTIDE_TOKEN.",
            envvar="LOADTIDE_TOKEN_FILE",
        ),
    ] = None,
) -> None:
    """Rule a workload by hand for a while: its replicas, its batch, or both. What is not named is decided as ever.

    [bold]Example:[/bold]  loadtide override chat/llama-8b --replicas 4 --for 30m

    It survives a restart of the scaler, every reason says whose it is and until when, and afterwards the laws go on
    from the replicas there are and from the batch of before. What is to stay belongs into the policy (mode: paused
    holds the last targets without end).

    Next: [bold]loadtide explain chat/llama-8b[/bold] shows it, and what the laws would have decided.
    """
    given = {"replicas": replicas, "batch_size": batch, "for_seconds": None if lasting is None else _seconds(lasting)}
    if end and any(value is not None for value in given.values()):
        raise typer.BadParameter("--end takes no --replicas, --batch or --for")
    if not end and (lasting is None or (replicas is None and batch is None)):
        raise typer.BadParameter("give --replicas, --batch or both, and --for; or --end")
    token = token_from(token_file, "LOADTIDE_TOKEN")
    wanted = {name: value for name, value in given.items() if value is not None} | {"by": by or _user()}
    try:
        told = asyncio.run(end_override(url, workload, token) if end else put_override(url, workload, token, wanted))
    except ScalerUnreachable as error:
        raise failed(str(error)) from error
    typer.echo(_said(workload, told["override"]))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as containers have
        return "the command line"


def _said(workload: str, override: dict[str, Any] | None) -> str:
    if override is None:
        return f"{workload}: no override; the laws rule. See: loadtide explain {workload}"
    what = [
        f"{name.replace('_', ' ')} {override[name]}"
        for name in ("replicas", "batch_size")
        if override[name] is not None
    ]
    lasting = duration(override["remaining_seconds"])
    return (
        f"{workload}: {' and '.join(what)} for {lasting}, until {override['until']}. "
        f"End it before with: loadtide override {workload} --end"
    )
