"""How soon a real vLLM runs what is published, and what that costs its requests: ``make bench NAME=follow``.

64 streams on an engine that was started with 64, with our plugin and our API. The batch goes 64 → 8 → 32 → 64, then
admission to ``hold`` and back, and then a minute of random targets, nonsense among them.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.engine_rig import BOOT, CHAT, Engine, Load, client, following_engine, table
from scaler.control.model import Admission
from tests.real import vllm_cpu
from tests.real.test_vllm_follows import Publisher, publishing, running

RANDOM_TARGETS, RANDOM_SECONDS = 100, 60.0
NONSENSE = (b"{", b"<html>", b'{"batch_size": 0}', b'{"batch_size": -5}', b'{"batch_size": "8"}')


async def seconds_until(reached: Callable[[], Awaitable[bool]]) -> float:
    """How long it takes, looked at every 20 ms, for at most a minute."""
    began = time.monotonic()
    async with asyncio.timeout(60):
        while not await reached():  # noqa: ASYNC110 - what an engine runs can only be asked
            await asyncio.sleep(0.02)
    return time.monotonic() - began


async def moves(engine: Engine, loadtide: Publisher) -> list[tuple[str, str, str]]:
    """Of each move: what, the seconds until it was reported as set, and until so many ran."""
    rows, before = [], f"{BOOT}"
    for batch, admission in (
        *((size, Admission.OPEN) for size in (8, 32, BOOT)),
        (BOOT, Admission.HOLD),
        (BOOT, Admission.OPEN),
    ):
        wanted = 0 if admission is Admission.HOLD else batch
        began = time.monotonic()
        generation = await loadtide.publish(batch, admission=admission)

        async def is_set(generation: int = generation) -> bool:
            told = loadtide.applied()
            return told is not None and told.generation == generation

        async def runs(wanted: int = wanted) -> bool:
            return await asyncio.to_thread(running, engine.server) == wanted

        applied = await seconds_until(is_set)
        await seconds_until(runs)
        name = "hold" if admission is Admission.HOLD else f"{batch}"
        rows.append((f"{before} → {name}", f"{applied:.2f}", f"{time.monotonic() - began:.2f}"))
        before = name
        await asyncio.sleep(3)
    return rows


async def random_targets(loadtide: Publisher, chance: random.Random) -> None:
    """Any batch, token budget and admission, and in place of one in ten an answer that is none."""
    for number in range(RANDOM_TARGETS):
        admission = chance.choice([Admission.OPEN] * 4 + [Admission.HOLD, Admission.SHED])
        budget = chance.choice([None, 1, chance.randrange(1, 4000)])
        await loadtide.publish(chance.choice([None, 1, 10**6, chance.randrange(1, 100)]), budget, admission)
        loadtide.junk = chance.choice(NONSENSE) if number % 10 == 0 else None
        await asyncio.sleep(RANDOM_SECONDS / RANDOM_TARGETS)
    loadtide.junk = None
    await loadtide.publish(BOOT)


async def run() -> None:
    port, chance = vllm_cpu.free_port(), random.Random(7)
    with (
        tempfile.TemporaryDirectory() as name,
        following_engine(Path(name), port, kv_cache_bytes=1 << 28, slow_motion=1.0) as engine,
    ):
        async with publishing(port) as loadtide, client() as session:
            await loadtide.publish(BOOT)
            load, enough = Load(engine, session, chance), asyncio.Event()
            streams = asyncio.create_task(load.keep_until(CHAT, BOOT, enough))
            await asyncio.sleep(5)
            rows = await moves(engine, loadtide)
            await random_targets(loadtide, chance)
            enough.set()
            done = await streams
    failed = [each.problem for each in done if each.problem]
    print(table(("move", "reported as set after, s", "so many run after, s"), rows))  # noqa: T201
    print(f"result: requests={len(done)} failed={len(failed)}")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(run())
