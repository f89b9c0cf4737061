"""The loop: every tick, each workload is read, judged and published, and what must survive is stored.

The loop's own clock drives everything; no call from KEDA or anyone else does. One workload's slow source delays only
that workload. A tick ends with one transaction in the store, so that a kill at any moment loses at most one tick.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import aiohttp
import structlog

from scaler.control.decide import decide
from scaler.control.model import Memory, Now
from scaler.serve.adjustments import record_adjustment
from scaler.serve.observe import observe, source_health
from scaler.serve.snapshot import Snapshot
from scaler.serve.store import Store, StoredWorkload, away_seconds, boot_seconds, read_boot_id
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.observation import Observation
from scaler.signals.window import activity_watermark, fold, unchanged_since

log = structlog.get_logger(__name__)

#: How many ticks a published target stays valid; past it a consumer goes back to the engine's own setting.
VALID_TICKS = 12
#: The share of a tick after which what has been decided is stored, even if some source has not answered yet.
STORE_AFTER_SHARE = 0.8

Observe = Callable[[Workload, aiohttp.ClientSession, Callable[[], float]], Awaitable[Observation]]


class Loop:
    """Ticks ``workloads`` and keeps them in ``store``. ``observe`` reads one workload's sources; ``before_tick`` is
    called before each round.
    """

    def __init__(
        self,
        workloads: Workloads,
        store: Store,
        *,
        observe: Observe = observe,
        before_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._workloads = workloads
        self._before_tick = before_tick
        self._store = store
        self._observe = observe
        self._boot_id = read_boot_id()
        self._undelivered: set[Workload] = set()
        self._session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def restore(self) -> None:
        """Bring back what the store remembers: memories, generations, and what is needed to resume the idle timers."""
        for name, stored in self._store.load().items():
            workload = self._workloads.restore(name, stored.metadata)
            if workload is None:
                continue
            workload.memory, workload.generation = stored.memory, stored.generation
            workload.watermark = stored.watermark
            workload.away_seconds = away_seconds(stored, self._workloads.utc(), self._boot_id, boot_seconds())
            log.info(
                "workload restored",
                workload=name,
                state=stored.memory.state,
                idle_seconds=round(stored.memory.idle_seconds, 1),
                away_seconds=round(workload.away_seconds, 1),
            )

    async def run(self, stopping: asyncio.Event) -> None:
        """Tick until ``stopping``. Missed ticks (suspended machine, blocked loop) are skipped, never made up for."""
        period = self._workloads.tick_seconds
        timeout = aiohttp.ClientTimeout(total=None)  # each source has its own, and keeps to it
        # No limit on connections: a replica must not wait for another's answer within its own time limit.
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            self._session = session
            self._workloads.evaluate = self._evaluate_soon
            due = self._workloads.mono()
            try:
                while not stopping.is_set():
                    self._before_tick()
                    await self._tick_all(period)
                    self._workloads.ready = True
                    due = max(due + period, self._workloads.mono())
                    await _wait(stopping, due - self._workloads.mono())
            finally:
                self._workloads.evaluate = None
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await self._save()

    async def _tick_all(self, period: float) -> None:
        names = self._workloads.names()
        tasks = [self._start(workload) for name in names if (workload := self._workloads.get(name))]
        if tasks:
            await asyncio.wait(tasks, timeout=STORE_AFTER_SHARE * period)
        await self._save()

    def _evaluate_soon(self, workload: Workload) -> None:
        self._start(workload)

    def _start(self, workload: Workload) -> asyncio.Task[None]:
        task = asyncio.create_task(self._tick(workload), name=f"tick {workload.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _tick(self, workload: Workload) -> None:
        """One tick of one workload. A fault in it is logged and costs that workload that tick, nothing else."""
        if workload.ticking.locked():
            return  # its last reading is still under way; the answer will be as fresh as a second one
        async with workload.ticking:
            try:
                await self._evaluate(workload)
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("tick failed", workload=workload.name)

    async def _evaluate(self, workload: Workload) -> None:
        assert self._session is not None
        workloads, policy = self._workloads, workload.resolved.policy
        observation = await self._observe(workload, self._session, workloads.mono)
        started = time.perf_counter()
        now = Now(workloads.utc(), workloads.mono())
        workload.history, signals = fold(
            workload.history,
            observation,
            now.mono,
            policy,
            interval_seconds=workloads.tick_seconds,
            now_unix=now.utc.timestamp(),
        )
        workload.memory = _resume(workload)
        before = workload.memory.targets
        decision = decide(policy, workload.memory, signals, now)
        workload.memory = decision.next_memory
        if decision.ready:
            workload.inbox.clear_wake()
        consumed = (decision.targets.batch, decision.targets.token_budget, decision.targets.admission)
        if before is None or consumed != (before.batch, before.token_budget, before.admission):
            workload.generation += 1
        snapshot = Snapshot(
            workload=workload.name,
            policy=policy,
            signals=signals,
            decision=decision,
            decided_at=now,
            generation=workload.generation,
            valid_until=now.utc + timedelta(seconds=VALID_TICKS * workloads.tick_seconds),
            health=source_health(observation),
            warnings=workload.resolved.warnings,
            tick_seconds=time.perf_counter() - started,
        )
        record_adjustment(workload, before, snapshot)
        workloads.publish(workload, snapshot)
        self._undelivered.add(workload)

    async def _save(self) -> None:
        """Store what has been decided since the last save, in one transaction, off the event loop: a slow disk delays
        no answer."""
        if not self._undelivered:
            return
        utc, boot = self._workloads.utc(), boot_seconds()
        items = {
            workload.name: StoredWorkload(
                memory=workload.memory,
                metadata=workload.metadata,
                # Until a restart's gap is judged, the counters of before it are the ones to compare with.
                watermark=activity_watermark(workload.history) if workload.watermark is None else workload.watermark,
                saved_utc=utc,
                boot_id=self._boot_id,
                boot_mono=boot,
                generation=workload.generation,
            )
            for workload in self._undelivered
        }
        self._undelivered.clear()
        await asyncio.to_thread(self._store.save, items)


def _resume(workload: Workload) -> Memory:
    """After a restart: the time away counts as idle only if no activity counter moved and no process started anew.

    Anything else may have been traffic nobody saw, and the timer starts again. Until the counters have been read the
    question stays open, and the timer stands.
    """
    if workload.watermark is None:
        return workload.memory
    unchanged = unchanged_since(workload.watermark, workload.history)
    if unchanged is None:
        return workload.memory
    workload.watermark = None
    if not unchanged:
        return replace(workload.memory, idle_seconds=0.0)
    return replace(workload.memory, idle_seconds=workload.memory.idle_seconds + workload.away_seconds)


async def _wait(stopping: asyncio.Event, seconds: float) -> None:
    """Sleep, but no longer than until ``stopping``."""
    try:
        await asyncio.wait_for(stopping.wait(), timeout=max(0.0, seconds))
    except TimeoutError:
        return
