"""The embedded source: reads ``/metrics`` of engines, gateways and DCGM exporters over HTTP, all endpoints at once.

An endpoint that cannot be read *whole* gives a :class:`ReadFailure` and nothing else: half a body looks like less load.
Nothing an endpoint sends can hold a tick longer than its time limit or fill the memory.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

import aiohttp

from scaler.policy.model import Gateway, Scrape
from scaler.signals.dcgm import read_text
from scaler.signals.dcgm_gpus import DcgmGpus
from scaler.signals.exposition import ExpositionError
from scaler.signals.gateway import GatewayPage, GatewaySample, read_gateway, read_page
from scaler.signals.gateway_preset import GatewayPreset
from scaler.signals.http_body import HEADERS, RefusedError, refuse_redirect, trouble, whole_body
from scaler.signals.observation import EngineSample, ReadFailure
from scaler.signals.preset import Preset
from scaler.signals.reading import read_engine
from scaler.signals.tls import TlsFiles
from scaler.value import frozen

#: A larger body is refused, counted after decompression. A real engine's is 50 kB.
LARGEST_BODY_BYTES: Final = 32 * 1024 * 1024

_HEADERS: Final = {**HEADERS, "Accept": "text/plain;version=0.0.4,text/plain;q=0.5,*/*;q=0.1"}


class _Verified(NamedTuple):
    """How an https page is verified: True for the system's way, and the name its certificate must have (None: the
    URL's host).
    """

    context: ssl.SSLContext | bool
    server_name: str | None


_SYSTEM: Final = _Verified(True, None)

#: What was made of each declaration's files, for all who read by it: they are read anew when they change.
_files_of = lru_cache(maxsize=1024)(TlsFiles)


async def scrape(
    session: aiohttp.ClientSession,
    config: Scrape,
    preset: Preset,
    *,
    mono: Callable[[], float],
    unix: Callable[[], float],
) -> dict[str, EngineSample | ReadFailure]:
    """Read every URL of ``config`` once, all together; the answer has an entry for each, in their order.

    ``mono`` and ``unix`` are the clocks (seconds). Each endpoint has ``timeout_seconds`` for connecting, waiting and
    reading together (waiting for a free connection of the session's pool included: give it ``limit=0``). An https page
    is verified as ``config`` says, whoever reads it.
    Never raises for a bad endpoint; cancellation goes through.
    """

    def understood(body: str, at: float, seconds: float) -> EngineSample:
        return read_engine(body, preset, at, model_name=config.model_name, now_unix=unix(), seconds=seconds)

    try:
        verified = _Verified(_files_of(config.tls).context(), config.tls_server_name) if config.https else _SYSTEM
    except RefusedError as error:
        return dict.fromkeys(config.urls, ReadFailure(mono(), str(error)))
    pages = (_page(session, url, config.timeout_seconds, understood, mono, verified) for url in config.urls)
    return dict(zip(config.urls, await asyncio.gather(*pages), strict=True))


async def scrape_gateway(
    session: aiohttp.ClientSession,
    url: str,
    preset: GatewayPreset,
    timeout_seconds: float,
    *,
    mono: Callable[[], float],
) -> GatewayPage | ReadFailure:
    """Read one gateway's page, as :func:`scrape` reads an engine's."""

    def understood(body: str, at: float, seconds: float) -> GatewayPage:
        return read_page(body, preset, at, seconds)

    return await _page(session, url, timeout_seconds, understood, mono)


async def scrape_gateways(
    session: aiohttp.ClientSession, config: Gateway, preset: GatewayPreset, *, mono: Callable[[], float]
) -> dict[str, GatewaySample | ReadFailure]:
    """Read every gateway of ``config`` once, all together, for one workload."""
    reads = (scrape_gateway(session, url, preset, config.timeout_seconds, mono=mono) for url in config.urls)
    pages = zip(config.urls, await asyncio.gather(*reads), strict=True)
    return {
        url: page if isinstance(page, ReadFailure) else read_gateway(page, preset, config.match, config.exclude)
        for url, page in pages
    }


@frozen
class Exporter:
    """What one DCGM exporter said (the GPUs of its node), or a Prometheus of all that it scrapes, at monotonic time
    ``at``. ``seconds`` is how long reading that took.
    """

    at: float
    gpus: DcgmGpus
    seconds: float = 0.0


async def scrape_dcgm(
    session: aiohttp.ClientSession,
    url: str,
    timeout_seconds: float,
    *,
    mono: Callable[[], float],
    unix: Callable[[], float],
) -> Exporter | ReadFailure:
    """Read one DCGM exporter's page, as :func:`scrape` reads an engine's."""

    def understood(body: str, at: float, seconds: float) -> Exporter:
        return Exporter(at, DcgmGpus(read_text(body, unix())), seconds)

    return await _page(session, url, timeout_seconds, understood, mono)


_Read = TypeVar("_Read")


async def _page(
    session: aiohttp.ClientSession,
    url: str,
    timeout_seconds: float,
    understood: Callable[[str, float, float], _Read],
    mono: Callable[[], float],
    verified: _Verified = _SYSTEM,
) -> _Read | ReadFailure:
    """What ``understood`` makes of one page's body, the time it was read at and how many seconds that took."""
    began = mono()
    try:
        async with asyncio.timeout(timeout_seconds):
            body = await _body(session, url, verified)
        at = mono()
        return understood(body, at, at - began)
    except TimeoutError:
        reason = f"timed out after {timeout_seconds:g} s"
    except (RefusedError, ExpositionError) as error:
        reason = str(error)
    except (aiohttp.ClientError, OSError, UnicodeError) as error:
        reason = trouble(error)
    failed = mono()
    return ReadFailure(at=failed, reason=reason, seconds=failed - began)


async def _body(session: aiohttp.ClientSession, url: str, verified: _Verified) -> str:
    """The whole body of a 200 answer, decompressed. Bytes that are not UTF-8 are replaced: they cost their own line."""
    async with session.get(
        url,
        headers=_HEADERS,
        ssl=verified.context,
        server_hostname=verified.server_name,
        allow_redirects=False,
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),  # the limit is ours, around all of this
    ) as response:
        refuse_redirect(response)
        if response.status != 200:
            raise RefusedError(f"HTTP {response.status}")
        return (await whole_body(response, LARGEST_BODY_BYTES)).decode("utf-8", errors="replace")
