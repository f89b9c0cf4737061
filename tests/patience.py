"""Claims about what becomes of something in the end, on a machine that may stand still for seconds at any moment.

A server that could not answer its scrape meanwhile is missing from the next answer, as it should be, and is back in the
one after: a claim about what is read in the end is made until it holds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")

#: It costs nothing when all is well.
LONG_SECONDS = 60.0
#: What is not there yet fails to be found, and to be taken apart, as well.
_NOT_YET = (AssertionError, LookupError, ValueError)


def at_last(check: Callable[[], T], seconds: float = LONG_SECONDS) -> T:
    """What ``check`` gives as soon as it does not fail; after ``seconds`` its last failure."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check()
        except _NOT_YET:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


async def comes_to(check: Callable[[], Awaitable[T]], seconds: float = LONG_SECONDS) -> T:
    """The same of a ``check`` to await."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await check()
        except _NOT_YET:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.2)


@asynccontextmanager
async def seconds_at_work() -> AsyncIterator[Callable[[], float]]:
    """Tells how many seconds have passed, less those in which this loop was not let work."""
    passed = 0.0

    async def count() -> None:
        nonlocal passed
        before = time.monotonic()
        while True:
            await asyncio.sleep(0.02)
            now = time.monotonic()
            passed, before = passed + min(now - before, 0.1), now

    counting = asyncio.create_task(count())
    try:
        yield lambda: passed
    finally:
        counting.cancel()
