"""Requests to a real Triton: single ones, and so many clients for as long as a test takes, each answer kept."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp


@dataclass(frozen=True)
class Answer:
    """One answer: its status, what it says if that is not 200, else how many requests were in the batch."""

    status: int
    said: str
    batch: int
    began: float
    ended: float


async def ask(session: aiohttp.ClientSession, url: str, model: str, value: float = 1.0) -> Answer:
    """One request to ``model`` (``NAME`` or ``NAME/versions/N``); ``value`` below 0 makes it fail."""
    body = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [value]}]}
    began = time.monotonic()
    async with session.post(f"{url}/v2/models/{model}/infer", json=body) as answer:
        told = await answer.json(content_type=None)
    batch = 0 if answer.status != 200 else int(told["outputs"][0]["data"][0])
    return Answer(answer.status, told.get("error", ""), batch, began, time.monotonic())


@dataclass
class Clients:
    """What some clients have been answered so far."""

    answers: list[Answer] = field(default_factory=list)

    def since(self, begin: float) -> list[Answer]:
        """Answers to requests that were sent after ``begin``."""
        return [each for each in self.answers if each.began >= begin]

    def longest_silence(self, begin: float, end: float) -> float:
        """The longest time between two answers, or in which one was waited for, from ``begin`` to ``end``."""
        ended = sorted(each.ended for each in self.answers if begin < each.ended < end)
        silences = [b - a for a, b in zip([begin, *ended], [*ended, end], strict=True)]
        waited = [each.ended - each.began for each in self.answers if begin < each.began < each.ended < end]
        return max(silences + waited)

    @property
    def failures(self) -> Counter[str]:
        """How often what was said instead of an answer."""
        return Counter(each.said for each in self.answers if each.status != 200)


@asynccontextmanager
async def clients(url: str, model: str, number: int) -> AsyncIterator[Clients]:
    """``number`` clients, each of which asks again as soon as it is answered, until the block ends."""
    driven, enough = Clients(), asyncio.Event()

    async def client(session: aiohttp.ClientSession) -> None:
        while not enough.is_set():
            driven.answers.append(await ask(session, url, model))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, asyncio.TaskGroup() as group:
        for _ in range(number):
            group.create_task(client(session))
        try:
            yield driven
        finally:
            enough.set()
