"""The other side of the API: asking a running scaler, for the command line."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from scaler.policy.addresses import has_login, is_http_url, no_url, shown_url
from scaler.signals.http_body import trouble

#: Nobody waits longer than this at a prompt, seconds.
PATIENCE_SECONDS = 10.0


class ScalerUnreachable(Exception):  # noqa: N818 -- it says what is so
    """The scaler could not be asked; the text names the URL and what to do."""


async def fetch_workload(url: str, workload: str, read_token: str | None = None) -> dict[str, Any]:
    """The ``/v1/workloads/{ns}/{name}`` document of ``workload`` (``namespace/name``) from the scaler at ``url``, shown
    ``read_token`` where one is given.

    Raises :class:`ScalerUnreachable` in words for a person.
    """
    return await _answer("GET", _address(url, workload), read_token)


async def put_override(url: str, workload: str, token: str | None, wanted: dict[str, Any]) -> dict[str, Any]:
    """Set the override ``wanted`` (the body of ``PUT .../override``); the scaler's answer. Raises as
    :func:`fetch_workload`.
    """
    return await _answer("PUT", f"{_address(url, workload)}/override", token, wanted)


async def end_override(url: str, workload: str, token: str | None) -> dict[str, Any]:
    """End the workload's override; the scaler's answer. Raises as :func:`fetch_workload`."""
    return await _answer("DELETE", f"{_address(url, workload)}/override", token)


def _address(url: str, workload: str) -> str:
    if workload.count("/") != 1 or not all(workload.split("/")):
        raise ScalerUnreachable(f"{workload!r} is no workload; write the ScaledObject's namespace/name")
    if not is_http_url(url):
        raise ScalerUnreachable(f"--url: {no_url(url, 'http://127.0.0.1:8080')}")
    return f"{url.rstrip('/')}/v1/workloads/{workload}"


async def _answer(method: str, address: str, token: str | None, body: dict[str, Any] | None = None) -> dict[str, Any]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    shown = shown_url(address)
    if token is not None and has_login(address):
        raise ScalerUnreachable(f"{shown}: a token and a URL with user and password; a request shows one, so leave one")
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_SECONDS), headers=headers) as session,
            session.request(method, address, json=body) as response,
        ):
            document = await response.json()
            if response.status == 200:
                return dict(document)
            raise ScalerUnreachable(f"{shown}: {document.get('error', f'HTTP {response.status}')}")
    except (json.JSONDecodeError, aiohttp.ContentTypeError, AttributeError) as error:
        raise ScalerUnreachable(f"{shown}: no loadtide answers there; is --url right?") from error
    except TimeoutError as error:
        what = f"no answer within {PATIENCE_SECONDS:g} s"
        raise ScalerUnreachable(f"{shown}: {what}. Is `loadtide serve` running there? See --url") from error
    except (aiohttp.ClientError, OSError, UnicodeError) as error:
        raise ScalerUnreachable(f"{shown}: {trouble(error)}. Is `loadtide serve` running there? See --url") from error
