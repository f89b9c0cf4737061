"""How far a long command is, on standard error: a bar where a person looks on, else a plain line now and then, so that
a log of CI or ``nohup`` shows that it lives and when it will end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread
from typing import Final, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

#: How far it is, of the whole that was declared, and with what.
Tell = Callable[[float, str], None]
#: Without a terminal a line comes so often; what is done sooner says nothing.
LINE_SECONDS: Final = 30.0


@contextmanager
def progress(
    words: str, total: float = 1.0, *, stream: TextIO | None = None, line_seconds: float = LINE_SECONDS
) -> Iterator[Tell]:
    """Shows on ``stream`` (standard error) what is told, until the block ends. ``total`` above 1 is a count."""
    stream = stream or sys.stderr
    # Asked of the stream itself: rich takes FORCE_COLOR, which CI sets, for a terminal.
    console = Console(file=stream)
    watched = stream.isatty() and not console.is_dumb_terminal
    with _bar(words, total, console) if watched else _lines(words, total, stream, line_seconds) as tell:
        yield tell


@contextmanager
def _bar(words: str, total: float, console: Console) -> Iterator[Tell]:
    amount = MofNCompleteColumn() if total > 1 else TaskProgressColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(words, total=total)
        yield lambda done, now: bars.update(bar, completed=done, description=now)


@contextmanager
def _lines(words: str, total: float, stream: TextIO, line_seconds: float) -> Iterator[Tell]:
    begun, ended = time.monotonic(), Event()
    last = (0.0, words)

    def tell(done: float, now: str) -> None:
        nonlocal last
        last = (done, now)

    def write() -> None:
        # A step may take minutes and tell nothing meanwhile: the line comes all the same.
        while not ended.wait(line_seconds):
            print(line(*last, total, time.monotonic() - begun), file=stream, flush=True)

    writer = Thread(target=write, daemon=True)
    writer.start()
    try:
        yield tell
    finally:
        ended.set()
        writer.join()


def line(done: float, words: str, total: float, elapsed_seconds: float) -> str:
    """``12 % (360 of 3000), 0:02:00 so far, about 0:14:40 left: ramp-llm-d``; before anything is done nothing is said
    of what is left, as nothing is known.
    """
    share = done / total
    amount = f"{share:.0%}".replace("%", " %") + (f" ({done:.0f} of {total:.0f})" if total > 1 else "")
    left = f", about {_shown(elapsed_seconds * (1.0 / share - 1.0))} left" if 0.0 < share < 1.0 else ""
    return f"{amount}, {_shown(elapsed_seconds)} so far{left}: {words}"


def _shown(seconds: float) -> str:
    """``0:02:30``, as the bar shows it."""
    return str(timedelta(seconds=round(seconds)))
