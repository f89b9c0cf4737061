"""From what rules to the engine, and from the engine to the scaler."""

from __future__ import annotations

import asyncio

from scaler.agent.engine_follower import EngineFollower
from scaler.agent.ruling import Ruling
from scaler.consume.contract import REPORT_EVERY_SECONDS, AppliedReport
from scaler.consume.engine import Adapter, EngineError
from scaler.consume.envoy import Envoy
from scaler.consume.link import EngineLink
from tests.consume.engine_doubles import EnvoyDouble, serving
from tests.consume.test_link import Clock, Engine


class Follows:
    """A follower of ``engine`` whose ruling a test sets."""

    def __init__(self, engine: Adapter) -> None:
        self.ruling = Ruling()
        self.reports: list[AppliedReport] = []
        self.clock = Clock()
        self.running: int | None = 5
        self.waiting: list[tuple[int, str]] = []
        self.follower = EngineFollower(
            EngineLink(engine, mono=self.clock, look_seconds=1.0, show_seconds=0.0),
            "llama-0",
            lambda: self.ruling,
            mono=self.clock,
            report=self._taken,
            demand=self._waits,
            running=lambda: self.running,
        )

    async def _taken(self, report: AppliedReport) -> bool:
        self.reports.append(report)
        return True

    async def _waits(self, pending: int, source: str) -> bool:
        self.waiting.append((pending, source))
        return True

    async def step(self, seconds: float = 0.0) -> None:
        self.clock.now += seconds
        await self.follower.follow()
        await self.follower.tell()


async def test_what_it_runs_is_told_whoever_set_it() -> None:
    follows = Follows(Engine())
    await follows.step()
    assert follows.reports == [AppliedReport("llama-0", 64, running=5, generation=None)]
    follows.ruling = Ruling(8, 2048, "hold", 7, "target")
    await follows.step(1)
    # What the adapter cannot do (token budget, admission) is not claimed.
    assert follows.reports[1:] == [AppliedReport("llama-0", 8, None, "open", 5, 7)]
    assert follows.follower.changes == 1


async def test_it_is_told_again_in_time_and_not_before() -> None:
    follows = Follows(Engine())
    for _ in range(int(REPORT_EVERY_SECONDS) * 3):
        await follows.step(1)
    assert len(follows.reports) == 3


async def test_what_cannot_be_read_is_not_told() -> None:
    """A report that is not renewed is forgotten by the scaler after 45 s."""
    engine = Engine(breaks=EngineError("gone"))
    follows = Follows(engine)
    for _ in range(60):
        await follows.step(1)
    assert follows.reports == []


async def test_an_engine_that_does_not_follow_has_no_generation() -> None:
    engine = Engine(deaf=True)
    follows = Follows(engine)
    follows.ruling = Ruling(8, None, "open", 7, "target")
    await follows.step()
    assert follows.reports == [AppliedReport("llama-0", 64, running=5, generation=None)]


async def test_a_batch_held_lower_by_the_guard_still_follows_the_target() -> None:
    follows = Follows(Engine())
    follows.ruling = Ruling(4, None, "hold", 7, "guard", may_reload=False)
    await follows.step()
    assert follows.reports == [AppliedReport("llama-0", 4, running=5, generation=7)]


async def test_a_queue_outside_the_engine_is_told_while_there_is_one_and_once_when_not() -> None:
    """Requests that an Envoy keeps waiting: replicas are their cure, and no metric of the engine's shows them."""
    double = EnvoyDouble()
    async with serving(*double.routes()) as http:
        follows = Follows(Envoy(http, "engine", own_batch=64))
        await follows.step(10)
        assert follows.waiting == []
        double.pending = 7
        for _ in range(12):
            await follows.step(1)
        assert follows.waiting == [(7, "llama-0")] * 3
        double.pending = 0
        for _ in range(30):
            await follows.step(1)
        assert follows.waiting == [(7, "llama-0")] * 3 + [(0, "llama-0")]


async def test_an_engine_that_keeps_its_queue_itself_tells_nothing() -> None:
    follows = Follows(Engine())
    for _ in range(30):
        await follows.step(1)
    assert follows.waiting == []


async def test_a_scaler_that_hangs_does_not_hold_back_what_the_guard_wants() -> None:
    follows, hanging = Follows(engine := Engine()), asyncio.Event()

    async def hangs(_: AppliedReport) -> bool:
        await hanging.wait()
        return False

    follows.follower._report = hangs
    running = asyncio.create_task(follows.follower.run())
    try:
        async with asyncio.timeout(60):
            while not follows.follower.followed.batch:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            follows.ruling = Ruling(4, None, "hold", None, "guard", may_reload=False)
            follows.follower.changed()
            while engine.size != 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
