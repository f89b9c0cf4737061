"""`make bench`: what is typed behind ARGS reaches the benchmark, or is refused where nothing would read it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def made(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`make bench` by this very Python, installing nothing."""
    here = f"bin={Path(sys.executable).parent}"
    command = ["make", "--no-print-directory", "--old-file", ".venv/installed", here, "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_args_go_to_the_benchmark() -> None:
    done = made("NAME=lab", "ARGS=--help")
    assert done.returncode == 0, done.stderr
    assert "--seeds" in done.stdout


def test_an_option_that_there_is_not_is_the_benchmarks_to_refuse() -> None:
    done = made("NAME=lab", "ARGS=--sedes 2")
    assert done.returncode != 0
    assert "unrecognized arguments: --sedes 2" in done.stderr


@pytest.mark.parametrize("name", ["tick", "wake"])
def test_args_that_nothing_would_read_are_refused(name: str) -> None:
    done = made(f"NAME={name}", "ARGS=--seeds 2")
    assert done.returncode != 0
    assert f"benchmarks/{name}.py has no options: leave out ARGS" in done.stderr


def test_without_a_name_it_says_what_to_write() -> None:
    assert "Which one? make bench NAME=..." in made().stderr
