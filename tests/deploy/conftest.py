"""The tools that render and validate, and a Redis: where there is none a test is skipped, saying why; CI fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy import tools as deploy_tools
from tests.real import redis_server


def unavailable(reason: Exception) -> None:
    """Skips, or fails where everything must be real."""
    if os.environ.get("LOADTIDE_REQUIRE_REAL") == "1":
        pytest.fail(f"LOADTIDE_REQUIRE_REAL=1, but: {reason}", pytrace=False)
    pytest.skip(str(reason))


@pytest.fixture(scope="session")
def tools() -> deploy_tools.Tools:
    try:
        return deploy_tools.installed()
    except deploy_tools.Unavailable as reason:
        unavailable(reason)
        raise


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[redis_server.RedisServer]:
    try:
        redis_server.binary()
    except redis_server.Unavailable as reason:
        unavailable(reason)
    with redis_server.running(tmp_path / "redis") as server:
        yield server
