"""The loop: every tick, each workload is read, judged and published, and what must survive is stored.

The loop's own clock drives everything; no call from KEDA or anyone else does. One workload's slow source delays only
that workload. A tick ends with its decisions in the store, so that a kill at any moment loses at most one tick.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import structlog

from scaler.control.card import bounded
from scaler.control.decide import decide
from scaler.control.guard import guarded
from scaler.control.model import Now, Targets
from scaler.policy.metadata import storable
from scaler.serve.adjustments import record_adjustment
from scaler.serve.at_hand import at_hand, resumed
from scaler.serve.cards import Cards
from scaler.serve.dormant import Dormant
from scaler.serve.guarding import Guarding
from scaler.serve.observe import Observer, source_health
from scaler.serve.ownership import Superseded
from scaler.serve.resolver import EngineResolver
from scaler.serve.season_backfill import Backfill
from scaler.serve.snapshot import Snapshot, consumed
from scaler.serve.store import Store, StoredWorkload, away_seconds, boot_seconds, read_boot_id
from scaler.serve.waiting import all_done, wait
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.activity import activity
from scaler.signals.memory_read import with_memory
from scaler.signals.model import Signals
from scaler.signals.observation import Observation
from scaler.signals.window import activity_watermark, fold

log = structlog.get_logger(__name__)

#: How many ticks a published target stays valid; past it a consumer goes back to the engine's own setting.
VALID_TICKS = 12
#: Workloads of one slice of a round, and the longest pause between two. A round of thousands started at once would
#: keep every call of KEDA waiting until the last of them is decided.
SLICE, PAUSE_SECONDS = 4, 0.005
#: Workloads stored in one transaction.
SAVED_AT_ONCE = 50
#: The share of a tick within which a round's ticks are all started.
START_SHARE = 0.5
#: How long a workload that came from calls alone may go unasked for before it is forgotten, seconds.
FORGET_AFTER_SECONDS = 600.0
#: How often the store is rid of memories that waited too long, seconds.
PURGE_SECONDS = 3600.0
#: The share of a tick after which what has been decided is stored, even if some source has not answered yet.
STORE_AFTER_SHARE = 0.8

Observe = Callable[[Workload, aiohttp.ClientSession, Callable[[], float]], Awaitable[Observation]]


class Loop:
    """Ticks ``workloads`` and keeps them in ``store``. ``observe`` reads one workload's sources (None: an
    :class:`Observer` of them); ``before_tick`` is called before each round. A workload nobody asked for in
    ``forget_after_seconds`` is forgotten, its memory kept for :data:`scaler.serve.dormant.KEEP_SECONDS`.
    """

    def __init__(
        self,
        workloads: Workloads,
        store: Store,
        *,
        observe: Observe | None = None,
        before_tick: Callable[[], None] = lambda: None,
        forget_after_seconds: float = FORGET_AFTER_SECONDS,
    ) -> None:
        self._workloads = workloads
        self._before_tick = before_tick
        self._store = store
        self._observe = Observer(workloads) if observe is None else observe
        self._boot_id = read_boot_id()
        self._undelivered: set[Workload] = set()
        self._session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._forget_after_seconds = forget_after_seconds
        self._guarding = Guarding(workloads, self._guarded)
        self._backfill = Backfill(workloads)
        self._cards = Cards(workloads, self._given_up)
        self._dormant = Dormant(self._away)
        self._purge_due = workloads.mono()
        workloads.recall = self._recall
        workloads.keep = self._keep

    def restore(self) -> None:
        """Bring back what the store remembers: memories, generations, and what is needed to resume the idle timers.

        A workload of the policy file, and one saved so recently that it was still being asked for, is known again at
        once; others wait until somebody asks.
        """
        for name, stored in self._store.load().items():
            self._dormant.put(name, stored)
            known = self._workloads.get(name)
            if known is not None:
                self._recall(known)
            elif self._away(stored) <= self._forget_after_seconds:
                self._workloads.restore(name, stored.metadata)

    def _recall(self, workload: Workload) -> None:
        """Give a workload that has just become known what is remembered of it."""
        stored = self._dormant.take(workload.name)
        if stored is None:
            return
        workload.memory, workload.generation = stored.memory, stored.generation
        workload.watermark = stored.watermark
        workload.away_seconds = self._away(stored)
        if stored.wake_age_seconds is not None:
            workload.inbox.wake(stored.wake_age_seconds + workload.away_seconds)
        log.info(
            "workload restored",
            workload=workload.name,
            state=stored.memory.state,
            idle_seconds=round(stored.memory.idle_seconds, 1),
            away_seconds=round(workload.away_seconds, 1),
        )

    def _away(self, stored: StoredWorkload) -> float:
        return away_seconds(stored, self._workloads.utc(), self._boot_id, boot_seconds())

    async def run(self, stopping: asyncio.Event) -> None:
        """Tick until ``stopping``. Missed ticks (suspended machine, blocked loop) are skipped, never made up for."""
        period = self._workloads.tick_seconds
        timeout = aiohttp.ClientTimeout(total=None)  # each source has its own, and keeps to it
        # No limit on connections: a replica must not wait for another's answer within its own time limit.
        connector = aiohttp.TCPConnector(limit=0, resolver=EngineResolver())
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            self._session = session
            self._workloads.evaluate = self._evaluate_soon
            self._do(self._guarding.run(session), "the memory guard")
            due = self._workloads.mono()
            try:
                while not stopping.is_set():
                    self._before_tick()
                    await self._forget()
                    await self._tick_all(period, stopping)
                    self._workloads.ready = self._workloads.ownership.joined.is_set()
                    due = max(due + period, self._workloads.mono())
                    await wait(stopping, due - self._workloads.mono())
            finally:
                self._workloads.evaluate = None
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                if isinstance(self._observe, Observer):
                    await self._observe.close()
                await self._save()

    async def _forget(self) -> None:
        """Put away the workloads nobody asks for, and now and then drop memories that have waited too long."""
        utc, boot = self._workloads.utc(), boot_seconds()
        for workload in self._workloads.forget_unasked(self._forget_after_seconds):
            self._undelivered.discard(workload)
            self._dormant.put(workload.name, self._stored(workload, utc, boot))
        if self._workloads.mono() >= self._purge_due:
            self._purge_due = self._workloads.mono() + PURGE_SECONDS
            if old := self._dormant.drop_old():
                await asyncio.to_thread(self._store.forget, old)

    async def _tick_all(self, period: float, stopping: asyncio.Event) -> None:
        names = self._workloads.names()
        pause = min(PAUSE_SECONDS, START_SHARE * period * SLICE / max(len(names), 1))
        store_at = self._workloads.mono() + STORE_AFTER_SHARE * period
        tasks = []
        for number, name in enumerate(names, start=1):
            workload = self._workloads.get(name)
            if workload is not None and self._workloads.ownership.owns(name):
                tasks.append(self._start(workload))
            if number % SLICE == 0 and number < len(names):
                await wait(stopping, pause)
        await all_done(tasks, stopping, store_at - self._workloads.mono())
        await self._save()

    def _evaluate_soon(self, workload: Workload) -> None:
        self._workloads.ownership.notice(workload)
        if self._workloads.ownership.owns(workload.name):
            observation = at_hand(workload, self._workloads.mono())
            if observation is not None:
                self._do(self._judge(workload, observation), f"at once {workload.name}")
            self._start(workload)

    def _start(self, workload: Workload) -> asyncio.Task[None]:
        return self._do(self._tick(workload), f"tick {workload.name}")

    def _do(self, what: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(what, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _tick(self, workload: Workload) -> None:
        """One tick of one workload: read its sources, then judge. A fault in it is logged and costs that tick."""
        assert self._session is not None
        if workload.reading:
            return  # its last reading is still under way; the answer will be as fresh as a second one
        workload.reading = True
        try:
            observation = await self._observe(workload, self._session, self._workloads.mono)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("tick failed", workload=workload.name)
            return
        finally:
            workload.reading = False
        workload.dropped_series_total += observation.dropped_series
        await self._judge(workload, observation)
        if self._backfill.due(workload):
            self._do(self._backfill.fill(workload, self._session), f"season {workload.name}")

    async def _judge(self, workload: Workload, observation: Observation) -> None:
        """Decide on what was read, and publish; one at a time for a workload."""
        async with workload.judging, self._cards.turn(workload):
            try:
                await self._evaluate(workload, observation)
            except asyncio.CancelledError:
                raise
            except Superseded:
                log.info("decision dropped, the workload has another owner", workload=workload.name)
            except Exception:
                log.exception("tick failed", workload=workload.name)

    async def _evaluate(self, workload: Workload, observation: Observation) -> None:
        workloads, policy = self._workloads, workload.resolved.policy
        workload.observed = policy, observation
        started = time.perf_counter()
        now = Now(workloads.utc(), workloads.mono())
        tracked, last = workload.history.tracked, workload.snapshot.activity if workload.snapshot else None
        workload.history, signals = fold(
            workload.history,
            observation,
            now.mono,
            policy,
            interval_seconds=workloads.tick_seconds,
            now_unix=now.utc.timestamp(),
        )
        workload.memory = resumed(workload)
        before = self._told(workload)
        decision = decide(policy, workload.memory, signals, now)
        workload.memory = decision.next_memory
        if decision.ready:
            workload.inbox.clear_wake()
        elif workload.inbox.give_up_wake():
            log.warning("wake given up, no replica got ready in its time", workload=workload.name)
        snapshot = Snapshot(
            workload=workload.name,
            policy=policy,
            signals=signals,
            decision=decision,
            decided_at=now,
            generation=workload.generation,
            valid_until=self._valid_until(now),
            health=source_health(observation, workload.history),
            warnings=workload.resolved.warnings,
            activity=activity(tracked, workload.history.tracked, signals, now.mono) or last,
            tick_seconds=time.perf_counter() - started,
        )
        await self._tell(workload, before, await self._cards.shared(workload, snapshot))

    async def _guarded(self, workload: Workload, signals: Signals) -> None:
        """Let the memory guard move the batch between two ticks, on what its light read says; publish what it moves."""
        async with workload.judging, self._cards.turn(workload):
            last = workload.snapshot
            if last is None or not self._workloads.ownership.owns(workload.name):
                return
            now, before = Now(self._workloads.utc(), self._workloads.mono()), self._told(workload)
            decision = guarded(last.policy, workload.memory, signals, now, last.decision)
            if decision is None:
                return
            workload.memory, seen = decision.next_memory, with_memory(last.signals, signals)
            decision = self._cards.within(workload, decision)
            snapshot = replace(
                last, signals=seen, decision=decision, decided_at=now, valid_until=self._valid_until(now)
            )
            with contextlib.suppress(Superseded):
                await self._tell(workload, before, snapshot)

    async def _given_up(self, workload: Workload, snapshot: Snapshot) -> None:
        """Publish a last decision anew, with the part of its card that another member is owed taken off it."""
        before = None if workload.snapshot is None else workload.snapshot.decision.targets
        await self._tell(workload, before, snapshot)

    def _told(self, workload: Workload) -> Targets | None:
        """The targets as they were published last."""
        targets = workload.memory.targets
        return targets and bounded(targets, workload.memory.card, workload.resolved.policy)

    async def _tell(self, workload: Workload, before: Targets | None, snapshot: Snapshot) -> None:
        """Publish a decision, under another generation where the engine is to do something else than ``before``."""
        now = snapshot.decided_at
        if before is None or consumed(snapshot.decision.targets) != consumed(before):
            workload.generation += 1
            snapshot = replace(snapshot, generation=workload.generation)
        ownership = self._workloads.ownership
        await ownership.publish(workload, snapshot, lambda: self._stored(workload, now.utc, boot_seconds()))
        record_adjustment(workload, before, snapshot)
        self._workloads.publish(workload, snapshot)
        self._undelivered.add(workload)

    def _valid_until(self, now: Now) -> datetime:
        return now.utc + timedelta(seconds=VALID_TICKS * self._workloads.tick_seconds)

    async def _keep(self, workload: Workload) -> None:
        """Store one workload now."""
        self._undelivered.add(workload)
        await self._save()

    async def _save(self) -> None:
        """Store what has been decided since the last save, off the event loop: a slow disk delays no answer.

        In several transactions, each of some workloads whole: the thread that writes shares the interpreter with the
        one that answers, and 2,000 at once kept every answer waiting for 100 ms.
        """
        waiting = list(self._undelivered)
        self._undelivered.clear()
        for first in range(0, len(waiting), SAVED_AT_ONCE):
            utc, boot = self._workloads.utc(), boot_seconds()
            some = waiting[first : first + SAVED_AT_ONCE]
            items = {workload.name: self._stored(workload, utc, boot) for workload in some}
            await asyncio.to_thread(self._store.save, items)

    def _stored(self, workload: Workload, utc: datetime, boot: float) -> StoredWorkload:
        return StoredWorkload(
            memory=workload.memory,
            metadata=None if workload.metadata is None else storable(workload.metadata),
            # Until a restart's gap is judged, the counters of before it are the ones to compare with.
            watermark=activity_watermark(workload.history) if workload.watermark is None else workload.watermark,
            saved_utc=utc,
            boot_id=self._boot_id,
            boot_mono=boot,
            generation=workload.generation,
            wake_age_seconds=workload.inbox.wake_age_seconds(),
        )
