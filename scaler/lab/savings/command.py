"""The command `loadtide savings`: its options, and what is printed and written. What it needs is imported when it runs,
so that the scaler starts without it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from scaler.lab.backtest.server_options import (
    SERVER_PANEL,
    BasicPasswordFile,
    BasicUser,
    BearerTokenFile,
    CaFile,
    CertFile,
    Headers,
    KeyFile,
    SkipVerify,
)

_COUNTED = "What is counted"


def savings(
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="URL",
            help="The Prometheus (or Thanos, Mimir, VictoriaMetrics) that scrapes loadtide, without /api/v1; or the "
            "name of a source in --policy.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMESPACE/NAME", help="Only this workload; repeat for more. Unset: all of them."),
    ] = None,
    length: Annotated[str, typer.Option("--range", help="How far back: 30d, 7d, 36h.")] = "30d",
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Where it ends: 2026-06-08T12:00:00Z; unset: now.")
    ] = None,
    gpu_hour_price: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="What a GPU costs an hour, in place of what was recorded.", rich_help_panel=_COUNTED
        ),
    ] = None,
    currency: Annotated[
        str | None, typer.Option(metavar="CODE", help="Its currency: EUR.", rich_help_panel=_COUNTED)
    ] = None,
    gpus_per_replica: Annotated[
        float | None,
        typer.Option(min=0.01, help="GPUs of one replica, in place of what was recorded.", rich_help_panel=_COUNTED),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL=VALUE", help="A label that loadtide's own series have, for example cluster=eu-1."),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Every figure, as JSON.")] = None,
    policy: Annotated[
        Path | None, typer.Option(help="A policy file whose sources: name the server.", rich_help_panel=SERVER_PANEL)
    ] = None,
    header: Headers = None,
    bearer_token_file: BearerTokenFile = None,
    basic_user: BasicUser = None,
    basic_password_file: BasicPasswordFile = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    insecure_skip_verify: SkipVerify = False,
) -> None:
    """What have loadtide's decisions saved? GPU-hours and money beside always-on at peak size and beside a plain HPA.

    [bold]Try it:[/bold]  loadtide savings --prometheus http://prometheus.monitoring:9090 --range 30d

    It reads what loadtide's own /metrics told, minute by minute: replicas asked for, requests in flight, what one
    replica serves, prices. Always-on is the most replicas asked for in the span, all of the time; the HPA is its own
    arithmetic replayed on the recorded load. It only reads, and says what it assumes.

    [bold]Then:[/bold]  declare gpu.hour_price (and gpu.per_replica) in the policy, so that explain and the dashboards
    speak of money too; loadtide backtest says what another policy would have taken over the same days.

    Exit status: 0 counted, 1 counted but under half of the range was recorded, 2 it cannot be done (the reason is told
    on standard error).
    """
    from scaler.lab.backtest.carry_out import Unable, can_write, write_to
    from scaler.lab.backtest.options import Options
    from scaler.lab.savings.carry_out import counted
    from scaler.lab.savings.show import ENOUGH_RATIO, as_document, show

    options = Options(
        workload="",
        prometheus=prometheus,
        length=length,
        until=until,
        policy=policy,
        match=tuple(match or ()),
        headers=tuple(header or ()),
        bearer_token_file=bearer_token_file,
        basic_user=basic_user,
        basic_password_file=basic_password_file,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        insecure_skip_verify=insecure_skip_verify,
    )
    try:
        if json is not None:
            can_write(json)
        span, found = counted(options, time.time(), tuple(workload or ()), gpu_hour_price, currency, gpus_per_replica)
        show(found, span)
        if json is not None:
            from json import dumps

            write_to(json, dumps(as_document(found, span), indent=1))
            typer.echo(f"figures: {json}")
    except (ValueError, Unable) as error:
        typer.secho(str(error), err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(0 if all(each.known_hours >= ENOUGH_RATIO * each.hours for each in found) else 1)
