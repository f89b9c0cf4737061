"""The tools that render and validate, and a Redis: where there is none a test is skipped, saying why; in CI it fails
instead (tests/conftest.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy import tools as deploy_tools
from tests.real import redis_server


@pytest.fixture(scope="session")
def tools() -> deploy_tools.Tools:
    try:
        return deploy_tools.installed()
    except deploy_tools.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[redis_server.RedisServer]:
    try:
        redis_server.binary()
    except redis_server.Unavailable as reason:
        pytest.skip(str(reason))
    with redis_server.running(tmp_path / "redis") as server:
        yield server
