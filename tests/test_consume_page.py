"""docs/consume.md: its commands run as they stand, and what it says of fields and numbers is what is served."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from scaler.consume.contract import AppliedReport, ServedTarget
from scaler.control.model import Targets
from scaler.serve.http import make_app, start_http
from tests.serve.tide import FakeWorkload, FakeWorkloads, snapshot

PAGE = (Path(__file__).parents[1] / "docs" / "consume.md").read_text(encoding="utf-8")
SETTINGS, TARGET, WAIT, APPLIED, CONSUMER = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
async def served() -> AsyncIterator[tuple[FakeWorkload, dict[str, str]]]:
    """The workload of the page, and the environment of its first block with our port."""
    if shutil.which("curl") is None:
        pytest.skip("there is no curl")
    workloads = FakeWorkloads()
    chat = workloads.add("demo/chat", snapshot("demo/chat"))
    app = make_app(workloads, token="secret", registry=CollectorRegistry(), stopping=asyncio.Event())
    runner, port = await start_http(app, "127.0.0.1", 0)
    named = dict(re.findall(r"(LOADTIDE_\w+)=(\S+)", SETTINGS))
    yield chat, {**os.environ, **named, "LOADTIDE_URL": f"http://127.0.0.1:{port}"}
    await runner.cleanup()


async def ran(block: str, environment: dict[str, str]) -> str:
    """What bash says when given the block."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", block),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, said.decode()
    return said.decode()


async def test_the_target_is_asked_for_and_waited_for(served: tuple[FakeWorkload, dict[str, str]]) -> None:
    _, environment = served
    assert '"batch_size": 32' in await ran(TARGET, environment)
    said = await ran(WAIT, environment)
    assert said.startswith("HTTP/1.1 304 Not Modified")
    assert "Loadtide-Valid-Seconds: 59.000" in said


async def test_what_is_applied_is_reported(served: tuple[FakeWorkload, dict[str, str]]) -> None:
    chat, environment = served
    assert await ran(APPLIED, environment) == '{"accepted": true}'
    [told] = chat.applied.read(101.0)
    assert (told.replica, told.batch_size, told.running, told.generation) == ("chat-0", 32, 17, 7)


async def test_the_whole_consumer_follows_reports_and_goes_back(served: tuple[FakeWorkload, dict[str, str]]) -> None:
    chat, environment = served
    assert await ran(CONSUMER, environment | {"ROUNDS": "1"}) == "the engine now runs 32\n"
    [told] = chat.applied.read(101.0)
    assert (told.batch_size, told.generation) == (32, 7)

    chat.snapshot = snapshot("demo/chat", targets=Targets(2, True, None))
    assert await ran(CONSUMER, environment | {"ROUNDS": "1"}) == "the engine now runs its own setting\n"
    [told] = chat.applied.read(101.0)
    assert (told.batch_size, told.generation) == (None, 7)

    following = CONSUMER.replace("while", "ends=1 tag='\"7-1f\"' batch=32 generation=7\nwhile", 1)
    gone = environment | {"ROUNDS": "1", "LOADTIDE_URL": "http://127.0.0.1:9"}
    assert "the engine now runs its own setting\n" in await ran(following, gone)


def test_the_tables_name_every_field() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    told = {each.name for each in fields(ServedTarget)} | {each.name for each in fields(AppliedReport)}
    assert rows - {"200", "304", "401", "404", "503"} == told - {"workload"}
