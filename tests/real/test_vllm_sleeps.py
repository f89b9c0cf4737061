"""A real vLLM down the rungs and up again: scaler and agent beside it, its own routes, on its CPU build.

The CPU build has the routes, the pause of the scheduler and the states; it frees no memory (its worker ignores the
call), so what is seen here of the seconds a wake takes is the machinery's part alone.
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.running_agent import running_agent, until
from tests.real import vllm_cpu
from tests.running_scaler import KedaPoll, running_scaler

pytestmark = pytest.mark.real

POLICY = """
workloads:
  chat/tiny:
    scrape: {{urls: ["{url}"]}}
    push: {{enabled: true}}
    window_seconds: 10
    idle: {{timeout_seconds: 40, sleep_after_seconds: 6, sleep_level: {level}}}
    replicas: {{max: 4, down_window_seconds: 8}}
"""
TOKEN = "gateway-token"
#: For whatever is to come; it costs nothing when all is well.
LONG_SECONDS = 150.0


async def test_it_sleeps_when_nobody_asks_and_wakes_for_whoever_the_gateway_holds(
    vllm_installation: vllm_cpu.Installation, tmp_path: Path
) -> None:
    """Once at level 2, where the weights are read anew, then at level 1, and from there to zero."""
    policy, dev_mode = tmp_path / "policy.yaml", {"VLLM_SERVER_DEV_MODE": "1"}
    with vllm_cpu.serve(vllm_installation, tmp_path / "vllm.log", variables=dev_mode) as engine:
        before = answered(engine.url)
        policy.write_text(POLICY.format(url=engine.metrics_url, level=2))
        serve = ("--policy", str(policy), "--store", str(tmp_path / "memory.db"), "--tick-seconds", "1")
        with running_scaler(tmp_path, *serve, environment={"LOADTIDE_TOKEN": TOKEN}) as scaler:
            beside = ("--workload", "chat/tiny", "--scaler", f"http://{scaler.http}", "--engine", "vllm")
            urls = ("--engine-url", engine.url, "--metrics-url", engine.metrics_url, "--replica", "tiny-0")
            with running_agent(tmp_path, *beside, *urls, environment={"LOADTIDE_TOKEN": TOKEN}) as agent:
                keda = KedaPoll(scaler, "chat", "tiny")
                await waited(lambda: state(engine, "discard_all"), LONG_SECONDS, "asleep")
                told = "/v1/workloads/chat/tiny"
                await waited(lambda: scaler.get(told)["sleep"]["asleep_replicas"] == 1, LONG_SECONDS, "seen asleep")
                document = scaler.get(told)
                assert (document["rung"], document["state"], document["available"]) == ("asleep", "idle", True)
                assert keda.poll() == (1.0, True)  # it is a replica, whatever it does

                # Whoever gets past the gateway waits inside, and shows nowhere.
                asked = asyncio.ensure_future(asyncio.to_thread(answered, engine.url))
                await asyncio.sleep(2)
                assert not asked.done()
                assert 'vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0' in page(engine.metrics_url)

                assert scaler.post(f"{told}/demand", {"pending": 1}, TOKEN) == 202
                await waited(lambda: state(engine, "awake"), LONG_SECONDS, "awake")
                assert await asked == before  # the weights that were read again are those of before
                assert scaler.post(f"{told}/demand", {"pending": 0}, TOKEN) == 202
                await waited(lambda: measured(scaler.text("/metrics")), LONG_SECONDS, "the wake is measured")

                policy.write_text(POLICY.format(url=engine.metrics_url, level=1))
                await waited(lambda: state(engine, "weights_offloaded"), LONG_SECONDS, "asleep again")
                await asyncio.to_thread(keda.until, lambda _, active: not active, LONG_SECONDS, "then zero")
                keda.close()
                assert agent.value("loadtide_agent_rung_changes_total") == 3
                assert agent.stop() == 0
                assert state(engine, "awake")  # nobody is left who would wake it
                assert answered(engine.url) == before


def measured(metrics: str) -> bool:
    """Whether a wake's times are told: from the decision on, and inside the engine."""
    names = ('wake_seconds{namespace="chat",workload="tiny",from="asleep"}', "applied_wake_seconds{")
    return all(re.search(rf"^loadtide_{re.escape(name)}", metrics, re.MULTILINE) for name in names)


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=LONG_SECONDS) as answer:
        return str(answer.read().decode())


def state(engine: vllm_cpu.Server, name: str) -> bool:
    """Whether it is in this state, as its page and its route say."""
    asleep = bool(json.loads(page(f"{engine.url}/is_sleeping"))["is_sleeping"])
    line = f'vllm:engine_sleep_state{{engine="0",model_name="tiny",sleep_state="{name}"}} 1.0'
    return asleep is (name != "awake") and line in page(engine.metrics_url)


def answered(url: str) -> Any:
    """What the model says to one and the same question."""
    body = {"model": vllm_cpu.MODEL_NAME, "prompt": "tide", "max_tokens": 8, "temperature": 0}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=LONG_SECONDS) as answer:
        return json.load(answer)["choices"][0]["text"]


async def waited(done: Callable[[], bool], seconds: float, what: str) -> None:
    await asyncio.to_thread(until, done, seconds, what)
