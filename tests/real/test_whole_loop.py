"""The main job on a real engine: load on a real vLLM becomes replicas for KEDA and a batch for the engine, and ebbs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.real import load, vllm_cpu
from tests.running_scaler import KedaPoll, running_scaler

pytestmark = pytest.mark.real

#: Times short enough for a test; everything else as shipped.
POLICY = """
workloads:
  chat/tiny:
    scrape: {{urls: ["{url}"]}}
    push: {{enabled: true}}
    window_seconds: 10
    idle: {{timeout_seconds: 12}}
    load: {{low_dwell_seconds: 5}}
    batch: {{max: 8}}
    replicas: {{max: 4, cold_start_seconds: 10, down_window_seconds: 8, down_step_seconds: 4}}
"""
TOKEN = "gateway-token"


async def test_a_wave_on_a_real_vllm_is_seen_by_keda_and_by_the_engine(vllm: vllm_cpu.Server, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(url=vllm.metrics_url))
    arguments = ("--policy", str(policy), "--store", str(tmp_path / "memory.db"), "--tick-seconds", "1")
    with running_scaler(tmp_path, *arguments, environment={"LOADTIDE_TOKEN": TOKEN}) as scaler:
        keda = KedaPoll(scaler, "chat", "tiny")
        assert keda.poll() == (1.0, True)  # nothing is remembered: just active
        keda.until(lambda replicas, active: (replicas, active) == (0.0, False), 30, "idle to zero")

        driver = asyncio.create_task(load.keep_streams(vllm.url, streams=32, seconds=25, max_tokens=100))
        await asyncio.to_thread(keda.until, lambda replicas, active: active and replicas >= 1, 10, "awake")
        await asyncio.to_thread(keda.until, lambda replicas, _: replicas >= 2, 20, "more replicas for the queue")
        risen = scaler.get("/v1/workloads/chat/tiny")
        target = scaler.get("/v1/workloads/chat/tiny/target")
        metrics = scaler.text("/metrics")
        outcome = await driver
        assert (outcome.failed, outcome.failures) == (0, [])

        assert risen["state"] in ("high", "critical")
        assert any(reason["target"] == "replicas" for reason in risen["reasons"])
        assert (target["batch_size"], target["admission"]) == (8, "open")  # queueing took nothing from the batch
        assert re.search(r'^loadtide_target_batch_size\{.*workload="tiny".*\} 8\.0$', metrics, re.MULTILINE)
        assert re.search(r'^loadtide_load_state\{.*state="idle".*\} 0\.0$', metrics, re.MULTILINE)

        await asyncio.to_thread(keda.until, lambda replicas, active: not active and replicas == 0, 45, "quiet again")
        changes = [line["changes"] for line in scaler.lines("adjusted")]
        assert all("batch" not in change for change in changes[1:])
        assert any(line["reasons"] for line in scaler.lines("adjusted") if "replicas" in line["changes"])

        assert scaler.post("/v1/workloads/chat/tiny/wake", {}, TOKEN) == 202
        await asyncio.to_thread(keda.until, lambda _, active: active, 3, "woken by the gateway")
        keda.close()
