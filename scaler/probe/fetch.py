"""Reading the URL that is probed: one page, with the headers a person gave, within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp

from scaler.signals.http_body import HEADERS, RefusedError, refuse_redirect, trouble, whole_body
from scaler.signals.scrape import LARGEST_BODY_BYTES


class UnreachableError(Exception):
    """Nobody answers there; the text says why, for a person."""


async def fetch_page(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], timeout_seconds: float
) -> str:
    """The whole body at ``url``.

    Raises :class:`UnreachableError` where nobody answers, :class:`~scaler.signals.http_body.RefusedError` for an answer
    that is no page (a redirect, any status but 200, a cut body).
    """
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            session.get(
                url,
                headers={**HEADERS, "Accept": "text/plain;version=0.0.4,*/*;q=0.1", **headers},
                allow_redirects=False,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None),  # the limit is ours, around all of this
            ) as response,
        ):
            refuse_redirect(response)
            if response.status != 200:
                raise RefusedError(f"HTTP {response.status}")
            return (await whole_body(response, LARGEST_BODY_BYTES)).decode("utf-8", errors="replace")
    except TimeoutError as error:
        raise UnreachableError(f"timed out after {timeout_seconds:g} s") from error
    except (aiohttp.ClientError, OSError, UnicodeError) as error:
        raise UnreachableError(trouble(error)) from error
