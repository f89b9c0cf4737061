"""docs/agent.md and docs/demand-at-zero.md say what is there: options, metrics, files, a policy that can be meant."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from typer.main import get_command

from scaler.agent.agent_metrics import AgentCollector, AgentState
from scaler.agent.engines import EngineName
from scaler.agent.gpu_page import FIELDS
from scaler.agent.local_guard import LocalGuard
from scaler.agent.ruling import Ruling
from scaler.cli import app
from scaler.consume.engine import EngineBatch
from scaler.consume.link import Followed
from scaler.consume.rung_link import Slept
from scaler.policy.layers import PolicyFile
from scaler.signals.gpu import GpuTelemetry
from tests.agent.test_ruling import target

ROOT = Path(__file__).parents[2]
AGENT, DOOR = (ROOT / "docs" / name for name in ("agent.md", "demand-at-zero.md"))


@pytest.mark.parametrize("page", [AGENT, DOOR], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_options_named_are_the_agents() -> None:
    command = get_command(app).commands["agent"]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    of_engines = {
        "--help",
        "--max-running-requests",
        "--admin-api-key",
        "--decode-log-interval",
        "--model-control-mode",
    }
    assert set(re.findall(r"--[a-z][a-z-]+", AGENT.read_text(encoding="utf-8"))) - of_engines <= known


def test_every_engine_has_its_line() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", AGENT.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows[: len(EngineName)] == [name.value for name in EngineName]


def test_the_metrics_listed_are_all_the_metrics_there_are() -> None:
    state = AgentState(
        gpus=GpuTelemetry(True, 0.0),
        holders={},
        workload="chat/m",
        replica="m-0",
        target=target(),
        target_seconds=30.0,
        scaler_up=True,
        guard=LocalGuard(8),
        engine_read=True,
        ruling=Ruling(),
        followed=Followed(8, EngineBatch(8, 64, 64)),
        slept=Slept("awake", "awake", wake_seconds=2.5),
    )
    registry = CollectorRegistry()
    registry.register(AgentCollector(lambda: state, hostname="n", gpu_metrics=True))
    page = generate_latest(registry).decode()
    samples = {re.split(r"[{ ]", line)[0] for line in page.splitlines() if not line.startswith("#")}
    there = {name.removeprefix("loadtide_agent_") for name in samples if name.startswith("loadtide_agent_")}
    text = AGENT.read_text(encoding="utf-8")
    table = text.partition("`loadtide_agent_...`")[2].partition("\n\n")[0]
    named = {name for cell in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)", cell)}
    assert named == there - {"build_info"}
    fields = {name.removeprefix("DCGM_FI_DEV") for name in re.findall(r"`((?:DCGM_FI_DEV)?_[A-Z_]+)`", text)}
    assert fields == {name.removeprefix("DCGM_FI_DEV") for name in FIELDS}


def test_the_policy_of_the_door_can_be_meant() -> None:
    (policy,) = re.findall(r"```yaml\n(.*?)```", DOOR.read_text(encoding="utf-8"), re.DOTALL)
    file = PolicyFile.parse("policy.yaml", dedent(policy))
    resolved = file.resolve("chat/qwen3-4b").policy
    assert resolved.can_wake
    assert resolved.gateway.preset == "keda-http"
