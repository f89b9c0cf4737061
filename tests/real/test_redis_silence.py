"""What two scalers around a real Redis do when it falls silent, to both or to one, within the limits that they have."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from scaler.serve.lease import LEASE_SECONDS
from scaler.serve.ownership import OwnerUnheard
from scaler.serve.workloads import Workload
from tests.real.redis_server import RedisServer, Wire
from tests.real.two_scalers import PUSHED, Scaler, answered, often, owner_and_other, running, until

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)


async def test_nothing_is_forgotten_while_redis_is_away(redis: RedisServer) -> None:
    """The owner hears of no call that comes to others meanwhile."""
    red, green = Scaler(redis), Scaler(redis)

    def forgotten() -> list[Workload]:
        return [each for scaler in (red, green) for each in scaler.workloads.forget_unasked(2.0)]

    async with running(red, green):
        red.workloads.register("prod/m", PUSHED)
        await until(lambda: green.workloads.get("prod/m"))
        redis.signal(signal.SIGSTOP)
        try:
            await until(lambda: red.ownership.deaf and green.ownership.deaf)
            for _ in range(40):
                await asyncio.sleep(0.1)
                assert not forgotten()
        finally:
            redis.signal(signal.SIGCONT)
        await until(lambda: not red.ownership.deaf and not green.ownership.deaf)
        await until(lambda: len(forgotten()) == 1 or not red.workloads.names())


@asynccontextmanager
async def deciding_alone(only: Scaler) -> AsyncIterator[None]:
    """The only scaler, which owns a workload and has decided three replicas for it."""
    async with running(only):
        only.workloads.register("prod/m", PUSHED)
        await until(lambda: only.ownership.owns("prod/m"))
        await only.decide("prod/m", 3)
        yield


async def test_an_owner_that_acts_alone_makes_way_for_one_that_it_had_never_heard_of(redis: RedisServer) -> None:
    """It was the only one, and Redis is silent to it alone. Until it has stopped, nobody takes from it, and nobody
    answers from what lies in Redis.
    """
    wire = Wire(redis.port)
    red, green = Scaler(redis, wire=wire), Scaler(redis)
    async with deciding_alone(red):
        wire.cut()
        await asyncio.sleep(LEASE_SECONDS + 2)
        await red.decide("prod/m", 7)
        assert await answered(red) == 7
        told: list[int] = []
        async with running(green):
            await until(lambda: green.workloads.get("prod/m"))
            while not green.ownership.owns("prod/m"):
                with contextlib.suppress(OwnerUnheard):
                    told.append(await green.replicas("prod/m"))
                assert not (told and red.ownership.owns("prod/m"))
                await asyncio.sleep(0.05)
            assert not red.ownership.owns("prod/m")
            with pytest.raises(OwnerUnheard):
                await red.replicas("prod/m")
    wire.close()


async def test_a_proxy_of_its_own_that_ends_does_not_make_an_owner_go_on_alone(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sidecar that carries TLS to Redis, say: its port refuses one scaler, and the others have Redis as before."""
    wires = Wire(redis.port), Wire(redis.port)
    scalers = []
    for host, wire in zip(("pod-a", "pod-b"), wires, strict=True):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        scalers.append(Scaler(redis, wire=wire))
    async with running(*scalers):
        owner, other = await owner_and_other(*scalers)
        for each in scalers:  # on loopback, where another pod finds its own
            await until(each.ownership._membership.peers.elsewhere)
            await each.ownership._membership.peers.close()
        await owner.decide("prod/m", 1)
        wires[scalers.index(owner)].close()
        since, deadline = math.inf, time.monotonic() + 60
        while time.monotonic() < since + LEASE_SECONDS:
            assert not (owner.ownership.owns("prod/m") and other.ownership.owns("prod/m"))
            assert time.monotonic() < deadline, "nobody has taken it"
            if other.ownership.owns("prod/m"):
                since = min(since, time.monotonic())
            await asyncio.sleep(0.02)
    wires[scalers.index(other)].close()


async def test_an_owner_that_was_cut_off_says_nothing_of_before(redis: RedisServer) -> None:
    """From the moment on in which Redis answers it again, and under constant calls."""
    wire = Wire(redis.port)
    red, green = Scaler(redis, wire=wire), Scaler(redis)
    async with deciding_alone(red), running(green):
        await until(lambda: green.workloads.get("prod/m"))
        wire.cut()
        await until(lambda: green.ownership.owns("prod/m"))
        await green.decide("prod/m", 0, active=False)
        red.workloads.is_current = lambda _: True  # type: ignore[method-assign]  # as little as possible protects it
        workload, told = red.known("prod/m"), []
        wire.mend()
        while 0 not in told:
            snapshot = red.workloads.at_hand(workload)
            if snapshot is None:
                with contextlib.suppress(OwnerUnheard):
                    snapshot = await red.ownership.answer(workload)
            if snapshot is not None:
                told.append(snapshot.decision.targets.replicas)
            await asyncio.sleep(0)
        assert set(told) == {0}
    wire.close()
