"""A real Prometheus for the tests: Debian's package, one process on loopback with its storage in a temporary folder.

``serve`` starts one that scrapes what a test names. Tests of rules give it their rule files and need nothing else.
"""

from __future__ import annotations

import json
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.real import server_process

#: Seen: milliseconds; above 10 s once, beside a busy engine on two cores.
QUERY_SECONDS = 60.0


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a fault of the code
    """No real Prometheus can be had on this machine; the text says what would help."""


@dataclass(frozen=True)
class Target:
    """One endpoint to scrape: ``host:port`` and the labels that service discovery would give it."""

    address: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Server:
    """One running Prometheus. ``url`` has no path."""

    url: str
    pid: int
    folder: Path

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The vector that an instant query gives, as the API writes it."""
        form = urllib.parse.urlencode({"query": expression}).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/query", form, timeout=QUERY_SECONDS) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result

    def wait_for(self, expression: str, count: int = 1, seconds: float = 60.0) -> list[dict[str, Any]]:
        """The result of ``expression`` as soon as it has at least ``count`` series; fails after ``seconds``."""
        due = time.monotonic() + seconds
        while len(found := self.query(expression)) < count:
            if time.monotonic() > due:
                raise AssertionError(f"{expression} has {len(found)} series, not {count}, after {seconds:g} s")
            time.sleep(0.1)
        return found

    def retarget(self, targets: Sequence[Target]) -> None:
        """Replace the scraped targets, as service discovery does; it is noticed within seconds."""
        _write_targets(self.folder, targets)


def binary(name: str = "prometheus") -> str:
    """Where the program is. Raises ``Unavailable``."""
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed; on Debian and Ubuntu: apt install prometheus")
    return found


@contextmanager
def serve(
    folder: Path,
    targets: Sequence[Target] = (),
    *,
    scrape_seconds: float = 1.0,
    rule_files: Sequence[Path] = (),
    configuration: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    program: str | None = None,
) -> Iterator[Server]:
    """A running Prometheus that scrapes ``targets``; ended with the block. ``folder`` holds all it writes.

    ``configuration`` is merged into the configuration's top level; ``program`` is another Prometheus than the
    system's. Raises ``Unavailable`` or ``StartFailed``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_targets(folder, targets)
    config = {
        "global": {
            "scrape_interval": f"{round(scrape_seconds * 1000)}ms",
            "scrape_timeout": f"{round(scrape_seconds * 1000)}ms",
            "evaluation_interval": f"{round(scrape_seconds * 1000)}ms",
        },
        "rule_files": [str(path) for path in rule_files],
        "scrape_configs": [
            {
                "job_name": "engines",
                "file_sd_configs": [{"files": [str(folder / "targets.json")], "refresh_interval": "1s"}],
            }
        ],
        **(configuration or {}),
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # YAML is a superset of JSON
    port = free_port()
    command = [
        program or binary(),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-lifecycle",
        *options,
    ]
    url = f"http://127.0.0.1:{port}"
    with server_process.running(command, folder / "prometheus.log", server_process.page(f"{url}/-/ready")) as process:
        yield Server(url, process.pid, folder)


def _write_targets(folder: Path, targets: Sequence[Target]) -> None:
    groups = [{"targets": [target.address], "labels": dict(target.labels)} for target in targets]
    fresh = folder / "targets.json.new"
    fresh.write_text(json.dumps(groups))
    fresh.rename(folder / "targets.json")
