"""The whole process against an engine page the test writes by hand: lost metrics, a kill, a jump, a wake."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.patience import LONG_SECONDS, at_last
from tests.running_scaler import KedaPoll, RunningScaler, running_scaler

TOKEN = "gateway-token"
HELD_SECONDS = 8.0


class Engine:
    """A vLLM's page with numbers the test sets; ``up`` False refuses every read."""

    def __init__(self) -> None:
        self.up = True
        self.started = time.time() - 3600
        self.running, self.waiting, self.finished = 0, 0, 100.0
        engine = self

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if not engine.up:
                    self.send_error(503)
                    return
                body = engine.page().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def page(self) -> str:
        labels = 'engine="0",model_name="m"'
        return (
            f"process_start_time_seconds {self.started}\n"
            f"vllm:num_requests_running{{{labels}}} {self.running}\n"
            f"vllm:num_requests_waiting{{{labels}}} {self.waiting}\n"
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.1\n"
            f"vllm:num_preemptions_total{{{labels}}} 0\n"
            f"vllm:prompt_tokens_total{{{labels}}} {self.finished * 100}\n"
            f"vllm:generation_tokens_total{{{labels}}} {self.finished * 50}\n"
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} {self.finished}\n'
        )


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.server.shutdown()
    engine.server.server_close()


def policy(folder: Path, engine: Engine, *lines: str) -> tuple[str, ...]:
    """A policy file for ``chat/m`` on that engine, and the arguments that use it with a file store and short ticks."""
    path = folder / "policy.yaml"
    # Its engine answers or refuses at once; the time limit is for a machine that stands still.
    scrape = f'scrape: {{urls: ["{engine.url}"], timeout_seconds: 30}}'
    body = "\n    ".join((scrape, "push: {enabled: true}", *lines))
    fresh = path.with_suffix(".new")
    fresh.write_text(f"tenancy: {{metadata_urls: allow}}\nworkloads:\n  chat/m:\n    {body}\n")
    fresh.replace(path)
    return ("--policy", str(path), "--store", str(folder / "memory.db"), "--tick-seconds", "0.2")


def answer_or_refusal(keda: KedaPoll) -> tuple[object, object]:
    """What a poll gives: (replicas, active), or (code, details) of the error KEDA gets."""
    try:
        return keda.poll()
    except grpc.RpcError as error:
        return error.code().name, error.details()  # type: ignore[attr-defined]


def ready(scaler: RunningScaler) -> bool:
    """Whether both probes of readiness say so."""
    with grpc.insecure_channel(scaler.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="readiness"))
    return scaler.text("/readyz") != "" and health.status == health_pb2.HealthCheckResponse.SERVING


def test_lost_metrics_are_held_and_then_unavailable_never_zero_and_never_false(engine: Engine, tmp_path: Path) -> None:
    engine.running = 190  # six replicas' worth of the prior
    arguments = policy(tmp_path, engine, f"hold_seconds: {HELD_SECONDS}", "replicas: {max: 20}")
    with running_scaler(tmp_path, *arguments) as scaler:
        keda = KedaPoll(scaler, "chat", "m")
        keda.until(lambda replicas, active: (replicas, active) == (6.0, True), LONG_SECONDS, "six replicas")
        engine.up = False
        lost_at, refused_at = time.monotonic(), None
        while refused_at is None or time.monotonic() - refused_at < 3:
            assert time.monotonic() - lost_at < LONG_SECONDS, "it is held for ever"
            answer = answer_or_refusal(keda)
            if refused_at is None and answer != (6.0, True):
                refused_at = time.monotonic()
            if refused_at is not None:
                assert answer == ("UNAVAILABLE", "chat/m: lost for too long to hold on to the last answer: running")
            time.sleep(0.1)
        assert refused_at - lost_at >= HELD_SECONDS - 6  # its last reading may be of before a stop of the machine
        assert ready(scaler)  # it has something to say: that it does not know
        engine.up = True
        keda.until(lambda replicas, active: (replicas, active) == (6.0, True), LONG_SECONDS, "back")
        keda.close()


def told(scaler: RunningScaler, event: str) -> list[dict[str, Any]]:
    lines = scaler.lines(event)
    assert lines
    return lines


def idle_seconds(metrics: str) -> float:
    found = re.search(r'^loadtide_idle_seconds\{.*workload="m".*\} (\S+)$', metrics, re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("traffic_while_away", [False, True])
def test_a_kill_in_the_middle_of_idleness_costs_nothing_and_ends_nothing_early(
    engine: Engine, tmp_path: Path, traffic_while_away: bool
) -> None:
    timeout = 14.0
    arguments = policy(tmp_path, engine, f"idle: {{timeout_seconds: {timeout:g}}}")
    with running_scaler(tmp_path, *arguments, environment={"LOADTIDE_TOKEN": TOKEN}) as scaler:
        keda = KedaPoll(scaler, "chat", "m")
        time.sleep(3.5)
        assert keda.poll() == (1.0, True)
        keda.close()
        before, read_at = idle_seconds(scaler.text("/metrics")), time.monotonic()
        assert 2 < before < timeout
        scaler.kill()
    killed_at = time.monotonic()
    if traffic_while_away:
        engine.finished += 1
    time.sleep(3)

    def idle_all_along(scaler: RunningScaler) -> None:
        asked_at = time.monotonic()
        assert idle_seconds(scaler.text("/metrics")) > before + (asked_at - read_at) - 2.0

    with running_scaler(tmp_path, *arguments) as scaler:
        if not traffic_while_away:
            at_last(lambda: idle_all_along(scaler))  # the time away counted
        keda = KedaPoll(scaler, "chat", "m")
        keda.until(lambda _, active: not active, LONG_SECONDS, "zero")
        since_kill = time.monotonic() - killed_at
        keda.close()
    if traffic_while_away:
        assert since_kill >= timeout  # a request nobody saw: the whole time starts anew
    else:
        assert since_kill >= timeout - before - 0.5  # and not a moment more


def test_a_wake_is_answered_at_once_and_loading_counts_as_busy(engine: Engine, tmp_path: Path) -> None:
    arguments = policy(tmp_path, engine, "idle: {timeout_seconds: 1}")
    with running_scaler(tmp_path, *arguments, environment={"LOADTIDE_TOKEN": TOKEN}) as scaler:
        keda = KedaPoll(scaler, "chat", "m")
        keda.until(lambda replicas, active: (replicas, active) == (0.0, False), LONG_SECONDS, "idle")
        engine.up = False  # KEDA has taken it to zero
        time.sleep(1)
        assert keda.poll() == (0.0, False)
        assert scaler.post("/v1/workloads/chat/m/wake", {}, TOKEN) == 202
        keda.until(lambda replicas, active: (replicas, active) == (1.0, True), LONG_SECONDS, "woken")
        time.sleep(3)  # nobody asks any more, the model still loads, longer than the idle time
        assert keda.poll() == (1.0, True)
        engine.up = True
        keda.until(lambda _, active: not active, LONG_SECONDS, "idle again, after it has loaded")
        keda.close()


def test_a_jump_on_the_engines_page_reaches_keda_with_the_next_tick(engine: Engine, tmp_path: Path) -> None:
    rows = "jump: {rows: [{rate_at_least: 100, batch: 32, replicas: 8}]}"
    arguments = policy(tmp_path, engine, rows, "replicas: {max: 10}", "batch: {start: 4, max: 64}")
    with running_scaler(tmp_path, *arguments) as scaler:
        keda = KedaPoll(scaler, "chat", "m")
        time.sleep(2)
        assert keda.poll() == (1.0, True)
        engine.waiting, engine.running = 300, 4
        keda.until(lambda replicas, _: replicas == 8, LONG_SECONDS, "the row's replicas")
        assert scaler.get("/v1/workloads/chat/m/target")["batch_size"] == 32
        codes = {(line["changes"]["replicas"][1], line["state"]) for line in scaler.lines("adjusted")[-1:]}
        assert codes == {(8, "high")}
        keda.close()


def test_a_changed_policy_file_acts_and_a_bad_one_does_not(engine: Engine, tmp_path: Path) -> None:
    arguments = policy(tmp_path, engine, "replicas: {max: 10}")
    with running_scaler(tmp_path, *arguments) as scaler:
        keda = KedaPoll(scaler, "chat", "m")
        assert keda.poll() == (1.0, True)
        policy(tmp_path, engine, "replicas: {min: 3, max: 10}")
        keda.until(lambda replicas, _: replicas == 3, LONG_SECONDS, "the new floor")
        policy(tmp_path, engine, "replicas: {min: 30, max: 10}")
        [refused] = at_last(lambda: told(scaler, "policy file refused, the one before stays in force"))
        time.sleep(1)
        assert keda.poll() == (3.0, True)
        assert "max (10) is below min (30)" in refused["problems"][0]
        keda.close()


def test_two_triggers_that_disagree_are_refused_and_an_edited_one_is_not(engine: Engine, tmp_path: Path) -> None:
    with running_scaler(tmp_path, *policy(tmp_path, engine)) as scaler:
        metadata = {"scrapeUrls": engine.url, "replicasMax": "5"}
        first = KedaPoll(scaler, "team", "x", metadata)
        edited = KedaPoll(scaler, "team", "x", metadata | {"replicasMax": "6"})
        assert first.poll() == (1.0, True)
        assert edited.poll() == (1.0, True)
        for trigger in (first, edited, first, edited):
            time.sleep(0.3)  # longer than a tick: changes within one are an edit under way
            code, details = answer_or_refusal(trigger)
        assert code == "INVALID_ARGUMENT"
        assert "two triggers" in str(details)
        first.close()
        edited.close()
