"""Following and telling in two loops: what is wanted of an engine does not wait for a scaler that hangs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

#: How often it is looked whether something is to be done, beside being told so.
EVERY_SECONDS: Final = 1.0


async def follow_and_tell(
    follow: Callable[[], Awaitable[None]], tell: Callable[[], Awaitable[None]], wake: asyncio.Event
) -> None:
    """Follow every second, and as soon as ``wake`` is set; tell after that, of the last one if telling is slower. Until
    cancelled.
    """
    followed = asyncio.Event()

    async def follow_for_ever() -> None:
        while True:
            wake.clear()
            await follow()
            followed.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_SECONDS):
                    await wake.wait()

    async def tell_for_ever() -> None:
        while True:
            await followed.wait()
            followed.clear()
            await tell()

    async with asyncio.TaskGroup() as loops:
        loops.create_task(follow_for_ever())
        loops.create_task(tell_for_ever())
