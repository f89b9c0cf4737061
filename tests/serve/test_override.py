"""An operator's override on its way: what is asked of the API, who may, when it acts, and what it survives."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry

from scaler.control.model import Mode, Override
from scaler.policy.layers import PolicyFile
from scaler.policy.model import Batch, Policy, ReplicaRange
from scaler.serve.http import make_app, start_http
from scaler.serve.loop import Loop
from scaler.serve.override_body import FIELDS, OverrideBodyError, parse_override
from scaler.serve.ownership import OwnerUnheard
from scaler.serve.store import MemoryStore
from scaler.serve.workloads import Workload, Workloads
from tests.running_scaler import KedaPoll, running_scaler
from tests.serve.test_wake import Engine
from tests.serve.tide import START, FakeWorkload, FakeWorkloads, snapshot

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
BOUNDED = Policy(batch=Batch(min=4, max=64), replicas=ReplicaRange(max=6))
TOKEN = "operator"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
OVERRIDE = "/v1/workloads/team-a/chat/override"


class TestBody:
    def test_what_is_named_is_taken(self) -> None:
        body = b'{"replicas": 6, "batch_size": 4, "for_seconds": 1800, "by": "ana"}'
        assert parse_override(body, BOUNDED, NOW) == Override(6, 4, NOW + timedelta(minutes=30), "ana")
        some = parse_override(b'{"replicas": 0, "for_seconds": 60}', BOUNDED, NOW)
        assert some == Override(0, None, NOW + timedelta(minutes=1), "the API")

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ("", "not JSON"),
            ("[1]", "a JSON object"),
            ("[" * 100_000, "nested too deeply"),
            ('{"replicas": NaN, "for_seconds": 60}', "NaN"),
            ('{"replica": 3, "for_seconds": 60}', ", ".join(FIELDS)),
            ('{"for_seconds": 60}', 'neither "replicas" nor "batch_size"'),
            ('{"replicas": 3}', '"for_seconds" is missing'),
            ('{"replicas": 7, "for_seconds": 60}', "0 .. 6 (policy: replicas.max)"),
            ('{"replicas": -1, "for_seconds": 60}', "0 .. 6"),
            ('{"replicas": 1.5, "for_seconds": 60}', "whole number"),
            ('{"replicas": true, "for_seconds": 60}', "whole number"),
            ('{"batch_size": 3, "for_seconds": 60}', "4 .. 64 (policy: batch.min, batch.max)"),
            ('{"batch_size": 65, "for_seconds": 60}', "4 .. 64"),
            ('{"replicas": 3, "for_seconds": 0}', "1 .. 604800"),
            ('{"replicas": 3, "for_seconds": 1e9}', "belongs into the policy"),
            ('{"replicas": 3, "for_seconds": "30m"}', "number of seconds"),
            ('{"replicas": 3, "for_seconds": 60, "by": ""}', '"by"'),
            ('{"replicas": 3, "for_seconds": 60, "by": "a\\nb"}', '"by"'),
        ],
    )
    def test_what_cannot_be_meant_is_refused_in_words(self, body: str, said: str) -> None:
        with pytest.raises(OverrideBodyError) as refused:
            parse_override(body.encode(), BOUNDED, NOW)
        assert said in str(refused.value)


class Unheard(FakeWorkloads):
    async def set_override(self, workload: FakeWorkload, override: Override | None) -> None:
        raise OwnerUnheard("its owner cannot be told")


async def served(workloads: FakeWorkloads, token: str | None = TOKEN) -> AsyncIterator[ClientSession]:
    workloads.add("team-a/chat", snapshot())
    app = make_app(workloads, token=token, registry=CollectorRegistry(), stopping=asyncio.Event())
    runner, port = await start_http(app, "127.0.0.1", 0)
    async with ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session
    await runner.cleanup()


class TestApi:
    @pytest.fixture
    def workloads(self) -> FakeWorkloads:
        return FakeWorkloads()

    @pytest.fixture
    async def session(self, workloads: FakeWorkloads) -> AsyncIterator[ClientSession]:
        async for session in served(workloads):
            yield session

    async def test_it_is_set_and_ended(self, workloads: FakeWorkloads, session: ClientSession) -> None:
        body = {"replicas": 3, "for_seconds": 600, "by": "ana"}
        async with session.put(OVERRIDE, json=body, headers=BEARER) as answer:
            assert answer.status == 200
            told = (await answer.json())["override"]
        until = START + timedelta(minutes=10)
        assert told == {
            "replicas": 3,
            "batch_size": None,
            "until": "2025-03-03T09:10:00.000Z",
            "remaining_seconds": 600,
            "by": "ana",
        }
        async with session.delete(OVERRIDE, headers=BEARER) as answer:
            assert (answer.status, await answer.json()) == (200, {"workload": "team-a/chat", "override": None})
        assert workloads.overrides == [
            ("team-a/chat", Override(3, None, until, "ana")),
            ("team-a/chat", None),
        ]

    async def test_it_needs_the_token(self, workloads: FakeWorkloads, session: ClientSession) -> None:
        body = {"replicas": 3, "for_seconds": 600}
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            for method in ("PUT", "DELETE"):
                async with session.request(method, OVERRIDE, json=body, headers=headers) as answer:
                    assert answer.status == 401
        assert workloads.overrides == []

    async def test_without_any_token_nobody_can(self, workloads: FakeWorkloads) -> None:
        async for session in served(workloads, None):
            async with session.put(OVERRIDE, json={}) as answer:
                assert answer.status == 503
                assert "LOADTIDE_TOKEN" in (await answer.json())["error"]

    async def test_a_bad_one_is_refused_in_words(self, workloads: FakeWorkloads, session: ClientSession) -> None:
        async with session.put(OVERRIDE, json={"replicas": 5, "for_seconds": 60}, headers=BEARER) as answer:
            assert answer.status == 400
            assert "0 .. 4 (policy: replicas.max)" in (await answer.json())["error"]
        assert workloads.overrides == []

    async def test_an_owner_that_cannot_be_told_is_said(self) -> None:
        async for session in served(Unheard()):
            async with session.put(OVERRIDE, json={"replicas": 1, "for_seconds": 60}, headers=BEARER) as answer:
                assert answer.status == 503


class Scaler:
    """The loop over an engine of the test's, with a store that outlives it."""

    def __init__(self, store: MemoryStore) -> None:
        self.workloads = Workloads(PolicyFile.empty(), tick_seconds=0.1)
        self.engine = Engine()
        self.stopping = asyncio.Event()
        self.loop = Loop(self.workloads, store, observe=self.engine)
        self.loop.restore()
        self.task = asyncio.create_task(self.loop.run(self.stopping))

    async def until(self, workload: Workload, mode: Mode) -> Any:
        async with asyncio.timeout(60):
            while workload.snapshot is None or workload.snapshot.decision.mode is not mode:
                await self.workloads.wait_change(workload, workload.version, 1.0)
        return workload.snapshot.decision

    async def stop(self) -> None:
        self.stopping.set()
        await self.task


async def test_it_acts_at_once_also_while_an_engine_does_not_answer() -> None:
    scaler = Scaler(MemoryStore())
    workload = scaler.workloads.register("ns/a", {"replicasMax": "9"})
    await scaler.until(workload, Mode.ACTIVE)
    scaler.engine.answers.clear()
    await asyncio.sleep(0.25)  # a read is under way and hangs
    reads = scaler.engine.reads
    ruled = Override(5, 16, scaler.workloads.utc() + timedelta(minutes=5), "ana")
    await scaler.workloads.set_override(workload, ruled)
    decision = await scaler.until(workload, Mode.OVERRIDE)
    assert (decision.targets.replicas, decision.targets.batch) == (5, 16)
    generation = workload.generation
    await scaler.workloads.set_override(workload, None)
    decision = await scaler.until(workload, Mode.ACTIVE)
    assert decision.targets.batch != 16
    assert scaler.engine.reads == reads  # all that without another reading
    assert workload.generation == generation + 1
    scaler.engine.answers.set()
    await scaler.stop()


async def test_it_is_stored_before_the_answer_and_ends_on_time_after_a_restart() -> None:
    store = MemoryStore()
    scaler = Scaler(store)
    workload = scaler.workloads.register("ns/a", {"replicasMax": "9"})
    await scaler.until(workload, Mode.ACTIVE)
    until = scaler.workloads.utc() + timedelta(seconds=6)
    await scaler.workloads.set_override(workload, Override(5, None, until, "ana"))
    assert store.load()["ns/a"].memory.override == Override(5, None, until, "ana")
    scaler.task.cancel()  # as a kill: nothing is stored any more
    await asyncio.gather(scaler.task, return_exceptions=True)

    successor = Scaler(store)
    workload = successor.workloads.register("ns/a", {"replicasMax": "9"})
    assert (await successor.until(workload, Mode.OVERRIDE)).targets.replicas == 5
    async with asyncio.timeout(60):
        while (ruled := workload.snapshot) and ruled.decision.mode is Mode.OVERRIDE:
            last = ruled.decided_at.utc
            await successor.workloads.wait_change(workload, workload.version, 1.0)
    assert ruled is not None
    assert last < until <= ruled.decided_at.utc
    await successor.stop()


def loadtide(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "scaler", *arguments], capture_output=True, text=True, timeout=180)


def test_from_the_command_line_to_keda_and_through_a_kill(tmp_path: Path) -> None:
    """Nothing answers on port 9: an override needs no signal."""
    (tmp_path / "policy.yaml").write_text(
        "workloads:\n  chat/m:\n    scrape: {urls: ['http://127.0.0.1:9/metrics']}\n    replicas: {max: 9}\n"
    )
    (tmp_path / "token").write_text(TOKEN)
    options = ("--policy", str(tmp_path / "policy.yaml"), "--store", str(tmp_path / "memory.db"))
    options += ("--token-file", str(tmp_path / "token"), "--tick-seconds", "0.2")
    with running_scaler(tmp_path, *options) as scaler:
        where = ("--url", f"http://{scaler.http}", "--token-file", str(tmp_path / "token"))
        refused = loadtide("override", "chat/m", "--replicas", "10", "--for", "30m", *where)
        assert refused.returncode == 2
        assert "0 .. 9" in refused.stderr
        done = loadtide("override", "chat/m", "--replicas", "4", "--for", "30m", "--by", "ana", *where)
        assert done.returncode == 0, done.stderr
        assert "chat/m: replicas 4 for 30 min" in done.stdout
        scaler.kill()
    with running_scaler(tmp_path, *options, name="again") as scaler:
        keda = KedaPoll(scaler, "chat", "m")
        assert keda.until(lambda replicas, _: replicas == 4, 60, "the override of before the kill") == (4, True)
        where = ("--url", f"http://{scaler.http}")
        told = loadtide("explain", "chat/m", *where).stdout
        assert "override by ana until" in told
        assert "an operator's override rules (ana, for another" in told
        document = scaler.get("/v1/workloads/chat/m")
        assert document["override"]["replicas"] == 4
        assert json.dumps(document["reasons"]).count("override by ana") == 1
        ended = loadtide("override", "chat/m", "--end", *where, "--token-file", str(tmp_path / "token"))
        assert ended.returncode == 0, ended.stderr
        assert "no override" in ended.stdout
        keda.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--replicas", "3"),
        ("--for", "30m"),
        ("--replicas", "3", "--for", "soon"),
        ("--replicas", "3", "--for", "0m"),
        ("--end", "--replicas", "3"),
    ],
)
def test_a_command_that_cannot_be_meant_asks_nobody(arguments: tuple[str, ...]) -> None:
    done = loadtide("override", "chat/m", "--url", "http://127.0.0.1:9", *arguments)
    assert done.returncode == 2
    assert "Invalid value" in done.stderr
