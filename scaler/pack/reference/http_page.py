"""``http.md``: every route of the HTTP port, with what its handler says and the token it needs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry

from scaler.pack.reference.markdown import code, prose, table
from scaler.policy.layers import PolicyFile
from scaler.serve.http import make_app
from scaler.serve.workloads import Workloads

#: What the handlers that are no API say of themselves; its own have docstrings.
_BESIDE_THE_API = {
    "/": "The live page. What it loads is under `/page/`, nothing from elsewhere.",
    "/metrics": "For Prometheus, as text or OpenMetrics: [every metric](metrics.md).",
    "/healthz": "The process answers.",
    "/readyz": "The first round of ticks is complete, and the process is not stopping; else 503.",
}
#: Routes that probes ask, which the read token does not close.
_OPEN = ("/healthz", "/readyz")
_HEAD = """\
# HTTP routes

On the HTTP port (8080). Answers are JSON where nothing else is said; an error is `{"error": "..."}` with what to do
instead. Fields are only added within a major version: ignore those you do not know.

A *push token* is that of `--token-file`: send `Authorization: Bearer TOKEN`. Without one configured nobody can push. A
*read token* (`--read-token-file`) is asked for only where one is configured. What each is for:
[security](../security.md); the target and the report in full: [consume a target](../consume.md).

"""


def http_page() -> str:
    """The page."""
    return _HEAD + table(("route", "token", "what"), _rows())


def _rows() -> Iterator[tuple[str, str, str]]:
    workloads = Workloads(PolicyFile.empty(), tick_seconds=5.0)
    app = make_app(workloads, token=None, registry=CollectorRegistry(), stopping=asyncio.Event())
    for route in app.router.routes():
        path = route.resource.canonical if route.resource is not None else ""
        if route.method == "HEAD" or path.startswith("/page/"):
            continue
        token = "push" if route.method != "GET" else "" if path in _OPEN else "read"
        yield code(f"{route.method} {path}"), token, _BESIDE_THE_API.get(path) or _said(route)


def _said(route: web.AbstractRoute) -> str:
    return prose(inspect.getdoc(route.handler) or "")
