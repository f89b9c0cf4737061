"""Prometheus 3 for the tests, beside the 2.42 of Debian 12: a package of Debian's next release, unpacked.

apt fetches it from the archive that this machine is set up with and checks its signatures; nothing of the system is
changed. It lies in ``.cache/prometheus-3`` (150 MB).
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from tests.real.prometheus_server import Unavailable

HERE = Path(__file__).parents[2] / ".cache" / "prometheus-3"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: The release after the present one has had version 3 since 3.5.
SUITE = "testing"
PACKAGES = ("prometheus", "promtool")


def program(name: str) -> str:
    """Where ``prometheus`` or ``promtool`` of version 3 is, fetched now if it is not there. Raises ``Unavailable``."""
    found = HERE / "root" / "usr" / "bin" / name
    HERE.mkdir(parents=True, exist_ok=True)
    with (HERE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _fetch()
    if not found.exists():
        raise Unavailable(f"Debian's {SUITE} has no {name} in its packages {', '.join(PACKAGES)} any more")
    return str(found)


def _fetch() -> None:
    if shutil.which("apt-get") is None or not KEYRING.exists():
        raise Unavailable("Prometheus 3 is taken from Debian's packages, and this machine is not a Debian")
    archive = _run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").split()
    debian = [uri for uri in archive if uri.rstrip("/").endswith("/debian")]
    if not debian:
        raise Unavailable("apt knows no Debian archive; `apt-get update` may not have run")
    for folder in ("state/lists/partial", "cache/archives/partial", "root"):
        (HERE / folder).mkdir(parents=True, exist_ok=True)
    sources = HERE / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {debian[0]} {SUITE} main\n")
    apart = {"Dir::State": HERE / "state", "Dir::Cache": HERE / "cache", "Dir::Etc::SourceList": sources}
    settings = {**apart, "Dir::Etc::SourceParts": "/dev/null", "Dir::Etc::Preferences": "/dev/null"}
    options = [f"-o{key}={value}" for key, value in {**settings, "Acquire::Languages": "none"}.items()]
    _run("apt-get", "-qq", *options, "update")
    _run("apt-get", "-qq", *options, "download", *PACKAGES)
    for package in HERE.glob("*.deb"):
        _run("dpkg-deb", "-x", str(package), str(HERE / "root"))
        package.unlink()
    for folder in ("state", "cache"):
        shutil.rmtree(HERE / folder)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(command[:2])} ...` failed: {done.stderr.strip()[-500:]}")
    return done.stdout
