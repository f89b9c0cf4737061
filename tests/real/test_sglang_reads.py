"""A real SGLang under load, read by the scrape source: every family that decisions rest on is there and means it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.signals.observation import EngineSample
from scaler.signals.preset import load_preset
from tests.real import load, vllm_cpu
from tests.real.test_vllm_reads import read

pytestmark = pytest.mark.real

#: Half as many again as the batch; the KV cache has room for six of them.
REQUESTS, TOKENS = 12, 160
PRESET = load_preset("sglang")


def total(sample: EngineSample, family: str) -> float:
    return sum(sample.counters[family].values())


def counted(sample: EngineSample, family: str) -> float:
    return sum(buckets.count for buckets in sample.histograms[family].values())


async def first_read(server: vllm_cpu.Server, wanted: Callable[[EngineSample], object]) -> EngineSample:
    """The first read that is as wanted."""
    async with asyncio.timeout(120):
        while True:
            if wanted(sample := await read(server, PRESET)):
                return sample
            await asyncio.sleep(0.1)


async def test_a_real_sglang_under_load_gives_every_family(sglang: vllm_cpu.Server) -> None:
    quiet = await first_read(sglang, lambda now: (now.gauges["running"], now.gauges["waiting"]) == (0, 0))
    assert quiet.gauges["kv_capacity_tokens"] == 1024

    loaded, sent = None, 0
    while loaded is None:  # once, but for a machine that stands still for as long as the load lasts
        driver = asyncio.create_task(
            load.arrive(sglang.url, requests_per_second=100, seconds=REQUESTS / 100, max_tokens=TOKENS)
        )
        while not driver.done() and loaded is None:
            seen = await read(sglang, PRESET)
            loaded = seen if seen.gauges["running"] and seen.gauges["waiting"] else None
            await asyncio.sleep(0.1)
        outcome = await driver
        assert (outcome.ok, outcome.failed, outcome.failures) == (REQUESTS, 0, [])
        sent += REQUESTS
        assert sent <= 5 * REQUESTS, "never seen under load"
    after = await first_read(sglang, lambda now: total(now, "finished") >= total(quiet, "finished") + sent)

    assert 0 < loaded.gauges["running"] <= sglang.max_num_seqs
    assert 0 < loaded.gauges["waiting"] <= REQUESTS
    assert 0 < loaded.gauges["kv_use"] <= 1
    assert loaded.warnings == after.warnings == ()
    assert set(after.gauges) >= {family for family, of in PRESET.families.items() if of.kind == "gauge"}
    for family, of in PRESET.families.items():
        if of.kind == "counter":
            assert total(after, family) > total(quiet, family), family
        if of.kind == "histogram":
            assert counted(after, family) > counted(quiet, family), family
            assert all(buckets.cumulative[-1] == buckets.count for buckets in after.histograms[family].values())
    assert after.process_start_seconds is None

    finished = total(after, "finished") - total(quiet, "finished")
    assert finished == counted(after, "e2e") - counted(quiet, "e2e") == sent
    # What was taken back and computed again is counted once.
    assert total(after, "generation_tokens") - total(quiet, "generation_tokens") == sent * TOKENS
    # Some of them waited for whole answers of others: the queue is in the queue's own histogram.
    assert sum(buckets.sum for buckets in after.histograms["queue"].values()) > 0.5


async def test_time_per_token_is_of_streamed_answers_and_of_long_ones(sglang: vllm_cpu.Server) -> None:
    """It tells a streamed answer at each token; another one at its 50th, its 100th, .. and its last, and times what
    lies between. So with short answers that are not streamed there is no time per token; to the first there is.
    """

    async def timed(tokens: int, *, stream: bool) -> tuple[float, float]:
        before = await read(sglang, PRESET)
        async with aiohttp.ClientSession() as session:
            body = {"model": "tiny", "prompt": "tide", "max_tokens": tokens, "ignore_eos": True, "stream": stream}
            async with session.post(f"{sglang.url}/v1/completions", json=body) as answer:
                assert answer.status == 200
                await answer.read()
        after = await first_read(sglang, lambda now: counted(now, "e2e") > counted(before, "e2e"))
        return counted(after, "ttft") - counted(before, "ttft"), counted(after, "tpot") - counted(before, "tpot")

    assert await timed(40, stream=True) == (1, 39)
    assert await timed(40, stream=False) == (1, 0)
    assert await timed(60, stream=False) == (1, 10)


def test_probe_misses_nothing(sglang: vllm_cpu.Server) -> None:
    result = CliRunner().invoke(app, ["probe", sglang.metrics_url])
    assert result.exit_code == 0, result.output
    assert "engine: sglang (" in result.stdout
    assert "missing" not in result.stdout
    assert "restart shows only where a counter falls" in " ".join(result.stdout.split())
