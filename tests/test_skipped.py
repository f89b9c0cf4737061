"""Nothing is skipped where real servers are required."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """\
import pytest

@pytest.fixture
def server():
    pytest.skip("no server here")

def test_by_its_fixture(server): ...
def test_by_itself(): pytest.skip("no tool here")
@pytest.mark.skipif(True, reason="by its mark")
def test_by_its_mark(): ...
@pytest.mark.xfail(strict=True)
def test_expected_to_fail(): assert False
def test_that_runs(): ...
"""


@pytest.mark.parametrize(
    ("required", "outcome"),
    [("", "1 passed, 3 skipped, 1 xfailed"), ("1", "1 failed, 1 passed, 1 xfailed, 2 errors")],
)
def test_a_skipped_test_fails_where_nothing_may_be(tmp_path: Path, required: str, outcome: str) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", os.devnull, "--rootdir", "."]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "LOADTIDE_REQUIRE_REAL": required}
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False).stdout
    assert outcome in told
    assert ("LOADTIDE_REQUIRE_REAL=1, but: Skipped: no server here" in told) == (required == "1")
