"""A real server for the tests as a process: its output goes to a log, it is waited for, it ends with all it began."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

#: For a server that starts in a second or two: a machine may stand still for long.
READY_SECONDS = 180.0
#: After SIGTERM, before SIGKILL; and after that.
STOP_SECONDS = 30.0


class StartFailed(Exception):  # noqa: N818
    """It is installed but does not answer; the text ends with its last log lines."""


@contextmanager
def running(
    command: Sequence[str],
    log: Path,
    answers: Callable[[], bool],
    *,
    environment: Mapping[str, str] | None = None,
    ready_seconds: float = READY_SECONDS,
    stop_seconds: float = STOP_SECONDS,
) -> Iterator[subprocess.Popen[bytes]]:
    """The process that :func:`started` gives; it and whatever it started end with the block."""
    process = started(command, log, answers, environment=environment, ready_seconds=ready_seconds)
    try:
        yield process
    finally:
        stop(process, stop_seconds)


def started(
    command: Sequence[str],
    log: Path,
    answers: Callable[[], bool],
    *,
    environment: Mapping[str, str] | None = None,
    ready_seconds: float = READY_SECONDS,
) -> subprocess.Popen[bytes]:
    """The process of ``command``, once it ``answers``, which may raise OSError until then. Raises ``StartFailed``."""
    with log.open("ab") as output:
        # Its own session, hence its own process group: the processes that it starts must end with it.
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        _wait(process, log, answers, ready_seconds)
    except BaseException:
        stop(process)
        raise
    return process


def page(url: str, words: bytes = b"") -> Callable[[], bool]:
    """Whether there is a page at ``url`` that has these words."""

    def answers() -> bool:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return words in answer.read()

    return answers


def stop(process: subprocess.Popen[bytes], patience_seconds: float = STOP_SECONDS) -> None:
    """End it and every process of its group: ask first, then insist. Harmless when it has ended already."""
    for wish in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, wish)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + patience_seconds
        while time.monotonic() < deadline and _group_lives(process):
            time.sleep(0.05)
    process.wait(STOP_SECONDS)


def _wait(process: subprocess.Popen[bytes], log: Path, answers: Callable[[], bool], seconds: float) -> None:
    name, why, deadline = Path(str(process.args[0])).name, "", time.monotonic() + seconds  # type: ignore[index]
    while not why:
        try:
            if answers():
                return
        except OSError:
            pass
        if process.poll() is not None:
            why = f"ended with status {process.returncode}"
        elif time.monotonic() > deadline:
            why = f"does not answer after {seconds:g} s"
        time.sleep(0.05)
    said = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
    raise StartFailed(f"{name} {why}; it said last:\n{said}")


def _group_lives(process: subprocess.Popen[bytes]) -> bool:
    process.poll()  # reaps the leader: an unreaped one would count as alive
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
