"""The rung that rules, brought to the engine, and told to the scaler."""

from __future__ import annotations

import asyncio

from scaler.agent.local_guard import LocalGuard
from scaler.agent.ruling import Ruling, rule
from scaler.agent.rung_follower import RungFollower
from scaler.consume.contract import REPORT_EVERY_SECONDS, REPORT_LASTS_SECONDS, AppliedReport
from scaler.consume.engine import EngineSleep
from scaler.consume.rung_link import RungLink
from tests.agent.test_ruling import target
from tests.consume.test_link import Clock


class Sleeper:
    engine = "double"

    def __init__(self) -> None:
        self.level: int | None = None

    async def look(self) -> EngineSleep:
        return EngineSleep(self.level is not None, self.level, 0)

    async def sleep(self, level: int) -> None:
        self.level = level

    async def wake(self, level: int | None) -> None:
        self.level = None


class Follows:
    def __init__(self) -> None:
        self.ruling, self.clock, self.engine = Ruling(), Clock(), Sleeper()
        self.reports: list[AppliedReport] = []
        self.follower = RungFollower(
            RungLink(self.engine, mono=self.clock),
            "llama-0",
            lambda: self.ruling,
            mono=self.clock,
            report=self._taken,
        )

    async def _taken(self, report: AppliedReport) -> bool:
        self.reports.append(report)
        return True

    async def step(self, rung: str = "awake", seconds: float = 0.0) -> None:
        self.clock.now += seconds
        self.ruling = Ruling(rung=rung, sleep_level=2)  # type: ignore[arg-type]
        await self.follower.follow()
        await self.follower.tell()


async def test_it_goes_to_sleep_at_the_level_told_and_wakes_and_says_both_at_once() -> None:
    follows = Follows()
    await follows.step()
    await follows.step("asleep", 1)
    assert follows.engine.level == 2
    await follows.step("awake", 1)
    assert follows.engine.level is None
    assert [report.rung for report in follows.reports] == ["awake", "asleep", "awake"]
    assert follows.reports[-1].wake_seconds == 0.0
    assert follows.follower.changes == 2


async def test_it_is_told_again_in_time_and_not_before() -> None:
    follows = Follows()
    for _ in range(int(REPORT_EVERY_SECONDS) * 3):
        await follows.step("awake", 1)
    assert len(follows.reports) == 3


async def test_where_the_plugin_reports_the_rung_goes_along_and_nothing_takes_its_place() -> None:
    follows = Follows()
    await follows.step("asleep")
    plugins = AppliedReport("llama-0", 32, 2048, "open", 0, 7)
    completed = follows.follower.completed(plugins)
    assert (completed.batch_size, completed.generation, completed.rung) == (32, 7, "asleep")
    told = len(follows.reports)
    await follows.step("asleep", REPORT_EVERY_SECONDS)
    assert len(follows.reports) == told
    await follows.step("awake", 1)  # news: told at once, with what the plugin said last
    assert (follows.reports[-1].batch_size, follows.reports[-1].rung) == (32, "awake")
    await follows.step("awake", REPORT_LASTS_SECONDS + 1)  # the plugin is gone
    assert (follows.reports[-1].batch_size, follows.reports[-1].rung) == (None, "awake")


def test_without_a_target_the_engine_is_awake() -> None:
    asleep = target(8, rung="asleep", sleep_level=1)
    assert (rule(asleep, LocalGuard()).rung, rule(asleep, LocalGuard()).sleep_level) == ("asleep", 1)
    assert rule(None, LocalGuard()).rung == "awake"
    assert rule(asleep, LocalGuard()).tag != rule(target(8), LocalGuard()).tag


async def test_at_the_end_it_is_woken() -> None:
    follows = Follows()
    await follows.step("asleep")
    await follows.follower.release(1.0)
    assert follows.engine.level is None


async def test_a_scaler_that_hangs_does_not_hold_back_a_wake() -> None:
    follows, hanging = Follows(), asyncio.Event()

    async def hangs(_: AppliedReport) -> bool:
        await hanging.wait()
        return False

    follows.follower._report = hangs
    running = asyncio.create_task(follows.follower.run())
    try:
        async with asyncio.timeout(60):
            for rung, level in (("asleep", 2), ("awake", None)):
                follows.ruling = Ruling(rung=rung, sleep_level=2)  # type: ignore[arg-type]
                follows.follower.changed()
                while follows.engine.level != level:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
