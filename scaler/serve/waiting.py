"""Waits that the end of the process cuts short."""

from __future__ import annotations

import asyncio


async def all_done(tasks: list[asyncio.Task[None]], stopping: asyncio.Event, seconds: float) -> None:
    """Wait for all of ``tasks``, but neither longer than ``seconds`` nor past ``stopping``; none is cancelled."""
    if not tasks:
        return
    either = (asyncio.ensure_future(asyncio.wait(tasks)), asyncio.ensure_future(stopping.wait()))
    try:
        await asyncio.wait(either, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in either:
            waiting.cancel()


async def wait(stopping: asyncio.Event, seconds: float) -> None:
    """Sleep, but no longer than until ``stopping``."""
    try:
        await asyncio.wait_for(stopping.wait(), timeout=max(0.0, seconds))
    except TimeoutError:
        return
