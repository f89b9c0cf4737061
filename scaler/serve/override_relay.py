"""Operators' overrides among several scalers: kept in Redis, taken from there by whoever ticks the workload."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

import structlog
from pydantic import TypeAdapter

from scaler.control.model import Override
from scaler.serve.redis_store import OVERRIDES, RedisStore
from scaler.serve.workloads import Workload, Workloads

log = structlog.get_logger(__name__)

#: Overrides of one workload that are known again when older data come back.
PAST = 20

_OVERRIDE: TypeAdapter[Override] = TypeAdapter(Override)


class OverrideRelay:
    """Overrides of ``workloads`` through ``store``, which has the last word, but for a word that we have seen replaced
    by another: then Redis has come back with older data, and is told again. Every method may raise RedisTrouble.
    """

    def __init__(self, workloads: Workloads, store: RedisStore) -> None:
        self._workloads = workloads
        self._store = store
        self._last: dict[str, str] = {}
        #: By workload, the overrides that others have replaced: no two are alike, for each has a moment of its end.
        self._past: dict[str, deque[str]] = {}

    async def tell(self, name: str, override: Override | None) -> None:
        """Keep an override, or that there is none, and call the owner."""
        await self._store.set_override(name, "" if override is None else _OVERRIDE.dump_json(override).decode())

    async def take(self, owned: Iterable[str]) -> None:
        """Let what is kept rule the workloads ``owned`` here."""
        kept = await self._store.overrides()
        utc = self._workloads.utc()
        for name in tuple(owned):
            workload, text = self._workloads.get(name), kept.get(name)
            if workload is None:
                continue
            if text is not None and self._is_past(name, text):
                await self._store.set_override(name, self._last[name])
            elif overrule(workload, text, utc):
                self._workloads.evaluate_soon(workload)

    def _is_past(self, name: str, text: str) -> bool:
        past, last = self._past.setdefault(name, deque(maxlen=PAST)), self._last.setdefault(name, text)
        if text in past:
            return True
        if last and last != text:
            past.append(last)
        self._last[name] = text
        return False

    async def tell_again(self, owned: Iterable[str]) -> None:
        """After another Redis has begun: tell it the overrides it does not know."""
        workloads = filter(None, map(self._workloads.get, tuple(owned)))
        rules = {each.name: each.memory.override for each in workloads if each.memory.override is not None}
        await asyncio.gather(
            *(
                self._store.set_override(name, _OVERRIDE.dump_json(override).decode(), replace=False)
                for name, override in rules.items()
            )
        )


def overrule(workload: Workload, text: str | None, utc: datetime) -> bool:
    """Put the override in ``text`` ("": it was ended), as it stands at ``utc``, into the workload's memory; whether
    that changes anything. None says nothing: a Redis that was emptied must not end what an operator has set.
    """
    if text is None:
        return False
    override = _read(workload.name, text) if text else None
    if override is not None and override.until <= utc:
        override = None
    if override == workload.memory.override:
        return False
    workload.memory = replace(workload.memory, override=override)
    return True


@lru_cache(maxsize=256)
def _read(name: str, text: str) -> Override | None:
    """The override; None where it cannot be read, which is said once, for it is read every few seconds."""
    try:
        return _OVERRIDE.validate_json(text)
    except ValueError as problem:
        then = "it is left out; set it again with loadtide override"
        log.warning("override unreadable", workload=name, key=OVERRIDES, problem=str(problem)[:500], then=then)
        return None
