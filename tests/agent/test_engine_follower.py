"""From what rules to the engine, and from the engine to the scaler."""

from __future__ import annotations

from scaler.agent.engine_follower import EngineFollower
from scaler.agent.ruling import Ruling
from scaler.consume.contract import REPORT_EVERY_SECONDS, AppliedReport
from scaler.consume.engine import EngineError
from scaler.consume.link import EngineLink
from tests.consume.test_link import Clock, Engine


class Follows:
    """A follower of ``engine`` whose ruling a test sets."""

    def __init__(self, engine: Engine) -> None:
        self.ruling = Ruling()
        self.reports: list[AppliedReport] = []
        self.clock = Clock()
        self.running: int | None = 5
        self.follower = EngineFollower(
            EngineLink(engine, mono=self.clock, show_seconds=0.0),
            "llama-0",
            lambda: self.ruling,
            mono=self.clock,
            report=self._taken,
            running=lambda: self.running,
        )

    async def _taken(self, report: AppliedReport) -> bool:
        self.reports.append(report)
        return True

    async def step(self, seconds: float = 0.0) -> None:
        self.clock.now += seconds
        await self.follower.step()


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
