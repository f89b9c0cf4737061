"""A terminal in which blocks of a page are typed, as bash runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.docs.pages import Block

BLOCK_SECONDS = 400.0
STAYS_SECONDS = 180.0
#: The address that pages name; a test's own process may have to take another.
TOLD_ADDRESS = "127.0.0.1:8080"


@dataclass
class Terminal:
    """A new user's terminals in one folder. The environment goes from block to block, as in one shell."""

    folder: Path
    log: Path
    environment: dict[str, str]
    staying: list[subprocess.Popen[bytes]] = field(default_factory=list)
    address: str = TOLD_ADDRESS

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, log: Path, *, python_path: Path, programs: Path) -> Iterator[Self]:
        """Terminals in ``folder``, with loadtide's package and its command from where they are said to be."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LOADTIDE_")}
        path = f"{programs}:{os.environ['PATH']}"
        terminal = cls(folder, log, {**kept, "PATH": path, "PYTHONPATH": str(python_path), "COLUMNS": "120"})
        try:
            yield terminal
        finally:
            terminal.close()

    def run(self, block: Block) -> str:
        """What the block says. Fails with it where it fails."""
        staying = [line for line in block.text.splitlines() if line.endswith("# stays")]
        for line in staying:
            self._start(line)
        rest = "\n".join(line for line in block.text.splitlines() if line not in staying)
        script = f"{rest.replace(TOLD_ADDRESS, self.address)}\nenv -0 > {self.log}.env\n"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder, env=self.environment, timeout=BLOCK_SECONDS, check=False, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, (
            f"{block} ended with {done.returncode}; if it needs more than a fresh checkout, let its first line say so "
            f"(# needs: a cluster):\n{block.text}\n{done.stdout}"
        )
        pairs = Path(f"{self.log}.env").read_text(encoding="utf-8").split("\0")
        self.environment = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        return done.stdout

    def _start(self, line: str) -> None:
        """Something that stays; returns once it tells where it serves its page, and is ready there."""
        with self.log.open("ab") as log:
            command = ["bash", "-c", f"exec {line}"]
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.staying.append(process)
        deadline = time.monotonic() + STAYS_SECONDS
        while time.monotonic() < deadline:
            said = self.log.read_text(encoding="utf-8")
            assert process.poll() is None, f"{line} ended:\n{said}"
            if found := re.search(r'"http": "([\d.:]+)", "event": "serving"', said):
                self.address = found[1]
                self.environment["LOADTIDE_URL"] = f"http://{self.address}"
                if '"event": "adjusted"' in said:  # the first tick is done
                    return
            time.sleep(0.1)
        raise AssertionError(f"{line} served nothing within {STAYS_SECONDS:g} s:\n{said}")

    def close(self) -> None:
        """Interrupt what stays, as Ctrl-C does; nothing may be left."""
        for process in self.staying:
            os.killpg(process.pid, signal.SIGINT)
        for process in self.staying:
            try:
                process.wait(20)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
