"""A real Alertmanager for the tests, Debian's package on loopback, and a webhook that collects what it sends."""

from __future__ import annotations

import json
import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.ports import free_port
from tests.real import server_process


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a fault of the code
    """No real Alertmanager can be had on this machine; the text says what would help."""


@dataclass
class Webhook:
    """What was sent, by receiver, in order: Alertmanager's own documents."""

    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""

    def alerts(self, receiver: str, status: str, **labels: str) -> list[dict[str, Any]]:
        """The alerts of every notification to ``receiver`` that had this status and these labels."""
        return [
            alert
            for to, document in list(self.sent)
            for alert in document["alerts"]
            if to == receiver and alert["status"] == status and labels.items() <= alert["labels"].items()
        ]

    def wait_for(self, receiver: str, status: str, seconds: float, **labels: str) -> dict[str, Any]:
        """The first such alert; fails after ``seconds``."""
        due = time.monotonic() + seconds
        while not (found := self.alerts(receiver, status, **labels)):
            if time.monotonic() > due:
                seen = [(to, a["status"], a["labels"]["alertname"]) for to, d in self.sent for a in d["alerts"]]
                raise AssertionError(f"{receiver} was not told {status} of {labels} within {seconds:g} s; sent: {seen}")
            time.sleep(0.1)
        return found[0]


@contextmanager
def webhook() -> Iterator[Webhook]:
    """A receiver; the last part of the path names who it stands for."""
    collected = Webhook()

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collected.sent.append((self.path.rpartition("/")[2], json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    collected.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collected
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True)
class Alertmanager:
    """One that runs; ``address`` is host:port."""

    address: str

    def alerts(self) -> list[dict[str, Any]]:
        """Every alert it knows of, with its state and what inhibits it."""
        with urllib.request.urlopen(f"http://{self.address}/api/v2/alerts", timeout=30) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found


@contextmanager
def serve(folder: Path, configuration: Mapping[str, Any]) -> Iterator[Alertmanager]:
    """An Alertmanager with that configuration until the block ends. Raises ``Unavailable``."""
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if program is None:
        raise Unavailable("Alertmanager is not installed; on Debian and Ubuntu: apt install prometheus-alertmanager")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(json.dumps(configuration))  # YAML is a superset of JSON
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    ready = server_process.page(f"http://{address}/-/ready")
    with server_process.running(command, folder / "alertmanager.log", ready):
        yield Alertmanager(address)
