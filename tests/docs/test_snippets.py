"""Every command that pages give is run as a new user would run it: in a fresh checkout, as it stands.

What a block needs beside a checkout stands in its first line (``# needs: a cluster``); such a block is looked at by
tests/docs/test_blocks.py instead. ``make run`` stays: what follows it on its page asks that very process.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, RUN_ELSEWHERE, Block, blocks, blocks_of
from tests.docs.terminal import Terminal

FIRST = "docs/first-ten-minutes.md"
INSTEAD_OF_MAKE = "loadtide demo"
RUNNABLE = [block for block in blocks("sh") if block.needs is None and block.page not in RUN_ELSEWHERE]
PAGES = sorted({block.page for block in RUNNABLE})
#: What a checkout has and a clone has not, or a user would not look at.
LEFT_OUT = (".git", ".venv", ".cache", ".loadtide", "*_cache", "__pycache__", ".hypothesis", "node_modules", "site")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as a clone has it, with the environment that `make` has made for the tests already."""
    folder = tmp_path_factory.mktemp("checkout") / "loadtide"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    environment = Path(sys.executable).parents[1]
    (folder / ".venv").symlink_to(environment)
    if not (environment / "installed").exists():
        pytest.skip("this environment was not made by make, which would make another")
    os.utime(folder / "pyproject.toml", (0, 0))  # older than the environment: nothing is installed anew
    return folder


@pytest.fixture
def terminal(checkout: Path, tmp_path: Path) -> Iterator[Terminal]:
    with Terminal.opened(checkout, tmp_path / "log", python_path=checkout, programs=checkout / ".venv/bin") as opened:
        yield opened


@pytest.fixture
def without_checkout(tmp_path: Path) -> Iterator[Terminal]:
    """An empty folder, and loadtide from the wheel alone."""
    wheels, installed, empty = (tmp_path / name for name in ("wheels", "installed", "empty"))
    empty.mkdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(installed), *map(str, wheels.iterdir())], check=True, capture_output=True)
    with Terminal.opened(empty, tmp_path / "log", python_path=installed, programs=installed / "bin") as opened:
        yield opened


def type_all(terminal: Terminal, typed: list[Block]) -> None:
    """Run what can be run; what a page shows as its output is what was said."""
    said = None
    for block in typed:
        if block.language == "output":
            assert said is not None, f"{block}: nothing was run before it"
            shown = ".*".join(map(re.escape, re.sub(r" *\.\.\.\n?", "\0", block.text.strip()).split("\0")))
            assert re.search(shown, said, re.DOTALL), f"{block} is not what was said:\n{said}"
        elif block.language == "sh":
            said = terminal.run(block) if block.needs is None else None


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_runs(page: str, terminal: Terminal) -> None:
    type_all(terminal, blocks_of(page))


def test_the_pages_people_begin_with_are_run() -> None:
    assert {"README.md", "docs/first-ten-minutes.md"} <= set(PAGES)


def test_a_page_run_elsewhere_is_run_there() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


def test_the_first_ten_minutes_need_no_checkout(without_checkout: Terminal) -> None:
    """From the wheel, with what the page says in place of `make run`; nothing else of the page differs."""
    page = (ROOT / FIRST).read_text(encoding="utf-8")
    assert f"`{INSTEAD_OF_MAKE}`" in page
    steps = [block for block in blocks_of(FIRST) if ".venv" not in block.text]
    type_all(
        without_checkout, [replace(block, text=block.text.replace("make run", INSTEAD_OF_MAKE)) for block in steps]
    )
