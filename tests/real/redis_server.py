"""A real redis-server (or valkey-server) for the tests: on loopback, on a free port, with its own data directory."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_port
from tests.real.server_process import started

#: For one answer, and for its end: a machine may stand still for seconds.
ANSWER_SECONDS = 30.0


class Unavailable(Exception):  # noqa: N818 - a state of the machine, not a fault of the code
    """No Redis can be had on this machine; the text says what would help."""


def binary() -> str:
    """The server's path. Raises :class:`Unavailable`."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        raise Unavailable("neither redis-server nor valkey-server is installed; on Debian and Ubuntu: redis-server")
    return found


@dataclass
class RedisServer:
    """One server that may end and start again, on the same port."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start with the data that lies in the folder, and wait until it answers."""
        command = [
            *(binary(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
            *("--save", "3600 1"),  # so that SIGTERM saves
        ]
        self.process = started(command, self.folder / "redis.log", lambda: self.said(b"PING\r\n").startswith(b"+PONG"))

    def said(self, command: bytes) -> bytes:
        """The beginning of the answer to one command, in Redis's inline form."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(command)
            return connection.recv(64)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it: SIGTERM saves what it has, SIGKILL does not."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(ANSWER_SECONDS)
            self.process = None

    def signal(self, number: signal.Signals) -> None:
        """Freeze (SIGSTOP) or thaw (SIGCONT) it."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    def flush(self) -> None:
        """Throw away what a running server has."""
        assert self.said(b"FLUSHALL\r\n").startswith(b"+OK")

    def wipe(self) -> None:
        """Throw away what a stopped server has saved."""
        (self.folder / "dump.rdb").unlink(missing_ok=True)


class Wire:
    """A stretch of network to a server: until it is cut, what comes at either end goes out at the other.

    Cut, it is silent and not broken: connections stay open, new ones are accepted, and nothing arrives.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._whole = threading.Event()
        self._whole.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self._whole.set()
        for end in (self._listening, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._whole.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def running(folder: Path) -> Iterator[RedisServer]:
    """A server until the block ends. Raises :class:`Unavailable`."""
    binary()
    folder.mkdir(parents=True, exist_ok=True)
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        if server.process is not None:
            server.signal(signal.SIGCONT)
        server.stop(signal.SIGKILL)
