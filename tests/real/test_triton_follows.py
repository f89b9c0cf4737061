"""A real Triton whose largest batch follows: models loaded again under load, as our adapter and our agent ask."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from scaler.consume.engine import EngineBatch, EngineError
from scaler.consume.engine_http import EngineHttp
from scaler.consume.link import EngineLink
from scaler.consume.triton import MARK, Triton
from tests.agent.running_agent import running_agent, until
from tests.agent.test_process import reported
from tests.patience import LONG_SECONDS, comes_to
from tests.ports import free_port
from tests.real import triton_server
from tests.real.triton_load import clients
from tests.running_scaler import running_scaler

pytestmark = pytest.mark.real

OWN, CLIENTS, SECONDS, LOAD_SECONDS = 8, 16, 0.05, 1.0
TOKEN = "tide"


@pytest.fixture(scope="module")
def server(
    triton_installation: triton_server.Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[triton_server.Server]:
    """A model for each test, all alike but for what one cannot do."""
    folder = tmp_path_factory.mktemp("triton")

    def put(name: str, *, needs: int = 0, load_seconds: float = 0.0, batching: str = "") -> None:
        triton_server.put(
            folder / "models", name,
            max_batch_size=OWN, seconds=SECONDS, load_seconds=load_seconds, needs=needs, batching=batching,
        )  # fmt: skip

    put("text", load_seconds=LOAD_SECONDS)
    put("kept", batching="preferred_batch_size: [2, 6, 8] default_queue_policy { max_queue_size: 99 }")
    put("picky", needs=4)
    put("served")
    with triton_server.serve(triton_installation, folder) as running:
        yield running


@asynccontextmanager
async def engine(server: triton_server.Server, model: str, *, grpc: str | None = None) -> AsyncIterator[Triton]:
    """Our adapter; ``grpc`` in the place of the server's, "" for loads over HTTP."""
    async with aiohttp.ClientSession() as session:
        yield Triton(
            EngineHttp(session, server.url, timeout_seconds=60.0), model, grpc=server.grpc if grpc is None else grpc
        )


async def config(server: triton_server.Server, model: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/v2/models/{model}/config") as answer:
        found: dict[str, Any] = await answer.json()
        return found


async def executed(server: triton_server.Server, model: str) -> tuple[int, int]:
    """How many requests the loaded model has answered, and in how many batches."""
    async with aiohttp.ClientSession() as session, session.get(f"{server.url}/v2/models/{model}/stats") as answer:
        (told,) = (await answer.json())["model_stats"]
        return told["inference_count"], told["execution_count"]


async def test_the_batch_follows_and_no_request_fails_or_waits_for_it(server: triton_server.Server) -> None:
    """Lowered, raised, clamped to its own, and back: while it is loaded anew the old one answers."""
    before = await config(server, "text")
    async with engine(server, "text") as triton, clients(server.url, "text", CLIENTS) as driven:
        link = EngineLink(triton, mono=time.monotonic, reload_seconds=0.0)
        assert (await link.follow(None)).batch == EngineBatch(OWN, own=OWN, most=OWN)
        for wanted, batch in ((2, 2), (1000, OWN), (3, 3), (None, OWN)):
            for _ in range(5):  # once, unless the machine stands still meanwhile
                began = time.monotonic()
                followed = await link.follow(wanted)
                loaded = time.monotonic()
                assert (followed.size, followed.trouble, followed.changed) == (batch, "", True)
                assert loaded - began > LOAD_SECONDS
                if driven.longest_silence(began, loaded) < (loaded - began) / 2:
                    break
                await link.follow(OWN - batch + 1)
            else:
                pytest.fail("while it is loaded nobody is answered")

            settled = time.monotonic()

            async def batches_are_full(batch: int = batch, settled: float = settled) -> None:
                await asyncio.sleep(CLIENTS * SECONDS / batch)  # whom the old one took it answers
                requests, batches = await executed(server, "text")
                await asyncio.sleep(16 * SECONDS)
                more_requests, more_batches = await executed(server, "text")
                assert max(each.batch for each in driven.since(settled)) == batch
                assert more_batches > batches
                # Not every batch is full: a client that was just answered must ask again before the next one is made.
                assert 0.5 * batch <= (more_requests - requests) / (more_batches - batches) <= batch

            await comes_to(batches_are_full)
    assert not driven.failures
    assert await config(server, "text") == before


async def test_over_http_requests_wait_until_the_model_is_loaded(server: triton_server.Server) -> None:
    """Why the adapter asks over gRPC. Should it fail with a newer Triton: its HTTP loads no longer hold up others."""
    async with engine(server, "text", grpc="") as triton, clients(server.url, "text", CLIENTS) as driven:
        await asyncio.sleep(4 * SECONDS)
        await triton.write(2)
    assert not driven.failures
    assert max(each.ended - each.began for each in driven.answers) > LOAD_SECONDS


async def test_all_else_is_kept_and_the_override_tells_what_was_before(server: triton_server.Server) -> None:
    before = await config(server, "kept")
    async with engine(server, "kept") as triton:
        await triton.write(6)
    changed = await config(server, "kept")
    batching = {**before["dynamic_batching"], "preferred_batch_size": [2, 6]}
    assert {**changed, "parameters": None} == {
        **before, "parameters": None, "max_batch_size": 6, "dynamic_batching": batching
    }  # fmt: skip
    assert {name for name in changed["parameters"] if name not in before["parameters"]} == {MARK}
    async with engine(server, "kept") as triton:  # another agent, which has seen nothing of this
        assert await triton.read() == EngineBatch(6, own=OWN, most=OWN, follows_own=False)
        await triton.write(2)
        await triton.restore()
        assert await config(server, "kept") == before


async def test_a_configuration_that_was_changed_since_is_what_it_goes_back_to(server: triton_server.Server) -> None:
    async with engine(server, "kept") as triton:
        await triton.write(2)
        file = server.models / "kept" / "config.pbtxt"
        file.write_text(file.read_text().replace(f"max_batch_size: {OWN}", f"max_batch_size: {2 * OWN}"))
        await triton.restore()
        assert await triton.read() == EngineBatch(2 * OWN, own=2 * OWN, most=2 * OWN)


async def test_what_cannot_be_loaded_is_told_and_the_old_one_serves_on(server: triton_server.Server) -> None:
    async with engine(server, "picky") as triton, clients(server.url, "picky", CLIENTS) as driven:
        link = EngineLink(triton, mono=time.monotonic, reload_seconds=0.0)
        followed = await link.follow(2)
        assert followed.size == OWN
        assert "load failed for model 'picky'" in followed.trouble
        assert "such a batch" in followed.trouble
        failed = time.monotonic()

        async def serves_on() -> None:
            assert max(each.batch for each in driven.since(failed)) == OWN

        await asyncio.sleep(10 * SECONDS)
        await comes_to(serves_on)
    assert not driven.failures


async def test_where_loads_cannot_be_asked_for_it_is_said(
    server: triton_server.Server, triton_installation: triton_server.Installation, tmp_path: Path
) -> None:
    async with engine(server, "text", grpc=f"127.0.0.1:{free_port()}") as triton:
        with pytest.raises(EngineError, match=r"cannot connect; is Triton's gRPC on"):
            await triton.write(2)
    async with engine(server, "gone") as triton:
        with pytest.raises(EngineError, match="gone"):
            await triton.read()
    triton_server.put(tmp_path / "models", "text")
    with triton_server.serve(triton_installation, tmp_path, control="none") as fixed:
        for grpc in (fixed.grpc, ""):
            async with engine(fixed, "text", grpc=grpc) as triton:
                with pytest.raises(EngineError, match="explicit model load / unload is not allowed"):
                    await triton.write(2)


def test_the_agent_brings_a_target_to_it_and_undoes_what_a_killed_one_left(
    server: triton_server.Server, tmp_path: Path
) -> None:
    """Reported as applied; held back from a second reload; killed: the override stays until the next one looks."""
    policy = f"""\
workloads:
  chat/m:
    engine: triton
    scrape: {{urls: ["{server.metrics_url}"], model_name: served}}
    replicas: {{min: 1, max: 4}}
    batch: {{max: 4}}
"""
    (tmp_path / "policy.yaml").write_text(policy)
    scaler_at = f"127.0.0.1:{free_port()}"
    served = ("--policy", str(tmp_path / "policy.yaml"), "--store", "memory", "--tick-seconds", "0.25")
    told = ("--workload", "chat/m", "--engine", "triton", "--engine-url", server.url, "--engine-name", "served")
    told += ("--engine-grpc", server.grpc, "--metrics-url", server.metrics_url, "--reload-seconds", "300")
    token = {"LOADTIDE_TOKEN": TOKEN}

    def batch() -> int:
        size: int = asyncio.run(config(server, "served"))["max_batch_size"]
        return size

    variables = {"POD_NAME": "m-0", **token}
    with running_agent(tmp_path, *told, "--scaler", f"http://{scaler_at}", environment=variables) as agent:
        with running_scaler(tmp_path, *served, "--http", scaler_at, environment=token) as scaler:
            until(lambda: batch() == 4, LONG_SECONDS, "the target is applied")
            until(lambda: reported(scaler) == {"m-0": 4.0}, LONG_SECONDS, "and reported")
            scaler.kill()
        until(lambda: bool(agent.lines("reload held back")), LONG_SECONDS, "its own setting waits for its turn")
        agent.process.kill()
        agent.process.wait(LONG_SECONDS)
    assert batch() == 4
    with running_agent(tmp_path, *told, environment=variables) as agent:
        until(lambda: batch() == OWN, LONG_SECONDS, "its own setting again")
        until(lambda: bool(agent.lines("batch applied")), LONG_SECONDS, "told")
        assert agent.lines("batch applied")[0]["ruler"] == "own"
