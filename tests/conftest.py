"""What holds for every test.

A property has no deadline: how long an example takes says how busy the machine is. A test that cannot have what it
needs is skipped, saying why; with ``LOADTIDE_REQUIRE_REAL=1`` (CI) it fails instead, whatever skipped it.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
import rich.style  # noqa: F401 -- see below
import structlog
from hypothesis import settings

# rich draws a number when it is imported, as structlog does with the first traceback that it writes. In the middle of a
# property hypothesis would take that for chance which it does not control: hence the import above.
settings.register_profile("loadtide", deadline=None)
settings.load_profile("loadtide")


@pytest.fixture(autouse=True)
def logs_stay_as_they_are() -> Generator[None]:
    """A test that sets up a process's logs leaves them writing to what is closed when the next ones log."""
    yield
    kept = structlog.get_config()["cache_logger_on_first_use"]
    assert not kept, "configure_logs was called in the tests' own process; put a stand-in there"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("LOADTIDE_REQUIRE_REAL") == "1":
        report.outcome = "failed"
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.longrepr = f"LOADTIDE_REQUIRE_REAL=1, but: {why}"
    return report
