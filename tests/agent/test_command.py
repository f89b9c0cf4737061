"""The command line of the agent: what it teaches and what it refuses, in which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaler.agent.command import _metrics_url
from scaler.agent.engines import EngineName, EngineOptions, triton_grpc
from scaler.cli import app

WIDE = {"COLUMNS": "250", "TERM": "dumb"}
RUNNER = CliRunner(env=WIDE)


@pytest.fixture(autouse=True)
def never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What should be refused and is not would run for ever; and this process' log is not ours to set up."""

    async def ran(_options: object) -> None:
        raise RuntimeError("it ran")

    monkeypatch.setattr("scaler.agent.command.run_agent", ran)
    monkeypatch.setattr("scaler.agent.command.configure_logs", lambda _level: None)


def said(*arguments: str) -> str:
    result = RUNNER.invoke(app, ["agent", *arguments])
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def test_help_teaches() -> None:
    told = RUNNER.invoke(app, ["agent", "--help"]).output
    for word in ("Try it", "--engine sglang", "Next:", "docs/agent.md", "LOADTIDE_SCALER", "DaemonSet"):
        assert word in told, word


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine", "sglang", "--workload", "chat/m"], "--engine-url is missing"),
        (["--engine", "sglang", "--engine-url", "http://e", "--workload", "chat"], "is not NAMESPACE/NAME"),
        (["--engine", "sglang", "--engine-url", "http://e"], "is not NAMESPACE/NAME"),
        (
            ["--engine", "triton", "--engine-url", "http://e", "--workload", "c/m"],
            "--engine-name is missing: for triton",
        ),
        (
            ["--engine", "rayserve", "--engine-url", "http://e", "--engine-name", "chat", "--workload", "c/m"],
            "is not APPLICATION/DEPLOYMENT; write for example chat/Model",
        ),
        (
            ["--engine", "rayserve", "--engine-url", "http://e", "--engine-name", "chat/M", "--workload", "c/m"],
            "--own-batch is missing",
        ),
        (
            ["--engine", "sglang", "--engine-url", "http://e", "--workload", "c/m", "--engine-grpc", "e:8001"],
            "--engine-grpc is Triton's; leave it out for sglang",
        ),
        (["--engine", "triton", "--engine-grpc", "8001", "--workload", "c/m"], "'8001' is not HOST:PORT"),
        (["--workload", "chat/m"], "--engine is missing"),
        (["--scaler", "http://s"], "--engine is missing"),
        (["--scaler", "loadtide:8080", "--engine", "vllm", "--workload", "c/m"], "is not a URL"),
        (
            ["--engine", "sglang", "--engine-url", "sglang:30000", "--workload", "c/m"],
            "--engine-url: 'sglang:30000' is not",
        ),
        (
            ["--engine", "vllm", "--metrics-url", "/metrics", "--workload", "c/m"],
            "--metrics-url: '/metrics' is not a URL",
        ),
        (["--http", "9410"], "is not HOST:PORT"),
        (["--engine", "vllm", "--workload", "c/m", "--preset", "vlm"], "vlm"),
        (["--engine", "vllm", "--workload", "c/m", "--policy", "/nowhere.yaml"], "/nowhere.yaml"),
        (["--engine", "vllm", "--workload", "c/m", "--scaler", "http://s", "--token-file", "/nowhere"], "/nowhere"),
        (
            [
                *("--engine", "envoy", "--engine-url", "http://e", "--engine-name", "engine", "--workload", "c/m"),
                *("--metrics-url", "http://e/metrics"),
            ],
            "--preset is missing",
        ),
    ],
)
def test_halves_are_refused_with_what_to_write(arguments: list[str], words: str) -> None:
    assert words in said(*arguments)


def test_a_bad_policy_is_said_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("workloads:\n  chat/m:\n    batch: {min: none}\n")
    assert f"{file}:3" in said("--engine", "vllm", "--workload", "chat/m", "--policy", str(file)).replace(" ", "")


@pytest.mark.parametrize(
    ("engine", "url"),
    [
        (None, ""),
        (EngineName.VLLM, "http://127.0.0.1:8000/metrics"),
        (EngineName.SGLANG, "http://e:30000/metrics"),
        (EngineName.TRITON, "http://127.0.0.1:8002/metrics"),
        (EngineName.RAYSERVE, ""),
        (EngineName.ENVOY, ""),
    ],
)
def test_where_the_guard_reads_unless_told(engine: EngineName | None, url: str) -> None:
    assert _metrics_url(None, engine, "http://e:30000/") == url
    assert _metrics_url("", engine, "http://e:30000") == ""
    assert _metrics_url("http://x/metrics", EngineName.VLLM, "") == "http://x/metrics"


@pytest.mark.parametrize(
    ("url", "said", "address"),
    [
        ("http://127.0.0.1:8000", "", "127.0.0.1:8001"),
        ("http://[::1]:8000/v2", "", "[::1]:8001"),
        ("http://127.0.0.1:8000", "127.0.0.1:9001", "127.0.0.1:9001"),
        ("http://127.0.0.1:8000", "none", ""),
    ],
)
def test_where_a_triton_is_loaded_unless_told(url: str, said: str, address: str) -> None:
    assert triton_grpc(EngineOptions(EngineName.TRITON, url, "text", grpc=said)) == address
