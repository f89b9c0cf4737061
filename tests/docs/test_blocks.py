"""What pages show and a test cannot run is right as far as it can be told: options, files, routes, YAML, modules."""

from __future__ import annotations

import asyncio
import re
import shlex
from itertools import pairwise
from typing import Any

import pytest
import typer
import yaml
from prometheus_client import CollectorRegistry

from scaler.check.examine import examine
from scaler.cli import app
from scaler.policy.keys import GROUPS, KEYS
from scaler.policy.layers import SECTIONS, PolicyFile
from scaler.serve.http import make_app
from tests.docs.pages import ROOT, Block, blocks
from tests.serve.tide import FakeWorkloads

SHELL = blocks("sh", "bash", "console")
YAML = blocks("yaml")
#: Kinds of an object whose rules belong to others: read, not judged.
LINES = [(block, line) for block in SHELL for line in block.lines]


def of(*starts: str) -> list[Any]:
    """The lines that begin with one of these words, wherever in a pipe."""
    found = [
        (block, part.strip())
        for block, line in LINES
        for part in re.split(r"\s(?:\||&&|\$\()\s*", line)
        if part.strip().removeprefix(".venv/bin/").split()[0] in starts
    ]
    return [pytest.param(part.removeprefix(".venv/bin/"), id=f"{block}: {part[:60]}") for block, part in found]


def test_a_block_is_sh_and_nothing_else() -> None:
    """One word, so that no block goes unread: bash, shell and console are refused."""
    assert [str(block) for block in blocks("bash", "shell", "console", "zsh")] == []


@pytest.mark.parametrize("line", of("loadtide"))
def test_a_loadtide_command_parses(line: str) -> None:
    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
    words = shlex.split(re.sub(r"\s(?:>|2>|<|&)\s?.*$", "", line))
    if words[1:] in (["--help"], ["--version"]):
        return
    assert words[1] in commands, f"there is no loadtide {words[1]}"
    if "--help" in words:
        return
    try:
        commands[words[1]].make_context(words[1], words[2:])
    except Exception as error:
        if "does not exist" not in str(error):  # a file of the reader's
            raise AssertionError(f"{line}: {error}") from error


@pytest.mark.parametrize("line", of("python", "pytest"))
def test_a_module_or_file_of_ours_is_there(line: str) -> None:
    if line.startswith("python -c"):
        return
    words = shlex.split(line)
    if words[1:2] == ["-m"] and words[2].partition(".")[0] in ("scaler", "benchmarks", "tests"):
        path = ROOT.joinpath(*words[2].split("."))
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), line
    for word in words[1:]:
        if "/" in word and not word.startswith(("-", "http", "/")):
            assert (ROOT / word).exists(), line


@pytest.mark.parametrize("line", of("make"))
def test_make_has_the_target(line: str) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"\s([a-z]+)\b(?!=)", line.split(" ARGS")[0])) <= {*targets}, line


@pytest.mark.parametrize("line", of("kubectl", "helm"))
def test_a_manifest_or_chart_of_ours_is_there(line: str) -> None:
    """Also a value set on the chart's command line is one of the chart's."""
    words = shlex.split(line)
    for word in words:
        if word.startswith("deploy/"):
            assert (ROOT / word).exists(), line
    values = yaml.safe_load((ROOT / "deploy/helm/loadtide/values.yaml").read_text(encoding="utf-8"))
    for flag, given in pairwise(words):
        if flag in ("--set", "--set-file", "--set-string"):
            at: Any = values
            for key in given.partition("=")[0].split("."):
                assert isinstance(at, dict), line
                assert key in at or not at, line  # an empty mapping of the chart's takes any key
                at = at.get(key, {})


def test_every_route_named_is_served() -> None:
    router = make_app(FakeWorkloads(), token=None, registry=CollectorRegistry(), stopping=asyncio.Event()).router
    served = [
        re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.resource.canonical)))
        for route in router.routes()
        if route.resource is not None
    ]
    for block, line in LINES:
        for path in re.findall(r"(?:LOADTIDE_URL\"?|:8080)(/[\w$/.{}-]*)", line):
            path = re.sub(r"\$\{?LOADTIDE_WORKLOAD\}?", "demo/chat", path)
            assert any(each.fullmatch(path) for each in served), f"{block}: nothing is served at {path}"


@pytest.mark.parametrize("block", YAML, ids=str)
def test_a_block_of_yaml_can_be_meant(block: Block) -> None:
    """A policy is read as one, whole or a part; a ScaledObject passes `loadtide check`; anything else is YAML."""
    for document in yaml.safe_load_all(block.text):
        if not isinstance(document, dict):
            assert document is not None, block
        elif document.keys() <= set(SECTIONS):
            file = PolicyFile.parse(str(block), _with_sources(block.text, document))
            for name in file.workloads:
                file.resolve(name)
        elif document.keys() <= GROUPS | {str(path[0]) for path in KEYS}:
            PolicyFile.parse(str(block), yaml.safe_dump({"defaults": document}))
        elif "kind" in document:
            errors = [each for each in examine({str(block): block.text}) if each.severity == "error"]
            assert errors == []


def _with_sources(text: str, document: dict[str, Any]) -> str:
    """A part of a policy file names servers that the page has declared elsewhere."""
    named = set(re.findall(r"source: (\w+)", text)) - set(document.get("sources") or {})
    return text + yaml.safe_dump({"sources": {name: {"url": "http://there:9090"} for name in named}}) if named else text
