"""A real Triton under load, read by the scrape source: what its page says is what its clients saw."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import aiohttp
import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.policy.layers import PolicyFile
from scaler.policy.model import Scrape
from scaler.signals.model import known_value
from scaler.signals.observation import EngineSample
from scaler.signals.preset import load_preset
from scaler.signals.scrape import scrape
from tests.patience import comes_to
from tests.real import triton_server
from tests.real.triton_load import Answer, Clients, ask, clients
from tests.signals.timeline import Timeline

pytestmark = pytest.mark.real

BATCH, SECONDS = 4, 0.1
#: Three times the batch: it stays full, and two batches wait.
CLIENTS = 12
MOST_QUEUED = 20
RUNNING_IS_ESTIMATED = "running is estimated from nv_inference_compute_infer_duration_us"


@pytest.fixture(scope="module")
def server(
    triton_installation: triton_server.Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[triton_server.Server]:
    folder = tmp_path_factory.mktemp("triton")
    full, late = f"max_queue_size: {MOST_QUEUED}", "timeout_action: REJECT default_timeout_microseconds: 250000"
    models = folder / "models"
    triton_server.put(models, "text", seconds=SECONDS, batching=f"default_queue_policy {{ {full} }}")
    triton_server.put(models, "duo", seconds=SECONDS, versions=(1, 2), batching=f"default_queue_policy {{ {late} }}")
    with triton_server.serve(triton_installation, folder, "--metrics-config", "histogram_latencies=true") as running:
        yield running


async def read(server: triton_server.Server, model: str | None = "text") -> EngineSample:
    """One read of the page; a failure's reason fails the test."""
    async with aiohttp.ClientSession() as session:
        config = Scrape(urls=(server.metrics_url,), model_name=model, timeout_seconds=60.0)
        answers = await scrape(session, config, load_preset("triton"), mono=time.monotonic, unix=time.time)
    sample = answers[server.metrics_url]
    assert isinstance(sample, EngineSample), sample
    return sample


async def page(session: aiohttp.ClientSession, server: triton_server.Server) -> str:
    async with session.get(server.metrics_url) as answer:
        return await answer.text()


def finished(sample: EngineSample) -> float:
    return sum(sample.counters["finished"].values())


async def at_once(server: triton_server.Server, model: str, *values: float) -> list[Answer]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        return await asyncio.gather(*[ask(session, server.url, model, value) for value in values])


async def test_what_runs_waits_and_finishes_is_what_the_clients_saw(server: triton_server.Server) -> None:
    quiet = await read(server)
    assert quiet.gauges == {"waiting": 0.0}
    async with clients(server.url, "text", CLIENTS) as driven:
        await asyncio.sleep(2 * SECONDS)
        await comes_to(lambda: three_seconds_are_as_seen(server, driven))
    after = await read(server)
    assert not driven.failures
    assert finished(after) - finished(quiet) == len(driven.answers)


async def three_seconds_are_as_seen(server: triton_server.Server, driven: Clients) -> None:
    """In which nothing stood still."""
    line, before = Timeline(interval_seconds=1.0), await read(server)
    line.at(0, a=before)
    for _ in range(3):
        await asyncio.sleep(1)
        busy = await read(server)
        signals = line.at(busy.at - before.at, a=busy)
    assert known_value(signals.running) == pytest.approx(BATCH, abs=0.7)
    assert known_value(signals.waiting) == pytest.approx(CLIENTS - BATCH, abs=BATCH)
    seen = [each for each in driven.answers if before.at <= each.ended <= busy.at]
    rate = len(seen) / (busy.at - before.at)
    assert known_value(signals.finished_per_second) == pytest.approx(rate, rel=0.15)
    took = sum(each.ended - each.began for each in seen) / len(seen)
    whole, queue = known_value(signals.e2e_seconds), known_value(signals.queue_seconds)
    assert whole is not None
    assert queue is not None
    assert whole.mean_seconds == pytest.approx(took, rel=0.2)
    assert queue.mean_seconds == pytest.approx(took - SECONDS, rel=0.3)
    assert signals.warnings == (RUNNING_IS_ESTIMATED,)


async def test_this_version_has_no_histogram_for_models_that_answer_once(server: triton_server.Server) -> None:
    """It was asked for (``histogram_latencies``): the preset's mean takes its place."""
    async with aiohttp.ClientSession() as session:
        text = await page(session, server)
    assert "histogram" not in text
    assert "process_start_time_seconds" not in text, "a counter that falls is the only sign of a restart"
    assert sorted((await read(server)).histograms) == ["e2e", "queue"]


async def test_a_request_that_a_full_queue_refuses_is_counted_nowhere(server: triton_server.Server) -> None:

    async def some_are_refused() -> None:
        before = await read(server)
        answers = await at_once(server, "text", *[1.0] * (2 * MOST_QUEUED))
        refused = [each for each in answers if each.status == 503]
        assert finished(await read(server)) - finished(before) == len(answers) - len(refused)
        assert all("Exceeds maximum queue size" in each.said for each in refused)
        assert refused

    await comes_to(some_are_refused)  # at once, unless who asks stood still between two of them


async def test_every_other_end_of_a_request_is_counted_once(server: triton_server.Server) -> None:
    """Late in the queue, refused by the model alone (it counts as a success) or with its whole batch."""

    async def each_end_is_seen() -> None:
        before = await read(server, "duo")
        late = await at_once(server, "duo", *[1.0] * 40)
        alone = await at_once(server, "duo", -1.0, 1.0)
        whole = await at_once(server, "duo", -1.0, -1.0)
        after = await read(server, "duo")
        assert finished(after) - finished(before) == len(late) + len(alone) + len(whole)
        assert after.gauges == {"waiting": 0.0}
        assert {each.said for each in late if each.status != 200} == {"Request timeout expired"}
        assert {each.status for each in whole} == {500}

    await comes_to(each_end_is_seen)  # at once, unless the server stood still for longer than one may wait in its queue


async def test_versions_of_one_model_make_one_workload_and_models_are_told_apart(server: triton_server.Server) -> None:
    before, other = await read(server, "duo"), await read(server)
    await at_once(server, "duo/versions/1", 1.0, 1.0, 1.0)
    await at_once(server, "duo/versions/2", 1.0)
    assert finished(await read(server, "duo")) - finished(before) == 4
    assert finished(await read(server)) == finished(other)
    (mixed,) = [each for each in (await read(server, None)).warnings if "models" in each]
    assert "duo" in mixed
    assert "text" in mixed


async def change(server: triton_server.Server, model: str, what: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v2/repository/models/{model}/{what}", json={}) as answer,
    ):
        assert answer.status == 200, await answer.text()


async def test_a_model_that_is_loaded_again_goes_on_counting(server: triton_server.Server) -> None:
    await at_once(server, "text", 1.0)
    before = finished(await read(server))
    (server.models / "text" / "config.pbtxt").touch()
    await change(server, "text", "load")
    assert finished(await read(server)) == before > 0
    await at_once(server, "text", 1.0)
    assert finished(await read(server)) == before + 1


async def test_a_model_that_was_unloaded_leaves_its_failures_and_begins_anew(server: triton_server.Server) -> None:
    """What stays of it on the page must not look like an idle model."""
    await at_once(server, "duo", 1.0)
    await change(server, "duo", "unload")
    # Unloading goes on after the answer, until the model's processes have ended.
    deadline = time.monotonic() + 60
    while (left := await read(server, "duo")).gauges:
        assert time.monotonic() < deadline, "an unloaded model's queue stays"
        await asyncio.sleep(0.1)
    assert (left.counters, left.histograms, left.warnings) == ({}, {}, ())
    await change(server, "duo", "load")
    anew = await read(server, "duo")
    assert sum(each.count for each in anew.histograms["e2e"].values()) == 0
    assert anew.gauges == {"waiting": 0.0}


def test_a_probe_knows_it_and_its_lines_are_a_policy_for_it(server: triton_server.Server) -> None:
    result = CliRunner().invoke(app, ["probe", server.metrics_url])
    said = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.output
    assert "engine: triton (5 of 5 families)" in said
    assert "missing" not in said
    lines = PolicyFile.parse("p.yaml", result.stdout[result.stdout.index("workloads:") :])
    (name,) = lines.workloads
    policy = lines.resolve(name).policy
    assert (policy.engine, policy.scrape.urls) == ("triton", (server.metrics_url,))
