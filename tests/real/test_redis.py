"""Three scalers around a real Redis: whatever dies, freezes or restarts, they give one answer and forget nothing.

One caller asks all of them in turn, as KEDA does over a balanced name. ``UNAVAILABLE`` is an answer that KEDA holds on;
what must never be seen is ``true`` and ``false`` by turns.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import cycle, groupby
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scaler.serve.externalscaler_pb2 import ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.serve.keeper import START_SECONDS
from scaler.serve.lease import BEAT_SECONDS, LEASE_SECONDS
from scaler.serve.ownership import member_of
from tests.real.redis_server import RedisServer, Wire
from tests.running_scaler import START_SECONDS as SCALER_SECONDS
from tests.running_scaler import RunningScaler, running_scaler, said

pytestmark = pytest.mark.real

TOKEN = "gateway-token"
TICK_SECONDS = 0.3
NAME = "chat/m"
PATH = f"/v1/workloads/{NAME}"
#: A dead owner's workloads have moved within a lease, a beat and a tick (tests/serve/test_ownership.py): seen, 3 s.
#: This is for a machine that stands still now and then.
MOVED_SECONDS = 30.0
#: For all else that is waited for; it costs nothing when all is well.
LONG_SECONDS = 90.0
#: After the last request a workload is active for so long: longer than what a test does meanwhile takes anywhere.
IDLE_SECONDS = 12.0


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """The metrics URL of a stand-in for vLLM that nobody sends a request to."""
    command = [sys.executable, "-m", "scaler.lab.standin", "--max-num-seqs", "16"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["metrics"]
        process.terminate()


@dataclass
class Fleet:
    """Scalers that share one Redis, and one ScaledObject that they are called about."""

    scalers: list[RunningScaler]
    metadata: dict[str, str]

    def owner(self, asked: RunningScaler) -> RunningScaler | None:
        """The scaler that ``asked`` takes for the workload's owner, if that one lives."""
        return self._named(asked.get(PATH)["owner"])

    def _named(self, name: str | None) -> RunningScaler | None:
        def names(scaler: RunningScaler) -> set[str]:
            return {member_of(line["session"]) for line in scaler.lines("Redis answers")}

        return next((each for each in self.scalers if name in names(each)), None)

    def settled_owner(self) -> RunningScaler:
        """The one owner that all agree on, after its first decision."""
        return until(LONG_SECONDS, "one owner", self.agreed)

    def agreed(self) -> RunningScaler | None:
        """The living owner that all name, once all have a decision of it; None until then."""
        try:
            told = [each.get(PATH) for each in self.scalers]
        except HTTPError as error:
            if error.code != 404:  # one has yet to hear of the workload
                raise
            return None
        owners = {each["owner"] for each in told}
        return self._named(owners.pop()) if len(owners) == 1 and all(each["decided_at"] for each in told) else None

    def troubles(self) -> int:
        """How often a scaler was without Redis. One that the machine does not let work finds itself so."""
        events = ("Redis does not answer", "the lease has ended, another is begun")
        return sum(len(each.lines(event)) for each in self.scalers for event in events)

    def others(self, than: RunningScaler) -> list[RunningScaler]:
        return [each for each in self.scalers if each is not than]


@contextmanager
def fleet(folder: Path, redis: RedisServer, engine: str, *wires: Wire, **metadata: str) -> Iterator[Fleet]:
    """Three scalers, over ``wires`` where given, and the first call about the workload at one of them alone."""
    policy = folder / "policy.yaml"
    policy.write_text("tenancy: {metadata_urls: allow}\n")
    arguments = ("--tick-seconds", str(TICK_SECONDS), "--policy", str(policy))
    metadata = {"scrapeUrls": engine, "pushEnabled": "true", "batchMax": "16", "replicasMax": "4"} | metadata
    with ExitStack() as stack:
        started: dict[int, RunningScaler] = {}

        def start(number: int) -> None:
            store = f"redis://127.0.0.1:{wires[number].port}/0" if wires else redis.url
            environment = {"LOADTIDE_TOKEN": TOKEN, "LOADTIDE_STORE": store}
            started[number] = stack.enter_context(
                running_scaler(folder, *arguments, environment=environment, name=f"scaler-{number}")
            )

        starting = [threading.Thread(target=start, args=(number,)) for number in range(3)]
        for each in starting:
            each.start()
        for each in starting:
            each.join()
        assert len(started) == 3
        with calls(Fleet([started[0]], metadata)) as first:
            until(LONG_SECONDS, "the first answer", lambda: first.said() or None)
        yield Fleet([started[number] for number in range(3)], metadata)


@dataclass
class Calls:
    """What a caller heard: (when it asked, which scaler, True, False or the name of the error)."""

    heard: list[tuple[float, int, bool | str]] = field(default_factory=list)

    def said(self, since: float = 0.0) -> list[bool]:
        """The answers in order, without repetitions: one element more than there were changes."""
        answers = [what for at, _, what in self.heard if at >= since and isinstance(what, bool)]
        return [answer for answer, _ in groupby(answers)]

    def refused(self, since: float = 0.0) -> list[tuple[float, int, bool | str]]:
        return [each for each in self.heard if each[0] >= since and not isinstance(each[2], bool)]

    def first(self, what: bool, since: float) -> float:
        """Seconds from ``since`` to the first such answer."""
        return next(at for at, _, answer in self.heard if at >= since and answer is what) - since

    def by(self, scaler: int, since: float) -> list[bool | str]:
        return [what for at, which, what in self.heard if which == scaler and at >= since]

    def all_answer(self, since: float) -> bool:
        return all(set(self.by(each, since)) & {True, False} for each in range(3))


@contextmanager
def calls(fleet: Fleet, answer_seconds: float = 30.0) -> Iterator[Calls]:
    """Ask all scalers in turn, over a connection each, as fast as they answer, until the block ends. Whoever has not
    answered within ``answer_seconds``, because it is frozen, is passed over.
    """
    heard, ended = Calls(), threading.Event()
    namespace, _, name = NAME.partition("/")
    ref = ScaledObjectRef(name=name, namespace=namespace, scalerMetadata=fleet.metadata)
    channels = [grpc.insecure_channel(each.grpc) for each in fleet.scalers]

    def ask() -> None:
        for which in cycle(range(len(channels))):
            if ended.is_set():
                return
            asked = time.monotonic()
            try:
                answer: bool | str = ExternalScalerStub(channels[which]).IsActive(ref, timeout=answer_seconds).result
            except grpc.RpcError as error:
                answer = f"{error.code().name}: {error.details()}"  # type: ignore[attr-defined]
            heard.heard.append((asked, which, answer))
            time.sleep(0.001)

    caller = threading.Thread(target=ask)
    caller.start()
    try:
        yield heard
    finally:
        ended.set()
        caller.join()
        for channel in channels:
            channel.close()


def until(seconds: float, what: str, look: Callable[[], Any]) -> Any:
    """The first answer of ``look`` that is not None; the test fails after ``seconds``. Seconds in which the machine let
    nobody work count as half a one: whoever looks fifty times a second noticed them.
    """
    left, before = seconds, time.monotonic()
    while left > 0:
        found = look()
        if found is not None and found is not False:
            return found
        time.sleep(0.02)
        now = time.monotonic()
        left, before = left - min(now - before, 0.5), now
    raise AssertionError(f"not within {seconds:g} s: {what}")


def idle_seconds(scaler: RunningScaler) -> float:
    return float(scaler.get(PATH)["idle"]["seconds"])


def decided_at(document: Mapping[str, Any]) -> float:
    """When the last decision was made, Unix seconds."""
    return datetime.fromisoformat(document["decided_at"]).timestamp()


def takes_a_wake(scaler: RunningScaler) -> bool:
    """Whether it does; one that cannot be sure who owns the workload answers 503."""
    try:
        return scaler.post(f"{PATH}/wake", {}, TOKEN) == 202
    except HTTPError as error:
        if error.code != 503:
            raise
        return False


def report(record: Callable[[str, object], None], **measured: float) -> None:
    """Seconds seen, for ``pytest -s`` and the report file of ``--junitxml``."""
    for name, value in measured.items():
        record(name, round(value, 3))
        sys.stdout.write(f"{name}={value:.3f}\n")


def test_three_scalers_give_one_answer_while_it_changes(
    tmp_path: Path, redis: RedisServer, engine: str, record_property: Callable[[str, object], None]
) -> None:
    with fleet(tmp_path, redis, engine, idleTimeoutSeconds="6") as scalers:
        owner = scalers.settled_owner()  # also of those that were never called about it
        other = scalers.others(owner)[0]
        before = scalers.troubles()
        with calls(scalers) as heard:
            until(LONG_SECONDS, "false", lambda: heard.said()[-1:] == [False])
            woken = time.monotonic()
            assert other.post(f"{PATH}/wake", {}, TOKEN) == 202
            until(LONG_SECONDS, "true and false again", lambda: heard.said(woken)[-2:] == [True, False])
            demanded = time.monotonic()
            assert other.post(f"{PATH}/demand", {"pending": 3, "source": "gateway"}, TOKEN) == 202
            until(LONG_SECONDS, "true again", lambda: heard.said(demanded)[-1:] == [True])
            time.sleep(0.5)
        assert heard.said() in ([True, False, True, False, True], [False, True, False, True])
        assert heard.refused() == [] or scalers.troubles() > before
        assert {which for _, which, _ in heard.heard} == {0, 1, 2}
        report(record_property, wake=heard.first(True, woken), demand=heard.first(True, demanded))
        documents = [each.get(f"{PATH}/target") for each in scalers.scalers]
        assert [each["generation"] for each in documents] == [documents[0]["generation"]] * 3
        owning = [f'loadtide_owner{{namespace="chat",workload="m"}} {float(each is owner)}' for each in scalers.scalers]
        for expected, scaler in zip(owning, scalers.scalers, strict=True):
            metrics = scaler.text("/metrics")
            assert expected in metrics
            assert "loadtide_store_up 1.0" in metrics
            assert 'loadtide_target_batch_size{namespace="chat",workload="m"} 16.0' in metrics
        # A polite end frees the workload at once.
        ended = time.monotonic()
        owner.process.send_signal(signal.SIGTERM)
        rest = Fleet(scalers.others(owner), scalers.metadata)
        until(MOVED_SECONDS, "another owner", lambda: rest.agreed())
        report(record_property, polite_move=time.monotonic() - ended)


def test_a_killed_owners_workload_moves_with_its_timers(
    tmp_path: Path, redis: RedisServer, engine: str, record_property: Callable[[str, object], None]
) -> None:
    with fleet(tmp_path, redis, engine, idleTimeoutSeconds=f"{IDLE_SECONDS:g}") as scalers:
        owner = scalers.settled_owner()
        until(LONG_SECONDS, "an idle timer", lambda: idle_seconds(owner) > 1.5)
        before = owner.get(PATH)
        rest = Fleet(scalers.others(owner), scalers.metadata)
        with calls(rest) as heard:
            owner.kill()
            killed = time.monotonic()
            until(MOVED_SECONDS, "another owner", lambda: rest.agreed())
            moved = time.monotonic() - killed
            after = rest.scalers[0].get(PATH)
            assert after["idle"]["seconds"] >= before["idle"]["seconds"]
            assert (after["generation"], after["batch_size"]) == (before["generation"], before["batch_size"])
            until(LONG_SECONDS, "false", lambda: heard.said()[-1:] == [False])
            time.sleep(0.5)
        assert heard.said() == [True, False]
        # No engine did anything meanwhile: the time without an owner counts, less at most a few ticks.
        passed = decided_at(after) - decided_at(before)
        late = passed - (after["idle"]["seconds"] - before["idle"]["seconds"])
        assert passed > LEASE_SECONDS - BEAT_SECONDS
        assert -1.0 < late < 2.0
        report(record_property, moved=moved, timer_late=late)


def test_a_frozen_and_thawed_owner_is_fenced_off(
    tmp_path: Path, redis: RedisServer, engine: str, record_property: Callable[[str, object], None]
) -> None:
    with fleet(tmp_path, redis, engine, idleTimeoutSeconds=f"{IDLE_SECONDS:g}") as scalers:
        owner = scalers.settled_owner()
        rest = Fleet(scalers.others(owner), scalers.metadata)
        owner.process.send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        with calls(rest) as heard:
            until(MOVED_SECONDS, "another owner", lambda: rest.agreed())
            moved = time.monotonic() - frozen
            until(LONG_SECONDS, "false", lambda: heard.said()[-1:] == [False])
        assert heard.said() == [True, False]
        with calls(scalers) as heard:
            time.sleep(0.1)
            owner.process.send_signal(signal.SIGCONT)
            thawed = time.monotonic()
            until(LONG_SECONDS, "it says false", lambda: False in heard.by(scalers.scalers.index(owner), thawed))
            answered = time.monotonic() - thawed
            until(LONG_SECONDS, "a new lease", lambda: owner.lines("the lease has ended, another is begun"))
            time.sleep(2)
        assert heard.said() == [False]  # the last thing it had said itself was true
        assert scalers.owner(owner) is not owner
        report(record_property, moved=moved, thawed_answer=answered)


def test_an_owner_cut_off_from_redis_stops_before_another_begins(
    tmp_path: Path, redis: RedisServer, engine: str, record_property: Callable[[str, object], None]
) -> None:
    """Its Redis is silent and not gone: it cannot know whether it is the only one who hears nothing."""
    wires = [Wire(redis.port) for _ in range(3)]
    with fleet(tmp_path, redis, engine, *wires, idleTimeoutSeconds=f"{IDLE_SECONDS:g}") as scalers:
        owner = scalers.settled_owner()
        which = scalers.scalers.index(owner)
        rest = Fleet(scalers.others(owner), scalers.metadata)
        with calls(scalers) as heard:
            cut = time.monotonic()
            wires[which].cut()
            until(LONG_SECONDS, "another owner", lambda: rest.agreed() not in (None, owner))
            moved = time.monotonic()
            until(LONG_SECONDS, "false", lambda: heard.said()[-1:] == [False])
            with pytest.raises(OSError, match="503"):
                owner.post(f"{PATH}/wake", {}, TOKEN)
            wires[which].mend()
            mended = time.monotonic()
            until(LONG_SECONDS, "the owner of before answers", lambda: False in heard.by(which, mended))
            healed = time.monotonic() - mended
            time.sleep(1)
        assert heard.said() == [True, False]
        last = max(at for at, each, what in heard.heard if each == which and what is True)
        assert last < moved
        report(record_property, stopped=last - cut, moved=moved - cut, healed=healed)
    for wire in wires:
        wire.close()


def test_in_a_silent_redis_the_owner_goes_on_alone_and_all_heals(
    tmp_path: Path, redis: RedisServer, engine: str, record_property: Callable[[str, object], None]
) -> None:
    """Its host is gone without a word: connections stand, new ones are taken, and nothing is answered. Meanwhile the
    answer changes, and another scaler freezes: then the owner cannot know any more, and stops until it can.
    """
    with fleet(tmp_path, redis, engine, idleTimeoutSeconds=f"{IDLE_SECONDS:g}") as scalers, ExitStack() as at_last:
        owner = scalers.settled_owner()
        which = scalers.scalers.index(owner)
        others = scalers.others(owner)
        at_last.callback(redis.signal, signal.SIGCONT)
        at_last.callback(others[0].process.send_signal, signal.SIGCONT)
        time.sleep(2 * BEAT_SECONDS)  # until each has heard of all
        with calls(scalers, answer_seconds=1.0) as heard:
            redis.signal(signal.SIGSTOP)
            silent = time.monotonic()
            until(LONG_SECONDS, "the owner alone says false", lambda: False in heard.by(which, silent))
            until(LONG_SECONDS, "its store is down", lambda: "loadtide_store_up 0.0" in owner.text("/metrics"))
            woken = time.monotonic()
            until(LONG_SECONDS, "the owner alone takes a wake", lambda: takes_a_wake(owner))
            assert not takes_a_wake(others[0])
            until(LONG_SECONDS, "the owner alone says true", lambda: True in heard.by(which, woken))

            others[0].process.send_signal(signal.SIGSTOP)
            frozen = time.monotonic()
            until(LONG_SECONDS, "the owner stops", lambda: "UNAVAILABLE" in str(heard.by(which, frozen)))
            others[0].process.send_signal(signal.SIGCONT)
            until(LONG_SECONDS, "the owner goes on", lambda: isinstance(heard.by(which, frozen)[-1], bool))

            redis.signal(signal.SIGCONT)
            back = time.monotonic()
            until(LONG_SECONDS, "all answer", lambda: heard.all_answer(back))
            healed = time.monotonic() - back
            time.sleep(0.5)
            steady, before = time.monotonic(), scalers.troubles()
            time.sleep(6)  # long enough for anybody to take what is not theirs
        alone = [each for each in heard.by(which, silent) if isinstance(each, str)]
        assert heard.said() in ([True, False, True], [True, False, True, False])
        assert not heard.refused(steady) or scalers.troubles() > before
        assert all("UNAVAILABLE" in str(each) for _, _, each in heard.refused() if "DEADLINE" not in str(each))
        assert scalers.owner(owner) is owner
        assert not owner.lines("workload lost to another scaler, its decision is dropped")
        report(record_property, healed=healed, owner_refusals=len(alone))


def test_without_redis_the_owner_goes_on_alone_and_all_heals(
    tmp_path: Path, redis: RedisServer, engine: str, record_property: Callable[[str, object], None]
) -> None:
    """Away for long, back with its data; away again, back with none. Meanwhile the answer changes."""
    with fleet(tmp_path, redis, engine, idleTimeoutSeconds=f"{IDLE_SECONDS:g}") as scalers:
        owner = scalers.settled_owner()
        which = scalers.scalers.index(owner)
        with calls(scalers) as heard:
            redis.stop()
            away = time.monotonic()
            until(LONG_SECONDS, "the owner alone says false", lambda: False in heard.by(which, away))
            until(LONG_SECONDS, "its store is down", lambda: "loadtide_store_up 0.0" in owner.text("/metrics"))
            redis.start()
            back = time.monotonic()
            until(LONG_SECONDS, "all answer", lambda: all(False in heard.by(each, back) for each in range(3)))
            healed = time.monotonic() - back
            time.sleep(0.5)
            steady, before = time.monotonic(), scalers.troubles()
            time.sleep(0.5)
            assert heard.said() == [True, False]
            assert not heard.refused(steady) or scalers.troubles() > before
            assert all("UNAVAILABLE" in str(each) for _, _, each in heard.refused())

            redis.stop(signal.SIGKILL)
            redis.wipe()
            away = time.monotonic()
            time.sleep(1)
            until(LONG_SECONDS, "the owner alone takes a wake", lambda: takes_a_wake(owner))
            assert not takes_a_wake(scalers.others(owner)[0])
            until(LONG_SECONDS, "the owner alone says true", lambda: True in heard.by(which, away))
            redis.start()
            back = time.monotonic()
            until(LONG_SECONDS, "all answer", lambda: heard.all_answer(back))
            healed_empty = time.monotonic() - back
            time.sleep(1)
        said = heard.said()
        assert said == [True, False, True, False][: len(said)]
        assert len(said) >= 3
        assert scalers.owner(owner) is owner
        report(record_property, healed=healed, healed_empty=healed_empty)


def serves(address: str, service: str) -> bool:
    """What the kubelet's probe makes of it."""
    with grpc.insecure_channel(address) as channel:
        asked = health_pb2.HealthCheckRequest(service=service)
        answer = health_pb2_grpc.HealthStub(channel).Check(asked, timeout=30).status
    return bool(answer == health_pb2.HealthCheckResponse.SERVING)


def test_one_that_has_never_reached_redis_is_not_ready_and_one_that_has_stays_so(
    tmp_path: Path, redis: RedisServer
) -> None:
    """A rollout with another password, or while Redis is away, must not end those that go on with what they own."""

    def serving() -> str | None:
        log = tmp_path / "scaler.log"
        return next((line["grpc"] for line in said(log, "serving")), None) if log.exists() else None

    redis.stop()
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        starting = pool.submit(
            lambda: stack.enter_context(running_scaler(tmp_path, "--store", redis.url, "--tick-seconds", "0.3"))
        )
        address = until(SCALER_SECONDS, "it serves", serving)
        time.sleep(START_SECONDS + 1)
        assert not serves(address, "readiness")
        assert serves(address, "liveness")
        assert not starting.done(), "nor is /readyz"
        redis.start()
        scaler = starting.result(LONG_SECONDS)
        until(LONG_SECONDS, "it is ready", lambda: serves(address, "readiness"))
        redis.stop()
        time.sleep(LEASE_SECONDS + 1)
        assert serves(address, "readiness")
        assert scaler.text("/readyz")
    redis.start()
