"""Stand-ins for engines' own HTTP: the routes that an adapter uses, with what the real ones do that is easy to miss.

Each cites the source it was written from, in words and behaviour of ours.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import grpc
from aiohttp import web

from scaler.consume import triton_repository_pb2 as messages
from scaler.consume.engine_http import EngineHttp


@asynccontextmanager
async def serving(*routes: web.RouteDef, timeout_seconds: float = 30.0) -> AsyncIterator[EngineHttp]:
    """A real server on loopback with these routes, and a client of it."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as session:
            yield EngineHttp(session, url, timeout_seconds=timeout_seconds)
    finally:
        await runner.cleanup()


@dataclass
class SGLangDouble:
    """SGLang 0.5.23 by ``managers/scheduler_components/internal_state.py``, ``entrypoints/http_server.py`` and
    ``utils/auth.py``; with ``old`` 0.4.6 by ``managers/scheduler.py``: other names, and answers that prove nothing.
    """

    ranks: int = 1
    stages: int = 1
    max_running_requests: int = 64
    launched: int | None = None
    old: bool = False
    api_key: str | None = None
    admin_key: str | None = None
    caps: list[int] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)
    running: int = 4
    kv_use: float = 0.3

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """The process begins anew, with its own setting."""
        self.caps = [self.launched or self.max_running_requests // self.stages] * self.ranks

    @property
    def cap(self) -> str:
        return "max_micro_batch_size" if self.old else "pp_max_micro_batch_size"

    def routes(self) -> list[web.RouteDef]:
        info = "/get_server_info" if self.old else "/server_info"
        return [
            web.get(info, self.info),
            web.post("/set_internal_state", self.set),
            web.get("/metrics", self.metrics),
        ]

    async def metrics(self, _request: web.Request) -> web.Response:
        labels = '{model_name="m",tp_rank="0"}'
        lines = {"num_running_reqs": self.running, "num_queue_reqs": 0, "token_usage": self.kv_use}
        counted = {"num_requests_total": 100, "prompt_tokens_total": 900, "generation_tokens_total": 900}
        return web.Response(
            text="".join(f"sglang:{name}{labels} {value}\n" for name, value in (lines | counted).items())
        )

    async def info(self, request: web.Request) -> web.Response:
        if self.api_key and request.headers.get("Authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        effective = {} if self.old else {"effective_max_running_requests_per_dp": self.max_running_requests}
        states = [{self.cap: cap, "last_gen_throughput": 0.0, **effective} for cap in self.caps]
        return web.json_response(
            {self.cap: self.launched, "pp_size": self.stages, "dp_size": self.ranks, "internal_states": states}
        )

    async def set(self, request: web.Request) -> web.Response:
        needed = self.admin_key or self.api_key
        if needed and request.headers.get("Authorization") != f"Bearer {needed}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        asked = (await request.json())["server_args"]
        self.asked.append(asked)
        value = asked.get(self.cap)
        accepted = set(asked) == {self.cap} and 1 <= value <= self.max_running_requests // self.stages
        if accepted:
            self.caps = [value] * self.ranks
        if self.old:  # the tokenizer manager reads an attribute that the answer does not have
            return web.Response(status=500, text="Internal Server Error")
        return web.json_response([accepted] * self.ranks)


@dataclass
class TritonDouble:
    """Triton as a real 2.51 answers (tests/real/test_triton_follows.py), with ``old`` as before 2.43: a load without
    parameters then undoes an override. Later ones do so only if the repository's configuration is ``touched`` since.
    """

    config: dict[str, Any] = field(
        default_factory=lambda: {
            "name": "text",
            "backend": "onnxruntime",
            "max_batch_size": 64,
            "dynamic_batching": {"preferred_batch_size": [16, 64], "max_queue_delay_microseconds": 100},
            "instance_group": [{"name": "text", "kind": "KIND_GPU", "count": 1}],
            "parameters": {"threads": {"string_value": "4"}},
        }
    )
    explicit: bool = True
    old: bool = False
    touched: bool = False
    loads: list[str | None] = field(default_factory=list)
    fails: str = ""
    silent: bool = False

    def __post_init__(self) -> None:
        self.loaded = self._normalised(self.config)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v2/models/text/config", self.tell),
            web.post("/v2/repository/models/text/load", self.load),
        ]

    async def tell(self, _request: web.Request) -> web.Response:
        return web.json_response(self.loaded)

    async def load(self, request: web.Request) -> web.Response:
        body = await request.json()
        status, error = self._load(body["parameters"]["config"] if "parameters" in body else None)
        return web.json_response({"error": error}, status=status) if error else web.Response()

    async def load_over_grpc(
        self, asked: messages.RepositoryModelLoadRequest, context: grpc.aio.ServicerContext
    ) -> messages.RepositoryModelLoadResponse:
        if self.silent:
            await asyncio.sleep(60)
        assert asked.model_name == "text"
        parameters = {name: value.string_param for name, value in asked.parameters.items()}
        status, error = self._load(parameters.get("config"))
        if error:
            codes = {400: grpc.StatusCode.INVALID_ARGUMENT, 503: grpc.StatusCode.UNAVAILABLE}
            await context.abort(codes.get(status, grpc.StatusCode.INTERNAL), error)
        return messages.RepositoryModelLoadResponse()

    @asynccontextmanager
    async def over_grpc(self) -> AsyncIterator[str]:
        """Serve its gRPC on loopback; gives HOST:PORT."""
        method = grpc.unary_unary_rpc_method_handler(
            self.load_over_grpc,
            request_deserializer=messages.RepositoryModelLoadRequest.FromString,
            response_serializer=messages.RepositoryModelLoadResponse.SerializeToString,
        )
        server = grpc.aio.server()
        service = grpc.method_handlers_generic_handler(
            "inference.GRPCInferenceService", {"RepositoryModelLoad": method}
        )
        server.add_generic_rpc_handlers((service,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(0)

    def _load(self, config: str | None) -> tuple[int, str]:
        """The status and what is said of a load that fails; the loaded model then goes on serving."""
        self.loads.append(config)
        if not self.explicit:
            return 503, "explicit model load / unload is not allowed if polling is enabled"
        if config is None and not (self.old or self.touched):
            return 200, ""
        wanted = self.config if config is None else json.loads(config)
        largest = wanted["max_batch_size"]
        if any(size > largest for size in wanted["dynamic_batching"].get("preferred_batch_size", [])):
            return 500, "failed to load 'text', failed to poll from model repository"
        if self.fails:
            return 400, f"load failed for model 'text': version 1 is at UNAVAILABLE state: Internal: {self.fails};"
        self.loaded, self.touched = self._normalised(wanted), False
        return 200, ""

    def _normalised(self, config: dict[str, Any]) -> dict[str, Any]:
        batching = dict(config.get("dynamic_batching", {}))
        if "dynamic_batching" in config:
            batching["preferred_batch_size"] = batching.get("preferred_batch_size") or [config["max_batch_size"]]
            return {**config, "dynamic_batching": batching}
        return dict(config)


@dataclass
class RayServeDouble:
    """Ray Serve 2.60's dashboard: ``PUT`` declares everything, and a change shows a few reads later."""

    deployed: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            "chat": {
                "name": "chat",
                "import_path": "app:chat",
                "route_prefix": "/chat",
                "runtime_env": {"env_vars": {"TOKEN": "s3cret"}},
                "deployments": [{"name": "Model", "num_replicas": 2, "user_config": {"max_batch_size": 64, "top": 1}}],
            },
            "other": {"name": "other", "import_path": "app:other", "route_prefix": "/other", "deployments": []},
        }
    )
    by_code: tuple[str, ...] = ()
    masked: bool = False
    token: str | None = None
    target_capacity: float | None = 50.0
    settles_after: int = 2
    stuck: str = ""
    puts: list[dict[str, Any]] = field(default_factory=list)
    reads: int = 99

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/serve/applications/", self.tell), web.put("/api/serve/applications/", self.declare)]

    def _refused(self, request: web.Request) -> web.Response | None:
        if self.token is None or request.headers.get("Authorization") == f"Bearer {self.token}":
            return None
        return web.Response(status=401, text="Unauthorized: Missing authentication token")

    async def tell(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        self.reads += 1
        status = self.stuck or ("RUNNING" if self.reads > self.settles_after else "DEPLOYING")
        applications = {name: self._details(name, status) for name in self.deployed}
        text = json.dumps(
            {
                "proxy_location": "EveryNode",
                "http_options": {"host": "0.0.0.0", "port": 8000},
                "grpc_options": {"port": 9000},
                "target_capacity": self.target_capacity,
                "proxies": {},
                "applications": applications,
            }
        )
        return web.Response(text=text.replace("s3cret", "<redacted>") if self.masked else text)

    def _details(self, name: str, status: str) -> dict[str, Any]:
        config = self.deployed[name]
        return {
            "name": name,
            "status": status,
            "deployed_app_config": None if name in self.by_code else config,
            "source": "imperative" if name in self.by_code else "declarative",
            "deployments": {
                each["name"]: {
                    "name": each["name"],
                    "status": "HEALTHY" if status == "RUNNING" else "UPDATING",
                    "deployment_config": dict(each),
                }
                for each in config["deployments"]
            },
        }

    async def declare(self, request: web.Request) -> web.Response:
        if refused := self._refused(request):
            return refused
        body = await request.json()
        self.puts.append(body)
        kept = {name: config for name, config in self.deployed.items() if name in self.by_code}
        self.deployed = kept | {config["name"]: config for config in body["applications"]}
        self.target_capacity = body.get("target_capacity")
        self.reads = 0
        return web.Response()


@dataclass
class EnvoyDouble:
    """Envoy 1.39's admin, as a real one answered: see tests/real/test_envoy.py, which asks one."""

    configured: int = 1024
    override: str = ""
    active: int = 3
    pending: int = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/clusters", self.clusters),
            web.get("/runtime", self.runtime),
            web.post("/runtime_modify", self.modify),
        ]

    async def clusters(self, _request: web.Request) -> web.Response:
        limit = int(self.override) if self.override.isdecimal() else self.configured
        default = {"max_connections": limit, "max_pending_requests": 1024}
        high = {"priority": "HIGH", "max_connections": 1024}
        pending = {"value": str(self.pending)} if self.pending else {}
        gauges = [{"name": "rq_active", "value": str(self.active)}, {"name": "rq_pending_active", **pending}]
        hosts = [{"stats": [{"name": "rq_total", "value": "9"}, *gauges]}]
        status = {"name": "engine", "circuit_breakers": {"thresholds": [default, high]}, "host_statuses": hosts}
        return web.json_response({"cluster_statuses": [status]})

    async def runtime(self, _request: web.Request) -> web.Response:
        key = "circuit_breakers.engine.default.max_connections"
        entry = {"layer_values": [self.override], "final_value": self.override}
        return web.json_response({"layers": ["admin"], "entries": {key: entry} if self.override else {}})

    async def modify(self, request: web.Request) -> web.Response:
        self.override = request.query["circuit_breakers.engine.default.max_connections"]
        return web.Response(text="OK\n")
