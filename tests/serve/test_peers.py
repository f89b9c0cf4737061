"""What scalers say to each other without Redis, over real sockets: who may go on, and from whom nobody takes."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scaler.serve import peers
from scaler.serve.lease import LEASE_SECONDS, MARGIN_SECONDS, PROVEN_SECONDS, Lease
from scaler.serve.peers import Peers

HOST = "127.0.0.1"


class Scaler:
    """One scaler's lease, door and clock, all moved by the test."""

    now = 100.0

    def __init__(self, name: str) -> None:
        self.lease = Lease()
        self.name, self.number = name, 1
        self.living: set[str] = set()
        clock, session = (lambda: Scaler.now), (lambda: self.session)
        self.peers = Peers(self.lease, clock, session, lambda: self.living, lambda each: self.living.add(each))

    @property
    def session(self) -> str:
        return f"{self.name}#{self.number}"

    async def open(self) -> Scaler:
        self.name = await self.peers.open(self.name, HOST, 0)
        return self

    def answered(self, at: float) -> None:
        """Redis answered, and then fell silent."""
        self.lease.beaten(at, at, 9999.0)
        self.lease.missed()

    async def acts_after(self, lease_ended: float = 0.5) -> bool:
        """Whether it acts so long after its lease has ended, having asked the others."""
        assert self.lease.ends_at is not None
        Scaler.now = self.lease.ends_at + lease_ended
        await self.peers.ask_all()
        return self.lease.acts(Scaler.now)


@pytest.fixture(autouse=True)
def _from_the_start() -> None:
    Scaler.now = 100.0


@asynccontextmanager
async def known(*scalers: Scaler) -> AsyncIterator[None]:
    """All of them open, and knowing each other."""
    for each in scalers:
        await each.open()
    for each in scalers:
        each.living = {other.session for other in scalers}
    try:
        yield
    finally:
        for each in scalers:
            await each.peers.close()


@asynccontextmanager
async def door(say: Callable[[], bytes] | None) -> AsyncIterator[str]:
    """Something behind a door: what it says, None for nothing at all. The member name that leads there."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if say is None:
            await asyncio.sleep(60)
        else:
            writer.write(say())
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    try:
        yield f"stranger@{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def said(member: str, **but: Any) -> bytes:
    return json.dumps({"session": f"{member}#1", "acts": False, "silent_seconds": 50.0} | but).encode() + b"\n"


async def test_all_go_on_where_redis_is_silent_for_all() -> None:
    red, green, blue = map(Scaler, ("red", "green", "blue"))
    async with known(red, green, blue):
        for each, at in ((red, 100.0), (green, 99.6), (blue, 99.9)):
            each.answered(at)
        assert await red.acts_after()
        assert red.lease.alone(Scaler.now + 0.2)
        for later in (10.0, 100.0):
            assert [await each.acts_after(later) for each in (red, green, blue)] == [True] * 3


async def test_the_only_one_goes_on() -> None:
    red = Scaler("red")
    async with known(red):
        red.answered(100.0)
        assert await red.acts_after(60.0)


async def test_nobody_goes_on_whom_only_its_own_redis_does_not_answer() -> None:
    red, green, blue = map(Scaler, ("red", "green", "blue"))
    async with known(red, green, blue):
        red.answered(100.0)
        green.answered(100.0)
        blue.lease.beaten(103.0, 103.0, 9999.0)
        assert not await red.acts_after()
        assert not await green.acts_after()


async def test_nobody_goes_on_where_another_had_an_answer_after_the_lease_had_ended() -> None:
    """In that time it may have taken what was free."""
    red, green = Scaler("red"), Scaler("green")
    async with known(red, green):
        red.answered(100.0)
        green.answered(100.0 + LEASE_SECONDS - MARGIN_SECONDS + 0.2)
        assert not await red.acts_after(2.0)


async def test_it_stops_when_redis_answers_another_again() -> None:
    red, green = Scaler("red"), Scaler("green")
    async with known(red, green):
        red.answered(100.0)
        green.answered(100.0)
        assert await red.acts_after(10.0)
        green.lease.beaten(Scaler.now, Scaler.now, 9999.0)
        assert not green.lease.settled(Scaler.now + PROVEN_SECONDS)  # it takes nothing before that is over
        Scaler.now += PROVEN_SECONDS + 0.1
        await red.peers.ask_all()
        assert not red.lease.acts(Scaler.now)


async def test_a_scaler_that_is_no_more_owns_nothing() -> None:
    red, green = Scaler("red"), Scaler("green")
    async with known(red, green):
        red.answered(100.0)
        await green.peers.close()
        assert await red.acts_after()


@pytest.mark.parametrize(
    "word",
    [
        None,
        lambda: b"",
        lambda: b"\xff\xfe\n",
        lambda: b"null\n",
        lambda: b"[1, 2]\n",
        lambda: b'{"session": "stranger"}\n',
        lambda: b"9" * 5000 + b"\n",
        lambda: said("another"),
    ],
)
async def test_whatever_else_is_behind_a_door_proves_nothing(word: Callable[[], bytes] | None) -> None:
    red = Scaler("red")
    async with known(red), door(word) as member:
        red.answered(100.0)
        red.living.add(f"{member}#1")
        assert not await red.acts_after()
        await red.peers.look_at_ended({f"{member}#1"})
        assert not red.peers.act_alone


@pytest.mark.parametrize("silent", [None, "now", -1.0, math.nan])
async def test_a_silence_that_cannot_be_meant_proves_nothing(silent: Any) -> None:
    red = Scaler("red")
    async with known(red), door(lambda: said(member, silent_seconds=silent)) as member:
        red.answered(100.0)
        red.living.add(f"{member}#1")
        assert not await red.acts_after()


@pytest.mark.parametrize("member", ["red", "red@", "red@nowhere", "red@127.0.0.1:x", "@:"])
async def test_a_name_without_a_door_is_not_asked(member: str) -> None:
    red = Scaler("red-one")
    async with known(red):
        red.answered(100.0)
        red.living.add(f"{member}#1")
        assert not await red.acts_after()


async def test_a_loopback_address_does_not_lead_to_another_host() -> None:
    """Redis behind a proxy in each pod: there every scaler's own address is 127.0.0.1, and so its door's."""
    red = Scaler("pod-a-0001")
    async with known(red), door(lambda: said("pod-b-0002")) as answers:
        for port in (answers.rpartition(":")[2], "9"):  # our own doors answer, or refuse
            red.answered(100.0)
            red.living = {red.session, f"pod-b-0002@{HOST}:{port}#1"}
            assert red.peers.elsewhere()
            assert not await red.acts_after()


async def test_nothing_is_taken_from_one_that_acts() -> None:
    red, green = Scaler("red"), Scaler("green")
    async with known(red, green):
        red.answered(100.0)
        green.answered(100.0)
        assert await red.acts_after(10.0)
        late = await Scaler("late").open()  # of whom red has never heard, and whom Redis answers
        late.lease.beaten(Scaler.now, Scaler.now, 9999.0)
        await late.peers.look_at_ended({red.session})
        assert late.peers.act_alone == {red.session}
        assert not await red.acts_after(13.0)  # now it has heard of it, and asked
        await late.peers.look_at_ended({red.session})
        assert late.peers.act_alone == frozenset()
        await late.peers.close()


async def test_what_one_owned_under_another_session_is_another_matter() -> None:
    red, late = Scaler("red"), Scaler("late")
    async with known(red, late):
        red.lease.beaten(100.0, 100.0, 9999.0)
        red.number = 2
        await late.peers.look_at_ended({f"{red.name}#1"})
        assert late.peers.act_alone == frozenset()


@pytest.mark.parametrize("asker", [b"", b"\n", b"\xff\n", b"nobody\n", b"a@b\n", b"x" * 5000 + b"\n", b"a b@c.d:1#1\n"])
async def test_whoever_asks_without_a_name_is_answered_and_not_taken_for_a_scaler(asker: bytes) -> None:
    red = Scaler("red")
    async with known(red):
        red.answered(100.0)
        host, _, port = red.name.partition("@")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(asker)
        if not asker.endswith(b"\n"):
            writer.write_eof()
        assert json.loads(await reader.readline())["session"] == red.session
        writer.close()
        assert red.living == {red.session}


async def test_names_that_somebody_makes_up_are_not_endless() -> None:
    red = Scaler("red")
    async with known(red):
        red.answered(100.0)
        for number in range(peers.MOST_LIVING + 20):
            await peers._ask(red.name, f"invented@127.0.0.1:1#{number}")
        assert len(red.living) == peers.MOST_LIVING


async def test_the_dead_are_asked_once_in_a_while() -> None:
    late, asked = Scaler("late"), 0

    def count() -> bytes:
        nonlocal asked
        asked += 1
        return said(member)

    async with door(count) as member:
        for _ in range(10):
            await late.peers.look_at_ended({f"{member}#1"})
        assert asked == 1
        Scaler.now += peers.NOT_ACTING_SECONDS + 0.1
        await late.peers.look_at_ended({f"{member}#1"})
        assert asked == 2


async def test_without_an_address_there_is_no_door() -> None:
    red = Scaler("red")
    assert await red.peers.open("red", None, 0) == "red"
    await red.peers.close()


async def test_it_asks_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "RETRY_SECONDS", 0.01)
    red = Scaler("red")
    async with known(red):
        red.answered(100.0)
        task = asyncio.create_task(red.peers.watch())
        for later in (10.0, 20.0):
            Scaler.now = 100.0 + later
            async with asyncio.timeout(60):
                while not red.lease.acts(Scaler.now):  # noqa: ASYNC110 -- a lease rings no bell
                    await asyncio.sleep(0.01)
        task.cancel()
