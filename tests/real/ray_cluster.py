"""A real Ray with one Serve application for the tests: one node on loopback, installed once into its own environment.

Ray wants versions of what loadtide uses too. The environment lies in ``.cache/ray`` (385 MB), or is the one that
``LOADTIDE_RAY_VENV`` names, which is used as it is.

Everything is ended by its process group and, for what leaves that, by the folder it was told to write to.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.real import server_process

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache"
REQUIREMENTS = HERE / "ray-requirements.txt"
#: Seen: 8 s, and 4 s for the application; 33 s in all on a machine with six times as much work as cores.
READY_SECONDS = 300.0
STOP_SECONDS = 3.0

#: One deployment that puts requests together, and says of each how many were answered with it.
APPLICATION = """\
import asyncio
from ray import serve


@serve.deployment(max_ongoing_requests=200)
class Model:
    def reconfigure(self, user_config):
        self.batched.set_max_batch_size(user_config["max_batch_size"])

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=1.0)
    async def batched(self, requests):
        await asyncio.sleep(0.02)
        return [len(requests)] * len(requests)

    async def __call__(self, request):
        return await self.batched(1)


app = Model.bind()
"""


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a fault of the code
    """No real Ray can be had on this machine; the text says why and what would help."""


@dataclass(frozen=True)
class Cluster:
    """One running node: its dashboard with its token, and where its applications answer. Neither URL has a path."""

    dashboard: str
    url: str
    token: str

    def ask(self, body: bytes | None = None) -> bytes:
        """Ask the dashboard for its applications; with ``body``, declare them."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self.dashboard}/api/serve/applications/", body, headers, method="PUT" if body else "GET"
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            told: bytes = answer.read()
        return told

    def applications(self) -> dict[str, Any]:
        """What the dashboard tells of them."""
        found: dict[str, Any] = json.loads(self.ask())["applications"]
        return found


def install() -> Path:
    """The environment with Ray, made now if it is not there (15 s). Raises ``Unavailable``."""
    if named := os.environ.get("LOADTIDE_RAY_VENV"):
        if not (Path(named) / "bin" / "ray").exists():
            raise Unavailable(f"LOADTIDE_RAY_VENV names {named}, which has no bin/ray; unset it to install one")
        return Path(named)
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once must not install over each other
        venv = CACHE / "ray"
        wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
        stamp = venv / "installed-requirements.sha256"
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(venv, ignore_errors=True)
            _run(sys.executable, "-m", "venv", "--without-pip", str(venv))
            # Compiled when first imported: most of it never is.
            pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(venv / "bin" / "python"))
            only = ("--quiet", "--no-deps", "--no-compile", "--only-binary", ":all:")
            _run(*pip, "install", *only, "-r", str(REQUIREMENTS))
            stamp.write_text(wanted)
    return venv


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        ending = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise Unavailable(f"no real Ray: installing {REQUIREMENTS.name} failed. The end of what it said:\n{ending}")


@contextmanager
def serve(venv: Path, folder: Path, own_batch: int) -> Iterator[Cluster]:
    """Run one node with :data:`APPLICATION` deployed from a config, until the block ends."""
    (folder / "tide_app.py").write_text(APPLICATION)
    # Its own socket paths must be short.
    scratch = tempfile.mkdtemp(prefix="ray-")
    cluster = Cluster(f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}", secrets.token_hex(32))
    command = [
        *(str(venv / "bin" / "ray"), "start", "--head", "--block", "--disable-usage-stats", "--num-cpus=2"),
        *("--node-ip-address=127.0.0.1", f"--port={free_port()}", "--dashboard-host=127.0.0.1"),
        *(f"--dashboard-port={cluster.dashboard.rpartition(':')[2]}", "--object-store-memory=80000000"),
        *("--include-dashboard=true", f"--temp-dir={scratch}"),
    ]
    variables = {**os.environ, "PYTHONPATH": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": scratch}
    # A token of its own, whatever the user of this machine has: without one anybody near could run code in it.
    variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": cluster.token}
    try:
        with server_process.running(
            command, folder / "ray.log", lambda: _deployed(cluster, own_batch),
            environment=variables, ready_seconds=READY_SECONDS, stop_seconds=STOP_SECONDS,
        ):  # fmt: skip
            yield cluster
    finally:
        _end_what_is_left(scratch)
        shutil.rmtree(scratch, ignore_errors=True)


def _deployed(cluster: Cluster, own_batch: int) -> bool:
    """Whether the application runs; it is declared where the dashboard does not know it."""
    config = {
        "http_options": {"host": "127.0.0.1", "port": int(cluster.url.rpartition(":")[2])},
        "applications": [
            {
                "name": "chat",
                "import_path": "tide_app:app",
                "route_prefix": "/",
                "runtime_env": {"env_vars": {"TIDE_SECRET": "s3cret"}},
                "deployments": [{"name": "Model", "user_config": {"max_batch_size": own_batch, "kept": "as it was"}}],
            }
        ],
    }
    chat = cluster.applications().get("chat")
    if chat is None:
        cluster.ask(json.dumps(config).encode())
        return False
    assert chat["status"] != "DEPLOY_FAILED", chat
    return bool(chat["status"] == "RUNNING")


def _end_what_is_left(scratch: str) -> None:
    """End the node's processes that have left its group: they have its scratch folder in their environment."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if f"RAY_TMPDIR={scratch}\0".encode() in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
