"""A gRPC client that costs next to nothing: requests encoded once, answers counted by their HTTP/2 frames.

A full client is as slow as the server it would measure, and on a small machine takes the CPU from it. This one sends
ready-made bytes and reads only frame headers, so that the server is what limits, and a latency is the server's.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7, 0x8
_END_STREAM, _END_HEADERS, _ACK = 0x1, 0x4, 0x1
_LARGEST_WINDOW = 2**31 - 1
_FIRST_WINDOW = 65_535


class CallFailedError(Exception):
    """A call ended without the message it was to bring."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call, encoded: the HTTP/2 header block and the gRPC-framed message."""

    header_block: bytes
    message: bytes


def request(method: str, message: bytes) -> Request:
    """``method`` is ``/service/Method``; ``message`` the serialised protobuf."""
    block = b"\x83\x86" + _literal(b":path", method.encode()) + _literal(b":authority", b"localhost")
    block += _literal(b"te", b"trailers") + _literal(b"content-type", b"application/grpc")
    return Request(block, b"\0" + struct.pack(">I", len(message)) + message)


def _literal(name: bytes, value: bytes) -> bytes:
    """A header as HPACK's literal without indexing and without Huffman code (RFC 7541, 6.2.2); each below 127 bytes."""
    assert len(name) < 127
    assert len(value) < 127
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


class BareClient(asyncio.Protocol):
    """One connection. Calls are started with :meth:`call` and :meth:`open_stream`; ``failed`` counts those that ended
    without a message, ``messages`` those that streams brought.
    """

    def __init__(self) -> None:
        self.failed = 0
        self.messages = 0
        self.open_streams = 0
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._next_stream = 1
        self._window = _FIRST_WINDOW
        self._calls: dict[int, tuple[float, Callable[[float], None]]] = {}
        self._answered: set[int] = set()
        self._streams: set[int] = set()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, b"")
        transport.write(greeting + _frame(_WINDOW, 0, 0, struct.pack(">I", _LARGEST_WINDOW - _FIRST_WINDOW)))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(exc)

    def call(self, what: Request, ended: Callable[[float], None]) -> None:
        """Send one call; ``ended(seconds)`` is called when its answer is complete."""
        stream = self._send(what)
        self._calls[stream] = (time.perf_counter(), ended)

    def open_stream(self, what: Request) -> None:
        """Send a call that stays open."""
        self._streams.add(self._send(what))
        self.open_streams += 1

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def _send(self, what: Request) -> int:
        assert self._transport is not None
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._window -= len(what.message)
        if self._window < 0:
            raise CallFailedError("more sent than the server has allowed; lower the concurrency")
        self._transport.write(
            _frame(_HEADERS, _END_HEADERS, stream, what.header_block) + _frame(_DATA, _END_STREAM, stream, what.message)
        )
        return stream

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at, end = 0, len(buffer)
        while end - at >= 9:
            length = buffer[at] << 16 | buffer[at + 1] << 8 | buffer[at + 2]
            if end - at < 9 + length:
                break
            kind, flags = buffer[at + 3], buffer[at + 4]
            stream = int.from_bytes(buffer[at + 5 : at + 9]) & 0x7FFFFFFF
            self._on_frame(kind, flags, stream, bytes(buffer[at + 9 : at + 9 + length]))
            at += 9 + length
        del buffer[:at]

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        assert self._transport is not None
        if kind == _DATA:
            if stream in self._streams:
                self.messages += 1
            else:
                self._answered.add(stream)
        elif kind == _WINDOW and stream == 0:
            self._window += struct.unpack(">I", payload)[0]
        elif kind == _SETTINGS and not flags & _ACK:
            self._transport.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._transport.write(_frame(_PING, _ACK, 0, payload))
        if (kind in (_DATA, _HEADERS) and flags & _END_STREAM) or kind == _RST:
            self._on_end(stream)

    def _on_end(self, stream: int) -> None:
        if stream in self._streams:
            self._streams.discard(stream)
            self.open_streams -= 1
            return
        if stream not in self._calls:
            return
        started, ended = self._calls.pop(stream)
        if stream in self._answered:
            self._answered.discard(stream)
        else:
            self.failed += 1
        ended(time.perf_counter() - started)


async def connect(port: int) -> BareClient:
    """A connection to a plaintext server on this machine."""
    _, client = await asyncio.get_running_loop().create_connection(BareClient, "127.0.0.1", port)
    return client


async def as_fast_as_it_goes(
    client: BareClient, requests: Sequence[Request], concurrency: int, seconds: float
) -> float:
    """Calls per second with ``concurrency`` calls always under way, the requests taken in turn."""
    loop = asyncio.get_running_loop()
    finished = 0
    turn = 0
    over = loop.time() + seconds
    done: asyncio.Future[None] = loop.create_future()
    under_way = 0

    def one() -> None:
        nonlocal turn, under_way
        under_way += 1
        client.call(requests[turn % len(requests)], ended)
        turn += 1

    def ended(_seconds: float) -> None:
        nonlocal finished, under_way
        finished += 1
        under_way -= 1
        if loop.time() < over:
            one()
        elif under_way == 0 and not done.done():
            done.set_result(None)

    began = loop.time()
    for _ in range(concurrency):
        one()
    await done
    return finished / (loop.time() - began)


async def at_a_rate(
    client: BareClient, requests: Sequence[Request], per_second: float, seconds: float
) -> list[tuple[int, float]]:
    """(index of the request, latency in seconds) of calls sent on a fixed schedule, whatever the answers take."""
    loop = asyncio.get_running_loop()
    latencies: list[tuple[int, float]] = []
    all_in: asyncio.Future[None] = loop.create_future()
    count = int(per_second * seconds)

    def ended(index: int, late: float, taken: float) -> None:
        # Counted from when it was due: a sender that was late itself must not hide what the call would have waited.
        latencies.append((index, taken + late))
        if len(latencies) == count and not all_in.done():
            all_in.set_result(None)

    began = loop.time()
    for number in range(count):
        due = began + number / per_second
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
        index = number % len(requests)
        client.call(requests[index], partial(ended, index, max(0.0, loop.time() - due)))
    await asyncio.wait((all_in, client.lost), return_when=asyncio.FIRST_COMPLETED)
    return latencies
