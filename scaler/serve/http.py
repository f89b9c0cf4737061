"""The HTTP server: the ``/v1`` API, our own ``/metrics``, probes, and the live page."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import PurePath

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from scaler.serve.access import reading_needs
from scaler.serve.api import Api, ApiError
from scaler.serve.exposition import encoded
from scaler.serve.limits import Limits
from scaler.serve.published import PublishedWorkloads

#: The largest body anyone may send.
BODY_BYTES = 64 * 1024
#: How long a client may take to read its answer when we are stopping, seconds; then it is hung up on.
SHUTDOWN_SECONDS = 2.0
#: Lines of metrics are so alike that level 3 leaves 4 % of them; level 5 takes twice as long to leave 3 %.
GZIP_LEVEL = 3
#: Nothing may be loaded but our own files, nothing asked but our own API, and no text may become markup.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Server": "loadtide",
}
_PAGE_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(
    workloads: PublishedWorkloads,
    *,
    token: str | None,
    registry: CollectorRegistry,
    stopping: asyncio.Event,
    read_token: str | None = None,
    limits: Limits = Limits(),  # noqa: B008  a frozen value
) -> web.Application:
    """The application over ``workloads``.

    ``token``: what gateways must show to push demand; None: nobody can. ``read_token``: what readers must show; None:
    nothing. ``registry``: what ``/metrics`` tells. Setting ``stopping`` ends every waiting request and makes
    ``/readyz`` fail, so that a load balancer looks elsewhere.
    """
    middlewares = [_errors_as_json] if read_token is None else [reading_needs(read_token), _errors_as_json]
    app = web.Application(middlewares=middlewares, client_max_size=BODY_BYTES)
    app.on_response_prepare.append(_add_headers)
    app.add_routes(Api(workloads, token, stopping, limits).routes())
    app.add_routes(_page_routes())

    async def metrics(request: web.Request) -> web.Response:
        return await _exposition(request, registry)

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        if stopping.is_set():
            return web.Response(status=503, text="stopping\n")
        if not workloads.ready:
            return web.Response(status=503, text="no round of ticks is complete yet, or Redis was never in reach\n")
        return web.Response(text="ok\n")

    app.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app


async def start_http(
    app: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, int]:
    """Serve ``app``, under TLS where ``tls`` is given; the port is the one bound, also where 0 asked for any free one.
    ``runner.cleanup()`` ends it.

    Raises OSError where the address cannot be bound.
    """
    # A client that hangs up while it waits for a target is not waited for.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
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

    def written() -> bytes:
        text = encoded(encode, registry)
        return gzip.compress(text, compresslevel=GZIP_LEVEL) if zipped else text

    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=await asyncio.to_thread(written), headers=headers)


def _page_routes() -> list[web.RouteDef]:
    """The live page at ``/``; what it loads, under ``/page/``. Read once: a page never mixes two versions of us."""
    routes = []
    for file in resources.files("scaler.serve").joinpath("page").iterdir():
        kind = _PAGE_KINDS.get(PurePath(file.name).suffix)
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/page/{file.name}"
            routes.append(web.get(path, _page(file.read_bytes(), kind)))
    return routes


def _page(body: bytes, content_type: str) -> Handler:
    async def page(_request: web.Request) -> web.Response:
        # Asked for again each time: after an upgrade the next look is at the new page.
        headers = {"Cache-Control": "no-cache"}
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=headers)

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


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_SECURITY_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
