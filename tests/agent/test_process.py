"""The whole agent as a process, beside a stand-in for SGLang and a real scaler that comes and goes."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from scaler.consume.contract import AppliedReport, hold
from tests.agent.running_agent import RunningAgent, beside, running_agent, until
from tests.consume.engine_doubles import SGLangDouble
from tests.ports import free_port
from tests.running_scaler import RunningScaler, running_scaler

TOKEN = "tide"
PATIENCE = 60.0
APPLIED = 'loadtide_agent_applied_batch_size{namespace="chat",replica="llama-0",workload="m"}'
GUARD = 'loadtide_agent_guard_batch_size{namespace="chat",replica="llama-0",workload="m"}'


def serve_arguments(folder: Path, engine_url: str) -> list[str]:
    """A scaler whose target for chat/m is 8, good for 12 s: longer than a machine stands still."""
    policy = f"""\
workloads:
  chat/m:
    engine: sglang
    scrape: {{urls: ["{engine_url}/metrics"]}}
    replicas: {{min: 1, max: 4}}
    batch: {{max: 8}}
"""
    (folder / "policy.yaml").write_text(policy)
    return ["--policy", str(folder / "policy.yaml"), "--store", "memory", "--tick-seconds", "1"]


def test_the_target_reaches_the_engine_and_its_answer_the_scaler(tmp_path: Path) -> None:
    """Applied and reported; the scaler killed: its own setting; back again: applied again; SIGTERM: its own setting."""
    double = SGLangDouble(max_running_requests=64, admin_key="root")
    (tmp_path / "key").write_text("root\n")
    scaler_at = f"127.0.0.1:{free_port()}"
    with beside(double.routes()) as engine:
        served = [*serve_arguments(tmp_path, engine), "--http", scaler_at]
        token = {"LOADTIDE_TOKEN": TOKEN}
        with running_agent(
            tmp_path,
            *("--workload", "chat/m", "--scaler", f"http://{scaler_at}", "--engine", "sglang", "--engine-url", engine),
            *("--engine-admin-key-file", str(tmp_path / "key")),
            environment={"POD_NAME": "llama-0", **token},
        ) as agent:
            until(lambda: agent.value(APPLIED) == 64.0, PATIENCE, "read without a scaler")
            with running_scaler(tmp_path, *served, environment=token) as scaler:
                until(lambda: double.caps == [8], PATIENCE, "the target is applied")
                until(lambda: reported(scaler) == {"llama-0": 8.0}, PATIENCE, "and reported")
                assert agent.value(APPLIED) == 8.0
                scaler.kill()
            until(lambda: double.caps == [64], PATIENCE, "the target expired")
            with running_scaler(tmp_path, *served, environment=token):
                until(lambda: double.caps == [8], PATIENCE, "applied again")
                assert agent.stop() == 0
                assert double.caps == [64]
            (told,) = agent.lines("the engine is left alone")
            assert told["at_its_own_setting"] is True
            assert [line["ruler"] for line in agent.lines("ruling")][:2] == ["target", "own"]
            assert [line["batch_size"] for line in agent.lines("batch applied")] == [8, 64, 8]


def reported(scaler: RunningScaler) -> dict[str, float]:
    """Applied batch by replica, as the scaler exports it."""
    found = {}
    for line in scaler.text("/metrics").splitlines():
        if line.startswith("loadtide_applied_batch_size{"):
            labels, _, value = line.partition("{")[2].rpartition("} ")
            found[labels.partition('replica="')[2].partition('"')[0]] = float(value)
    return found


def test_the_guard_needs_no_scaler(tmp_path: Path) -> None:
    """KV use at 97 % shrinks what runs within seconds, 40 x 0.85/0.97; SIGTERM gives everything back."""
    double = SGLangDouble(max_running_requests=64, running=40)
    with (
        beside(double.routes()) as engine,
        running_agent(
            tmp_path, "--workload", "chat/m", "--engine", "sglang", "--engine-url", engine, "--replica", "llama-0"
        ) as agent,
    ):
        until(lambda: agent.value(APPLIED) == 64.0, PATIENCE, "read")
        assert agent.value(GUARD) is None
        double.kv_use = 0.97
        until(lambda: double.caps == [35], PATIENCE, "shrunk")
        double.kv_use = 0.8  # as it helps
        until(lambda: agent.value(APPLIED) == 35.0, PATIENCE, "told")
        assert agent.value(GUARD) == 35.0
        (moved,) = agent.lines("memory guard")
        assert (moved["limit"], moved["before"]) == (35, None)
        assert moved["reasons"][0]["signal"] == "kv_use_ratio"
        assert agent.stop() == 0
    assert double.caps == [64]


def test_what_a_killed_one_left_behind_the_next_one_undoes(tmp_path: Path) -> None:
    """SIGKILL leaves no time to give the engine back. The next agent needs neither memory nor a scaler for that."""
    double = SGLangDouble(max_running_requests=64, running=40)
    arguments = ("--workload", "chat/m", "--engine", "sglang", "--replica", "llama-0", "--engine-url")
    with beside(double.routes()) as engine:
        double.kv_use = 0.97
        with running_agent(tmp_path, *arguments, engine) as agent:
            until(lambda: double.caps == [35], PATIENCE, "shrunk")
            agent.process.kill()
            agent.process.wait(60)
        assert double.caps == [35]
        double.kv_use = 0.2
        with running_agent(tmp_path, *arguments, engine) as agent:
            until(lambda: double.caps == [64], PATIENCE, "its own setting again")
            (applied,) = agent.lines("batch applied")
            assert (applied["batch_size"], applied["ruler"]) == (64, "own")


def test_an_engine_that_asks_itself_is_served_the_lower_of_both(tmp_path: Path) -> None:
    """vLLM with our plugin asks the agent; with no scaler and no pressure it hears "your own setting"."""
    double = SGLangDouble(running=40)  # any engine whose page tells KV use will do
    with (
        beside(double.routes()) as engine,
        running_agent(
            tmp_path,
            *("--workload", "chat/m", "--engine", "vllm", "--metrics-url", f"{engine}/metrics", "--preset", "sglang"),
        ) as agent,
    ):
        assert target(agent) is None
        double.kv_use = 0.97
        until(lambda: target(agent) == 35, PATIENCE, "the guard's limit is served")
        body = AppliedReport("llama-0", 35, running=35).body()
        request = urllib.request.Request(f"{agent.target}/v1/workloads/chat/m/applied", data=body, method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 202
        assert agent.stop() == 0


def target(agent: RunningAgent) -> int | None:
    with urllib.request.urlopen(f"{agent.target}/v1/workloads/chat/m/target", timeout=60) as answer:
        held = hold(answer.read(), answer.headers["ETag"], 0.0).at(1.0)
    assert held is not None
    return held.batch_size


def test_without_an_engine_it_exports_gpus(tmp_path: Path) -> None:
    """No driver here: said once, in a line, and the probes answer all the same."""
    with running_agent(tmp_path, "--gpu-metrics") as agent:
        until(
            lambda: bool(agent.lines("local GPUs cannot be read") or agent.lines("local GPUs are read")), PATIENCE, ""
        )
        assert agent.text("/healthz") == "ok\n"
        assert agent.text("/readyz") == "ok\n"
        assert agent.value("loadtide_agent_gpus_up") is not None
        assert "loadtide_agent_ruler" not in agent.text("/metrics")
        assert agent.stop() == 0
        for line in agent.log.read_text().splitlines():
            json.loads(line)
    assert len(agent.lines("local GPUs cannot be read")) <= 1


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with (
        beside([]) as taken,
        pytest.raises(AssertionError, match=r"ended with 2:[\s\S]*the agent cannot run"),
        running_agent(tmp_path, "--http", taken.removeprefix("http://")),
    ):
        pass
