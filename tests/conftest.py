"""What holds for every test.

A property has no deadline: how long an example takes says how busy the machine is. A test that cannot have what it
needs is skipped, saying why; with ``LOADTIDE_REQUIRE_REAL=1`` (CI) it fails instead, whatever skipped it.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

settings.register_profile("loadtide", deadline=None)
settings.load_profile("loadtide")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("LOADTIDE_REQUIRE_REAL") == "1":
        report.outcome = "failed"
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.longrepr = f"LOADTIDE_REQUIRE_REAL=1, but: {why}"
    return report
