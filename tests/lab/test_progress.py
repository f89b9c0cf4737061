"""How far a long command is: a bar for a person, plain lines for a log, and nothing in what the command says."""

from __future__ import annotations

import io
import re
from threading import Event

import pytest

from scaler.lab.progress import line, progress


class Stream(io.StringIO):
    """A standard error that is a terminal or not, and tells when a line has come."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal, self.come = terminal, Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        if "\n" in text:
            self.come.set()
        return written


@pytest.mark.parametrize(
    ("done", "total", "elapsed", "said"),
    [
        (0.0, 1.0, 30.0, "0 %, 0:00:30 so far: reading"),
        (0.25, 1.0, 60.0, "25 %, 0:01:00 so far, about 0:03:00 left: reading"),
        (360.0, 3000.0, 120.0, "12 % (360 of 3000), 0:02:00 so far, about 0:14:40 left: reading"),
        (1.0, 1.0, 90.0, "100 %, 0:01:30 so far: reading"),
    ],
)
def test_a_line_says_how_much_how_long_and_how_long_yet(done: float, total: float, elapsed: float, said: str) -> None:
    assert line(done, "reading", total, elapsed) == said


def test_a_log_gets_plain_lines_even_while_one_step_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as CI sets it: colours are wanted, a bar that redraws itself is not
    log = Stream(terminal=False)
    with progress("runs", total=8, stream=log, line_seconds=0.01) as tell:
        tell(2, "last: ramp")
        log.come.clear()
        assert log.come.wait(30.0), "nothing more was told, and no line came"
    lines = log.getvalue().splitlines()
    assert "\x1b" not in log.getvalue()
    assert all(re.fullmatch(r"\d+ %.* so far.*: (runs|last: ramp)", each) for each in lines)
    assert lines[-1].startswith("25 % (2 of 8), ")


def test_what_ends_sooner_says_nothing_in_a_log() -> None:
    log = Stream(terminal=False)
    with progress("runs", stream=log) as tell:
        tell(0.5, "reading")
    assert log.getvalue() == ""


def test_a_failure_inside_ends_the_lines_and_is_passed_on() -> None:
    log = Stream(terminal=False)
    with pytest.raises(ValueError, match="no such trace"), progress("runs", stream=log, line_seconds=0.01):
        raise ValueError("no such trace")
    before = log.getvalue()
    log.come.clear()
    assert not log.come.wait(0.1)
    assert log.getvalue() == before


def test_a_person_at_a_terminal_sees_a_bar_and_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Stream(terminal=True)
    with progress("runs", total=8, stream=terminal, line_seconds=0.001) as tell:
        tell(2, "last: ramp")
    assert "\x1b[" in terminal.getvalue()
    assert "so far" not in terminal.getvalue()


def test_a_terminal_that_cannot_redraw_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Stream(terminal=True)
    with progress("runs", stream=terminal, line_seconds=0.01):
        assert terminal.come.wait(30.0)
    assert "so far: runs" in terminal.getvalue()
