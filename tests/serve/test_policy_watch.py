"""The policy file under its writers: half of it is not read, an empty or absent one takes nothing away."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from scaler.policy.layers import PolicyFile
from scaler.serve.policy_watch import PolicyWatch
from scaler.serve.workloads import Workloads

TWO = "workloads:\n  chat/a: {replicas: {max: 2}}\n  chat/b: {replicas: {max: 2}}\n"


class Watched:
    """A registry that follows a file, and what is written into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write(TWO)
        self.workloads = Workloads(PolicyFile.load(path), tick_seconds=5.0)
        self.watch = PolicyWatch(path, self.workloads)

    def write(self, text: str, ago_seconds: float = 60.0) -> None:
        self.path.write_text(text)
        written = time.time() - ago_seconds
        os.utime(self.path, (written, written))

    def look(self) -> tuple[list[str], list[str]]:
        """The workloads after a look, and what was logged."""
        with capture_logs() as logs:
            self.watch.look()
        return sorted(self.workloads.names()), [each["event"] for each in logs]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "policy.yaml")


def test_a_change_is_taken_up(watched: Watched) -> None:
    watched.write("workloads:\n  chat/c: {}\n", ago_seconds=59)
    assert watched.look() == (["chat/c"], ["policy file read again"])
    assert watched.look() == (["chat/c"], [])


def test_half_a_file_is_left_to_its_writer(watched: Watched) -> None:
    """Its first lines are a whole policy, of one workload."""
    watched.write("".join(TWO.splitlines(keepends=True)[:2]), ago_seconds=0)
    assert watched.look() == (["chat/a", "chat/b"], [])
    watched.write(TWO + "  chat/c: {}\n", ago_seconds=0)
    assert watched.look() == (["chat/a", "chat/b"], [])
    assert watched.look() == (["chat/a", "chat/b", "chat/c"], ["policy file read again"])


def test_a_clock_that_is_behind_the_file_delays_it_by_one_look(watched: Watched) -> None:
    watched.write("workloads:\n  chat/c: {}\n", ago_seconds=-3600)
    assert watched.look() == (["chat/a", "chat/b"], [])
    assert watched.look() == (["chat/c"], ["policy file read again"])


def test_an_empty_file_takes_nothing_away_and_an_empty_policy_does(watched: Watched) -> None:
    watched.write("")
    assert watched.look() == (["chat/a", "chat/b"], ["policy file refused, the one before stays in force"])
    watched.write("{}\n")
    assert watched.look() == ([], ["policy file read again"])


def test_a_file_that_is_gone_takes_nothing_away_and_is_said_once(watched: Watched) -> None:
    watched.path.unlink()
    assert watched.look() == (["chat/a", "chat/b"], ["policy file is gone, the one before stays in force"])
    assert watched.look() == (["chat/a", "chat/b"], [])
    watched.write(TWO)
    assert watched.look() == (["chat/a", "chat/b"], ["policy file read again"])
