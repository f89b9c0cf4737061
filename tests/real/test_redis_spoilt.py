"""Two scalers around a real Redis in which somebody has spoilt a value: it costs itself, and is written again."""

from __future__ import annotations

import contextlib

import pytest

from scaler.serve.ownership import OwnerUnheard
from tests.real.redis_server import RedisServer
from tests.real.two_scalers import PUSHED, Scaler, often, owner_and_other, running, unhurried, until

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _pace(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)
    unhurried(monkeypatch)


@pytest.mark.parametrize(
    "damage",
    [
        "HSET loadtide:{prod/m} token many",
        "HSET loadtide:{prod/m} token nan",
        "HSET loadtide:{prod/m} token inf",
        "HSET loadtide:{prod/m} version 7",
        "HSET loadtide:{prod/m} at yesterday",
        "HSET loadtide:{prod/m} memory_at then",
        "HSET loadtide:{prod/m} memory {",
        "HSET loadtide:{prod/m} snapshot {",
        "HSET loadtide:{prod/m}:demand wake now",
        "HSET loadtide:workloads prod/m [1]",
        "HSET loadtide:workloads nobody {}",
        "HSET loadtide:asked prod/m soon",
        "HSET loadtide:overrides prod/m {",
        "SET loadtide:{prod/m} 1",
        "SET loadtide:{prod/m}:demand 1",
        "SET loadtide:workloads 1",
        "SET loadtide:asked 1",
        "SET loadtide:overrides 1",
        "SET loadtide:members 1",
    ],
)
async def test_a_value_that_somebody_spoilt_costs_itself_and_is_written_again(redis: RedisServer, damage: str) -> None:
    red, green = Scaler(redis), Scaler(redis)

    async def answers(scaler: Scaler) -> int | None:
        with contextlib.suppress(OwnerUnheard):
            told = await scaler.ownership.answer(scaler.known("prod/m"))
            return None if told is None else told.decision.targets.replicas
        return None

    async with running(red, green):
        owner, other = await owner_and_other(red, green)
        await owner.decide("prod/m", 5)
        assert redis.said(f"{damage}\r\n".encode())[:1] in b"+:"
        other.workloads.register("prod/late", PUSHED)
        await until(lambda: owner.workloads.get("prod/late"))
        await until(lambda: owner.ownership.owns("prod/late") or other.ownership.owns("prod/late"))
        await until(lambda: owner.ownership.owns("prod/m"))

        async def decided() -> bool:
            await owner.decide("prod/m", 6)
            return await answers(other) == 6

        await until(decided)

        assert redis.said(f"{damage}\r\n".encode())[:1] in b"+:"
        await owner.ownership.stop()
        await until(lambda: other.ownership.owns("prod/m"))
        await other.decide("prod/m", 7)
        await until(lambda: other.ownership.trouble is None)
        assert await answers(other) == 7
