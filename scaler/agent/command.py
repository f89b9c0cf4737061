"""``loadtide agent``: the node agent as a process, from options and environment."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from pathlib import Path
from typing import Annotated

import typer

from scaler.agent.agent import TARGET_HTTP, AgentOptions
from scaler.agent.engines import OVER_HTTP, PRESETS, EngineName, EngineOptions
from scaler.agent.relay import ScalerAddress
from scaler.agent.run import run_agent
from scaler.policy.addresses import is_http_url, no_url
from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile
from scaler.policy.model import Policy
from scaler.process.logs import configure_logs
from scaler.process.options import LogLevel, address, failed, token_from, told
from scaler.signals.preset import PresetError, load_preset, register_presets

_WORKLOAD = re.compile(r"[^/\s]+/[^/\s]+")


def agent(
    workload: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="The workload of the engine beside us. Unset: only GPUs are read and exported.",
            envvar="LOADTIDE_WORKLOAD",
        ),
    ] = "",
    scaler: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="The scaler's HTTP address. Unset, or away: the engine's own setting rules, and the memory guard.",
            envvar="LOADTIDE_SCALER",
        ),
    ] = "",
    engine: Annotated[
        EngineName | None,
        typer.Option(
            help="How the batch reaches the engine. vllm: our plugin asks us, at --serve-target. envoy: a limit of "
            "requests in front of an engine that can't be set (TGI, llama.cpp, LMDeploy).",
            envvar="LOADTIDE_ENGINE",
        ),
    ] = None,
    engine_url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Where the engine is asked and set: its HTTP port; Ray's dashboard (8265); Envoy's admin. vLLM: only "
            "if it is to be put to sleep.",
            envvar="LOADTIDE_ENGINE_URL",
        ),
    ] = "",
    engine_name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Triton: the model. Ray Serve: APPLICATION/DEPLOYMENT. Envoy: the cluster.",
            envvar="LOADTIDE_ENGINE_NAME",
        ),
    ] = "",
    engine_grpc: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Triton's gRPC port, over which models are loaded. Unset: port 8001 where --engine-url is. none: over "
            "HTTP, where other requests wait until the model is loaded.",
            envvar="LOADTIDE_ENGINE_GRPC",
        ),
    ] = "",
    own_batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The engine's own batch: never exceeded, and what it goes back to. Needed where the engine does not "
            "tell it (Ray Serve; an Envoy's engine; SGLang of 0.5.2 and before).",
            envvar="LOADTIDE_OWN_BATCH",
        ),
    ] = None,
    metrics_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The engine's own /metrics, read every second for the memory guard. Unset: where vLLM (port 8000), "
            "SGLang (--engine-url) and Triton (8002) have it, and no guard for others. Empty: no guard.",
            envvar="LOADTIDE_METRICS_URL",
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="The preset that reads those metrics, where it is not --engine's: tgi, llamacpp, lmdeploy, ...",
            envvar="LOADTIDE_PRESET",
        ),
    ] = "",
    presets: Annotated[
        Path | None,
        typer.Option(help="Folder of engine presets of your own, as for loadtide serve.", envvar="LOADTIDE_PRESETS"),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="The scaler's policy file, for the guard: memory lines and batch range of this workload. Unset: the "
            "defaults.",
            envvar="LOADTIDE_POLICY",
        ),
    ] = None,
    replica: Annotated[
        str, typer.Option(help="The engine's pod. Unset: this host's name.", envvar="POD_NAME", show_default=False)
    ] = "",
    engine_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the engine's API key (SGLang) or its dashboard's token (Ray).",
            envvar="LOADTIDE_ENGINE_KEY_FILE",
        ),
    ] = None,
    engine_admin_key_file: Annotated[
        Path | None,
        typer.Option(
            help="File with its admin key (SGLang --admin-api-key), which then is what changes the batch.",
            envvar="LOADTIDE_ENGINE_ADMIN_KEY_FILE",
        ),
    ] = None,
    reload_seconds: Annotated[
        float, typer.Option(min=60.0, help="Least time between two reloads of a model (Triton).")
    ] = 600.0,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the scaler's push token, to report what is applied. Or set LOADTIDE_TOKEN.",
            envvar="LOADTIDE_TOKEN_FILE",
        ),
    ] = None,
    read_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with its read token, where it has one. Or set LOADTIDE_READ_TOKEN.",
            envvar="LOADTIDE_READ_TOKEN_FILE",
        ),
    ] = None,
    gpu_metrics: Annotated[
        bool,
        typer.Option(
            "--gpu-metrics",
            help="Export this node's GPUs under a DCGM exporter's names, for nodes that have none.",
            envvar="LOADTIDE_GPU_METRICS",
        ),
    ] = False,
    pod_resources: Annotated[
        str,
        typer.Option(
            metavar="SOCKET",
            help="The kubelet's socket that tells which pod holds which GPU; in a pod it must be mounted. Usually "
            "/var/lib/kubelet/pod-resources/kubelet.sock. Unset: GPUs are nobody's.",
            envvar="LOADTIDE_POD_RESOURCES",
        ),
    ] = "",
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Probes and /metrics.", envvar="LOADTIDE_AGENT_HTTP")
    ] = "0.0.0.0:9410",
    serve_target: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where a vLLM with our plugin asks for its target. Keep it on loopback: no token is asked for.",
            envvar="LOADTIDE_SERVE_TARGET",
        ),
    ] = str(TARGET_HTTP),
    grace_seconds: Annotated[float, typer.Option(min=1.0, help="Longest that ending may take after SIGTERM.")] = 15.0,
    log_level: Annotated[LogLevel, typer.Option(help="One JSON line per event, on standard error.")] = LogLevel.INFO,
) -> None:
    """Run the node agent: bring the scaler's batch to the engine beside it, and guard its memory on the spot.

    As a sidecar it follows one engine: what the scaler published is applied and read back from the engine, the lower of
    it and the guard's limit rules, and when the scaler is away or its target expired the engine runs its own setting.
    As a DaemonSet, without --workload, it exports the node's GPUs.

    [bold]Try it[/bold] beside an SGLang:

    [dim]loadtide agent --workload chat/llama-8b --scaler http://127.0.0.1:8080 --engine sglang \\
      --engine-url http://127.0.0.1:30000 --http 127.0.0.1:9410[/dim]

    Next: curl http://127.0.0.1:9410/metrics; docs/agent.md has every engine, deploy/examples/sglang-agent.yaml a pod.
    """
    configure_logs(log_level.value)
    pod_name = replica or socket.gethostname()
    namespace = os.environ.get("POD_NAMESPACE") or workload.partition("/")[0]
    try:
        _refuse_halves(engine, workload, scaler, metrics_url or "", preset)
        for option, given in (("--engine-url", engine_url), ("--metrics-url", metrics_url)):
            if given and not is_http_url(given):
                raise ValueError(f"{option}: {no_url(given, 'http://127.0.0.1:8000')}")
        register_presets(presets)
        options = AgentOptions(
            http=address(http),
            policy=_policy(policy, workload, preset or (PRESETS.get(engine, "") if engine else "")),
            workload=workload,
            replica=pod_name,
            pod=f"{namespace}/{pod_name}",
            scaler=_scaler(scaler, workload, token_file, read_token_file),
            engine=EngineOptions(
                engine,
                engine_url,
                engine_name,
                own_batch,
                token_from(engine_key_file, "LOADTIDE_ENGINE_KEY"),
                token_from(engine_admin_key_file, "LOADTIDE_ENGINE_ADMIN_KEY"),
                reload_seconds,
                engine_grpc if engine_grpc in ("", OVER_HTTP) else str(address(engine_grpc)),
            )
            if engine
            else None,
            metrics_url=_metrics_url(metrics_url, engine, engine_url),
            target_http=address(serve_target),
            gpu_metrics=gpu_metrics,
            pod_resources=pod_resources,
            grace_seconds=grace_seconds,
        )
    except PolicyError as error:
        raise failed("the policy cannot be meant:", *error.problems) from error
    except (ValueError, OSError, PresetError) as error:
        raise failed(told(error)) from error
    try:
        asyncio.run(run_agent(options))
    except OSError as error:
        raise failed(f"the agent cannot run: {told(error)}") from error


def _policy(path: Path | None, workload: str, preset: str) -> Policy:
    """The workload's policy, read by ``preset`` where one is said. Raises PolicyError, OSError or PresetError."""
    file = PolicyFile.empty() if path is None else PolicyFile.load(path)
    resolved = file.resolve(workload or "node/agent").policy
    if preset:
        load_preset(preset)
        resolved = resolved.model_copy(update={"engine": preset})
    return resolved


def _scaler(url: str, workload: str, token_file: Path | None, read_token_file: Path | None) -> ScalerAddress | None:
    if not url:
        return None
    if not is_http_url(url):
        raise ValueError(f"--scaler: {no_url(url, 'http://loadtide.loadtide.svc:8080')}")
    return ScalerAddress(
        url,
        workload,
        read_token=token_from(read_token_file, "LOADTIDE_READ_TOKEN"),
        push_token=token_from(token_file, "LOADTIDE_TOKEN"),
    )


def _metrics_url(said: str | None, engine: EngineName | None, engine_url: str) -> str:
    """Where the engine's own metrics are; "": nowhere that a guard could read them.

    Ray Serve's page is a whole node's and up to ten seconds old; behind an Envoy they can be anywhere.
    """
    if said is not None or engine is None:
        return said or ""
    match engine:
        case EngineName.VLLM:
            return "http://127.0.0.1:8000/metrics"
        case EngineName.SGLANG:
            return f"{engine_url.rstrip('/')}/metrics"
        case EngineName.TRITON:
            return "http://127.0.0.1:8002/metrics"
        case EngineName.RAYSERVE | EngineName.ENVOY:
            return ""


def _refuse_halves(engine: EngineName | None, workload: str, scaler: str, metrics_url: str, preset: str) -> None:
    """Options that belong together. Raises ``ValueError``."""
    if engine is None:
        if scaler or workload:
            raise ValueError("--engine is missing: what is to follow the target; or leave out --workload and --scaler")
        return
    if not _WORKLOAD.fullmatch(workload):
        raise ValueError(f"--workload {workload!r} is not NAMESPACE/NAME; write the ScaledObject's, as chat/llama")
    if engine is EngineName.ENVOY and metrics_url and not preset:
        raise ValueError("--preset is missing: which engine is behind the Envoy (tgi, llamacpp, lmdeploy, ...)")
