"""The command `loadtide probe`: fetch, look, print."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import aiohttp
import typer
from pydantic import ValidationError

from scaler.policy.addresses import has_login, is_http_url, no_url, shown_url, to_complete, without_login
from scaler.policy.prometheus import PrometheusServer
from scaler.probe.fetch import UnreachableError, fetch_page
from scaler.probe.page import look_at_page
from scaler.probe.prometheus import look_at_prometheus
from scaler.probe.render import show
from scaler.probe.report import Report
from scaler.signals.exposition import ExpositionError
from scaler.signals.http_body import RefusedError
from scaler.signals.preset import PresetError, register_presets
from scaler.signals.prometheus.api import Api, QueryError

#: What a page may take: a person waits once, and a Prometheus is asked over everything it holds.
_TIMEOUT_SECONDS = 10.0


def probe(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="A metrics page (http://vllm:8000/metrics), or a Prometheus' address.")
    ],
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="Look at it as this engine; unset: the one that fits best.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Look at this served model only, named as in the metrics.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="'NAME: VALUE'", help="Send this header too. May be given several times."),
    ] = None,
    presets: Annotated[
        Path | None,
        typer.Option(help="Folder of engine presets of your own, as for serve.", envvar="LOADTIDE_PRESETS"),
    ] = None,
    only_policy: Annotated[
        bool, typer.Option("--only-policy", help="Print the policy lines alone; warnings go to standard error.")
    ] = False,
    timeout_seconds: Annotated[
        float, typer.Option(min=0.1, max=60.0, help="Limit for each request.")
    ] = _TIMEOUT_SECONDS,
) -> None:
    """Say what a metrics page or a Prometheus holds for loadtide, and the policy lines that read it.

    [bold]Try it:[/bold]  loadtide probe http://localhost:8000/metrics

    An engine: which preset fits, under which name each quantity was found, what it says now, how old it is, how many
    models, engines and rank copies share the page, and what is missing and disables. A gateway: what waits and what was
    refused, and the labels to bind by. A DCGM exporter: its GPUs and who holds them.

    A Prometheus (or Thanos, Mimir, VictoriaMetrics), by its address without /api/v1:

      loadtide probe http://prometheus.monitoring:9090 --header 'X-Scope-OrgID: chat'

    Which engines' series it has, of how many workloads and replicas, how old they are, and which labels bind them.

    Next: [bold]loadtide probe URL --only-policy > policy.yaml[/bold], fill in what stands there as a comment, and
    [bold]loadtide serve --policy policy.yaml[/bold].

    Exit status: 0 found, 1 nothing that can be used, 2 nobody answers (or the command cannot be meant).
    """
    address = _without_api(url)
    if not is_http_url(address):
        raise typer.BadParameter(no_url(url, "http://localhost:8000/metrics"))
    headers = dict(map(_header, header or ()))
    if has_login(address) and any(name.lower() == "authorization" for name in headers):
        raise typer.BadParameter(
            "the URL's user and password make an Authorization header too, and a request has one; leave out either"
        )
    try:
        register_presets(presets)
        report = asyncio.run(_looked_at(address, headers, engine, model, timeout_seconds))
    except PresetError as error:
        typer.secho(str(error), err=True)
        raise typer.Exit(2) from error
    except UnreachableError as error:
        typer.secho(f"{shown_url(address)}: {error}; is it the right address, and reachable from here?", err=True)
        raise typer.Exit(2) from error
    if only_policy:
        typer.echo(report.policy, nl=False)
        for warning in report.warnings if report.usable else (report.what, *report.warnings):
            typer.secho(f"warning: {warning}", err=True)
    else:
        show(report, shown_url(address))
    raise typer.Exit(0 if report.usable else 1)


async def _looked_at(
    url: str, headers: Mapping[str, str], engine: str | None, model: str | None, timeout_seconds: float
) -> Report:
    """The page at ``url``, or, where that is none, the Prometheus whose API is there. Raises
    :class:`UnreachableError` and :class:`PresetError`.
    """
    async with aiohttp.ClientSession() as session:
        try:
            body = await fetch_page(session, url, headers, timeout_seconds)
            report = look_at_page(body, to_complete(url), time.time(), engine=engine, model=model)
        except (RefusedError, ExpositionError) as error:
            no_page = str(error)
        else:
            return _with_secrets_told(report, headers, url)
        address, login = without_login(url)
        sent = {**headers, **({} if login is None else {"Authorization": login})}
        try:
            server = PrometheusServer.model_validate(
                {"url": address, "headers": sent, "timeout_seconds": timeout_seconds}
            )
            api = Api(server)
            return await look_at_prometheus(
                lambda query: api.ask(session, query), server.url, sent, engine=engine, model=model
            )
        except ValidationError as error:
            no_api = "; ".join(part["msg"].removeprefix("Value error, ") for part in error.errors(include_url=False))
        except QueryError as error:
            no_api = str(error)
    return Report(
        "neither a metrics page nor a Prometheus",
        False,
        (f"as a metrics page: {no_page}", f"as a Prometheus (/api/v1/query): {no_api}", *_guesses(url, no_page)),
    )


def _with_secrets_told(report: Report, headers: Mapping[str, str], url: str) -> Report:
    """The report with warnings of what the scaler would not send, and of what the policy lines do not repeat."""
    told = []
    if headers:
        told.append("headers were sent with this probe; the scaler reads pages without any: let it in otherwise")
    if to_complete(url) != url:
        told.append("the URL's user, password and query are not repeated: complete the policy's urls with them")
    return replace(report, warnings=(*report.warnings, *told)) if report.usable else report


def _guesses(url: str, no_page: str) -> tuple[str, ...]:
    if "HTML" in no_page or "redirect" in no_page:
        return ("a person's page or a login stands there; engines have theirs at /metrics",)
    if urlsplit(url).path in ("", "/"):
        return ("engines have their page at /metrics, Envoy at /stats/prometheus",)
    return ()


def _without_api(url: str) -> str:
    """The address of a Prometheus, where its API's was given."""
    return url.partition("/api/v1")[0] if "/api/v1" in url else url


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not name.strip().isascii() or not value.strip().isprintable():
        raise typer.BadParameter("a header is NAME: VALUE; write for example --header 'X-Scope-OrgID: chat'")
    return name.strip(), value.strip()
