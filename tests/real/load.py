"""A bounded load on a real engine: so many streams at once, or so many requests per second, for so many seconds.

Loopback only, with an end in time and in number: a load is for a server that the test started itself.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp

PROMPT = "a request waits in the queue until a replica has room for it"
LONGEST_SECONDS = 600.0
MOST_REQUESTS = 20_000


@dataclass
class Outcome:
    """What became of the load. ``failures`` says why, for the first few; ``seconds`` are whole-request times."""

    ok: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


async def keep_streams(
    url: str,
    *,
    streams: int,
    seconds: float,
    max_tokens: int = 64,
    beginning: str = "",
    enough: threading.Event | None = None,
) -> Outcome:
    """Keep ``streams`` requests in flight for ``seconds`` or until ``enough``, then let the last ones finish.

    Answers are of ``max_tokens`` down to about half of it, in turn: equal ones would all end in the same step, and for
    an instant the batch would be empty. All prompts share their ``beginning``.
    """
    _check(url, seconds, streams)
    outcome, until = Outcome(), time.monotonic() + seconds

    async def stream(session: aiohttp.ClientSession, number: int) -> None:
        while (
            time.monotonic() < until
            and not (enough and enough.is_set())
            and outcome.ok + outcome.failed < MOST_REQUESTS
        ):
            tokens = max(1, max_tokens * (16 - number % 9) // 16)
            await _complete(session, url, f"{beginning}{number} {PROMPT}", tokens, outcome)

    async with _session() as session:
        await asyncio.gather(*(stream(session, number) for number in range(streams)))
    return outcome


@contextmanager
def streaming(url: str, *, streams: int, max_tokens: int, at_most_seconds: float = LONGEST_SECONDS) -> Iterator[None]:
    """``keep_streams`` for as long as the body takes: how slow a busy machine is, nobody knows beforehand."""
    enough = threading.Event()
    streams_kept = keep_streams(url, streams=streams, seconds=at_most_seconds, max_tokens=max_tokens, enough=enough)
    driving = threading.Thread(target=lambda: asyncio.run(streams_kept))
    driving.start()
    try:
        yield
    finally:
        enough.set()
        driving.join()


async def arrive(url: str, *, requests_per_second: float, seconds: float, max_tokens: int = 64) -> Outcome:
    """Send requests at an even rate whatever the answers do (an open load: it can outrun the engine), and await all."""
    count = int(requests_per_second * seconds)
    _check(url, seconds, count)
    outcome, began = Outcome(), time.monotonic()

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        await asyncio.sleep(max(0.0, began + number / requests_per_second - time.monotonic()))
        await _complete(session, url, f"{number} {PROMPT}", max_tokens, outcome)

    async with _session() as session:
        requests: list[Coroutine[object, object, None]] = [one(session, number) for number in range(count)]
        await asyncio.gather(*requests)
    return outcome


def _check(url: str, seconds: float, count: int) -> None:
    if urlsplit(url).hostname != "127.0.0.1":
        raise ValueError(f"{url} is not on this machine; a load goes to http://127.0.0.1:PORT only")
    if not 0 < seconds <= LONGEST_SECONDS or not 0 < count <= MOST_REQUESTS:
        raise ValueError(
            f"a load is bounded: {LONGEST_SECONDS:g} s and {MOST_REQUESTS} requests, not {seconds}, {count}"
        )


def _session() -> aiohttp.ClientSession:
    # A connection per request: engines close one that was idle for 5 s, and a client that a busy machine stopped for
    # so long would send its next request into it and count a failure that is not the engine's.
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True), timeout=aiohttp.ClientTimeout(total=LONGEST_SECONDS)
    )


async def _complete(session: aiohttp.ClientSession, url: str, prompt: str, max_tokens: int, outcome: Outcome) -> None:
    """One request. Ok means: as many tokens as asked for. A failure waits a little, so as not to spin."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0.0,
    }
    began = time.monotonic()
    try:
        async with session.post(f"{url}/v1/completions", json=body) as response:
            answer = await response.json(content_type=None)
        tokens = answer["usage"]["completion_tokens"] if response.status == 200 else None
        problem = None if tokens == max_tokens else f"HTTP {response.status}, {tokens} tokens: {str(answer)[:200]}"
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is None:
        outcome.ok += 1
        outcome.seconds.append(time.monotonic() - began)
        return
    outcome.failed += 1
    if len(outcome.failures) < 5:
        outcome.failures.append(problem)
    await asyncio.sleep(0.2)
