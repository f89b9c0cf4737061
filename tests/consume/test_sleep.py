"""An engine put to sleep and woken through its own routes, and kept on the rung that is wanted."""

from __future__ import annotations

import pytest
from aiohttp import web

from scaler.consume.engine import EngineError, NoSleepError
from scaler.consume.rung_link import AGAIN_SECONDS, LOOK_SECONDS, RungLink
from scaler.consume.vllm_sleep import VllmSleep
from tests.consume.engine_doubles import serving
from tests.consume.sleeping_vllm import SleepingVllm
from tests.consume.test_link import Clock


@pytest.mark.parametrize("level", [1, 2])
async def test_it_sleeps_at_the_level_that_is_wanted_and_tells_it(level: int) -> None:
    engine = SleepingVllm()
    async with serving(*engine.routes()) as http:
        sleeper = VllmSleep(http)
        seen = await sleeper.look()
        assert (seen.asleep, seen.level, seen.busy) == (False, None, 0)
        await sleeper.sleep(level)
        seen = await sleeper.look()
        assert (seen.asleep, seen.level) == (True, level)
        assert engine.asked == [f"/sleep?level={level}&mode=keep"]


async def test_after_level_2_the_weights_are_read_again_before_anything_is_computed() -> None:
    engine = SleepingVllm()
    async with serving(*engine.routes()) as http:
        sleeper = VllmSleep(http)
        await sleeper.sleep(2)
        engine.arrives()
        await sleeper.wake((await sleeper.look()).level)
        assert engine.asked[1:] == ["/wake_up?tags=weights", "reload_weights", "/wake_up?tags=kv_cache"]
        assert not engine.asleep
        assert not engine.computed_on_nothing


@pytest.mark.parametrize(("level", "stats", "reads_weights"), [(0, True, False), (1, True, False), (2, False, True)])
async def test_weights_are_read_again_where_they_are_gone_or_may_be(
    level: int, stats: bool, reads_weights: bool
) -> None:
    engine = SleepingVllm(stats=stats)
    async with serving(*engine.routes()) as http:
        sleeper = VllmSleep(http)
        await sleeper.sleep(level)
        await sleeper.wake((await sleeper.look()).level)
        assert ("reload_weights" in engine.asked) is reads_weights
        assert not engine.asleep


async def test_a_version_that_computes_in_its_sleep_is_not_put_to_sleep() -> None:
    engine = SleepingVllm(version="0.16.2")
    async with serving(*engine.routes()) as http:
        with pytest.raises(EngineError, match=r"0\.16 does not hold requests back"):
            await VllmSleep(http).sleep(1)
        assert engine.asked == []


async def test_a_server_without_the_routes_says_how_it_is_started_with_them() -> None:
    async with serving(*SleepingVllm(dev_mode=False).routes()) as http:
        with pytest.raises(NoSleepError, match="VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode"):
            await VllmSleep(http).look()


async def test_a_server_without_the_routes_is_awake_and_is_trouble_only_where_sleep_is_wanted() -> None:
    async with serving(*SleepingVllm(dev_mode=False).routes()) as http:
        link = RungLink(VllmSleep(http), mono=Clock())
        slept = await link.follow("awake")
        assert (slept.rung, slept.trouble) == ("awake", "")
        slept = await link.follow("asleep")
        assert slept.rung == "awake"
        assert "VLLM_SERVER_DEV_MODE" in slept.trouble


@pytest.mark.parametrize("load", [{"running": 1}, {"waiting": 2}, {"stats": False}])
async def test_an_engine_with_requests_or_that_does_not_tell_is_not_put_to_sleep(load: dict[str, int]) -> None:
    engine, clock = SleepingVllm(**load), Clock()
    async with serving(*engine.routes()) as http:
        link = RungLink(VllmSleep(http), mono=clock)
        slept = await link.follow("asleep")
        assert slept.rung == "awake"
        assert "not put to sleep" in slept.trouble
        assert engine.asked == []
        engine.running, engine.waiting, engine.stats = 0, 0, True
        clock.now += AGAIN_SECONDS
        assert (await link.follow("asleep")).rung == "asleep"


RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"


@pytest.mark.parametrize(
    "page",
    [
        f'{RUNNING}{{engine="0"}} NaN\n{WAITING}{{engine="0"}} 0.0\n',
        f'{RUNNING}{{engine="0"}} 0.0\n{RUNNING}{{engine="1"}} NaN\n{WAITING}{{engine="0"}} 0.0\n',
        f'{RUNNING}{{engine="0"}} 0.0\n{RUNNING}{{engine="1" 3.0\n{WAITING}{{engine="0"}} 0.0\n',
        f'{RUNNING}{{engine="0"}} three\n{WAITING}{{engine="0"}} 0.0\n',
        f'{WAITING}{{engine="0"}} 0.0\n',
        f'{RUNNING}{{engine="0"}} 0.0\n',
    ],
)
async def test_what_cannot_be_read_of_its_requests_is_not_none_of_them(page: str) -> None:
    engine = SleepingVllm()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=page)

    engine.metrics = metrics  # type: ignore[method-assign]
    async with serving(*engine.routes()) as http:
        slept = await RungLink(VllmSleep(http), mono=Clock()).follow("asleep")
    assert slept.trouble == "not put to sleep: it does not tell how many requests it has"
    assert engine.asked == []


@pytest.mark.parametrize("labels", ["", '{engine="0"}', '{model_name="a} b",engine="0"}'])
async def test_its_requests_are_read_however_they_are_labelled(labels: str) -> None:
    engine = SleepingVllm()

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=f"{RUNNING}{labels} 2.0\n{WAITING}{labels} 1.0 1700000000\n{RUNNING}_x{labels} 9\n")

    engine.metrics = metrics  # type: ignore[method-assign]
    async with serving(*engine.routes()) as http:
        assert (await VllmSleep(http).look()).busy == 3


async def test_a_wake_is_measured_from_the_request_until_the_engine_says_that_it_is_awake() -> None:
    engine, clock = SleepingVllm(), Clock()
    async with serving(*engine.routes()) as http:
        sleeper = VllmSleep(http)
        link = RungLink(sleeper, mono=clock)
        await link.follow("asleep")
        assert link.last.wake_seconds is None
        plain = sleeper.wake

        async def slow(level: int | None) -> None:
            clock.now += 3.25
            await plain(level)

        sleeper.wake = slow  # type: ignore[method-assign]
        slept = await link.follow("awake")
        assert (slept.rung, slept.changed, slept.wake_seconds) == ("awake", True, 3.25)


async def test_a_wake_that_fails_is_tried_again_a_second_later_not_ever_later() -> None:
    engine, clock = SleepingVllm(fails=5), Clock()
    async with serving(*engine.routes()) as http:
        link = RungLink(VllmSleep(http), mono=clock)
        await link.follow("asleep", 2)
        for _ in range(5):
            slept = await link.follow("awake")
            assert slept.rung is None
            assert "out of memory" in slept.trouble
            clock.now += AGAIN_SECONDS
        assert (await link.follow("awake")).rung == "awake"
        assert engine.weights


async def test_a_200_is_no_proof_of_sleep() -> None:
    engine = SleepingVllm(deaf=True)
    async with serving(*engine.routes()) as http:
        slept = await RungLink(VllmSleep(http), mono=Clock()).follow("asleep")
        assert slept.rung == "awake"
        assert "took the request to sleep, and is awake" in slept.trouble


async def test_one_that_somebody_else_put_to_sleep_is_woken_at_the_next_look() -> None:
    engine, clock = SleepingVllm(), Clock()
    async with serving(*engine.routes()) as http:
        link = RungLink(VllmSleep(http), mono=clock)
        await link.follow("awake")
        engine.paused, engine.level, engine.sleeping = True, 1, {"weights", "kv_cache"}
        assert (await link.follow("awake")).rung == "awake"  # not looked at yet
        clock.now += LOOK_SECONDS
        slept = await link.follow("awake")
        assert slept.changed
        assert not engine.asleep


async def test_at_the_end_only_what_was_put_to_sleep_here_is_woken() -> None:
    engine = SleepingVllm()
    async with serving(*engine.routes()) as http:
        link = RungLink(VllmSleep(http), mono=Clock())
        await link.release()
        assert engine.asked == []
        await link.follow("asleep")
        await link.release()
        assert not engine.asleep


async def test_answers_that_nobody_thought_of_are_a_trouble_and_end_nothing() -> None:
    async with serving(*SleepingVllm(dev_mode=False).routes()) as http:
        link = RungLink(VllmSleep(http), mono=Clock())

        async def odd() -> None:
            raise KeyError("x")

        link._sleeper.look = odd  # type: ignore[method-assign, assignment]
        assert "not understood (KeyError" in (await link.follow("asleep")).trouble
