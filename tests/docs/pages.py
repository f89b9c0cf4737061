"""The pages people read, and the blocks of code in them.

A block of ``sh`` is run by the tests as it stands, unless its first line says what it needs that a fresh checkout has
not: ``# needs: a cluster``. A line that ends in ``# stays`` starts something that goes on until it is interrupted. A
block of ``output`` behind it is what it says, in that order; ``...`` stands for anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
#: Whose blocks a test of its own runs, because they need more than a fresh checkout.
RUN_ELSEWHERE = {"docs/consume.md": "tests/test_consume_page.py"}
_NOT_PAGES = {"README.zh-CN.md"}  # the same blocks as README.md: tests/docs/test_languages.py
_BLOCK = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_NEEDS = re.compile(r"# needs: (.+)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: ``page`` by its path in the repository, the ``line`` of its first line of code."""

    page: str
    line: int
    language: str
    text: str

    @property
    def needs(self) -> str | None:
        """What it needs that a fresh checkout has not; None: nothing."""
        found = _NEEDS.match(self.text)
        return found[1] if found else None

    @property
    def lines(self) -> list[str]:
        """Commands, each on one line: continued ones joined, comments and blank lines left out."""
        joined = self.text.replace("\\\n", " ")
        stripped = (re.sub(r"(^|\s)#\s.*$", "", line).strip() for line in joined.splitlines())
        return [line for line in stripped if line]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def pages() -> tuple[str, ...]:
    """Every page written by hand, by its path in the repository."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("plugins/*/README.md")]
    names = {path.relative_to(ROOT).as_posix() for path in found} - _NOT_PAGES
    return tuple(sorted(names))


@cache
def blocks(*languages: str) -> tuple[Block, ...]:
    """Every block of these languages, in the order of pages and lines."""
    return tuple(block for page in pages() for block in blocks_of(page) if block.language in languages)


def blocks_of(page: str) -> list[Block]:
    """The blocks of one page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start(3)) + 1, found[2], dedent(found[3]))
        for found in _BLOCK.finditer(text)
    ]
