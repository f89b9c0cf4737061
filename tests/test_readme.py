"""What the README shows can be typed: its blocks parse, its commands, metrics and words exist; docs/ has the rest."""

from __future__ import annotations

import asyncio
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from prometheus_client import CollectorRegistry

from scaler.cli import app
from scaler.control.model import Cause, LoadState
from scaler.policy.layers import PolicyFile
from scaler.policy.metadata import parse, reference
from scaler.serve.http import make_app
from tests.serve.tide import FakeWorkloads

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONCEPTS = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
ROUTES = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
#: No metrics of ours: one of vLLM's plugin, on the engine's own page, and a parameter of a Triton model.
OF_THE_ENGINE = {"loadtide_engine_batch_size", "loadtide_before"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@cache
def scaled_object() -> dict[str, Any]:
    (found,) = [block for block in map(yaml.safe_load, blocks("yaml")) if block.get("kind") == "ScaledObject"]
    return dict(found)


def test_every_block_of_data_parses() -> None:
    assert len(blocks("yaml")) >= 2
    for text in blocks("yaml"):
        assert isinstance(yaml.safe_load(text), dict)
    for text in (*blocks("json"), *re.findall(r"`(\{\".*?\})`", README)):
        json.loads(text)


def test_the_first_policy_file_is_one(tmp_path: Path) -> None:
    (text,) = [block for block in blocks("yaml") if "workloads" in yaml.safe_load(block)]
    path = tmp_path / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    policies = PolicyFile.load(path)
    (name,) = policies.workloads
    assert policies.resolve(name).warnings == ()


def test_the_shortest_scaled_object_says_all_that_is_needed() -> None:
    spec = scaled_object()["spec"]
    (trigger,) = spec["triggers"]
    metadata = trigger["metadata"]
    assert all(isinstance(value, str) for value in metadata.values())
    assert metadata.keys() - {"scalerAddress"} <= {row.metadata_key for row in reference()}
    assert parse(metadata).warnings == ()
    resolved = PolicyFile.empty().resolve("chat/llama-8b", metadata)
    assert resolved.warnings == ()
    assert resolved.policy.replicas.max == spec["maxReplicaCount"]
    assert resolved.policy.replicas.min == spec["minReplicaCount"]
    assert trigger["metricType"] == "AverageValue"


@pytest.mark.parametrize("page", PAGES)
def test_make_has_the_targets_named(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets
    assert page == "CHANGELOG.md" or {"run", "test"} <= named


@pytest.mark.parametrize("page", PAGES)
def test_loadtide_has_the_commands_and_options_named(page: str) -> None:
    group = typer.main.get_command(app)
    commands: dict[str, Any] = getattr(group, "commands", {})
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = re.findall(r"(?:^|`|bin/)loadtide ([a-z]+)([^`\n]*)", text, re.MULTILINE)
    for command, arguments in lines:
        if command == "is":  # the opening sentence
            continue
        assert command in commands, f"{page} names loadtide {command}"
        options = {option for parameter in commands[command].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", arguments)) <= options
    if page == "README.md":
        assert commands.keys() <= {command for command, _ in lines}, "a command that the README does not name"


def test_the_routes_listed_are_all_the_routes_there_are() -> None:
    routes = make_app(FakeWorkloads(), token=None, registry=CollectorRegistry(), stopping=asyncio.Event()).router
    there = {
        (route.method, route.resource.canonical)
        for route in routes.routes()
        if route.resource is not None and route.method != "HEAD" and not route.resource.canonical.startswith("/page/")
    }
    assert set(re.findall(r"`(GET|POST|PUT|DELETE) (/[^`\s]*)`", ROUTES)) == there
    assert set(re.findall(r"`(GET|POST|PUT|DELETE) (/[^`\s]*)`", README)) <= there


def test_every_metric_named_is_exported() -> None:
    listed = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {
        name for page in pages for name in re.findall(r"`(loadtide_[a-z_]+)[`{]", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert named - OF_THE_ENGINE <= set(re.findall(r"^\| `(loadtide_[a-z_]+)`", listed, re.MULTILINE))


def test_every_state_and_every_cause_is_explained() -> None:
    rows = set(re.findall(r"^\| `([a-z]+)` \|", CONCEPTS, re.MULTILINE))
    said_below = set(re.findall(r"`([a-z]+)` \(", CONCEPTS))
    assert {state.value for state in LoadState} <= rows | said_below
    assert {cause.value for cause in Cause} <= rows


@pytest.mark.parametrize("page", PAGES)
def test_every_link_into_the_repository_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_path_contributors_are_sent_to_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:scaler|tests|deploy|proto|\.ci)[a-zA-Z0-9_./-]*)`", text)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []
