"""The gateways of all workloads, read once for all of them: demand at zero replicas, from the gateways' own metrics.

Hundreds of workloads stand behind one gateway, whose page is large; each takes its own series from one read of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp

from scaler.policy.gateway import Gateway
from scaler.signals.family import PresetError
from scaler.signals.gateway import GatewayHistory, GatewayPage, GatewaySample, fold_gateways, read_gateway
from scaler.signals.gateway_preset import GatewayPreset, load_gateway_preset
from scaler.signals.observation import Demand, ReadFailure
from scaler.signals.scrape import scrape_gateway

#: A page younger than this share of a tick serves another workload too; workloads of one round start within it.
SHARED_SHARE = 0.75

_Page = GatewayPage | ReadFailure


@dataclass(slots=True)
class _Shared:
    begun: float
    page: asyncio.Future[_Page]


class Gateways:
    """Reads gateways and remembers, by workload, what the next read is counted from.

    ``tick_seconds`` is how often each workload asks, ``mono`` gives monotonic seconds.
    """

    def __init__(self, tick_seconds: float, mono: Callable[[], float]) -> None:
        self._shared_seconds = SHARED_SHARE * tick_seconds
        self._mono = mono
        self._pages: dict[tuple[str, str], _Shared] = {}
        self._remembered: dict[str, tuple[Gateway, GatewayHistory]] = {}

    async def demand(
        self, workload: str, config: Gateway, session: aiohttp.ClientSession
    ) -> tuple[Demand | None, Mapping[str, GatewaySample | ReadFailure]]:
        """The demand of ``workload`` as its gateways show it since the last call (None: it has none), and how each of
        them answered. Never raises for a bad gateway.
        """
        if not config.urls:
            self._remembered.pop(workload, None)
            return None, {}
        try:
            preset = load_gateway_preset(config.preset or "")
        except PresetError as error:
            failure = ReadFailure(self._mono(), str(error))
            return fold_gateways(GatewayHistory(), {config.urls[0]: failure})[1], {config.urls[0]: failure}
        pages = await asyncio.gather(*(self._page(url, preset, config.timeout_seconds, session) for url in config.urls))
        reads = {
            url: page if isinstance(page, ReadFailure) else read_gateway(page, preset, config.match, config.exclude)
            for url, page in zip(config.urls, pages, strict=True)
        }
        known, history = self._remembered.get(workload, (config, GatewayHistory()))
        if known != config:  # other labels make other series: their totals say nothing of now
            history = GatewayHistory()
        history, demand = fold_gateways(history, reads)
        self._remembered[workload] = config, history
        return demand, reads

    def forget(self, workload: str) -> None:
        """Drop what is remembered of a workload nobody knows any more."""
        self._remembered.pop(workload, None)

    async def _page(
        self, url: str, preset: GatewayPreset, timeout_seconds: float, session: aiohttp.ClientSession
    ) -> _Page:
        now, key = self._mono(), (preset.name, url)
        shared = self._pages.get(key)
        if shared is None or now - shared.begun >= self._shared_seconds or shared.page.cancelled():
            self._pages = {name: each for name, each in self._pages.items() if now - each.begun < self._shared_seconds}
            read = scrape_gateway(session, url, preset, timeout_seconds, mono=self._mono)
            shared = self._pages[key] = _Shared(now, asyncio.ensure_future(read))
        # Shielded: a workload that is not waited for any longer must not take the page from the others.
        return await asyncio.shield(shared.page)
