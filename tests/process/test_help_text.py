"""What a command's --help looks like in a terminal."""

from __future__ import annotations

import pytest
from typer.main import get_group
from typer.testing import CliRunner

from scaler.cli import app
from scaler.process.help_text import flowing

DOC = """Do it.

It reads this and
writes that.
Next: look at it.

workloads:
  chat/a: {}

[bold]Next:[/bold] x
"""


def test_a_paragraph_is_one_line_and_an_example_stays_as_it_is() -> None:
    joined = "It reads this and writes that.\nNext: look at it."
    assert flowing(DOC) == DOC.strip().replace("It reads this and\nwrites that.\nNext: look at it.", joined)


@pytest.mark.parametrize("command", sorted(get_group(app).commands))
def test_every_command_has_such_a_help(command: str) -> None:
    help_text = get_group(app).commands[command].help
    assert help_text
    assert flowing(help_text) == help_text


def test_a_narrow_terminal_breaks_the_lines_itself() -> None:
    told = CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    words = " ".join(told.split())
    assert "is the code of serve. A trace is a CSV" in words
    assert "serve. A\n" not in "\n".join(line.strip() for line in told.splitlines())
