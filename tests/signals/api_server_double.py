"""A small API server: lists, watches and scales as the real one answers them, with what can go wrong on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from kubernetes_asyncio.client import ApiClient, Configuration

from scaler.signals.api_server import ApiServer

SLICES = ("discovery.k8s.io", "endpointslices")
PODS = ("", "pods")

Json = dict[str, Any]


def endpoint(
    host: str, pod: str | None = None, *, ready: bool | None = True, serving: bool | None = None, ending: bool = False
) -> Json:
    """One endpoint of a slice. ``ready=None``: the server left it out."""
    conditions = {"ready": ready, "serving": ready if serving is None else serving, "terminating": ending}
    body: Json = {
        "addresses": [host],
        "conditions": {name: value for name, value in conditions.items() if value is not None},
    }
    if pod is not None:
        body["targetRef"] = {"kind": "Pod", "name": pod, "namespace": "chat"}
    return body


def endpoint_slice(
    service: str, *endpoints: Json, name: str = "", ports: Mapping[str, int] | None = None, family: str = "IPv4"
) -> Json:
    """One EndpointSlice of a Service."""
    named = {"http": 8000} if ports is None else ports
    return {
        "metadata": {"name": name or f"{service}-abc", "labels": {"kubernetes.io/service-name": service}},
        "addressType": family,
        "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in named.items()] or None,
        "endpoints": list(endpoints) or None,
    }


def pod(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    ready: bool = True,
    phase: str = "Running",
    without_node: str = "",
    ending: bool = False,
    hosts: tuple[str, ...] = (),
) -> Json:
    """One pod; ``without_node`` is the scheduler's reason, ``hosts`` its addresses."""
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    if without_node:
        conditions.append({"type": "PodScheduled", "status": "False", "reason": without_node})
    metadata: Json = {"name": name, "labels": {"app": "vllm", **(labels or {})}}
    if ending:
        metadata["deletionTimestamp"] = "2026-06-03T00:00:00Z"
    status: Json = {"phase": phase, "conditions": conditions}
    if hosts:
        status |= {"podIP": hosts[0], "podIPs": [{"ip": host} for host in hosts]}
    return {"metadata": metadata, "status": status}


def scale(asked: int, selector: str = "app=vllm") -> Json:
    """A target's ``/scale``, which has no ``replicas`` where it is 0."""
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "spec": {"replicas": asked} if asked else {},
        "status": {"replicas": asked, "selector": selector},
    }


@dataclass
class ClusterDouble:
    """What the server holds. ``asked`` notes every request as (group, resource, verb)."""

    scales: dict[str, Json] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    silent: bool = False
    page: int = 500
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    selectors: set[str] = field(default_factory=set)
    version: int = 100
    oldest: int = 0
    _objects: dict[tuple[str, str], dict[str, Json]] = field(default_factory=dict)
    _events: list[tuple[int, tuple[str, str], Json]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _watches: set[asyncio.Task[Any]] = field(default_factory=set)

    def put(self, resource: tuple[str, str], *bodies: Json) -> None:
        """Make or change objects."""
        known = self._objects.setdefault(resource, {})
        for body in bodies:
            name = body["metadata"]["name"]
            self._happen(resource, "MODIFIED" if name in known else "ADDED", body)
            known[name] = body

    def delete(self, resource: tuple[str, str], name: str) -> None:
        """Delete an object."""
        self._happen(resource, "DELETED", self._objects[resource].pop(name))

    def forget(self) -> None:
        """Compact: no version so far can be watched from any more."""
        self.version += 1
        self.oldest = self.version
        self._events.clear()
        self.wake()

    def wake(self) -> None:
        """Let every watch look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def drop_watches(self) -> None:
        """Cut every connection of a watch."""
        for watch in self._watches:
            watch.cancel()

    def count(self, resource: tuple[str, str], verb: str) -> int:
        """How often this was asked."""
        return self.asked.count((*resource, verb))

    def _happen(self, resource: tuple[str, str], kind: str, body: Json) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self._events.append((self.version, resource, {"type": kind, "object": json.loads(json.dumps(body))}))
        self.wake()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Every request."""
        before, _, after = request.path.partition("/namespaces/chat/")
        group = "" if before == "/api/v1" else before.split("/")[2]
        resource, _, rest = after.partition("/")
        name = f"{resource}/scale" if rest.endswith("/scale") else resource
        watching = "watch" in request.query
        self.asked.append((group, name, "watch" if watching else "get" if rest else "list"))
        if self.silent:
            await asyncio.sleep(60)
        if name in self.forbidden or "*" in self.forbidden:
            return _status(403, f'{name} is forbidden: User "scaler" cannot do that')
        self.selectors.add(request.query.get("labelSelector", ""))
        if rest:
            body = self.scales.get(rest.removesuffix("/scale"))
            return _status(404, f"{name} not found") if body is None else web.json_response(body)
        return await (self._watch if watching else self._list)(request, (group, resource))

    async def _list(self, request: web.Request, resource: tuple[str, str]) -> web.Response:
        items = [each for _, each in sorted(self._objects.get(resource, {}).items()) if _selected(each, request)]
        start = int(request.query.get("continue", 0))
        metadata = {"resourceVersion": str(self.version)}
        if start + self.page < len(items):
            metadata["continue"] = str(start + self.page)
        return web.json_response({"kind": "List", "metadata": metadata, "items": items[start : start + self.page]})

    async def _watch(self, request: web.Request, resource: tuple[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        sent = int(request.query["resourceVersion"])
        try:
            while True:
                if sent < self.oldest:
                    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                    await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                    return response
                changed = self._changed
                for version, of, event in list(self._events):
                    if version > sent and of == resource and _selected(event["object"], request):
                        await response.write(json.dumps(event).encode() + b"\n")
                sent = self.version
                bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(sent)}}}
                await response.write(json.dumps(bookmark).encode() + b"\n")
                await changed.wait()
        finally:
            self._watches.discard(task)


def _selected(body: Json, request: web.Request) -> bool:
    labels = body["metadata"]["labels"]
    wanted = dict(pair.split("=") for pair in request.query.get("labelSelector", "").split(",") if pair)
    return wanted.items() <= labels.items()


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


@asynccontextmanager
async def api_server(double: ClusterDouble, port: int = 0) -> AsyncIterator[int]:
    """The server on loopback; gives its port."""
    app = web.Application()
    app.router.add_get("/{path:.*}", double.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def client_of(port: int) -> ApiServer:
    """A client of the server on this port; whoever it is given to closes it."""
    return ApiServer(ApiClient(Configuration(host=f"http://127.0.0.1:{port}")))
