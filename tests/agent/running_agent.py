"""A ``loadtide agent`` process of the test's own, and a server for its engine that runs beside the test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

START_SECONDS = 20.0


@dataclass
class RunningAgent:
    """One process; ``log`` is where its JSON lines go."""

    process: subprocess.Popen[bytes]
    log: Path
    http: str
    target: str = ""

    def text(self, path: str) -> str:
        """A page of its port."""
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def value(self, series: str) -> float | None:
        """The value of the one series that begins so, None where there is none."""
        for line in self.text("/metrics").splitlines():
            if line.startswith(series):
                return float(line.rpartition(" ")[2])
        return None

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        said = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in said if line["event"] == event]

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)


@contextmanager
def running_agent(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[RunningAgent]:
    """Start ``loadtide agent`` on free ports of the loopback and wait until it says where it is."""
    log = folder / "agent.log"
    command = [sys.executable, "-m", "scaler", "agent", "--http", "127.0.0.1:0", "--serve-target", "127.0.0.1:0"]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, *arguments], stderr=sink, stdout=sink, env={**os.environ, **(environment or {})}
        )
    try:
        yield _when_ready(process, log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)


def _when_ready(process: subprocess.Popen[bytes], log: Path) -> RunningAgent:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"loadtide agent ended with {process.returncode}:\n{log.read_text()}"
        for line in log.read_text().splitlines():
            if line.startswith("{") and (said := json.loads(line))["event"] == "agent runs":
                return RunningAgent(process, log, said["http"], said.get("target", ""))
        time.sleep(0.05)
    raise AssertionError(f"loadtide agent did not start within {START_SECONDS:g} s:\n{log.read_text()}")


@contextmanager
def beside(routes: Sequence[web.RouteDef]) -> Iterator[str]:
    """Serve ``routes`` from a thread with a loop of its own; gives the URL."""
    loop, started, found = asyncio.new_event_loop(), threading.Event(), []

    async def start() -> web.AppRunner:
        app = web.Application()
        app.add_routes(routes)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        started.set()
        return runner

    def serve() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def free_port() -> int:
    """A loopback port free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until ``done()``; fails the test after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)
