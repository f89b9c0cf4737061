"""A command's docstring as its help: typer ends a line of the help where a line of the source ends, after the first
paragraph, so that a terminal of 80 columns shows every second line half full.
"""

from __future__ import annotations

import inspect
import re

from typer.models import CommandInfo

#: What begins a line of its own within a paragraph.
_OWN_LINE = re.compile(r"\n(?!(?:\[bold\])?Next:)")


def flowing(doc: str) -> str:
    """``doc`` with each paragraph on one line, for the terminal to break; but one with an indented line, an example in
    YAML or of a long command, stays as it is.
    """
    paragraphs = inspect.cleandoc(doc).split("\n\n")
    return "\n\n".join(each if re.search(r"\n\s|\\$", each) else _OWN_LINE.sub(" ", each) for each in paragraphs)


def let_flow(commands: list[CommandInfo]) -> None:
    """Give each of the commands its docstring as :func:`flowing` help."""
    for command in commands:
        command.help = flowing(command.help or getattr(command.callback, "__doc__", None) or "")
