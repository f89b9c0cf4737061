"""The fast loop: every second the memory signals of scraped engines are read, and the batch shrunk before the next
tick.

It reads on its own, lightly (:mod:`scaler.signals.memory_read`), only the endpoints that the last tick could read, and
only where that is fast and cheap: engines that are scraped, a few replicas, a tick longer than its period. Its cost is
bounded for the whole scaler: at most :data:`PAGES_PER_SECOND` pages, a quarter of a millisecond of parsing each. With
more to guard than that every workload's turn comes later, and the one that waits longest is next.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
import structlog

from scaler.control.mode import batch_is_ours
from scaler.control.model import Now
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.memory_read import Read, memory_preset, memory_signals
from scaler.signals.model import Signals
from scaler.signals.observation import EngineSample
from scaler.signals.scrape import scrape

log = structlog.get_logger(__name__)

#: Pages read per second at most, over all workloads.
PAGES_PER_SECOND = 100.0
#: How often a workload is looked at that is not to be guarded, and the list of workloads for new ones, seconds.
LOOK_SECONDS = 1.0
#: The shortest sleep: with more due than may be read the loop must not spin.
SHORTEST_SLEEP_SECONDS = 0.02
#: The least time an answer is given, seconds, and the share of a longer period.
PATIENCE_SECONDS, PATIENCE_SHARE = 1.0, 0.9


@dataclass(slots=True)
class _Turn:
    """What is kept of one workload between its light reads: the last one, and whether the next is under way."""

    read: Read = field(default_factory=dict)
    reading: bool = False


class Guarding:
    """Reads for ``workloads`` and gives what it finds to ``act``."""

    def __init__(self, workloads: Workloads, act: Callable[[Workload, Signals], Awaitable[None]]) -> None:
        self._workloads = workloads
        self._act = act
        self._turns: dict[str, _Turn] = {}
        #: (due, name): who is next.
        self._queue: list[tuple[float, str]] = []
        self._pages = PAGES_PER_SECOND
        self._counted_at = self._look_due = workloads.mono()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Guard until cancelled."""
        try:
            while True:  # noqa: ASYNC110  it is the clock that is waited for
                await asyncio.sleep(self.begin_due(session))
        finally:
            for task in self._tasks:
                task.cancel()

    def begin_due(self, session: aiohttp.ClientSession) -> float:
        """Begin the reads that are due; in how many seconds to come again."""
        now = self._workloads.mono()
        self._pages = min(PAGES_PER_SECOND, self._pages + (now - self._counted_at) * PAGES_PER_SECOND)
        self._counted_at = now
        if now >= self._look_due:
            self._look_due = now + LOOK_SECONDS
            self._look(now)
        while self._queue and self._queue[0][0] <= now:
            name = self._queue[0][1]
            workload = self._workloads.get(name)
            if workload is None:
                heapq.heappop(self._queue)
                del self._turns[name]
                continue
            endpoints = self.endpoints(workload)
            if len(endpoints) > self._pages:
                break
            period = workload.resolved.policy.memory.guard_seconds
            heapq.heapreplace(self._queue, (now + (period if endpoints and period else LOOK_SECONDS), name))
            if not endpoints:
                workload.guarded_mono = None
            elif not self._turns[name].reading:
                self._pages -= len(endpoints)
                self._start(session, self._turns[name], workload, endpoints)
        soonest = min(self._look_due, self._queue[0][0] if self._queue else self._look_due)
        return max(SHORTEST_SLEEP_SECONDS, soonest - now)

    def _look(self, now: float) -> None:
        for name in self._workloads.names():
            if name not in self._turns:
                self._turns[name] = _Turn()
                heapq.heappush(self._queue, (now, name))

    def endpoints(self, workload: Workload) -> tuple[str, ...]:
        """What is to be read of a workload; nothing where it is not to be guarded."""
        policy, observed, memory = workload.resolved.policy, workload.observed, workload.memory
        period = policy.memory.guard_seconds
        if period is None or period >= self._workloads.tick_seconds or observed is None or memory.targets is None:
            return ()
        if observed[0] is not policy or observed[1].source != "scrape" or not memory.targets.active:
            return ()
        if not self._workloads.ownership.owns(workload.name):
            return ()
        if not batch_is_ours(policy, memory, Now(self._workloads.utc(), self._workloads.mono())):
            return ()
        answered = tuple(url for url, read in observed[1].endpoints.items() if isinstance(read, EngineSample))
        return answered if len(answered) <= policy.memory.guard_replicas else ()

    def _start(
        self, session: aiohttp.ClientSession, turn: _Turn, workload: Workload, endpoints: tuple[str, ...]
    ) -> None:
        turn.reading = True
        task = asyncio.create_task(self._read(session, turn, workload, endpoints), name=f"guard {workload.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(
        self, session: aiohttp.ClientSession, turn: _Turn, workload: Workload, endpoints: tuple[str, ...]
    ) -> None:
        """Read once and act on it. Whatever goes wrong costs this turn."""
        try:
            await self._read_once(session, turn, workload, endpoints)
        except Exception:
            log.exception("guard failed", workload=workload.name)
        finally:
            turn.reading = False

    async def _read_once(
        self, session: aiohttp.ClientSession, turn: _Turn, workload: Workload, endpoints: tuple[str, ...]
    ) -> None:
        policy, preset = workload.resolved.policy, memory_preset(workload.preset)
        period = policy.memory.guard_seconds
        if preset is None or period is None:
            return
        patience = min(policy.scrape.timeout_seconds, max(PATIENCE_SECONDS, PATIENCE_SHARE * period))
        config = policy.scrape.model_copy(update={"urls": endpoints, "timeout_seconds": patience})
        mono = self._workloads.mono
        read = await scrape(session, config, preset, mono=mono, unix=lambda: self._workloads.utc().timestamp())
        serving = {url: each for url, each in read.items() if not _stalled(workload, url)}
        signals = memory_signals(turn.read, serving)
        turn.read = {**turn.read, **{url: each for url, each in read.items() if isinstance(each, EngineSample)}}
        workload.guarded_mono = mono()
        if workload.resolved.policy is policy:
            await self._act(workload, signals)


def _stalled(workload: Workload, url: str) -> bool:
    """Whether the replica makes no progress: its gauges are frozen, and no sign of anything."""
    tracked = workload.history.tracked.get(url)
    return tracked is not None and tracked.progress_seconds >= workload.resolved.policy.stalled_after_seconds
