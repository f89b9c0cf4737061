"""The servers of the tests: one that does not come up says why, and none leaves a process behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.real import server_process


def lives(pid: int) -> bool:
    """Whether the process runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_that_ends_says_its_last_words(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo no such model; exit 3"]
    with pytest.raises(server_process.StartFailed, match="sh ended with status 3; it said last:\nno such model"):
        server_process.started(command, tmp_path / "log", lambda: False)


def test_one_that_never_answers_is_ended_with_what_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"

    def refuse() -> bool:
        while not child.exists() or not child.read_text():
            time.sleep(0.01)
        raise ConnectionRefusedError

    command = ["sh", "-c", f"sleep 60 & echo $! > {child}; wait"]
    with pytest.raises(server_process.StartFailed, match=r"does not answer after 0\.3 s"):
        server_process.started(command, tmp_path / "log", refuse, ready_seconds=0.3)
    assert not lives(int(child.read_text()))


def test_one_that_does_not_heed_the_asking_is_ended(tmp_path: Path) -> None:
    said = tmp_path / "ready"
    command = ["sh", "-c", f"trap '' TERM; echo > {said}; while :; do sleep 0.1; done"]
    with server_process.running(command, tmp_path / "log", said.exists, stop_seconds=0.3) as process:
        os.killpg(process.pid, 0)
    assert process.returncode == -9
