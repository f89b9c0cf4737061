"""A real SGLang with the agent beside it: what runs follows what is published, live, and no request fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from scaler.consume.engine import EngineBatch
from scaler.consume.engine_http import EngineHttp
from scaler.consume.sglang import SGLang
from scaler.signals.preset import load_preset
from tests.agent.running_agent import running_agent
from tests.ports import free_port
from tests.real import sglang_cpu, vllm_cpu
from tests.real.test_agent_guards_vllm import until
from tests.real.test_vllm_follows import LONG_SECONDS, TOKEN, WORKLOAD, loaded, publishing, until_running
from tests.real.test_vllm_reads import read

pytestmark = pytest.mark.real

RUNNING = "sglang:num_running_reqs"
GUARD = 'loadtide_agent_guard_batch_size{namespace="chat",replica="tiny-0",workload="tiny"}'


async def batch(engine: vllm_cpu.Server) -> EngineBatch:
    """What the engine says of itself."""
    async with aiohttp.ClientSession() as session:
        return await SGLang(EngineHttp(session, engine.url, timeout_seconds=30)).read()


async def test_running_follows_the_target_without_a_restart(sglang: vllm_cpu.Server, tmp_path: Path) -> None:
    most = sglang.max_num_seqs
    assert await batch(sglang) == EngineBatch(most, own=most, most=most)
    port = free_port()
    arguments = ("--workload", WORKLOAD, "--scaler", f"http://127.0.0.1:{port}", "--replica", "tiny-0")
    engine = ("--engine", "sglang", "--engine-url", sglang.url)
    async with publishing(port) as loadtide:
        with running_agent(tmp_path, *arguments, *engine, environment={"LOADTIDE_TOKEN": TOKEN}) as agent:
            with loaded(sglang, 3 * most):
                await until_running(sglang, most, RUNNING)
                for asked in (3, 6, 100):  # more than the server was started with is what it was started with
                    generation = await loadtide.publish(asked)
                    await loadtide.until_applied(batch_size=min(asked, most), generation=generation)
                    assert (await batch(sglang)).size == min(asked, most)
                    await until_running(sglang, min(asked, most), RUNNING)
                await loadtide.until_applied(batch_size=3, generation=await loadtide.publish(3))
                await until_running(sglang, 3, RUNNING)
            assert await asyncio.to_thread(agent.stop) == 0
            (told,) = agent.lines("the engine is left alone")
            assert told["at_its_own_setting"] is True
    assert await batch(sglang) == EngineBatch(most, own=most, most=most)


async def test_a_full_kv_cache_lowers_the_batch_without_a_scaler(sglang: vllm_cpu.Server, tmp_path: Path) -> None:
    """KV use and retractions of the real engine: the agent lowers what runs, and no request fails. With the load over
    the limit goes up again, as far as answers like these fit, and at the agent's end there is none.
    """
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"workloads:\n  {WORKLOAD}:\n    batch: {{cooldown_seconds: 3, settle_seconds: 6}}\n")
    arguments = ("--workload", WORKLOAD, "--policy", str(policy), "--replica", "tiny-0")
    with running_agent(tmp_path, *arguments, "--engine", "sglang", "--engine-url", sglang.url) as agent:

        async def limit() -> float | None:
            return await asyncio.to_thread(agent.value, GUARD)

        async def moves() -> list[str]:
            return [move["reasons"][0]["code"] for move in await asyncio.to_thread(agent.lines, "memory guard")]

        with loaded(sglang, 2 * sglang.max_num_seqs, max_tokens=160):
            await until(limit, lambda found: found is not None, LONG_SECONDS)
            await until(
                lambda: batch(sglang), lambda now: now.size is not None and now.size < sglang.max_num_seqs, LONG_SECONDS
            )
        await until(moves, lambda made: made[-1] == "recovery", LONG_SECONDS)
        assert await asyncio.to_thread(agent.stop) == 0
        first = agent.lines("memory guard")[0]
    assert first["before"] is None
    assert first["limit"] < sglang.max_num_seqs
    assert first["reasons"][0]["signal"] in {"kv_use_ratio", "preemptions_recent"}
    assert (await batch(sglang)).follows_own


async def test_every_rank_has_its_part(vllm_installation: vllm_cpu.Installation, tmp_path: Path) -> None:
    """Two data-parallel ranks: the batch is all of theirs, on the page as in what is set. Each keeps its own limit."""
    installation = sglang_cpu.install(vllm_installation)
    with sglang_cpu.serve(installation, tmp_path / "log", max_running_requests=8, kv_tokens=1024, ranks=2) as server:
        most = 16
        assert await batch(server) == EngineBatch(most, own=most, most=most, step=2)
        async with aiohttp.ClientSession() as session:
            engine = SGLang(EngineHttp(session, server.url, timeout_seconds=30))
            await engine.write(6)
            assert await engine.read() == EngineBatch(6, own=most, most=most, step=2, follows_own=False)
            await engine.restore()
            assert (await engine.read()).follows_own
        assert (await read(server, load_preset("sglang"))).gauges["kv_capacity_tokens"] == 2 * 1024
