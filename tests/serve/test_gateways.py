"""One read of a gateway serves every workload behind it, and each is told its own demand once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import web

from scaler.control.decide import decide
from scaler.control.model import Decision, Memory, Now, Targets
from scaler.policy.gateway import Gateway
from scaler.policy.layers import PolicyFile
from scaler.policy.texts import Texts
from scaler.serve.gateways import Gateways
from scaler.serve.observe import Observer
from scaler.serve.workloads import Workloads
from scaler.signals.gateway import GatewaySample
from scaler.signals.observation import ReadFailure
from scaler.signals.window import History, fold
from tests.signals.test_scrape import serving


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Envoy:
    """An Envoy that counts how often its page is read."""

    def __init__(self) -> None:
        self.reads = 0
        self.refused = 0
        self.waiting = 1

    async def page(self, _: web.Request) -> web.Response:
        self.reads += 1
        await asyncio.sleep(0.01)
        lines = [
            f'envoy_cluster_upstream_rq_pending_active{{envoy_cluster_name="{name}"}} {pending}\n'
            f'envoy_cluster_upstream_cx_none_healthy{{envoy_cluster_name="{name}"}} {self.refused}\n'
            for name, pending in (("a", self.waiting), ("b", 2 * self.waiting))
        ]
        return web.Response(text="".join(lines))


def behind(url: str, name: str) -> Gateway:
    return Gateway(preset="envoy", urls=(url,), match=Texts({"envoy_cluster_name": name}))


async def test_one_read_serves_every_workload_of_a_tick_and_each_refusal_counts_once() -> None:
    clock, envoy = Clock(), Envoy()
    gateways = Gateways(5.0, clock)
    async with serving(envoy.page) as url, aiohttp.ClientSession() as session:

        async def tick(name: str) -> float | None:
            demand, reads = await gateways.demand(f"ns/{name}", behind(url, name), session)
            assert isinstance(reads[url], GatewaySample)
            assert demand is not None
            return demand.pending

        assert await asyncio.gather(tick("a"), tick("b"), tick("a")) == [1.0, 2.0, 1.0]
        assert envoy.reads == 1
        clock.now, envoy.refused = 5.0, 3
        assert await asyncio.gather(tick("a"), tick("b")) == [4.0, 5.0]
        assert envoy.reads == 2
        assert await tick("a") == 1.0  # asked again within the tick: the same page says nothing new
        assert envoy.reads == 2


async def test_a_workload_that_stops_waiting_does_not_take_the_page_from_others() -> None:
    gateways, envoy = Gateways(5.0, Clock()), Envoy()
    async with serving(envoy.page) as url, aiohttp.ClientSession() as session:
        first = asyncio.create_task(gateways.demand("ns/a", behind(url, "a"), session))
        second = asyncio.create_task(gateways.demand("ns/b", behind(url, "b"), session))
        await asyncio.sleep(0)
        first.cancel()
        demand, _ = await second
        with pytest.raises(asyncio.CancelledError):
            await first
    assert demand is not None
    assert (demand.pending, envoy.reads) == (2.0, 1)


async def test_other_labels_begin_anew() -> None:
    clock, envoy = Clock(), Envoy()
    gateways = Gateways(5.0, clock)
    async with serving(envoy.page) as url, aiohttp.ClientSession() as session:
        await gateways.demand("ns/a", behind(url, "a"), session)
        clock.now, envoy.refused = 5.0, 1000
        demand, _ = await gateways.demand("ns/a", behind(url, "b"), session)
    assert demand is not None
    assert demand.pending == 2.0


async def test_no_gateway_is_no_demand_and_one_that_fails_is_unknown() -> None:
    gateways = Gateways(5.0, Clock())
    async with aiohttp.ClientSession() as session:
        assert await gateways.demand("ns/a", Gateway(), session) == (None, {})
        demand, reads = await gateways.demand("ns/a", behind("http://127.0.0.1:9/", "a"), session)
        assert demand is not None
        assert demand.pending is None
        assert isinstance(reads["http://127.0.0.1:9/"], ReadFailure)
        wrong = Gateway(preset="nginx", urls=("http://127.0.0.1:9/",))
        demand, _ = await gateways.demand("ns/a", wrong, session)
        assert demand is not None
        assert "gateway 'nginx' is not known" in demand.reason


POLICY = """
workloads:
  ai/chat:
    engine: vllm
    scrape: {{urls: ["{replica}"]}}
    gateway:
      preset: envoy
      urls: ["{envoy}"]
      match: {{envoy_cluster_name: a}}
    replicas: {{min: 0, max: 4}}
"""


async def test_a_refused_request_wakes_a_workload_at_zero() -> None:
    """From the gateway's page to the decision, with nothing between left out (G2-03 d)."""
    clock, envoy = Clock(), Envoy()
    async with serving(envoy.page) as url, aiohttp.ClientSession() as session:
        file = PolicyFile.parse("policy.yaml", POLICY.format(replica="http://127.0.0.1:9/metrics", envoy=url))
        workloads = Workloads(file, tick_seconds=5.0, mono=clock)
        workload = workloads.get("ai/chat")
        assert workload is not None
        policy, observer = workload.resolved.policy, Observer(workloads)
        history, memory = History(), Memory(targets=Targets(replicas=0, batch=None, active=False))

        async def tick(at: float) -> Decision:
            nonlocal history, memory
            clock.now = at
            observation = await observer(workload, session, clock)
            history, signals = fold(history, observation, at, policy, interval_seconds=5.0)
            decision = decide(policy, memory, signals, Now(datetime(2026, 1, 1, tzinfo=UTC), at))
            memory = decision.next_memory
            return decision

        envoy.waiting = 0
        assert not (await tick(0.0)).targets.active
        assert not (await tick(5.0)).targets.active
        envoy.refused = 4
        decision = await tick(10.0)
    assert decision.targets.active
    assert decision.targets.replicas == 1
