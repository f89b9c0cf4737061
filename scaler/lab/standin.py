"""A stand-in for one vLLM replica, without a GPU: ``python -m scaler.lab.standin``.

The pure engine model (:mod:`scaler.lab.engine`) in real time behind vLLM's HTTP: ``/metrics``, ``/health`` and
``POST /v1/completions``. Answers are made of the word "tide"; their timing is the model's. What it is for: seeing
loadtide at work in a minute. What it is not: a measurement of vLLM.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import typer
from aiohttp import web

from scaler.lab.engine import Engine
from scaler.lab.hardware import HARDWARE
from scaler.lab.sequence import Sequence
from scaler.lab.vllm_page import VllmPage
from scaler.lab.wave import Arrival, arrivals

#: The model is moved in slices of this length, never woken per step: what keeps an idle stand-in nearly free.
SLICE_SECONDS = 0.05
#: vLLM's default when a request names no max_tokens.
DEFAULT_MAX_TOKENS = 16
#: A tokenizer's usual yield on English text; near enough for a model that reads no text.
CHARACTERS_PER_TOKEN = 4


@dataclass(slots=True)
class Replica:
    """The model engine tied to the wall clock. Everything happens on one event loop.

    ``speed`` model seconds pass per real second. ``load`` submits itself at its own model times.
    """

    engine: Engine
    page: VllmPage
    speed: float = 1.0
    load: Iterator[Arrival] = field(default_factory=lambda: iter(()))
    _next_load: Arrival | None = field(init=False)
    _started_mono: float = field(default_factory=time.monotonic)
    _slice_done: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._next_load = next(self.load, None)

    def model_time(self) -> float:
        """Model seconds since the start."""
        return (time.monotonic() - self._started_mono) * self.speed

    async def run(self) -> None:
        """Move the engine along with real time until cancelled."""
        while True:
            self.catch_up()
            done, self._slice_done = self._slice_done, asyncio.Event()
            done.set()
            await asyncio.sleep(SLICE_SECONDS)

    def catch_up(self) -> float:
        """Bring the engine to the present, and say when that is (model seconds): the load's arrivals at their times,
        every step that has ended."""
        until = self.model_time()
        while self._next_load is not None and self._next_load.at <= until:
            arrival, self._next_load = self._next_load, next(self.load, None)
            self._advance(arrival.at)
            self.engine.submit(arrival.prompt_tokens, arrival.output_tokens, arrival.at)
        self._advance(until)
        return until

    def _advance(self, until: float) -> None:
        for step in self.engine.advance(until):
            self.page.book(step)

    def submit(self, prompt_tokens: int, output_tokens: int) -> Sequence:
        """One request, arriving now. Raises ``ValueError`` when it can never fit."""
        return self.engine.submit(prompt_tokens, output_tokens, self.catch_up())

    async def progress(self) -> None:
        """Return after the next slice."""
        await self._slice_done.wait()


def make_app(replica: Replica, *, model_name: str, max_model_len: int) -> web.Application:
    """The HTTP side of one replica."""

    async def metrics(_: web.Request) -> web.Response:
        replica.catch_up()
        return web.Response(body=replica.page.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def health(_: web.Request) -> web.Response:
        return web.Response()

    async def completions(request: web.Request) -> web.StreamResponse:
        try:
            prompt_tokens, output_tokens, stream = _read_completion(await request.text(), max_model_len)
            sequence = replica.submit(prompt_tokens, output_tokens)
        except ValueError as error:
            problem = {"message": str(error), "type": "BadRequestError", "code": 400}
            return web.json_response({"error": problem}, status=400)
        if stream:
            return await _stream(request, replica, sequence, model_name)
        while sequence.finished_at is None:
            await replica.progress()
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens}
        usage["total_tokens"] = prompt_tokens + output_tokens
        return web.json_response(_completion(model_name, output_tokens, "length") | {"usage": usage})

    async def keep_time(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(replica.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/health", health)
    app.router.add_post("/v1/completions", completions)
    app.cleanup_ctx.append(keep_time)
    return app


def _read_completion(body: str, max_model_len: int) -> tuple[int, int, bool]:
    """(prompt tokens, output tokens, stream) of a request body. Raises ``ValueError`` saying what to write instead."""
    try:
        asked = json.loads(body)
    except json.JSONDecodeError as error:
        raise ValueError(f'the body is not JSON ({error}); send for example {{"prompt": "hello"}}') from error
    prompt = asked.get("prompt") if isinstance(asked, dict) else None
    if isinstance(prompt, str) and prompt:
        prompt_tokens = math.ceil(len(prompt) / CHARACTERS_PER_TOKEN)
    elif isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        prompt_tokens = len(prompt)
    else:
        raise ValueError('prompt must be one text or one list of token ids, for example {"prompt": "hello"}')
    output_tokens = asked.get("max_tokens", DEFAULT_MAX_TOKENS)
    if type(output_tokens) is not int or output_tokens < 1:
        raise ValueError(f"max_tokens must be a whole number of at least 1, got {output_tokens!r}")
    if prompt_tokens + output_tokens > max_model_len:
        raise ValueError(
            f"the prompt's {prompt_tokens} tokens and max_tokens {output_tokens} exceed the model's {max_model_len}"
        )
    return prompt_tokens, output_tokens, bool(asked.get("stream"))


def _completion(model_name: str, tokens: int, finish_reason: str | None) -> dict[str, object]:
    """One answer, or one chunk of it, in the shape of OpenAI's completions."""
    choice = {"index": 0, "text": "tide " * tokens, "finish_reason": finish_reason}
    return {"object": "text_completion", "model": model_name, "choices": [choice]}


async def _stream(request: web.Request, replica: Replica, sequence: Sequence, model_name: str) -> web.StreamResponse:
    """Server-sent events; as with vLLM, one chunk may carry several tokens. A reader who leaves frees nothing: the
    model engine generates to the end."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    sent = 0
    while sent < sequence.output_tokens:
        await replica.progress()
        generated = replica.engine.generated(sequence)
        if generated > sent:
            reason = "length" if generated == sequence.output_tokens else None
            chunk = json.dumps(_completion(model_name, generated - sent, reason))
            await response.write(f"data: {chunk}\n\n".encode())
            sent = generated
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


async def serve(app: web.Application, host: str, port: int, announce: dict[str, object]) -> None:
    """Serve until SIGINT or SIGTERM. Says where, as one line of JSON, once requests are answered."""
    stopped = asyncio.Event()  # heard from before the announcement on: who reads it may stop us at once
    for wish in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(wish, stopped.set)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, shutdown_timeout=1.0)
        await site.start()
        url = f"http://{host}:{runner.addresses[0][1]}"
        typer.echo(json.dumps({"url": url, "metrics": f"{url}/metrics"} | announce))
        await stopped.wait()
    finally:
        await runner.cleanup()


def main(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    wave: Annotated[
        bool, typer.Option(help="Send a wave of requests: quiet, ramp, jump, plateau, ebb, every 160 s.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the wave: the same seed, the same requests.")] = 1,
    speed: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=20.0,
            help="Model seconds per real second. Latencies stay model seconds; rates look so much higher.",
        ),
    ] = 1.0,
    hardware: Annotated[
        str, typer.Option(help=f"Whose step times: {', '.join(HARDWARE)}.")
    ] = "llama-3.1-70b-fp8-4xh100",
    max_num_seqs: Annotated[
        int, typer.Option(min=1, max=4096, help="Most sequences at once, as vLLM's option of that name.")
    ] = 16,
    max_model_len: Annotated[
        int, typer.Option(min=2, max=200_000, help="Longest prompt plus answer, tokens.")
    ] = 32_768,
    model_name: Annotated[str, typer.Option(help="The model's name in metrics and answers.")] = "stand-in",
) -> None:
    """A stand-in for one vLLM replica: real metric names, modelled step times, no GPU.

    It answers /metrics, /health and POST /v1/completions on loopback and prints one line of JSON with its URL when it
    is ready. With --wave it also gets a load worth watching: with the defaults it serves about 4.6 requests per second,
    and the wave's jump sends 8.

    Try:  python -m scaler.lab.standin --wave   then   curl -s URL/metrics | grep num_requests

    Next: `make run` starts it together with loadtide.
    """
    if hardware not in HARDWARE:
        raise typer.BadParameter(
            f"{hardware!r} is not known; choose one of {', '.join(HARDWARE)}", param_hint="--hardware"
        )
    engine = Engine(HARDWARE[hardware], max_num_seqs)
    page = VllmPage(engine, model_name=model_name, max_model_len=max_model_len, process_start_seconds=time.time())
    replica = Replica(engine, page, speed, arrivals(seed) if wave else iter(()))
    app = make_app(replica, model_name=model_name, max_model_len=max_model_len)
    announce: dict[str, object] = {
        "model": model_name,
        "hardware": hardware,
        "max_num_seqs": max_num_seqs,
        "wave": wave,
    }
    try:
        asyncio.run(serve(app, host, port, announce))
    except OSError as error:
        typer.echo(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --port, or 0 for a free one", err=True
        )
        raise typer.Exit(1) from error


if __name__ == "__main__":
    typer.run(main)
