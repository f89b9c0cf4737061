"""What docs/lab.md shows can be typed: its commands parse, with the scenarios, policies and hardware it names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from scaler.cli import app
from scaler.lab.hardware import HARDWARE
from scaler.lab.policies import POLICIES
from scaler.lab.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
LINES = [
    line.split("#")[0].strip()
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [line for line in LINES if line.startswith("loadtide ")]
MODULES = [line for line in LINES if line.startswith("python ")]


@pytest.fixture
def with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the page's commands name."""
    for name in ("mine.csv", "AzureLLMInferenceTrace_conv.csv"):
        (tmp_path / name).touch()
    (tmp_path / "traces").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("with_files")
@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_parses_and_names_what_there_is(line: str) -> None:
    _, name, *arguments = shlex.split(line)
    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
    given = commands[name].make_context(name, arguments).params
    if name == "simulate":
        assert given["scenario"] in (*SCENARIOS, "")
        assert {given["policy"], *(given["vs"] or [])} <= POLICIES.keys()
        assert given["hardware"] in (None, *HARDWARE)
    else:
        assert set(given["scenario"] or []) <= SCENARIOS.keys()
        assert set(given["policy"] or []) <= POLICIES.keys()


@pytest.mark.parametrize("line", MODULES)
def test_every_benchmark_is_there(line: str) -> None:
    found = re.fullmatch(r"python -m benchmarks\.(\w+).*", line)
    assert found
    assert (ROOT / "benchmarks" / f"{found[1]}.py").exists()


def test_the_page_has_both() -> None:
    assert {line.split()[1] for line in COMMANDS} == {"simulate", "score"}
    assert len(MODULES) >= 3
