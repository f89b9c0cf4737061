"""The HTTP server: the ``/v1`` API, our own ``/metrics``, probes, and the live page."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from importlib import resources

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from scaler.serve.api import Api, ApiError
from scaler.serve.published import PublishedWorkloads

#: The largest body anyone may send.
BODY_BYTES = 64 * 1024
#: Nothing may be loaded but our own three files, and nothing may be asked but our own API.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Server": "loadtide",
}
_PAGE_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(
    workloads: PublishedWorkloads, *, token: str | None, registry: CollectorRegistry, stopping: asyncio.Event
) -> web.Application:
    """The application over ``workloads``.

    ``token``: what gateways must show to push demand; None: nobody can. ``registry``: what ``/metrics`` tells. Setting
    ``stopping`` ends every waiting request and makes ``/readyz`` fail, so that a load balancer looks elsewhere.
    """
    app = web.Application(middlewares=[_errors_as_json], client_max_size=BODY_BYTES)
    app.on_response_prepare.append(_add_headers)
    app.add_routes(Api(workloads, token, stopping).routes())
    app.add_routes([web.get(path, _page(name, kind)) for path, (name, kind) in _PAGE_FILES.items()])

    async def metrics(request: web.Request) -> web.Response:
        return await _exposition(request, registry)

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        if stopping.is_set():
            return web.Response(status=503, text="stopping\n")
        if not workloads.ready:
            return web.Response(status=503, text="the first round of ticks is not complete\n")
        return web.Response(text="ok\n")

    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app


async def start_http(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve ``app``; the port is the one bound, also where 0 asked for any free one. ``runner.cleanup()`` ends it.

    Raises OSError where the address cannot be bound.
    """
    # A client that hangs up while it waits for a target is not waited for.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=5.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError:
        await runner.cleanup()
        raise
    bound: int = runner.addresses[0][1]
    return runner, bound


async def _exposition(request: web.Request, registry: CollectorRegistry) -> web.Response:
    """``/metrics`` in the format asked for. Encoded in a thread: with hundreds of workloads it takes long enough to
    keep KEDA waiting, and a KEDA that waits starves every other ScaledObject.
    """
    try:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    except (ValueError, TypeError):  # a version that is none
        encode, content_type = choose_encoder("")
    zipped = gzip_accepted(request.headers.get("Accept-Encoding", ""))

    def encoded() -> bytes:
        text: bytes = encode(registry)
        return gzip.compress(text, compresslevel=5) if zipped else text

    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=await asyncio.to_thread(encoded), headers=headers)


def _page(name: str, content_type: str) -> Handler:
    body = resources.files("scaler.serve").joinpath("page", name).read_bytes()

    async def page(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type, charset="utf-8")

    return page


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal as ``{"error": ...}``, saying what to do instead."""
    try:
        return await handler(request)
    except ApiError as error:
        return web.json_response(error.document, status=error.status, headers=error.headers)
    except web.HTTPNotFound:
        paths = {route.resource.canonical for route in request.app.router.routes() if route.resource is not None}
        text = f"nothing is at {request.path[:200]}; the routes are listed here"
        return web.json_response({"error": text, "routes": sorted(paths)}, status=404)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        text = f"{error.method} is not for {request.path[:200]}; use {allowed}"
        return web.json_response({"error": text}, status=405, headers={"Allow": allowed})
    except web.HTTPRequestEntityTooLarge:
        return web.json_response({"error": f"the body is larger than {BODY_BYTES} bytes"}, status=413)
    except web.HTTPClientError as error:
        return web.json_response({"error": error.reason}, status=error.status)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_SECURITY_HEADERS)
    response.headers.setdefault("Cache-Control", "no-cache" if request.path in _PAGE_FILES else "no-store")
