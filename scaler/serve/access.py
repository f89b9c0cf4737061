"""Who may read: one token for the API, the page and ``/metrics``, where the operator has set one.

Reading and pushing are two rights with two tokens. A browser has no way to send a bearer token, so the same token is
taken as the password of HTTP's basic scheme, whatever the user's name. Probes are always answered.
"""

from __future__ import annotations

import base64
import hmac

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

#: Answered to anybody: kubelet has no token, and they tell nothing.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_READING = frozenset({"GET", "HEAD"})


def reading_needs(token: str) -> Middleware:
    """A middleware that lets reading requests pass only with ``token``; pushes ask for their own."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method in _READING and request.path not in OPEN_PATHS and not shows(request, token):
            text = "reading needs the read token; send Authorization: Bearer TOKEN (a browser: as the password)"
            challenge = {"WWW-Authenticate": 'Basic realm="loadtide", charset="UTF-8"'}
            return web.json_response({"error": text}, status=401, headers=challenge)
        return await handler(request)

    return check


def shows(request: web.Request, token: str) -> bool:
    """Whether the request carries ``token``, as a bearer token or as a basic password."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    given = given.strip()
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:  # not base64, or not text
            return False
    elif scheme.lower() != "bearer":
        return False
    return is_token(given, token)


def is_token(given: str, token: str) -> bool:
    """Whether a header's text is ``token``, in a time that tells nothing of how much of it is right. A byte that is not
    UTF-8 comes out of a header as a surrogate.
    """
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())
