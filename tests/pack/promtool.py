"""promtool and amtool, as Debian's packages ship them, promtool also of Prometheus 3; and what is missing where they
cannot be had.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.real import prometheus_3, prometheus_server

PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
}


#: The major versions of Prometheus that the pack is for.
RELEASES = ("2", "3")


def program(name: str, release: str = "2") -> str:
    """Where it is. Skips the test where it is not."""
    if release == "3":
        try:
            return prometheus_3.program(name)
        except prometheus_server.Unavailable as unavailable:
            reason = str(unavailable)
    else:
        found = shutil.which(name) or shutil.which(name.removeprefix("prometheus-"))
        if found is not None:
            return found
        reason = f"{name} is not installed; on Debian and Ubuntu: apt install {PACKAGES[name]}"
    pytest.skip(reason)


def run(name: str, *arguments: str | Path, release: str = "2") -> tuple[int, str]:
    """(exit status, what it said)."""
    done = subprocess.run([program(name, release), *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
