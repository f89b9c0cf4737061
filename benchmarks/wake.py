"""From a gateway's POST /wake to KEDA's stream saying ``true``: a real process, fifty times. ``make bench NAME=wake``.

Every workload is idle at zero, with one stream open, and its engine is one that takes connections and never answers:
what a wake must not wait for.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import grpc
from aiohttp import web

from scaler.serve.externalscaler_pb2 import ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub

WAKES = 50
TOKEN = "tide"
#: Each wake takes the next workload: a woken one stays awake.
WORKLOAD = "    scrape: {{urls: [{url}], timeout_seconds: 30}}\n    push: {{enabled: true}}\n"
DECLARED = "    idle: {timeout_seconds: 1}\n    replicas: {max: 4}\n"
PAGE = """\
process_start_time_seconds 1.7e9
vllm:num_requests_running{engine="0",model_name="m"} 0
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:prompt_tokens_total{engine="0",model_name="m"} 100
vllm:generation_tokens_total{engine="0",model_name="m"} 100
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 10
"""


class Engine:
    """An idle vLLM until ``gone``; from then on its reads hang."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def metrics(self, _request: web.Request) -> web.Response:
        if self.gone.is_set():
            await asyncio.sleep(3600)
        return web.Response(text=PAGE)

    async def start(self) -> tuple[web.AppRunner, str]:
        """Serve; the runner and the URL."""
        app = web.Application()
        app.router.add_get("/metrics", self.metrics)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def ready(session: aiohttp.ClientSession) -> None:
    """Wait until the scaler has made its first round."""
    async with asyncio.timeout(30):
        while True:
            try:
                async with session.get("/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def wake(session: aiohttp.ClientSession, stream: grpc.aio.UnaryStreamCall, name: str) -> float:
    """Milliseconds from the request's beginning to the stream's ``true``."""
    began = time.perf_counter()
    told = asyncio.ensure_future(stream.read())
    async with session.post(f"/v1/workloads/{name}/wake", headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
        assert answer.status == 202, await answer.text()
    message = await asyncio.wait_for(told, 30)
    assert message.result is True
    return (time.perf_counter() - began) * 1000


async def measure() -> list[float]:
    """The milliseconds of each wake."""
    engine = Engine()
    runner, url = await engine.start()
    grpc_port, http_port = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        policy = "workloads:\n" + "".join(
            f"  bench/m{number}:\n{WORKLOAD.format(url=json.dumps(url))}{DECLARED}" for number in range(WAKES)
        )
        (Path(folder) / "policy.yaml").write_text(policy)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scaler", "serve", "--policy", f"{folder}/policy.yaml"),
            *("--store", f"{folder}/memory.db", "--tick-seconds", "5", "--log-level", "error"),
            *("--grpc", f"127.0.0.1:{grpc_port}", "--http", f"127.0.0.1:{http_port}"),
            env={"LOADTIDE_TOKEN": TOKEN},
        )
        try:
            async with (
                aiohttp.ClientSession(f"http://127.0.0.1:{http_port}") as session,
                grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}") as channel,
            ):
                await ready(session)
                return await _wakes(session, ExternalScalerStub(channel), engine)  # type: ignore[no-untyped-call]
        finally:
            process.terminate()
            await process.wait()
            await runner.cleanup()


async def _wakes(session: aiohttp.ClientSession, stub: ExternalScalerStub, engine: Engine) -> list[float]:
    names = [f"bench/m{number}" for number in range(WAKES)]
    refs = [ScaledObjectRef(namespace="bench", name=name.partition("/")[2]) for name in names]
    for _ in range(120):
        if not any([(await stub.IsActive(ref)).result for ref in refs]):
            break
        await asyncio.sleep(0.5)
    engine.gone.set()
    streams = [stub.StreamIsActive(ref) for ref in refs]
    await asyncio.sleep(6)  # every workload's next read has begun, and hangs
    taken = []
    for name, stream in zip(names, streams, strict=True):
        taken.append(await wake(session, stream, name))
        await asyncio.sleep(0.05)
    return taken


def main() -> None:
    taken = asyncio.run(measure())
    print(f"{len(taken)} wakes, each while a read of its engine hangs")  # noqa: T201
    print(f"result: wake_ms_median={statistics.median(taken):.1f} wake_ms_max={max(taken):.1f}")  # noqa: T201


if __name__ == "__main__":
    main()
