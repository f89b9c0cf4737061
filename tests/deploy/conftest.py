"""The tools that render and validate: a test that cannot have them is skipped, saying why; in CI it fails instead."""

from __future__ import annotations

import os

import pytest

from tests.deploy import tools as deploy_tools


@pytest.fixture(scope="session")
def tools() -> deploy_tools.Tools:
    try:
        return deploy_tools.installed()
    except deploy_tools.Unavailable as reason:
        if os.environ.get("LOADTIDE_REQUIRE_REAL") == "1":
            pytest.fail(f"LOADTIDE_REQUIRE_REAL=1, but: {reason}", pytrace=False)
        pytest.skip(str(reason))
