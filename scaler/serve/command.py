"""``loadtide serve``: the scaler as a process, from options and environment."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from scaler.policy.errors import PolicyError
from scaler.process.ending import GRACE_SECONDS
from scaler.process.logs import configure_logs
from scaler.process.options import LogLevel, address, failed, token_from, told
from scaler.serve.loop import FORGET_AFTER_SECONDS
from scaler.serve.server import Listening, Tokens, run_scaler
from scaler.serve.store import MemoryStore, SqliteStore
from scaler.serve.tls import TlsFiles
from scaler.signals.preset import PresetError, register_presets

if TYPE_CHECKING:
    from scaler.serve.redis_link import RedisLink

log = structlog.get_logger(__name__)


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
            help="Where timers, batches and states survive a restart: a file (SQLite), 'memory' for nowhere, or "
            "redis://HOST:PORT/DB (Redis or Valkey; rediss:// for TLS), which several scalers share.",
            envvar="LOADTIDE_STORE",
        ),
    ] = "loadtide.db",
    grpc: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where KEDA calls us.", envvar="LOADTIDE_GRPC")
    ] = "0.0.0.0:6000",
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Page, API and /metrics.", envvar="LOADTIDE_HTTP")
    ] = "0.0.0.0:8080",
    presets: Annotated[
        Path | None,
        typer.Option(
            help="Folder of engine presets of your own (ENGINE.yaml); the format is told at the top of "
            "scaler/signals/preset.py.",
            envvar="LOADTIDE_PRESETS",
        ),
    ] = None,
    tick_seconds: Annotated[
        float, typer.Option(min=0.1, max=300.0, help="How often each workload is read and judged.")
    ] = 5.0,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the bearer token that gateways show to POST /demand and /wake, and operators to set an "
            "override. Or set LOADTIDE_TOKEN. Without either nobody can.",
            envvar="LOADTIDE_TOKEN_FILE",
        ),
    ] = None,
    read_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that readers show (API, page, /metrics): Bearer, or a browser's password. Or set "
            "LOADTIDE_READ_TOKEN. Without either everybody may read.",
            envvar="LOADTIDE_READ_TOKEN_FILE",
        ),
    ] = None,
    grpc_cert: Annotated[
        Path | None,
        typer.Option(
            help="TLS for KEDA (enableTLS in the ScaledObject): certificate with its chain, PEM. Like every file of "
            "TLS it is read again when it changes; tokens are not.",
            envvar="LOADTIDE_GRPC_CERT",
        ),
    ] = None,
    grpc_key: Annotated[
        Path | None, typer.Option(help="Its key, PEM, not encrypted.", envvar="LOADTIDE_GRPC_KEY")
    ] = None,
    grpc_client_ca: Annotated[
        Path | None,
        typer.Option(
            help="mTLS: only callers with a certificate of these authorities are answered (tlsClientCert and "
            "tlsClientKey in the TriggerAuthentication).",
            envvar="LOADTIDE_GRPC_CLIENT_CA",
        ),
    ] = None,
    http_cert: Annotated[
        Path | None,
        typer.Option(help="TLS for page, API and /metrics: certificate, PEM.", envvar="LOADTIDE_HTTP_CERT"),
    ] = None,
    http_key: Annotated[
        Path | None, typer.Option(help="Its key, PEM, not encrypted.", envvar="LOADTIDE_HTTP_KEY")
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="A further port with gRPC health alone, always plaintext: kubelet's probe speaks no TLS.",
            envvar="LOADTIDE_HEALTH",
        ),
    ] = None,
    peers_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="With a Redis store: the port where scalers ask each other whether Redis is silent for all, on the "
            "address that leads to Redis; 0: any free one. Where they cannot reach it, a silent Redis stops all.",
            envvar="LOADTIDE_PEERS_PORT",
        ),
    ] = 0,
    forget_after_seconds: Annotated[
        float,
        typer.Option(
            min=1.0,
            help="A workload that is in no policy file and that nobody asks for so long is forgotten, with its series. "
            "Its memory waits 7 days for who asks again.",
        ),
    ] = FORGET_AFTER_SECONDS,
    grace_seconds: Annotated[
        float,
        typer.Option(
            min=1.0,
            help="Longest that ending may take after SIGTERM; keep it below the pod's terminationGracePeriodSeconds.",
        ),
    ] = GRACE_SECONDS,
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
    if folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        log.info("PROMETHEUS_MULTIPROC_DIR is not used: all metrics are of this process", folder=folder)
    shared = _shared(store)
    if peers_port and shared is None:  # several that each kept a file of that name would decide apart from each other
        raise typer.BadParameter(
            "--peers-port is for scalers that share a Redis, and this would be a file; write redis://HOST:PORT/NUMBER",
            param_hint="--store",
        )
    try:
        register_presets(presets)
        asyncio.run(
            run_scaler(
                policy,
                MemoryStore() if store == "memory" or shared else SqliteStore(Path(store)),
                shared=shared,
                peers_port=peers_port,
                listening=Listening(
                    address(grpc),
                    address(http),
                    None if health is None else address(health),
                    _tls("grpc", grpc_cert, grpc_key, grpc_client_ca),
                    _tls("http", http_cert, http_key),
                ),
                tokens=Tokens(
                    token_from(token_file, "LOADTIDE_TOKEN"), token_from(read_token_file, "LOADTIDE_READ_TOKEN")
                ),
                tick_seconds=tick_seconds,
                forget_after_seconds=forget_after_seconds,
                grace_seconds=grace_seconds,
            )
        )
    except PolicyError as error:
        raise failed("the policy cannot be meant:", *error.problems) from error
    except (OSError, RuntimeError, PresetError) as error:
        raise failed(f"cannot serve: {told(error)}") from error


def _shared(store: str) -> RedisLink | None:
    """What several scalers share, where ``store`` is a URL."""
    if "://" not in store:
        return None
    try:
        from scaler.serve.redis_link import RedisLink
    except ImportError as error:
        raise typer.BadParameter(f"{error}; install it: pip install 'loadtide[redis]'", param_hint="--store") from error
    try:
        return RedisLink(store)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--store") from error


def _tls(
    what: str, certificate: Path | None, key: Path | None, client_authorities: Path | None = None
) -> TlsFiles | None:
    if certificate is None and key is None and client_authorities is None:
        return None
    if certificate is None or key is None:
        raise typer.BadParameter(f"TLS needs both files; give --{what}-cert and --{what}-key")
    return TlsFiles(certificate, key, client_authorities)
