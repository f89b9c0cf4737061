"""Snapshots made by hand, with an hour behind them, served to a browser by a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from prometheus_client import CollectorRegistry

from scaler.control.model import Code, LoadState, Now, Suppressed, Target, Targets
from scaler.serve.http import make_app, start_http
from scaler.serve.timeline import moment
from scaler.signals.model import Known
from tests.serve.tide import SIGNALS, START, FakeWorkloads, adjusted, latency, snapshot

#: When the hour ends, monotonic seconds.
NOW = 10_000.0


def hour(workloads: FakeWorkloads, name: str, state: LoadState = LoadState.NORMAL) -> None:
    """A workload with an hour behind it: a calm half, a jump with a queue, and then ``state``."""
    workload = workloads.add(name)
    for tick in range(721):
        ago, at = 3600 - 5 * tick, NOW - 3600 + 5 * tick
        busy, critical = 900 < ago < 1500, 1000 < ago < 1300
        now = LoadState.CRITICAL if critical else LoadState.HIGH if busy else LoadState.NORMAL if ago else state
        running, p95 = (60.0, latency(2.5, 5.0)) if busy else (12.0, latency(0.1, 0.25))
        fresh = replace(
            SIGNALS,
            running=Known(running, at),
            waiting=Known(20.0 if busy else 0.0, at),
            arrivals_per_second=Known(running / 4, at),
            ttft_seconds=Known(p95, at),
            applied_batch=Known(32.0, at),
            pending=Known(0.0, at),
            ready_replicas=Known(1.0, at),
            kv_use_ratio=Known(0.9 if busy else 0.3, at),
        )
        made = snapshot(
            name,
            signals=fresh,
            state=now,
            cause=None,
            targets=Targets(4 if busy else 1, True, 16 if critical else 32),
            verdicts={"ttft": "breached" if busy else "met", "ttft_critical": "met", "tpot": "undecided"},
            decided_at=Now(START - timedelta(seconds=ago), at),
            suppressed=(Suppressed(Code.COOLDOWN, Target.BATCH, 64, 32, remaining_seconds=41.0),),
        )
        workload.timeline.append(moment(made))
        workload.snapshot = made
    workload.adjustments.extend(adjusted(made, minute) for minute in range(3))


@contextmanager
def served(workloads: FakeWorkloads) -> Iterator[str]:
    """The address of an application over ``workloads``, served by a thread of its own."""
    workloads.seconds = NOW + 1.0
    bound: list[int] = []
    up, loop, over = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        app = make_app(workloads, token=None, registry=CollectorRegistry(), stopping=asyncio.Event())
        runner, port = await start_http(app, "127.0.0.1", 0)
        bound.append(port)
        up.set()
        await over.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert up.wait(60)
    try:
        yield f"http://127.0.0.1:{bound[0]}/"
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
