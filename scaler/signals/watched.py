"""The objects of one list in a cluster, kept current: listed once, then watched.

They are there to be used only while the watch stands. Once it breaks (the server restarts, permission is taken away)
there is a reason in their place until a whole list has been read again: an old list is no list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, Generic, TypeVar

import structlog

from scaler.signals.api_server import ApiError, ApiServer, ExpiredError

log = structlog.get_logger(__name__)
_CHANCE = Random()

T = TypeVar("T")

#: The server ends a watch after so long, and it is opened again: so a dead connection is noticed at about this age.
WATCH_SECONDS = 60
#: What a watch may be late beyond that.
LATE_SECONDS = 10.0
#: How long to wait after a failure, doubled each time up to the longest; and where permission is lacking, always.
RETRY_SECONDS, RETRY_LONGEST_SECONDS, RETRY_FORBIDDEN_SECONDS = 1.0, 30.0, 60.0
#: A list nobody has asked for this long is no longer watched.
UNASKED_SECONDS = 600.0
#: How many objects one page of a list holds.
PAGE = 500
_LIST_TIMEOUT_SECONDS = 30.0


class Watched(Generic[T]):
    """One list: ``path``, narrowed by a label ``selector``; ``read`` makes of each object's JSON what is kept of it.

    ``mono`` is the monotonic clock in seconds. Call :meth:`objects` from one event loop; the watch runs in it.
    """

    def __init__(
        self,
        server: ApiServer,
        path: str,
        selector: str,
        read: Callable[[Mapping[str, Any]], T],
        mono: Callable[[], float],
    ) -> None:
        self._server = server
        self._path = path
        self._selector = selector
        self._read = read
        self._mono = mono
        self._objects: dict[str, T] = {}
        self._trouble: str | None = "the cluster has not answered yet"
        self._judged = asyncio.Event()
        self._asked_at = 0.0
        self._task: asyncio.Task[None] | None = None

    async def objects(self, timeout: float) -> tuple[T, ...] | str:
        """The objects as they are now, or why they are not known. Only the first call waits, for ``timeout`` seconds at
        most.
        """
        self._asked_at = self._mono()
        if self._task is None or self._task.done():
            self._judged.clear()
            self._task = asyncio.create_task(self._keep_current(), name=f"watch {self._path}")
        try:
            async with asyncio.timeout(timeout):
                await self._judged.wait()
        except TimeoutError:
            return f"the cluster did not answer within {timeout:g} s"
        return tuple(self._objects.values()) if self._trouble is None else self._trouble

    async def stop(self) -> None:
        """End the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep_current(self) -> None:
        failures = 0
        while self._mono() - self._asked_at <= UNASKED_SECONDS:
            try:
                began = self._mono()
                version = await self._list()
                failures = 0
                while self._mono() - self._asked_at <= UNASKED_SECONDS:
                    version = await self._watch(version)
                    await self._not_before(began + RETRY_SECONDS)
                    began = self._mono()
            except ExpiredError:
                await self._not_before(began + RETRY_SECONDS)  # the list read next is as good as the watch
            except ApiError as error:
                self._lose(str(error))
                failures += 1
                await asyncio.sleep(_pause(failures, error.forbidden))
        self._trouble = "the cluster has not answered yet"

    async def _list(self) -> str:
        """Read the whole list, in pages. Gives the version to watch from."""
        found: dict[str, T] = {}
        page = ""
        while True:
            query = [("limit", str(PAGE)), *self._selected(), *([("continue", page)] if page else [])]
            body = await self._server.get(self._path, query, timeout=_LIST_TIMEOUT_SECONDS)
            found |= dict(self._named(each) for each in body.get("items") or ())
            metadata = body.get("metadata") or {}
            page = metadata.get("continue") or ""
            if not page:
                break
        self._objects = found
        if self._trouble is not None and self._judged.is_set():
            log.info("cluster list is back", path=self._path, selector=self._selector)
        self._trouble = None
        self._judged.set()
        return str(metadata.get("resourceVersion") or "")

    async def _watch(self, version: str) -> str:
        """Follow the list from ``version`` until the server ends the watch. Gives the version it has come to."""
        query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(WATCH_SECONDS)),
            ("resourceVersion", version),
            *self._selected(),
        ]
        async with aclosing(self._server.watch(self._path, query, silence=WATCH_SECONDS + LATE_SECONDS)) as events:
            async for event in events:
                body = event["object"]
                version = str((body.get("metadata") or {}).get("resourceVersion") or version)
                if event.get("type") == "BOOKMARK":
                    continue
                name, kept = self._named(body)
                if event.get("type") == "DELETED":
                    self._objects.pop(name, None)
                else:
                    self._objects[name] = kept
        return version

    async def _not_before(self, mono: float) -> None:
        """Whatever a server answers, it is not asked without a pause."""
        await asyncio.sleep(max(0.0, mono - self._mono()))

    def _named(self, body: Mapping[str, Any]) -> tuple[str, T]:
        try:
            return str(body["metadata"]["name"]), self._read(body)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ApiError(f"the cluster sent an object that cannot be read: {error!r}") from error

    def _selected(self) -> list[tuple[str, str]]:
        return [("labelSelector", self._selector)] if self._selector else []

    def _lose(self, reason: str) -> None:
        if reason != self._trouble:  # one warning, however often it is tried again
            log.warning("cluster list lost", path=self._path, selector=self._selector, reason=reason)
        self._trouble = reason
        self._judged.set()


def _pause(failures: int, forbidden: bool) -> float:
    """Seconds to wait, a little different each time, so that many do not come back at once."""
    longest = RETRY_FORBIDDEN_SECONDS if forbidden else min(RETRY_SECONDS * 2 ** (failures - 1), RETRY_LONGEST_SECONDS)
    return longest * _CHANCE.uniform(0.5, 1.0)
