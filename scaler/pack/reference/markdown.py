"""Markdown as the pages are made of it: tables, code, and docstrings turned from reStructuredText."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PIPE = re.compile(r"(?<!\\)\|")
_WORD = re.compile(r"[a-z'-]+,?")
_ROLE = re.compile(r":[a-z]+:`([^`]+)`")


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; a pipe inside a cell is escaped, which code spans need as well."""
    heads = list(heads)
    lines = (" | ".join(map(_cell, line)) for line in (heads, ["---"] * len(heads), *rows))
    return "".join(f"| {line} |\n" for line in lines)


def _cell(text: str) -> str:
    return _PIPE.sub(r"\|", " ".join(text.split()))


def code(text: str) -> str:
    """A code span; nothing of nothing."""
    return f"`{text}`" if text else ""


def prose(docstring: str) -> str:
    """A docstring, or a part of one, in Markdown, on one line."""
    return " ".join(_ROLE.sub(r"`\1`", docstring.replace("``", "`")).split())


def sentence(text: str) -> str:
    """With a full stop at its end, and a capital at its beginning where that is a word and not a name."""
    first = text.split(" ", 1)[0]
    text = text[:1].upper() + text[1:] if _WORD.fullmatch(first) else text
    return text if text.endswith((".", "?")) else f"{text}."
