"""The command `loadtide backtest`: its options, and what is printed and written. What it needs is imported when it
runs, so that the scaler starts without it.
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

_POLICY, _WORLD, _OUTPUT = "The policy", "What is assumed", "What is written"


def backtest(
    workload: Annotated[
        str, typer.Option("--workload", metavar="NAMESPACE/NAME", help="The ScaledObject's name, or its pods'.")
    ],
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="URL",
            help="Prometheus, Thanos, Mimir or VictoriaMetrics, without /api/v1; or the name of a source in --policy. "
            "Unset: the source that the workload names there.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None,
    length: Annotated[str, typer.Option("--range", help="How far back: 7d, 36h, 90m.")] = "7d",
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Where it ends: 2026-06-08T12:00:00Z; unset: now.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="A policy file, as for serve. Unset: the defaults.", rich_help_panel=_POLICY),
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A policy key on top of the file, for example replicas.max=12. Repeat for more.",
            rich_help_panel=_POLICY,
        ),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=VALUE",
            help="A label that the workload's series have, in place of the policy's. Unset anywhere: by its name.",
            rich_help_panel=_POLICY,
        ),
    ] = None,
    presets: Annotated[
        Path | None,
        typer.Option(
            help="Folder of engine presets of your own, as for serve.",
            envvar="LOADTIDE_PRESETS",
            rich_help_panel=_POLICY,
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="The engine: vllm, sglang, ...", rich_help_panel=_POLICY)
    ] = None,
    cold_start_seconds: Annotated[
        float | None,
        typer.Option(min=0.0, help="Unset: as replicas took in the past, else the policy's.", rich_help_panel=_WORLD),
    ] = None,
    gpus_per_replica: Annotated[
        float | None,
        typer.Option(
            min=0.01, help="GPUs of one replica. Unset: the policy's gpu.per_replica.", rich_help_panel=_WORLD
        ),
    ] = None,
    gpu_hour_price: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="What a GPU costs an hour. Unset: the policy's gpu.hour_price, and that of its price windows.",
            rich_help_panel=_WORLD,
        ),
    ] = None,
    currency: Annotated[
        str | None, typer.Option(metavar="CODE", help="Its currency: EUR.", rich_help_panel=_WORLD)
    ] = None,
    html: Annotated[Path | None, typer.Option(help="A page with timelines, one file.", rich_help_panel=_OUTPUT)] = None,
    json: Annotated[
        Path | None, typer.Option(help="All figures and every tick, as JSON.", rich_help_panel=_OUTPUT)
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the server's answers: another policy over the same days, or a run after an interruption, "
            "reads them from there.",
            rich_help_panel=_OUTPUT,
        ),
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
    """What would loadtide have done? Replay your own Prometheus' past through the same decisions, before it decides
    anything.

    [bold]Try it:[/bold]  loadtide backtest --prometheus http://prometheus.monitoring:9090 --workload chat/llama-8b
    --range 7d

    It reads the engines' raw samples, rebuilds the signals tick by tick, lets the scaler decide, enacts its wishes
    through KEDA and the HPA with a cold start, and says: GPU-hours beside those that ran, for how long too few replicas
    would have been ready, where latency stands, and what it cannot know. It only reads. A week of ten replicas takes
    some minutes; with --keep FOLDER another policy over the same days asks the server nothing.

    [bold]Then:[/bold]  --html report.html draws it; --set replicas.max=12 --set capacity.sequences=40 tries another
    policy; loadtide serve with that policy gives advice until a ScaledObject asks it.

    Exit status: 0 backtested, 1 backtested but under half of the range has data, 2 it cannot be done (the reason is
    told on standard error).
    """
    from scaler.lab.backtest.carry_out import Unable, can_keep, can_write, carry_out, write_to
    from scaler.lab.backtest.export import as_json
    from scaler.lab.backtest.options import Options, meant
    from scaler.lab.backtest.page import page
    from scaler.lab.backtest.show import show
    from scaler.lab.backtest.summary import enough_data

    options = Options(
        workload=workload,
        prometheus=prometheus,
        length=length,
        until=until,
        policy=policy,
        values=tuple(values or ()),
        match=tuple(match or ()),
        presets=presets,
        engine=engine,
        cold_start_seconds=cold_start_seconds,
        gpus_per_replica=gpus_per_replica,
        gpu_hour_price=gpu_hour_price,
        currency=currency,
        headers=tuple(header or ()),
        bearer_token_file=bearer_token_file,
        basic_user=basic_user,
        basic_password_file=basic_password_file,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        insecure_skip_verify=insecure_skip_verify,
    )
    now = time.time()
    try:
        setting, server = meant(options, now)
        if keep is not None:
            can_keep(keep)
        for written in filter(None, (html, json)):
            can_write(written)
        result = carry_out(setting, server, keep, now)
        show(result, drawn=html is not None)
        for path, text, what in ((html, page, "page"), (json, as_json, "figures")):
            if path is not None:
                write_to(path, text(result))
                typer.echo(f"{what}: {path}")
    except (ValueError, Unable) as error:
        typer.secho(str(error), err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(0 if enough_data(result) else 1)
