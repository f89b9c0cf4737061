"""The stand-in over real HTTP on loopback, and as the process that `make run` starts."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeAlias

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from scaler.lab.engine import Engine
from scaler.lab.hardware import HARDWARE
from scaler.lab.standin import Replica, make_app
from scaler.lab.vllm_page import VllmPage
from scaler.lab.wave import Arrival

Client: TypeAlias = TestClient[web.Request, web.Application]


def a_replica(*, speed: float = 20.0, load: Iterable[Arrival] = ()) -> Replica:
    engine = Engine(HARDWARE["llama-3.1-8b-h100"], max_num_seqs=2)
    page = VllmPage(engine, model_name="tide", max_model_len=1000, process_start_seconds=time.time())
    return Replica(engine, page, speed, iter(load))


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    app = make_app(a_replica(), model_name="tide", max_model_len=1000)
    async with TestClient(TestServer(app, host="127.0.0.1")) as client:
        yield client


async def value(client: Client, name: str) -> float:
    body = await (await client.get("/metrics")).text()
    return sum(float(number) for number in re.findall(rf"^vllm:{name}(?:{{.*}})? (\S+)$", body, re.MULTILINE))


async def test_it_answers_completions_and_counts_them(client: Client) -> None:
    assert (await client.get("/health")).status == 200
    bodies = [{"prompt": "the tide comes in", "max_tokens": 7}, {"prompt": [1, 2, 3]}]
    answers = [await (await client.post("/v1/completions", json=body)).json() for body in bodies]
    assert [answer["usage"] for answer in answers] == [
        {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
        {"prompt_tokens": 3, "completion_tokens": 16, "total_tokens": 19},
    ]
    assert await value(client, "request_success_total") == 2
    assert await value(client, "generation_tokens_total") == 23
    assert await value(client, "num_requests_running") == 0


async def test_a_stream_brings_every_token_and_ends(client: Client) -> None:
    response = await client.post("/v1/completions", json={"prompt": "x", "max_tokens": 30, "stream": True})
    events = [line.removeprefix("data: ") for line in (await response.text()).splitlines() if line]
    chunks = [json.loads(event)["choices"][0] for event in events[:-1]]
    assert events[-1] == "[DONE]"
    assert sum(chunk["text"].count("tide") for chunk in chunks) == 30
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]


async def test_beyond_its_batch_requests_wait(client: Client) -> None:
    requests = [
        asyncio.ensure_future(client.post("/v1/completions", json={"prompt": "x", "max_tokens": 900})) for _ in range(3)
    ]
    for _ in range(500):
        if await value(client, "num_requests_waiting"):
            break
        await asyncio.sleep(0.01)
    assert await value(client, "num_requests_running") == 2
    assert await value(client, "num_requests_waiting") == 1
    assert [response.status for response in await asyncio.gather(*requests)] == [200] * 3


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "not JSON"),
        ("[]", "prompt must be"),
        ('{"prompt": ["two", "texts"]}', "prompt must be"),
        ('{"prompt": "x", "max_tokens": 0}', "max_tokens must be"),
        ('{"prompt": "x", "max_tokens": "9"}', "max_tokens must be"),
        ('{"prompt": "x", "max_tokens": 1000}', "exceed the model's 1000"),
    ],
)
async def test_a_request_it_cannot_serve_is_answered_400_with_the_reason(client: Client, body: str, says: str) -> None:
    response = await client.post("/v1/completions", data=body)
    assert response.status == 400
    assert says in (await response.json())["error"]["message"]


async def test_the_load_arrives_at_its_own_times_not_at_the_slices() -> None:
    load = [Arrival(0.011, 10, 5), Arrival(0.012, 10, 5)]
    replica = a_replica(speed=1.0, load=load)
    await asyncio.sleep(0.2)
    replica.catch_up()
    # The second came 1 ms into the first one's prefill and waited for the end of that step.
    prefill_seconds = HARDWARE["llama-3.1-8b-h100"].cost.seconds(1, 0, 10)
    assert replica.engine.idle
    waited = re.search(rb"request_queue_time_seconds_sum{.*} (\S+)", replica.page.text())
    assert waited is not None
    assert float(waited[1]) == pytest.approx(prefill_seconds - 0.001)


async def test_the_process_says_where_it_is_and_ends_when_asked() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scaler.lab.standin", "--wave", "--speed", "20", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        said = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", said["metrics"])
        assert said["max_num_seqs"] == 16
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_taken_port_is_said_with_what_to_do(client: Client) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scaler.lab.standin", "--port", str(client.port)),
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"choose another --port" in said
