"""A real vLLM whose KV cache is too small for what it is asked, with the agent beside it and no scaler anywhere."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest

from tests.agent.running_agent import running_agent
from tests.plugins.wheel import unpacked
from tests.ports import free_port
from tests.real import vllm_cpu

pytestmark = pytest.mark.real
BOOT = 32
#: For whatever is to come; it costs nothing when all is well.
LONG_SECONDS = 150.0
#: 16 blocks of 128 tokens: five requests of 360 tokens fill them.
KV_CACHE_BYTES = 33_554_432
POLICY = """\
workloads:
  chat/tiny:
    batch: {cooldown_seconds: 3, settle_seconds: 6}
"""


async def test_the_guard_lowers_the_batch_without_a_scaler_and_gives_it_back(
    vllm_installation: vllm_cpu.Installation, tmp_path: Path
) -> None:
    """KV use and preemptions of the real engine: the agent shrinks what runs within seconds, the plugin applies it, no
    request fails; with the load over, the limit goes up step by step and ends.
    """
    port = free_port()
    (tmp_path / "policy.yaml").write_text(POLICY)
    variables = {
        "PYTHONPATH": str(unpacked(tmp_path)),
        "LOADTIDE_URL": f"http://127.0.0.1:{port}",
        "LOADTIDE_WORKLOAD": "chat/tiny",
        "LOADTIDE_TOKEN": "none",
        "LOADTIDE_REPLICA": "tiny-0",
    }
    with (
        vllm_cpu.serve(
            vllm_installation,
            tmp_path / "vllm.log",
            max_num_seqs=BOOT,
            kv_cache_bytes=KV_CACHE_BYTES,
            variables=variables,
        ) as engine,
        running_agent(
            tmp_path,
            *("--workload", "chat/tiny", "--engine", "vllm", "--metrics-url", engine.metrics_url),
            *("--serve-target", f"127.0.0.1:{port}", "--policy", str(tmp_path / "policy.yaml"), "--replica", "tiny-0"),
        ) as agent,
    ):
        statuses: Counter[int] = Counter()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def ask() -> None:
                body = {"model": vllm_cpu.MODEL_NAME, "prompt": "tide " * 60, "max_tokens": 300, "ignore_eos": True}
                async with session.post(f"{engine.url}/v1/completions", json=body) as answer:
                    await answer.read()
                    statuses[answer.status] += 1

            async def limit() -> float | None:
                page = await asyncio.to_thread(agent.text, "/metrics")
                found = [line for line in page.splitlines() if line.startswith("loadtide_agent_guard_batch_size{")]
                return float(found[0].rpartition(" ")[2]) if found else None

            asked = [asyncio.ensure_future(ask()) for _ in range(16)]
            lowered = await until(limit, lambda found: found is not None, LONG_SECONDS)
            assert lowered is not None
            assert lowered < BOOT
            await until(lambda: applied(session, engine.metrics_url), lambda batch: batch <= lowered, LONG_SECONDS)
            async with asyncio.timeout(600):
                await asyncio.gather(*asked)
            await until(limit, lambda found: found is None, LONG_SECONDS)
            await until(lambda: applied(session, engine.metrics_url), lambda batch: batch == BOOT, LONG_SECONDS)
        assert set(statuses) == {200}
        moves = agent.lines("memory guard")
        assert moves[0]["before"] is None
        assert moves[-1]["limit"] is None
        assert {move["reasons"][0]["signal"] for move in moves if move["limit"] and move["before"] is None} <= {
            "kv_use_ratio",
            "preemptions_recent",
        }
        said = engine.log.read_text(errors="replace")
        assert "Traceback" not in said, said[-5000:]


T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T]], wanted: Callable[[T], bool], seconds: float) -> T:
    """Ask twice a second until the answer is what is wanted; that answer."""
    async with asyncio.timeout(seconds):
        while not wanted(answer := await ask()):  # noqa: ASYNC110  - an engine is asked, not a task of ours
            await asyncio.sleep(0.5)
    return answer


async def applied(session: aiohttp.ClientSession, metrics_url: str) -> float:
    """The batch that the scheduler really runs with, from the engine's own page; infinite until it first tells one: the
    plugin's gauges come a moment after the engine is ready, and the guard may be quicker."""
    async with session.get(metrics_url) as answer:
        page = await answer.text()
    told = [line for line in page.splitlines() if line.startswith("loadtide_engine_batch_size{")]
    return float(told[0].rpartition(" ")[2]) if told else math.inf
