"""One engine kept at a wanted batch: set where it differs, read back, and never a fault that gets out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.consume.engine import EngineBatch, EngineError
from scaler.consume.link import LOOK_SECONDS, EngineLink


@dataclass
class Engine:
    """An engine of ``own`` sequences. ``deaf``: takes requests and does nothing; ``slow``: shows them that many reads
    later; ``breaks``: raised by the next reads and writes.
    """

    own: int = 64
    step: int = 1
    reloads: bool = False
    deaf: bool = False
    slow: int = 0
    breaks: Exception | None = None
    breaks_writes: Exception | None = None
    size: int = 0
    engine: str = "double"
    writes: list[int | None] = field(default_factory=list)
    reads: int = 0
    _shows: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.size = self.size or self.own

    async def read(self) -> EngineBatch:
        self.reads += 1
        if self.breaks:
            raise self.breaks
        if self._shows:
            self.size = self._shows.pop(0)
        return EngineBatch(self.size, self.own, self.own, self.step, follows_own=self.size == self.own)

    async def write(self, size: int) -> None:
        self.writes.append(size)
        if not self.deaf:
            self._shows = [self.size] * self.slow + [size]
        if self.breaks_writes:
            raise self.breaks_writes

    async def restore(self) -> None:
        await self.write(self.own)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def link_to(engine: Engine, clock: Clock) -> EngineLink:
    return EngineLink(engine, mono=clock, show_seconds=0.0)


async def test_it_is_set_once_and_then_only_looked_at(clock: Clock) -> None:
    engine = Engine()
    link = link_to(engine, clock)
    first = await link.follow(8)
    assert (first.size, first.changed, first.trouble) == (8, True, "")
    reads = engine.reads
    for _ in range(5):
        clock.now += 1
        again = await link.follow(8)
        assert (again.size, again.changed) == (8, False)
    assert (engine.reads, engine.writes) == (reads, [8])


async def test_an_engine_that_restarted_is_set_again(clock: Clock) -> None:
    engine = Engine()
    link = link_to(engine, clock)
    await link.follow(8)
    engine.size = 64
    clock.now += LOOK_SECONDS
    assert (await link.follow(8)).changed
    assert engine.writes == [8, 8]


async def test_nothing_wanted_is_its_own_setting(clock: Clock) -> None:
    engine = Engine()
    link = link_to(engine, clock)
    assert not (await link.follow(None)).changed
    await link.follow(8)
    back = await link.follow(None)
    assert (back.size, back.changed) == (64, True)


async def test_a_change_that_takes_a_while_is_waited_for(clock: Clock) -> None:
    engine = Engine(slow=2)
    followed = await EngineLink(engine, mono=asyncio.get_running_loop().time, show_seconds=5.0).follow(8)
    assert (followed.size, followed.trouble) == (8, "")


async def test_ok_is_no_proof(clock: Clock) -> None:
    engine = Engine(deaf=True)
    followed = await link_to(engine, clock).follow(8)
    assert followed.size == 64
    assert followed.trouble == "it took the request for 8, and runs with 64"


async def test_a_failure_that_took_effect_is_none(clock: Clock) -> None:
    engine = Engine(breaks_writes=EngineError("HTTP 500"))
    followed = await link_to(engine, clock).follow(8)
    assert (followed.size, followed.trouble, followed.changed) == (8, "", True)


async def test_a_refusal_is_told_with_what_it_runs_instead(clock: Clock) -> None:
    engine = Engine(deaf=True, breaks_writes=EngineError("HTTP 401"))
    followed = await link_to(engine, clock).follow(8)
    assert (followed.size, followed.trouble) == (64, "HTTP 401")


@pytest.mark.parametrize("error", [EngineError("gone"), TypeError("'NoneType'"), ValueError("no")])
async def test_whatever_breaks_is_a_reason_and_tried_again_later(clock: Clock, error: Exception) -> None:
    engine = Engine(breaks=error)
    link = link_to(engine, clock)
    tried = []
    for _ in range(80):
        before = engine.reads
        followed = await link.follow(8)
        assert followed.size is None
        assert str(error) in followed.trouble
        if engine.reads > before:
            tried.append(clock.now - 1000)
        clock.now += 1
    assert tried == [0, 1, 3, 7, 15, 31, 61]
    engine.breaks = None
    clock.now += 30
    assert (await link.follow(8)).size == 8


async def test_another_wish_does_not_wait_for_the_retry(clock: Clock) -> None:
    engine = Engine(breaks=EngineError("gone"))
    link = link_to(engine, clock)
    await link.follow(8)
    engine.breaks = None
    assert (await link.follow(4)).size == 4


async def test_several_schedulers_share_it(clock: Clock) -> None:
    engine = Engine(step=4)
    link = link_to(engine, clock)
    assert (await link.follow(10)).size == 8
    assert (await link.follow(11)).changed is False
    assert (await link.follow(1)).size == 4


class TestReloads:
    async def test_they_are_rare(self, clock: Clock) -> None:
        engine = Engine(reloads=True)
        link = link_to(engine, clock)
        await link.follow(32)
        clock.now += 100
        held = await link.follow(16)
        assert (held.size, held.held_seconds, held.trouble) == (32, 500, "")
        clock.now += 499
        assert (await link.follow(16)).held_seconds == 1
        clock.now += 1
        assert (await link.follow(16)).size == 16
        assert engine.writes == [32, 16]

    async def test_while_one_is_held_back_the_engine_is_not_asked_every_second(self, clock: Clock) -> None:
        engine = Engine(reloads=True)
        link = link_to(engine, clock)
        await link.follow(32)
        reads = engine.reads
        for _ in range(60):
            clock.now += 1
            await link.follow(16)
        assert engine.reads - reads <= 7

    async def test_none_while_memory_is_short(self, clock: Clock) -> None:
        """It would load a second copy of the model into what is missing already."""
        engine = Engine(reloads=True)
        link = link_to(engine, clock)
        held = await link.follow(32, may_reload=False)
        assert (held.size, engine.writes) == (64, [])
        assert held.held_seconds > 0
        assert (await link.follow(32)).size == 32

    async def test_a_failed_one_counts(self, clock: Clock) -> None:
        engine = Engine(reloads=True, deaf=True, breaks_writes=EngineError("out of memory"))
        link = link_to(engine, clock)
        assert (await link.follow(32)).trouble == "out of memory"
        for _ in range(9):
            clock.now += 60
            again = await link.follow(32)
            assert (again.trouble, again.size) == ("out of memory", 64)
        assert engine.writes == [32]

    async def test_it_is_left_as_it_is_at_the_end(self, clock: Clock) -> None:
        engine = Engine(reloads=True)
        link = link_to(engine, clock)
        await link.follow(32)
        assert not await link.release(1.0)
        assert engine.writes == [32]


class TestTheEnd:
    async def test_it_goes_back_to_its_own(self, clock: Clock) -> None:
        engine = Engine()
        link = link_to(engine, clock)
        await link.follow(8)
        assert await link.release(1.0)
        assert engine.size == 64

    async def test_an_engine_that_hangs_does_not_hold_us(self, clock: Clock) -> None:
        class Hangs(Engine):
            async def read(self) -> EngineBatch:
                await asyncio.sleep(60)
                raise AssertionError

        assert not await EngineLink(Hangs(), mono=clock).release(0.05)


@settings(deadline=None)
@given(
    own=st.integers(1, 5000),
    step=st.integers(1, 8),
    wishes=st.lists(st.none() | st.integers(1, 10_000), min_size=1, max_size=6),
)
def test_it_never_exceeds_the_engines_own(own: int, step: int, wishes: list[int | None]) -> None:
    """Whatever is wanted, the engine is only ever asked for what it can take, and ends at the nearest of it."""
    own *= step
    engine, clock = Engine(own=own, step=step), Clock()
    link = link_to(engine, clock)

    async def follow() -> None:
        for wanted in wishes:
            followed = await link.follow(wanted)
            assert followed.trouble == ""
            assert followed.size is not None
            if wanted is None:
                assert followed.size == own
            else:
                assert followed.size <= max(min(wanted, own), step)
                assert followed.size > min(wanted, own) - step

    asyncio.run(follow())
    assert all(size is not None and step <= size <= own and size % step == 0 for size in engine.writes)
