"""The process's life: SIGTERM and what must have happened when, a second one, a kill, a blocked loop, a new policy."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from urllib.error import HTTPError

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry

from scaler.serve.externalscaler_pb2 import ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.serve.grpc_server import start_grpc
from scaler.serve.rpc_statistics import RpcStatistics
from tests.contract.conftest import FakeWorkloads
from tests.running_scaler import KedaPoll, RunningScaler, running_scaler

TICK = 0.2
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
TOKEN = "gateway-token"


@contextmanager
def stand_in() -> Iterator[str]:
    """The lab's engine under its wave; the URL of its metrics."""
    command = [sys.executable, "-m", "scaler.lab.standin", "--wave", "--speed", "4"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["metrics"]
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with stand_in() as url:
        yield url


def arguments(folder: Path, *urls: str, more: str = "") -> tuple[str, ...]:
    """A policy file of one workload that reads ``urls``, and the options that use it with a file store."""
    write(
        folder / "policy.yaml",
        f"workloads:\n  chat/m:\n    scrape: {{urls: {json.dumps(list(urls))}, timeout_seconds: 60}}\n"
        f"    push: {{enabled: true}}\n    replicas: {{max: 9}}\n{more}",
    )
    return (
        *("--policy", str(folder / "policy.yaml"), "--store", str(folder / "memory.db")),
        *("--tick-seconds", str(TICK)),
    )


def write(path: Path, text: str) -> None:
    """All of it at once: half a file is another policy."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def ref(name: str = "m", namespace: str = "chat") -> ScaledObjectRef:
    return ScaledObjectRef(name=name, namespace=namespace)


class Watcher:
    """Reads a server stream in a thread: ``seen`` what came, ``ended`` when and with what code."""

    def __init__(self, call: grpc.Call) -> None:
        self.seen: list[object] = []
        self.ended: tuple[float, grpc.StatusCode] | None = None
        self._thread = threading.Thread(target=self._read, args=(call,), daemon=True)
        self._thread.start()

    def _read(self, call: grpc.Call) -> None:
        with suppress(grpc.RpcError):
            self.seen.extend(call)  # type: ignore[call-overload]
        self.ended = (time.monotonic(), call.code())

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the stream did not end"


def ended(scaler: RunningScaler, within: float) -> int:
    """The exit status, which must come in time."""
    return scaler.process.wait(within)


@pytest.fixture
def blackhole() -> Iterator[str]:
    """The URL of an engine that takes a connection and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/metrics"


class TestSigterm:
    def test_not_ready_streams_ended_with_ok_and_exit_0_long_before_its_grace_time(
        self, engine: str, tmp_path: Path
    ) -> None:
        health = ("--health", "127.0.0.1:0", "--grace-seconds", "300")
        with running_scaler(tmp_path, *arguments(tmp_path, engine), *health) as scaler:
            [serving] = scaler.lines("serving")
            with grpc.insecure_channel(scaler.grpc) as channel, grpc.insecure_channel(serving["health"]) as probe:
                stub = ExternalScalerStub(channel)
                streams = [Watcher(stub.StreamIsActive(ref())) for _ in range(20)]
                watch = health_pb2_grpc.HealthStub(probe).Watch(health_pb2.HealthCheckRequest(service="readiness"))
                readiness = Watcher(watch)
                assert stub.IsActive(ref()).result in (True, False)
                time.sleep(3 * TICK)
                asked_at = time.monotonic()
                scaler.process.send_signal(signal.SIGTERM)
                for stream in streams:
                    stream.join(60)
                    assert stream.ended is not None
                    assert stream.ended[1] is grpc.StatusCode.OK
                    assert stream.ended[0] - asked_at < 60
                assert ended(scaler, 60) == 0
                readiness.join(60)
                assert [answer.status for answer in readiness.seen] == [SERVING, NOT_SERVING]
            assert scaler.lines("stopped")

    def test_calls_under_way_are_answered(self, blackhole: str, tmp_path: Path) -> None:
        """First calls that wait for a first tick, which does not come: they get their answer, not a broken line."""
        with running_scaler(tmp_path, *arguments(tmp_path, blackhole)) as scaler:
            with grpc.insecure_channel(scaler.grpc) as channel:
                grpc.channel_ready_future(channel).result(60)
                calls = [ExternalScalerStub(channel).IsActive.future(ref()) for _ in range(20)]
                time.sleep(0.3)
                scaler.process.send_signal(signal.SIGTERM)
                refusals = {(call.exception().code(), call.exception().details()) for call in calls}
            assert refusals == {(grpc.StatusCode.UNAVAILABLE, "chat/m: no tick yet; its first one is still being made")}
            assert ended(scaler, 60) == 0

    def test_a_source_that_hangs_and_clients_that_never_read_are_not_waited_for(
        self, blackhole: str, engine: str, tmp_path: Path
    ) -> None:
        options = arguments(tmp_path, engine, more=f'  chat/stuck:\n    scrape: {{urls: ["{blackhole}"]}}\n')
        with running_scaler(tmp_path, *options, "--grace-seconds", "300") as scaler:
            deaf = [deaf_stream(scaler.grpc), deaf_page(scaler.http), idle_connection(scaler.http)]
            time.sleep(3 * TICK)
            scaler.process.send_signal(signal.SIGTERM)
            assert ended(scaler, 60) == 0
            for connection in deaf:
                connection.close()

    def test_a_second_one_ends_it_at_once(self, engine: str, tmp_path: Path) -> None:
        with running_scaler(tmp_path, *arguments(tmp_path, engine)) as scaler:
            deaf = deaf_stream(scaler.grpc)
            time.sleep(2 * TICK)
            scaler.process.send_signal(signal.SIGTERM)
            until(lambda: scaler.lines("stopping"))
            scaler.process.send_signal(signal.SIGTERM)
            assert ended(scaler, 60) == -signal.SIGTERM
            deaf.close()

    def test_what_cannot_end_is_ended_by_the_clock_and_state_is_safe(self, engine: str, tmp_path: Path) -> None:
        """A thread in a name server that does not answer: Python itself would wait for it at its exit."""
        stuck = (
            "import threading, time, scaler.serve.server as server\n"
            "async def stuck(*_, real=server._serve):\n"
            "    import asyncio\n"
            "    asyncio.get_running_loop().run_in_executor(None, time.sleep, 200)\n"
            "    await real(*_)\n"
            "server._serve = stuck\n"
            "from scaler.cli import app\n"
            "app()\n"
        )
        options = ("serve", *arguments(tmp_path, engine), "--grace-seconds", "2")
        addresses = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0")
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen([sys.executable, "-c", stuck, *options, *addresses], stderr=log)
        until(lambda: '"serving"' in (tmp_path / "log").read_text(), 180)
        time.sleep(3 * TICK)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
        assert 1.5 < time.monotonic() - began < 150
        assert "not ended within its grace time" in (tmp_path / "log").read_text()
        assert stored(tmp_path, "chat/m")


class TestKill:
    def test_no_more_than_one_tick_is_lost_whenever_it_comes(self, engine: str, tmp_path: Path) -> None:
        """Killed at ten different moments of a tick: what was told before the last tick is in the store."""
        options = arguments(tmp_path, engine)
        generation = 0
        for moment in range(5):
            with running_scaler(tmp_path, *options) as scaler:
                until(lambda scaler=scaler: scaler.get("/v1/workloads/chat/m")["decided_at"] is not None)
                time.sleep(2 * TICK + moment * TICK / 5)
                told = scaler.get("/v1/workloads/chat/m")
                scaler.kill()
            memory = stored(tmp_path, "chat/m")
            assert memory["generation"] >= generation
            generation = memory["generation"]
            saved, decided = (when(text) for text in (memory["saved_utc"], told["decided_at"]))
            assert saved - decided > -1.5 * TICK - 0.5  # half a second for a machine that is busy
            [restored] = scaler.lines("workload restored")[-1:] or [None]
            assert (restored is None) == (moment == 0)


def test_a_blocked_event_loop_fails_liveness_and_recovers() -> None:
    """Health is answered by the loop that makes the decisions: a blocked one lets the probe run into its time limit."""
    started, blocked, enough, loops = threading.Event(), threading.Event(), threading.Event(), []
    ports: list[int] = []

    async def serve() -> None:
        stop = asyncio.Event()
        server = await start_grpc(
            FakeWorkloads(), "127.0.0.1:0", RpcStatistics(CollectorRegistry()), health_address="127.0.0.1:0"
        )
        assert server.health_port is not None
        ports.extend((server.port, server.health_port))
        loops.extend((asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        await server.stop(0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(60)
    loop, stop = loops

    def block() -> None:
        blocked.set()
        enough.wait(60)

    request = health_pb2.HealthCheckRequest(service="liveness")
    for port in ports:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            probe = health_pb2_grpc.HealthStub(channel)
            assert probe.Check(request, timeout=60).status == SERVING
            blocked.clear()
            enough.clear()
            loop.call_soon_threadsafe(block)
            assert blocked.wait(60)
            with pytest.raises(grpc.RpcError) as caught:
                probe.Check(request, timeout=0.5)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]
            enough.set()
            assert probe.Check(request, timeout=60).status == SERVING
    loop.call_soon_threadsafe(stop.set)
    thread.join(60)


class TestPolicyFile:
    def test_it_changes_under_constant_calls_and_none_is_dropped(self, engine: str, tmp_path: Path) -> None:
        """Twenty reloads, every fourth of them bad, while KEDA asks without a pause."""
        with running_scaler(tmp_path, *arguments(tmp_path, engine)) as scaler:
            stop, problems, answers = threading.Event(), [], [0]

            def ask() -> None:
                keda = KedaPoll(scaler, "chat", "m")
                while not stop.is_set():
                    try:
                        keda.poll()
                        answers[0] += 1
                    except grpc.RpcError as error:
                        problems.append(error)
                keda.close()

            time.sleep(2 * TICK)
            asking = [threading.Thread(target=ask) for _ in range(4)]
            for thread in asking:
                thread.start()
            original = (tmp_path / "policy.yaml").read_text()
            for number in range(20):
                least = 30 if number % 4 == 3 else number % 3 + 1
                text = original.replace("{max: 9}", f"{{min: {least}, max: 9}}")
                event = (
                    "policy file refused, the one before stays in force" if least == 30 else "policy file read again"
                )
                wanted = len(scaler.lines(event)) + 1
                write(tmp_path / "policy.yaml", f"{text}    idle: {{timeout_seconds: {60 + number}}}\n")
                until(lambda event=event, wanted=wanted: len(scaler.lines(event)) >= wanted)
            stop.set()
            for thread in asking:
                thread.join(60)
            assert problems == []
            assert answers[0] > 100

    def test_push_follows_it_and_a_workload_taken_out_goes_with_its_series(self, engine: str, tmp_path: Path) -> None:
        environment = {"LOADTIDE_TOKEN": TOKEN}
        with running_scaler(tmp_path, *arguments(tmp_path, engine), environment=environment) as scaler:
            assert scaler.post("/v1/workloads/chat/m/demand", {"pending": 1}, TOKEN) == 202
            path = tmp_path / "policy.yaml"
            write(path, path.read_text().replace("{enabled: true}", "{enabled: false}"))
            until(lambda: status(scaler, "/v1/workloads/chat/m/demand") == 409)
            assert 'workload="m"' in scaler.text("/metrics")
            write(path, "workloads: {}\n")
            until(lambda: 'workload="m"' not in scaler.text("/metrics"))
            assert status(scaler, "/v1/workloads/chat/m/demand") == 404
            assert stored(tmp_path, "chat/m")  # seven days, in case it was a mistake


def status(scaler: RunningScaler, path: str) -> int:
    """The HTTP status of a push."""
    try:
        return scaler.post(path, {"pending": 1}, TOKEN)
    except HTTPError as error:
        return error.code


def until(what: object, seconds: float = 60.0) -> None:
    """Wait until ``what()`` holds."""
    assert callable(what)
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def stored(folder: Path, name: str) -> dict[str, object]:
    """What the file has of a workload."""
    with closing(sqlite3.connect(folder / "memory.db")) as connection:
        [body] = connection.execute("SELECT body FROM workload WHERE name = ?", (name,)).fetchone()
    return dict(json.loads(body))


def when(text: object) -> float:
    return datetime.fromisoformat(str(text)).timestamp()


def deaf_stream(address: str) -> socket.socket:
    """An HTTP/2 client with a window of nothing that opens streams and never reads a byte."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload

    no_window = struct.pack(">HI", 4, 0)
    path, message = b"/externalscaler.ExternalScaler/StreamIsActive", ref().SerializeToString()
    block = b"\x83\x86" + b"".join(
        b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
        for name, value in ((b":path", path), (b":authority", b"x"), (b"content-type", b"application/grpc"))
    )
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, no_window))
    for stream in range(1, 41, 2):
        body = b"\0" + struct.pack(">I", len(message)) + message
        connection.sendall(frame(1, 4, stream, block) + frame(0, 1, stream, body))
    return connection


def deaf_page(address: str) -> socket.socket:
    """An HTTP client that asks for a lot and reads none of it."""
    connection = idle_connection(address)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 500)
    return connection


def idle_connection(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))
