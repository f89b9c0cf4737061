"""promtool and amtool, as Debian's packages ship them; and what is missing where they are not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGES = {
    "promtool": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
}


def program(name: str) -> str:
    """Where it is. Skips the test where it is not, and fails it with LOADTIDE_REQUIRE_REAL=1."""
    found = shutil.which(name) or shutil.which(name.removeprefix("prometheus-"))
    if found is not None:
        return found
    reason = f"{name} is not installed; on Debian and Ubuntu: apt install {PACKAGES[name]}"
    if os.environ.get("LOADTIDE_REQUIRE_REAL") == "1":
        pytest.fail(f"LOADTIDE_REQUIRE_REAL=1, but: {reason}", pytrace=False)
    pytest.skip(reason)


def run(name: str, *arguments: str | Path) -> tuple[int, str]:
    """(exit status, what it said)."""
    done = subprocess.run([program(name), *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
