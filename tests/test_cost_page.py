"""docs/cost.md: its policy is one, its commands parse, its metrics and scenarios exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from scaler.cli import app
from scaler.lab.policies import POLICIES
from scaler.lab.scenarios import SCENARIOS
from scaler.policy.layers import PolicyFile
from scaler.serve.cost_metrics import COST, COST_GAUGES, GPU_SECONDS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
LINES = [
    line.split("#")[0].strip()
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


def test_its_policy_is_one_without_a_warning() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    resolved = PolicyFile.parse("cost.md", text).resolve("chat/llama-8b")
    assert resolved.warnings == ()
    assert resolved.policy.budget.gpu_hours == 5000


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("loadtide ")])
def test_every_command_parses(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").mkdir()
    monkeypatch.chdir(tmp_path)
    _, name, *arguments = shlex.split(line)
    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
    given = commands[name].make_context(name, arguments).params
    if name == "simulate":
        assert given["scenario"] in SCENARIOS
        assert set(given["vs"] or []) <= POLICIES.keys()


def test_the_commands_are_all_there() -> None:
    assert {line.split()[1] for line in LINES if line.startswith("loadtide ")} == {"simulate", "savings"}
    for line in LINES:
        if line.startswith("python"):
            assert (ROOT / "benchmarks" / f"{line.split()[2].partition('.')[2]}.py").exists()


def test_every_metric_named_is_told_and_every_one_told_is_named() -> None:
    told = {f"loadtide_{name}" for name in COST_GAUGES} | {f"{GPU_SECONDS}_total", f"{COST}_total"}
    assert set(re.findall(r"`(loadtide_\w+)`", PAGE)) == told
