"""A ``loadtide agent`` process of the test's own, and a server for its engine that runs beside the test."""

from __future__ import annotations

import asyncio
import os
import signal
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

from tests.running_scaler import ANSWER_SECONDS, said

#: Seen: 1 s. As long as a scaler's, which see.
START_SECONDS = 180.0


@dataclass
class RunningAgent:
    """One process; ``log`` is where its JSON lines go."""

    process: subprocess.Popen[bytes]
    log: Path
    http: str
    target: str = ""

    def text(self, path: str) -> str:
        """A page of its port."""
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=ANSWER_SECONDS) as answer:
            return str(answer.read().decode())

    def value(self, series: str) -> float | None:
        """The value of the one series that begins so, None where there is none."""
        for line in self.text("/metrics").splitlines():
            if line.startswith(series):
                return float(line.rpartition(" ")[2])
        return None

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        return said(self.log, event)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(ANSWER_SECONDS)


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
            process.wait(ANSWER_SECONDS)


def _when_ready(process: subprocess.Popen[bytes], log: Path) -> RunningAgent:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"loadtide agent ended with {process.returncode}:\n{log.read_text()}"
        for line in said(log, "agent runs"):
            return RunningAgent(process, log, line["http"], line.get("target", ""))
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
    assert started.wait(60)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)


def until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until ``done()``; fails the test after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)
