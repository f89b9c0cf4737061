"""The connection to Redis (or Valkey): questions with a time limit, messages, and whether there is a Redis at all.

Every question is asked once and fails as :class:`RedisTrouble`: whoever asks knows better than a retry loop what to do
without an answer. Questions asked at the same time travel together.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, RedisError, ResponseError

#: No question waits longer for its answer.
ANSWER_SECONDS = 1.0
#: Questions sent together at most: a call from KEDA must not wait behind a thousand snapshots.
TOGETHER = 64


class RedisTrouble(Exception):  # noqa: N818 -- it names the state
    """Redis did not answer, or not as it should. ``loading``: it answers nobody yet, it is reading its data;
    ``wrong_kind``: what is at a key is not of the kind that the command is for.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        self.loading = isinstance(error, BusyLoadingError)
        self.wrong_kind = isinstance(error, ResponseError) and "WRONGTYPE" in str(error)


class Lane:
    """Sends the questions that wait at one time together, in order, one load after the other."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: deque[tuple[tuple[Any, ...], asyncio.Future[Any]]] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def ask(self, *command: Any) -> Any:
        """The answer to one command. Raises :class:`RedisTrouble`."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, answer))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send(), name="redis lane")
        return await answer

    async def _send(self) -> None:
        while self._waiting:
            load = [self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))]
            answers: list[Any]
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    pipeline = self._redis.pipeline(transaction=False)
                    for command, _ in load:
                        pipeline.execute_command(*command)
                    answers = await pipeline.execute(raise_on_error=False)
            except Exception as error:  # noqa: BLE001 - whatever it is: else all who asked would wait for ever
                answers = [error] * len(load)
            for (_, waiting), answer in zip(load, answers, strict=True):
                if waiting.done():  # whoever asked has given up
                    continue
                if isinstance(answer, BaseException):
                    waiting.set_exception(RedisTrouble(answer))
                else:
                    waiting.set_result(answer)


class RedisLink:
    """The connections to the Redis at ``url`` (``redis://`` or ``rediss://``). Raises ValueError for another URL, and
    for a query that is none of redis-py's options, in words that hold nothing of the URL: any part of one that is
    written wrongly may be the password.
    """

    def __init__(self, url: str) -> None:
        self._host, self._port = _place(url)
        #: Where it is, without user and password.
        self.where = f"{self._host}:{self._port}"
        try:
            self._redis = Redis.from_url(
                url,
                decode_responses=True,
                encoding_errors="replace",  # a bad byte must cost one entry, not every answer beside it
                protocol=2,
                socket_timeout=ANSWER_SECONDS,
                socket_connect_timeout=ANSWER_SECONDS,
                retry=Retry(NoBackoff(), 0),
            )
            # Connects nowhere: only now the options are looked at.
            self._redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        except (RedisError, OSError, TypeError, ValueError):
            raise ValueError(f"the URL of the Redis at {self.where} has an option that is none of redis-py's") from None
        database = self._redis.connection_pool.connection_kwargs.get("db", 0)
        #: Where messages go. Channels are not kept apart by database, so its number is in the name.
        self.channel = f"loadtide:{database}:events"

    def lane(self) -> Lane:
        """A lane of its own: what is asked in it waits for nothing that is asked in another."""
        return Lane(self._redis)

    async def close(self) -> None:
        """Let go of every connection."""
        await self._redis.aclose()

    async def our_address(self) -> str | None:
        """The address of this host that Redis sees, and so the other scalers; None where it cannot be told now."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_DGRAM)
        except (OSError, TimeoutError):
            return None
        for family, kind, protocol, _, address in found:
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as toward:
                toward.connect(address)  # sends nothing: only the way is looked up
                return str(toward.getsockname()[0])
        return None

    async def refuses(self) -> bool:
        """Whether the address certainly has no Redis: every address of the name refuses, or the name has none."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                for family, kind, protocol, _, address in found:
                    with socket.socket(family, kind, protocol) as probe:
                        probe.setblocking(False)
                        try:
                            await loop.sock_connect(probe, address)
                        except ConnectionRefusedError:
                            continue
                        return False
        except socket.gaierror as error:
            return error.errno == socket.EAI_NONAME
        except (OSError, TimeoutError):
            return False
        return True

    async def events(self, silence_seconds: float) -> AsyncIterator[list[str]]:
        """Messages, as words; the first, ``["listening"]``, says that from now on none is missed.

        Ends when nothing has come for ``silence_seconds``: with beats of everybody on the channel, that is a dead
        connection. Raises :class:`RedisTrouble`.
        """
        pubsub = self._redis.pubsub()
        try:
            await pubsub.subscribe(self.channel)
            while True:
                message = await pubsub.get_message(timeout=silence_seconds)
                if message is None:
                    return
                if message["type"] == "subscribe":
                    yield ["listening"]
                elif message["type"] == "message":
                    yield str(message["data"]).split(" ")
        except (RedisError, OSError) as error:
            raise RedisTrouble(error) from error
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]


def _place(url: str) -> tuple[str, int]:
    """Host and port of a Redis URL. Raises ValueError."""
    try:
        parts = urlsplit(url)
        database = parts.path.strip("/")
        if parts.scheme in ("redis", "rediss") and parts.hostname and (not database or database.isdecimal()):
            return parts.hostname, parts.port or 6379
    except ValueError:  # its text may quote the password
        pass
    raise ValueError(
        "this is not a Redis URL; write redis://HOST:PORT/NUMBER, for example redis://redis:6379/0, or "
        "redis://:PASSWORD@HOST:PORT/NUMBER with every / ? # [ ] % of the password as %2F %3F %23 %5B %5D %25"
    )
