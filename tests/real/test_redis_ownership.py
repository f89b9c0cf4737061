"""Two scalers in one process around a real Redis: what they tell each other, what each takes, gives and answers."""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from scaler.consume.contract import AppliedReport
from scaler.control.model import Now, Override
from scaler.serve import lease, redis_link, writes
from scaler.serve.demand_body import DemandReport
from scaler.serve.inbox import MAX_SOURCES, TooManySourcesError
from scaler.serve.ownership import OwnerUnheard, Superseded, preferred
from scaler.serve.redis_link import RedisLink
from scaler.serve.snapshot import Snapshot
from tests.real.redis_server import RedisServer
from tests.real.two_scalers import PUSHED, STORED, Scaler, answered, often, owner_and_other, running, unhurried, until
from tests.serve.tide import snapshot

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)
    unhurried(monkeypatch)


async def test_a_call_at_one_makes_the_workload_known_to_both_and_owned_by_one(redis: RedisServer) -> None:
    # A machine that stands still for longer than a free workload waits leaves them all with one, until both are steady.
    red, green = Scaler(redis, steady_seconds=0.5), Scaler(redis, steady_seconds=0.5)
    async with running(red, green):
        for number in range(20):
            red.workloads.register(f"prod/m-{number}", PUSHED)
        names = red.workloads.names()
        await until(lambda: green.workloads.names() == names)
        await until(lambda: {red.ownership.owns(name) for name in names} == {True, False})
        await until(lambda: all(red.ownership.owns(name) != green.ownership.owns(name) for name in names))
        await until(lambda: all(red.known(name).owner == green.known(name).owner for name in names))


async def test_changed_metadata_reach_the_owner(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)
    async with running(red, green):
        red.workloads.register("prod/m", PUSHED)
        await until(lambda: green.workloads.get("prod/m"))
        green.workloads.register("prod/m", PUSHED | {"replicasMax": "7"})
        await until(lambda: red.known("prod/m").resolved.policy.replicas.max == 7)


async def test_what_came_from_the_environment_is_not_written_down(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)
    async with running(red, green):
        red.workloads.register("prod/m", {"engineFromEnv": "vllm"} | PUSHED)
        await until(lambda: red.ownership.owns("prod/m"))
        await asyncio.sleep(0.5)
        assert green.workloads.get("prod/m") is None  # until it is called itself
        green.workloads.register("prod/m", {"engineFromEnv": "vllm"} | PUSHED)
        assert green.known("prod/m").resolved.policy.engine == "vllm"


async def test_changed_metadata_reach_an_owner_that_is_not_called_though_some_of_them_are_withheld(
    redis: RedisServer,
) -> None:
    """KEDA's one connection leads to the other scaler."""
    red, green = Scaler(redis), Scaler(redis)
    called = {"engineFromEnv": "vllm", "replicasMax": "4"} | PUSHED
    async with running(red, green):
        for each in (red, green):
            each.workloads.register("prod/m", called)
        owner, other = await owner_and_other(red, green)
        other.workloads.register("prod/m", called | {"replicasMax": "7"})
        await until(lambda: owner.known("prod/m").resolved.policy.replicas.max == 7)
        assert owner.known("prod/m").resolved.policy.engine == "vllm"
        other.workloads.register("prod/m", called | {"strategyFromEnv": "queue"})
        await asyncio.sleep(0.5)
        assert owner.known("prod/m").resolved.policy.replicas.max == 7  # what it has never been told it does not guess


async def test_everyone_answers_what_was_decided_last(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)
    async with running(red, green):
        red.workloads.register("prod/m", PUSHED)
        await until(lambda: green.workloads.get("prod/m"))
        await until(lambda: red.ownership.owns("prod/m") or green.ownership.owns("prod/m"))
        owner, other = (red, green) if red.ownership.owns("prod/m") else (green, red)
        assert await other.ownership.answer(other.known("prod/m")) is None
        for replicas in range(50):
            await owner.decide("prod/m", replicas)
            assert await other.replicas("prod/m") == replicas  # at once, whether or not the message has come
            assert await owner.replicas("prod/m") == replicas
        with pytest.raises(Superseded):
            await other.decide("prod/m", 3)


async def test_pushed_demand_reaches_the_owner_and_its_successor(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)
    async with running(red):
        async with running(green):
            red.workloads.register("prod/m", PUSHED)
            await until(lambda: green.workloads.get("prod/m"))
            await until(lambda: red.ownership.owns("prod/m") or green.ownership.owns("prod/m"))
            owner, other = (red, green) if red.ownership.owns("prod/m") else (green, red)
            owner.evaluated.clear()
            await other.workloads.tell(other.known("prod/m"), DemandReport(3.0, 1.5, "a gateway"))
            await owner.workloads.tell(owner.known("prod/m"), DemandReport(4.0, None, "another"))
            await other.workloads.tell(other.known("prod/m"), None)

            def demand(of: Scaler) -> tuple[float | None, bool]:
                workload = of.known("prod/m")
                read = workload.inbox.read(of.workloads.mono(), workload.resolved.policy.push)
                assert read is not None
                return read.pending, read.wake_requested

            await until(lambda: demand(owner) == (7.0, True))
            assert owner.evaluated
        await until(lambda: red.ownership.owns("prod/m"))  # green has ended
        assert demand(red) == (7.0, True)


def wake_age_seconds(of: Scaler) -> float | None:
    return of.known("prod/m").inbox.wake_age_seconds()


async def test_a_wake_is_heard_although_its_message_was_missed(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells it twice: unheard, the workload would stay at zero."""
    red, green = Scaler(redis), Scaler(redis)
    async with running(red, green):
        owner, other = await owner_and_other(red, green)
        hear, heard = owner.ownership._hear, []
        monkeypatch.setattr(owner.ownership, "_hear", lambda words: (heard.append(words[0]), hear(words)))
        assert redis.said(b"CLIENT KILL TYPE pubsub\r\n").startswith(b":")
        await other.workloads.tell(other.known("prod/m"), None)
        await until(lambda: wake_age_seconds(owner) is not None)
        assert "listening" in heard
        assert "demand" not in heard


async def test_what_an_owner_was_told_without_redis_is_not_lost_when_that_is_back(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)
    async with running(red, green):
        owner, other = await owner_and_other(red, green)
        redis.stop()
        await until(lambda: other.ownership.deaf and owner.ownership.deaf)
        await owner.workloads.tell(owner.known("prod/m"), None)
        await owner.workloads.tell(owner.known("prod/m"), DemandReport(3.0, None, "a gateway"))
        await asyncio.sleep(0.2)  # the telling of it has failed
        redis.start()
        await until(lambda: not other.ownership.deaf and not owner.ownership.deaf)
        await other.workloads.tell(other.known("prod/m"), DemandReport(4.0, None, "another"))

        def pending() -> float | None:
            read = owner.known("prod/m").inbox.read(owner.workloads.mono(), owner.known("prod/m").resolved.policy.push)
            return None if read is None else read.pending

        await until(lambda: pending() == 7.0)
        assert wake_age_seconds(owner) is not None


async def test_a_wake_after_a_decision_is_not_answered_by_it(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)
    async with running(red, green):
        owner, other = await owner_and_other(red, green)
        workload = owner.known("prod/m")
        decided: Snapshot = snapshot("prod/m", decided_at=Now(owner.workloads.utc(), owner.workloads.mono()))
        assert decided.decision.ready
        await asyncio.sleep(0.1)
        await other.workloads.tell(other.known("prod/m"), None)
        await owner.ownership.publish(workload, decided, lambda: STORED)  # written only now
        assert (await owner.ownership._store.demand("prod/m")).wake_at_ms is not None

        async def answered_by_the_next() -> bool:
            """Redis's time is known from the last beat: as well as that took, and the next one knows it better."""
            await owner.decide("prod/m", 1)
            return (await owner.ownership._store.demand("prod/m")).wake_at_ms is None

        await until(answered_by_the_next)


async def test_a_wake_that_was_given_up_does_not_come_back_with_the_next_report(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)
    async with running(red, green):
        for each in (red, green):
            each.workloads.register("prod/m", PUSHED | {"pushWakeTtlSeconds": "1"})
        owner, other = await owner_and_other(red, green)

        async def heard() -> bool:
            """Told again: one that comes after its second is over is none."""
            await other.workloads.tell(other.known("prod/m"), None)
            await asyncio.sleep(0.2)
            return wake_age_seconds(owner) is not None

        await until(heard)
        await asyncio.sleep(1.1)
        assert owner.known("prod/m").inbox.give_up_wake()
        await other.workloads.tell(other.known("prod/m"), DemandReport(3.0, None, "a gateway"))
        await until(lambda: owner.known("prod/m").inbox._reports)
        assert wake_age_seconds(owner) is None


async def test_what_cannot_be_read_keeps_nobody_waiting(redis: RedisServer) -> None:
    """Bytes that are no text, and entries of another version: of those workloads alone nothing is known."""
    red, green = Scaler(redis), Scaler(redis)
    redis.said(b"HSET loadtide:workloads prod/\xff \xff prod/other {\r\n")
    redis.said(b'HSET loadtide:{prod/m}:demand "from:a new gateway" "1 2 3 4" wake soon\r\n')
    async with running(red, green):
        owner, other = await owner_and_other(red, green)
        await owner.decide("prod/m", 3)
        assert await other.replicas("prod/m") == 3


async def test_what_replicas_applied_reaches_the_owner_and_its_successor(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)

    def applied(of: Scaler) -> dict[str, int | None]:
        return {each.replica: each.batch_size for each in of.known("prod/m").applied.read(of.workloads.mono())}

    async with running(red):
        async with running(green):
            red.workloads.register("prod/m", {})
            await until(lambda: green.workloads.get("prod/m"))
            await until(lambda: red.ownership.owns("prod/m") or green.ownership.owns("prod/m"))
            owner, other = (red, green) if red.ownership.owns("prod/m") else (green, red)
            owner.evaluated.clear()
            await owner.workloads.tell(owner.known("prod/m"), AppliedReport("m-0", 32, generation=3))
            for number in range(1, 4):
                await other.workloads.tell(other.known("prod/m"), AppliedReport(f"m-{number}", 8 * number))
            await until(lambda: applied(owner) == {"m-0": 32, "m-1": 8, "m-2": 16, "m-3": 24})
            await other.workloads.tell(other.known("prod/m"), AppliedReport("m-0", 64))
            await until(lambda: applied(owner)["m-0"] == 64)
            assert owner.evaluated == []  # it tells of no request
        await until(lambda: red.ownership.owns("prod/m"))  # green has ended
        assert applied(red) == {"m-0": 64, "m-1": 8, "m-2": 16, "m-3": 24}


async def test_gateways_that_invent_names_are_refused(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)
    async with running(red, green):
        red.workloads.register("prod/m", PUSHED)
        await until(lambda: green.workloads.get("prod/m"))
        await until(lambda: red.ownership.owns("prod/m") or green.ownership.owns("prod/m"))
        other = green if red.ownership.owns("prod/m") else red
        for number in range(MAX_SOURCES):
            await other.workloads.tell(other.known("prod/m"), DemandReport(1.0, None, f"gateway-{number}"))
        with pytest.raises(TooManySourcesError):
            await other.workloads.tell(other.known("prod/m"), DemandReport(1.0, None, "one more"))
        await other.workloads.tell(other.known("prod/m"), DemandReport(2.0, None, "gateway-0"))
        await other.workloads.tell(other.known("prod/m"), None)


async def test_a_scaler_that_joins_gets_its_share_with_its_memory(redis: RedisServer) -> None:
    red, green = Scaler(redis, steady_seconds=0.5), Scaler(redis)
    async with running(red):
        names = [f"prod/m-{number}" for number in range(20)]
        for name in names:
            red.workloads.register(name, PUSHED)
        await until(lambda: all(red.ownership.owns(name) for name in names))
        for name in names:
            await red.decide(name, 5)
        async with running(green):
            members = [each.ownership._membership.member for each in (red, green)]
            moved = [name for name in names if preferred(name, members) == members[1]]
            await until(lambda: [name for name in names if green.ownership.owns(name)] == moved)
            await until(lambda: [name for name in names if not red.ownership.owns(name)] == moved)
            assert 2 <= len(moved) <= 18
            assert {green.known(name).memory for name in moved} == {STORED.memory}
            assert {green.known(name).generation for name in moved} == {STORED.generation}
            for name in names:
                assert await red.replicas(name) == await green.replicas(name) == 5


async def test_a_redis_that_is_emptied_under_way_costs_no_memory(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)
    async with running(red, green):
        names = [f"prod/m-{number}" for number in range(20)]
        for name in names:
            red.workloads.register(name, PUSHED)
        await until(lambda: all(green.workloads.get(name) for name in names))
        await until(lambda: all(red.ownership.owns(name) != green.ownership.owns(name) for name in names))
        of_red = [name for name in names if red.ownership.owns(name)]
        for name in names:
            await (red if name in of_red else green).decide(name, 5)
        redis.flush()
        await asyncio.sleep(2)
        for name in names:
            assert await answered(red, name) == await answered(green, name) == 5
        assert [name for name in names if red.ownership.owns(name)] == of_red
        assert all(red.ownership.owns(name) != green.ownership.owns(name) for name in names)
        late = Scaler(redis)
        async with running(late):
            await until(lambda: late.workloads.names() == sorted(names))


async def test_a_workload_asked_for_at_one_scaler_is_forgotten_by_none(redis: RedisServer) -> None:
    """KEDA keeps one connection, to one of them."""
    # With ticks so short the seconds in which the machine stands still are not ones in which nobody asked.
    red, green = Scaler(redis, tick_seconds=0.3), Scaler(redis, tick_seconds=0.3)

    def forget_at_both() -> None:
        for each in (red, green):
            each.workloads.forget_unasked(3.0)

    async with running(red, green):
        red.workloads.register("prod/m", PUSHED)
        await until(lambda: green.workloads.get("prod/m"))
        for _ in range(40):
            red.workloads.asked(red.known("prod/m"))
            await asyncio.sleep(0.1)
            forget_at_both()
        assert green.workloads.names() == red.workloads.names() == ["prod/m"]
        deadline, last_known = time.monotonic() + 60, time.monotonic()
        while time.monotonic() - last_known < 1.5:  # forgotten, and not brought back by one that has not forgotten yet
            assert time.monotonic() < deadline, "it is not forgotten though nobody asks"
            await asyncio.sleep(0.05)
            forget_at_both()
            if red.workloads.names() or green.workloads.names():
                last_known = time.monotonic()


async def test_decisions_of_another_version_are_not_guessed_at(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    red, green = Scaler(redis), Scaler(redis)
    async with running(red, green):
        red.workloads.register("prod/m", PUSHED)
        await until(lambda: green.workloads.get("prod/m"))
        await until(lambda: red.ownership.owns("prod/m") or green.ownership.owns("prod/m"))
        owner, other = (red, green) if red.ownership.owns("prod/m") else (green, red)
        with monkeypatch.context() as another:
            another.setattr(writes, "encode", lambda _: '{"tide": "rising"}')
            await owner.decide("prod/m", 5)
        with pytest.raises(OwnerUnheard, match="version"):
            await other.replicas("prod/m")
        await owner.decide("prod/m", 6)
        assert await other.replicas("prod/m") == 6


async def test_an_owner_does_not_contradict_what_others_may_read_before_its_word_is_written(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_link, "ANSWER_SECONDS", 1.0)
    red = Scaler(redis)
    async with running(red):
        red.workloads.register("prod/m", PUSHED)
        await until(lambda: red.ownership.owns("prod/m"))
        await red.decide("prod/m", 3, active=True)
        redis.signal(signal.SIGSTOP)
        try:
            await red.decide("prod/m", 0, active=False)
            with pytest.raises(OwnerUnheard, match="not written"):
                await red.replicas("prod/m")
        finally:
            redis.signal(signal.SIGCONT)
        await until(lambda: red.ownership.trouble is None)
        assert await answered(red) == 0


async def test_without_redis_from_the_start_nothing_is_owned_and_nothing_answered(tmp_path: Path) -> None:
    nowhere = RedisServer(tmp_path)
    red = Scaler(nowhere)
    async with running(red):
        workload = red.workloads.register("prod/m", PUSHED)
        assert not red.ownership.owns("prod/m")
        assert red.ownership.trouble is not None
        with pytest.raises(OwnerUnheard):
            await red.ownership.answer(workload)
        with pytest.raises(OwnerUnheard):
            await red.workloads.tell(workload, None)


async def test_one_that_began_before_redis_had_a_name_has_a_door_all_the_same(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both installed at once: a Service without pods has no address. Without a door a silent Redis stops all."""
    address = RedisLink.our_address

    async def our_address(link: RedisLink) -> str | None:
        return None if redis.process is None else await address(link)

    monkeypatch.setattr(RedisLink, "our_address", our_address)
    redis.stop()
    red = Scaler(redis)
    async with running(red):
        redis.start()
        await until(red.ownership.joined.is_set)
        assert "@127.0.0.1:" in red.ownership._membership.session


async def test_an_override_set_at_any_scaler_rules_at_the_owner_and_its_successor(redis: RedisServer) -> None:
    red, green = Scaler(redis), Scaler(redis)
    until_then = datetime.now(UTC) + timedelta(hours=1)
    async with running(red, green):
        red.workloads.register("prod/m", PUSHED)
        await until(lambda: red.ownership.owns("prod/m") != green.ownership.owns("prod/m"))
        await until(lambda: green.workloads.get("prod/m"))
        owner, other = (red, green) if red.ownership.owns("prod/m") else (green, red)
        await other.workloads.set_override(other.known("prod/m"), Override(4, None, until_then, "ana"))
        await until(lambda: owner.known("prod/m").memory.override == Override(4, None, until_then, "ana"))
        assert "prod/m" in owner.evaluated

        redis.flush()
        await until(owner.ownership._store.overrides)  # the owner tells it again
        await asyncio.sleep(2)
        assert owner.known("prod/m").memory.override is not None

        await owner.ownership.stop()
        await until(lambda: other.ownership.owns("prod/m"))
        assert other.known("prod/m").memory.override == Override(4, None, until_then, "ana")
        await other.workloads.set_override(other.known("prod/m"), None)
        assert other.known("prod/m").memory.override is None


async def test_an_override_that_was_ended_does_not_come_back_with_older_data(redis: RedisServer) -> None:
    """Redis dumps its data now and then: after a crash it has those of then."""
    red, green = Scaler(redis), Scaler(redis)
    until_then = datetime.now(UTC) + timedelta(hours=1)
    first, second = (Override(replicas, None, until_then, "ops") for replicas in (8, 6))
    async with running(red, green):
        owner, other = await owner_and_other(red, green)

        def rules(override: Override | None) -> bool:
            return owner.known("prod/m").memory.override == override

        await other.workloads.set_override(other.known("prod/m"), first)
        await until(lambda: rules(first))
        assert redis.said(b"SAVE\r\n").startswith(b"+OK")
        for later in (second, None):
            await other.workloads.set_override(other.known("prod/m"), later)
            await until(lambda later=later: rules(later))
            redis.stop(signal.SIGKILL)
            redis.start()
            await until(lambda: not owner.ownership.deaf)
            await asyncio.sleep(1.5)
            assert rules(later)
            await until(lambda: not other.ownership.deaf)
        third = Override(5, None, until_then, "ops")
        await other.workloads.set_override(other.known("prod/m"), third)
        await until(lambda: rules(third))


async def test_edited_metadata_do_not_go_back_with_older_data(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KEDA polls twice a minute, and may call either: until then nobody tells the edit again."""
    red, green = Scaler(redis), Scaler(redis)

    def ceilings(*scalers: Scaler) -> set[int | None]:
        return {each.known("prod/m").resolved.policy.replicas.max for each in scalers}

    async def edit(ceiling: int) -> None:
        other.workloads.register("prod/m", PUSHED | {"replicasMax": str(ceiling)})
        await until(lambda: ceilings(red, green) == {ceiling})

    async with running(red, green):
        _, other = await owner_and_other(red, green)
        await edit(4)
        assert redis.said(b"SAVE\r\n").startswith(b"+OK")
        await edit(7)
        with monkeypatch.context() as patient:  # with a machine that stands still
            patient.setattr(lease, "GRACE_SECONDS", 60.0)
            redis.stop(signal.SIGKILL)
            redis.start()
            until_then = time.monotonic() + 3
            while time.monotonic() < until_then:
                assert ceilings(red, green) == {7}
                await asyncio.sleep(0.01)
            await until(lambda: not red.ownership.deaf and not green.ownership.deaf)
            late = Scaler(redis)
            async with running(late):
                await until(lambda: late.workloads.get("prod/m") and ceilings(late) == {7})
        await until(lambda: red.ownership._membership.settled and green.ownership._membership.settled)
        await edit(4)  # whoever goes back is believed, too


async def test_without_redis_an_override_is_refused_and_nothing_changes(redis: RedisServer) -> None:
    red = Scaler(redis)
    async with running(red):
        red.workloads.register("prod/m", PUSHED)
        await until(lambda: red.ownership.owns("prod/m"))
        redis.stop()
        with pytest.raises(OwnerUnheard):
            await red.workloads.set_override(
                red.known("prod/m"), Override(4, None, datetime.now(UTC) + timedelta(hours=1), "ana")
            )
        assert red.known("prod/m").memory.override is None
        redis.start()
