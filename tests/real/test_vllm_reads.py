"""A real vLLM under load, read by the scrape source: every family that decisions rest on is there and means it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import aiohttp
import pytest

from scaler.policy.model import Scrape
from scaler.signals.observation import EngineSample
from scaler.signals.preset import Preset, load_preset
from scaler.signals.scrape import scrape
from tests.real import load, vllm_cpu

pytestmark = pytest.mark.real

#: Three times the batch: it stays full and a queue stays, whoever finishes.
STREAMS = 24


async def read(server: vllm_cpu.Server, preset: Preset) -> EngineSample:
    """One read of the replica; a failure's reason fails the test."""
    async with aiohttp.ClientSession() as session:
        config = Scrape(urls=(server.metrics_url,), timeout_seconds=60.0)
        answers = await scrape(session, config, preset, mono=time.monotonic, unix=time.time)
    sample = answers[server.metrics_url]
    assert isinstance(sample, EngineSample), sample
    return sample


async def test_a_real_vllm_under_load_gives_every_family(vllm: vllm_cpu.Server) -> None:
    preset = load_preset("vllm")

    def finished(sample: EngineSample) -> float:
        return sum(sample.counters["finished"].values())

    async def first_read(wanted: Callable[[EngineSample], bool]) -> EngineSample:
        async with asyncio.timeout(120):
            while not wanted(sample := await read(vllm, preset)):  # noqa: ASYNC110  - an engine is asked
                await asyncio.sleep(0.5)
        return sample

    quiet = await first_read(lambda now: (now.gauges["running"], now.gauges["waiting"]) == (0, 0))
    enough = threading.Event()
    driver = asyncio.create_task(
        load.keep_streams(vllm.url, streams=STREAMS, seconds=load.LONGEST_SECONDS, max_tokens=100, enough=enough)
    )
    busy = await first_read(lambda now: now.gauges["waiting"] > 0 and finished(now) >= finished(quiet) + 2 * STREAMS)
    enough.set()
    outcome = await driver

    assert (outcome.failed, outcome.failures) == (0, [])
    assert outcome.ok >= STREAMS
    assert 0 < busy.gauges["running"] <= vllm.max_num_seqs
    assert 0 < busy.gauges["waiting"] <= STREAMS
    assert 0 < busy.gauges["kv_use"] <= 1
    assert busy.gauges["kv_capacity_tokens"] > 1024
    assert set(busy.counters) == {family for family, of in preset.families.items() if of.kind == "counter"}
    assert set(busy.histograms) == {family for family, of in preset.families.items() if of.kind == "histogram"}
    assert busy.process_start_seconds is not None
    assert 0 < time.time() - busy.process_start_seconds < 6 * 3600
    assert busy.warnings == ()

    after = await first_read(lambda now: finished(now) >= finished(quiet) + outcome.ok)
    assert finished(quiet) < finished(busy) < finished(after) == finished(quiet) + outcome.ok
    for name in ("ttft", "tpot", "e2e", "queue", "prefill", "decode"):
        series = after.histograms[name]
        assert sum(buckets.count for buckets in series.values()) > 0, name
        assert all(buckets.cumulative[-1] == buckets.count for buckets in series.values()), name
    # Most requests waited for whole answers of others: the queue is in the queue's own histogram.
    queue = after.histograms["queue"].values()
    assert sum(buckets.sum for buckets in queue) > 0.5


async def test_prompts_that_begin_alike_hold_that_once_of_a_real_kv_cache(vllm: vllm_cpu.Server) -> None:
    """So what a sequence holds is learned beside its length (``Learned.held_share``)."""
    preset, alike = load_preset("vllm"), 60 * f"{load.PROMPT}. "

    def prompts(sample: EngineSample) -> tuple[float, float]:
        series = sample.histograms["prompt_length"].values()
        return sum(buckets.sum for buckets in series), sum(buckets.count for buckets in series)

    tokens_before, requests_before = prompts(await read(vllm, preset))
    driver = asyncio.create_task(
        load.keep_streams(vllm.url, streams=vllm.max_num_seqs, seconds=8, max_tokens=60, beginning=alike)
    )
    held = by_length = 0.0
    while not driver.done():
        await asyncio.sleep(0.25)
        busy = await read(vllm, preset)
        tokens, requests = prompts(busy)
        if requests > requests_before:
            held += busy.gauges["kv_use"] * busy.gauges["kv_capacity_tokens"]
            by_length += busy.gauges["running"] * (tokens - tokens_before) / (requests - requests_before)
    assert (await driver).failed == 0
    assert 0 < held < 0.5 * by_length  # seen: 0.3


async def test_a_load_goes_to_this_machine_only_and_ends() -> None:
    with pytest.raises(ValueError, match="not on this machine"):
        await load.keep_streams("http://example.org:8000", streams=1, seconds=1)
    with pytest.raises(ValueError, match="bounded"):
        await load.arrive("http://127.0.0.1:1", requests_per_second=10, seconds=1e6)
