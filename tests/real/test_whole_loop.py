"""The main job on a real engine: load on a real vLLM becomes replicas for KEDA and a batch for the engine, and ebbs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.patience import at_last
from tests.real import vllm_cpu
from tests.real.test_vllm_follows import loaded
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
#: For whatever is to come; it costs nothing when all is well.
LONG_SECONDS = 150.0


def test_a_wave_on_a_real_vllm_is_seen_by_keda_and_by_the_engine(vllm: vllm_cpu.Server, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(url=vllm.metrics_url))
    arguments = ("--policy", str(policy), "--store", str(tmp_path / "memory.db"), "--tick-seconds", "1")
    with running_scaler(tmp_path, *arguments, environment={"LOADTIDE_TOKEN": TOKEN}) as scaler:
        keda = KedaPoll(scaler, "chat", "tiny")
        assert keda.poll() == (1.0, True)  # nothing is remembered: just active
        keda.until(lambda replicas, active: (replicas, active) == (0.0, False), LONG_SECONDS, "idle to zero")

        def risen() -> None:
            document = scaler.get("/v1/workloads/chat/tiny")
            assert document["state"] in ("high", "critical")
            assert any(reason["target"] == "replicas" for reason in document["reasons"])
            target = scaler.get("/v1/workloads/chat/tiny/target")
            assert (target["batch_size"], target["admission"]) == (8, "open")  # queueing took nothing from the batch
            metrics = scaler.text("/metrics")
            assert re.search(r'^loadtide_target_batch_size\{.*workload="tiny".*\} 8\.0$', metrics, re.MULTILINE)
            assert re.search(r'^loadtide_load_state\{.*state="idle".*\} 0\.0$', metrics, re.MULTILINE)

        with loaded(vllm, 32, max_tokens=100):
            keda.until(lambda replicas, active: active and replicas >= 1, LONG_SECONDS, "awake")
            keda.until(lambda replicas, _: replicas >= 2, LONG_SECONDS, "more replicas for the queue")
            at_last(risen)

        keda.until(lambda replicas, active: not active and replicas == 0, LONG_SECONDS, "quiet again")
        changes = [line["changes"] for line in scaler.lines("adjusted")]
        assert all("batch" not in change for change in changes[1:])
        assert any(line["reasons"] for line in scaler.lines("adjusted") if "replicas" in line["changes"])

        assert scaler.post("/v1/workloads/chat/tiny/wake", {}, TOKEN) == 202
        keda.until(lambda _, active: active, LONG_SECONDS, "woken by the gateway")
        keda.close()
