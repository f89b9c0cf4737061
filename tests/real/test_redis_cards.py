"""A shared card with two scalers around a real Redis: one decides all of it, and another goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from scaler.policy.layers import PolicyFile
from scaler.serve.keeper import SharedOwnership
from scaler.serve.loop import Loop
from scaler.serve.redis_link import RedisLink
from scaler.serve.snapshot import Snapshot
from scaler.serve.store import MemoryStore, StoredWorkload
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.observation import Demand, Observation
from tests.real.redis_server import RedisServer
from tests.real.two_scalers import often, unhurried, until
from tests.serve.test_cards import POLICY
from tests.signals.timeline import pod

pytestmark = pytest.mark.real

NAMES = ("card/a", "card/b")


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)
    unhurried(monkeypatch)


class Scaler:
    """One scaler whose readings are the test's; ``told`` has every part that was written, by whomever, in order."""

    def __init__(self, redis: RedisServer, told: list[tuple[str, float, float]]) -> None:
        self.workloads = Workloads(PolicyFile.parse("policy.yaml", POLICY.format(engine="vllm")), tick_seconds=5.0)
        self.ownership = SharedOwnership(self.workloads, RedisLink(redis.url), steady_seconds=600.0)
        self.workloads.ownership = self.ownership
        self.loop = Loop(self.workloads, MemoryStore())
        self._told, self._write = told, self.ownership.publish
        self.ownership.publish = self._publish  # type: ignore[method-assign]
        self.finished = 0

    async def _publish(self, workload: Workload, snapshot: Snapshot, stored: Callable[[], StoredWorkload]) -> None:
        await self._write(workload, snapshot, stored)
        card = snapshot.decision.next_memory.card
        assert card is not None
        self._told.append((workload.name, card.time, card.memory))

    def of(self, name: str) -> Workload:
        workload = self.workloads.get(name)
        assert workload is not None
        return workload

    def owns_all(self) -> bool:
        return all(self.ownership.owns(name) for name in NAMES)

    def batch(self, name: str) -> int | None:
        snapshot = self.of(name).snapshot
        return None if snapshot is None else snapshot.decision.targets.batch

    async def judge(self, name: str, ahead: float, running: float = 0, pending: float = 0) -> None:
        """A reading of one workload, ``ahead`` seconds further on than the clock has come."""
        at = self.workloads.mono() + ahead
        self.finished += running > 0
        sample = pod(
            running=running, waiting=0, kv_use=0.1, awake_engines=1,
            finished={name: float(self.finished if running else 0)},
        )  # fmt: skip
        page = {f"http://{name[-1]}/metrics": replace(sample, at=at)}
        await self.loop._judge(self.of(name), Observation(at, page, demand=Demand(at, pending, False)))


async def test_one_scaler_decides_all_of_a_card_and_its_successor_goes_on_from_its_parts(redis: RedisServer) -> None:
    told: list[tuple[str, float, float]] = []
    red, green = Scaler(redis, told), Scaler(redis, told)
    for each in (red, green):
        await each.ownership.start()
    try:
        await until(lambda: red.owns_all() or green.owns_all())  # never one each, for good
        owner, other = (red, green) if red.owns_all() else (green, red)
        for step in range(3):
            await owner.judge("card/a", 5.0 * step, running=30)
            await owner.judge("card/b", 5.0 * step)
        assert (owner.batch("card/a"), owner.batch("card/b")) == (62, 2)
        await until(lambda: (other.batch("card/a"), other.batch("card/b")) == (62, 2))

        await owner.ownership.stop()
        await until(other.owns_all)
        assert other.of("card/a").memory.card == owner.of("card/a").memory.card
        await other.judge("card/b", 0.0, pending=1)
        assert (other.batch("card/a"), other.batch("card/b")) == (32, 32)
    finally:
        for each in (red, green):
            await each.ownership.stop()
    parts: dict[str, tuple[float, float]] = {}
    for name, time, memory in told:
        parts[name] = time, memory
        assert max(sum(each) for each in zip(*parts.values(), strict=True)) <= 1.0 + 1e-9
