"""Which adapter an engine has, and what it must be told to find its engine."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from scaler.consume.engine import Adapter, Sleeper
from scaler.consume.engine_http import EngineHttp
from scaler.consume.envoy import Envoy
from scaler.consume.ray_serve import RayServe
from scaler.consume.sglang import SGLang
from scaler.consume.triton import Triton
from scaler.consume.vllm_sleep import VllmSleep
from scaler.value import frozen


class EngineName(StrEnum):
    """How the batch reaches the engine. ``vllm`` asks us itself; ``envoy`` stands in front of one that can't be set."""

    VLLM = "vllm"
    SGLANG = "sglang"
    RAYSERVE = "rayserve"
    TRITON = "triton"
    ENVOY = "envoy"


#: What ``--engine-name`` is of each, where it has one.
NAMES: Mapping[EngineName, str] = {
    EngineName.RAYSERVE: "APPLICATION/DEPLOYMENT",
    EngineName.TRITON: "the model",
    EngineName.ENVOY: "the cluster",
}
#: The preset by which the engine's own metrics are read; behind an Envoy any engine may be.
PRESETS: Mapping[EngineName, str] = {
    EngineName.VLLM: "vllm",
    EngineName.SGLANG: "sglang",
    EngineName.RAYSERVE: "rayserve",
    EngineName.TRITON: "triton",
}


#: Where Triton serves gRPC unless told otherwise, and what is said where it serves none.
TRITON_GRPC_PORT: Final = 8001
OVER_HTTP: Final = "none"


@frozen
class EngineOptions:
    """One engine: where its own HTTP is, and what its adapter needs to know (see :mod:`scaler.consume`).

    Raises ``ValueError`` for what the adapter can't do without; the text names the option.
    """

    engine: EngineName
    url: str = ""
    name: str = ""
    own_batch: int | None = None
    api_key: str | None = None
    admin_key: str | None = None
    reload_seconds: float = 600.0
    grpc: str = ""
    """Triton's gRPC port as HOST:PORT; "": port 8001 where ``url`` is, :data:`OVER_HTTP`: it is loaded over HTTP."""

    def __post_init__(self) -> None:
        if self.engine is EngineName.VLLM:
            return
        if not self.url:
            raise ValueError(f"--engine-url is missing: where {self.engine.value} is asked and set")
        if self.grpc and self.engine is not EngineName.TRITON:
            raise ValueError(f"--engine-grpc is Triton's; leave it out for {self.engine.value}")
        if self.engine in NAMES and not self.name:
            raise ValueError(f"--engine-name is missing: for {self.engine.value} it is {NAMES[self.engine]}")
        if self.engine is EngineName.RAYSERVE:
            application, slash, deployment = self.name.partition("/")
            if not (application and slash and deployment):
                raise ValueError(
                    f"--engine-name {self.name!r} is not APPLICATION/DEPLOYMENT; write for example chat/Model"
                )
            if self.own_batch is None:
                raise ValueError("--own-batch is missing: Ray Serve does not tell what a deployment has without us")


def sleeper_for(options: EngineOptions, session: aiohttp.ClientSession) -> Sleeper | None:
    """What puts the engine to sleep and wakes it; None where it has no sleep, or it is not said where it is asked."""
    if options.engine is EngineName.VLLM and options.url:
        return VllmSleep(EngineHttp(session, options.url))
    return None


def adapter_for(options: EngineOptions, session: aiohttp.ClientSession) -> Adapter | None:
    """The adapter of one engine; None for one that asks for its target itself."""
    http = EngineHttp(session, options.url)
    match options.engine:
        case EngineName.VLLM:
            return None
        case EngineName.SGLANG:
            return SGLang(http, api_key=options.api_key, admin_key=options.admin_key, own_batch=options.own_batch)
        case EngineName.RAYSERVE:
            application, _, deployment = options.name.partition("/")
            assert options.own_batch is not None
            return RayServe(http, application, deployment, own_batch=options.own_batch, api_key=options.api_key)
        case EngineName.TRITON:
            return Triton(http, options.name, grpc=triton_grpc(options))
        case EngineName.ENVOY:
            return Envoy(http, options.name, own_batch=options.own_batch)


def triton_grpc(options: EngineOptions) -> str:
    """Where Triton's models are loaded over gRPC; "": nowhere, over HTTP then."""
    if options.grpc:
        return "" if options.grpc == OVER_HTTP else options.grpc
    host = urlsplit(options.url).hostname or ""
    return f"[{host}]:{TRITON_GRPC_PORT}" if ":" in host else f"{host}:{TRITON_GRPC_PORT}"
