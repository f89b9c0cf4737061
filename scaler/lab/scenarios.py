"""The scenarios of the scorecard, as data: what arrives, on what hardware, how long a cold start is, what is promised.

Half of them are there to tune the laws on (``tune``), the other half to report (``report``); each kind of load is in
both, on other hardware or with another cold start. Those that are ``shown`` count in no score. Rates are thinned so
that a cell has some ten thousand requests: slow hardware and long answers then need several replicas at a few requests
per second. Traces of others are read from a folder given by path; README of that folder says where they come from.
Files with rates only get drawn lengths.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from math import ceil, inf
from pathlib import Path
from random import Random
from typing import Literal

from scaler.lab.fleet import Request
from scaler.lab.hardware import HARDWARE, Hardware
from scaler.lab.promise import Promise
from scaler.lab.seasons import Past, office_day, office_past, recorded_past, smooth_past, steady_past, wandering_past
from scaler.lab.traces import (
    Draws,
    Rate,
    TraceError,
    day,
    piecewise,
    poisson,
    read_client_rate,
    read_rate,
    read_trace,
    sawtooth,
    thinned,
)
from scaler.lab.wave import Lengths
from scaler.policy.model import Price, PriceWindow
from scaler.value import frozen

#: Conversations (Azure 2023), long answers to long prompts, and lengths with heavy tails; long contexts (Mooncake's).
CHAT = Lengths()
LONG = Lengths(3500, 0.5, 14_050, 900, 0.5, 4000)
HEAVY = Lengths(700, 1.2, 14_050, 150, 1.4, 4000)
CONTEXT = Lengths(18_000, 0.6, 60_000, 400, 0.7, 1500)

#: Folder with the traces (None where the scenario needs none) and seed to requests.
Build = Callable[[Path, int], list[Request]]
Half = Literal["tune", "report", "shown"]

SMALL, LARGE, NEW_LARGE, MIDDLE = (
    "llama-3.1-8b-h100",
    "llama-2-70b-8xa100",
    "llama-3.1-70b-fp8-4xh100",
    "qwen3-32b-2xh100",
)
HOUR, DAY = 3600.0, 86_400.0
#: A cell has so many requests at the most, unless somebody asks for more.
MOST_REQUESTS = 100_000


#: What is promised to each request: as the presets say, and where the hardware is slow or the requests are long.
PROMPT = Promise()
SLOW = Promise(ttft_seconds=2.0, tpot_seconds=0.1)
PATIENT = Promise(ttft_seconds=3.0, tpot_seconds=0.1, patience_seconds=300.0)
STEEP = Promise(patience_seconds=30.0)


NO_PRICE = Price()


@frozen
class Scenario:
    """One scenario. ``file``: what it needs of the folder of traces. ``floor`` and ``ceiling`` bound the replicas.

    ``tick_seconds``: how often signals are read and everybody decides; long scenarios do it every 15 s, as a
    Prometheus would. ``diurnal``: a day's shape, where the bar against the clairvoyant bound applies. ``fill_seconds``:
    engines batch statically and a batch waits so long to fill; None: they batch continuously. ``past``: what arrived
    before, from which a season is learned. ``price``: windows of another price, ``hour_price``: what a GPU costs an
    hour else.
    """

    name: str
    summary: str
    half: Half
    hardware_name: str
    cold_start_seconds: float
    seconds: float
    build: Build
    promise: Promise = PROMPT
    floor: int = 1
    ceiling: int = 12
    batch: int = 256
    tick_seconds: float = 5.0
    file: str | None = None
    diurnal: bool = False
    fill_seconds: float | None = None
    past: Past | None = None
    price: Price = NO_PRICE
    hour_price: float | None = None

    @property
    def hardware(self) -> Hardware:
        """What one replica runs on."""
        return HARDWARE[self.hardware_name]

    def requests(self, folder: Path | None, seed: int) -> list[Request]:
        """The trace by ``seed``, from time 0 to ``seconds``, each request cut to what the KV cache can hold.

        Raises OSError and :class:`~scaler.lab.traces.TraceError` for a file that cannot be read.
        """
        most = self.hardware.kv_tokens // 2
        return [
            Request(each.at, min(each.prompt_tokens, most), min(each.output_tokens, most))
            for each in self.build(folder or Path(), seed)
            if each.at < self.seconds
        ]


def drawn(rate: Rate, lengths: Draws, seconds: float, *, cv: float = 1.0) -> Build:
    """Requests drawn at a rate (Poisson; bursty with ``cv`` above 1)."""
    return lambda folder, seed: poisson(rate, lengths, seed=seed, seconds=seconds, cv=cv)  # noqa: ARG005


def recorded(file: str, most: int) -> Build:
    """A recorded trace, thinned by the seed to about ``most`` requests."""
    return lambda folder, seed: thinned(read_trace(folder / file), most, seed)


def shaped(file: str, start: float, seconds: float, peak: float, lengths: Draws, client: str | None = None) -> Build:
    """Part of a rate file from ``start``, scaled to reach ``peak`` requests per second (``client``: one client's)."""

    def build(folder: Path, seed: int) -> list[Request]:
        rate = read_rate(folder / file)[0] if client is None else read_client_rate(folder / file, client)
        highest = max(rate(start + at) for at in range(0, int(seconds) + 1, 60))
        return poisson(lambda at: rate(start + at) * peak / highest, lengths, seed=seed, seconds=seconds)

    return build


def step(high: float, after: float) -> Rate:
    """Nothing, then ``high`` at once."""
    return lambda at: high if at >= after else 0.0


def stages(steps: Sequence[tuple[float, float]]) -> Rate:
    """One rate after the other: (seconds, requests per second); after the last one, that one."""
    ends = list(accumulate(seconds for seconds, _ in steps))
    return lambda at: steps[min(bisect_right(ends, at), len(steps) - 1)][1]


AZURE_2024, CLIENTS = "azure2024_code_week_10min.csv", "servegen_m-mid_clients_10min.csv.gz"
#: llm-d's own benchmark of its SLO-aware law (guides/workload-autoscaling/slo-aware/benchmark-templates): steps at a
#: constant rate, about 4000 tokens in and 1000 out, 3 s and 100 ms, 100 s from asked to ready. It is over when the last
#: answer is.
_STAGES = stages([(330, 2), (360, 4), (360, 6), (360, 8), (360, 10), (360, 4), (300, 1), (300, 0)])
_STEADY_CV = 0.05
_RAMP_LENGTHS = Lengths(4000, 0.075, 4500, 1000, 0.08, 1100)
#: Nothing until 0:30 of the scenario's clock, office hours until 2:45, and nothing again.
_OFFICE = piecewise([(0, 0), (1799, 0), (1800, 0.5), (5400, 3.0), (9900, 1.5), (9901, 0), (14_400, 0)])


def _all() -> Sequence[Scenario]:
    s = Scenario
    return (
        s("flat-70b", "3.5/s, even", "tune", LARGE, 120, 1500, drawn(lambda _: 3.5, CHAT, 1500), SLOW),
        s("step-8b", "0 to 200/s at once", "tune", SMALL, 60, 240, drawn(step(200, 60), CHAT, 240), STEEP, ceiling=32),
        s("bursts-70b", "3/s, CV 4", "tune", LARGE, 30, 1500, drawn(lambda _: 3.0, CHAT, 1500, cv=4), SLOW),
        s("trickle-8b", "0.1/s", "tune", SMALL, 120, 3600, drawn(lambda _: 0.1, CHAT, 3600)),
        s("sawtooth-8b", "1 to 9/s in 15 min, long answers", "tune", SMALL, 120, 1800,
          drawn(sawtooth(1, 9, 900), LONG, 1800), PATIENT),
        s("heavy-70b", "12/s, heavy-tailed lengths", "tune", NEW_LARGE, 120, 900, drawn(lambda _: 12.0, HEAVY, 900)),
        s("day-70b", "the rise and the beginning fall of a smooth day, long answers", "tune", LARGE, 120, 4 * HOUR,
          drawn(day(0.05, 0.65, peak_hour=3.0), LONG, 4 * HOUR), PATIENT, tick_seconds=15, diurnal=True),
        s("night-8b", "2 h of traffic between two nights, long answers", "tune", SMALL, 120, 4 * HOUR,
          drawn(_OFFICE, LONG, 4 * HOUR), PATIENT, floor=0, tick_seconds=15),
        s("azure-code-2023", "recorded hour of code completions", "tune", NEW_LARGE, 120, 3430,
          recorded("azure2023_code.csv.gz", 8000), file="azure2023_code.csv.gz"),
        s("azure-code-tuesday", "2024, 12 to 16 h, long answers", "tune", LARGE, 120, 4 * HOUR,
          shaped(AZURE_2024, 4 * DAY + 12 * HOUR, 4 * HOUR, 0.7, LONG), PATIENT, tick_seconds=15, file=AZURE_2024,
          diurnal=True),
        s("servegen-small-pool", "ServeGen m-small, 6 to 10 h, long answers", "tune", LARGE, 300, 4 * HOUR,
          shaped("servegen_m-small_aggregate_10min.csv", DAY + 6 * HOUR, 4 * HOUR, 0.65, LONG), PATIENT,
          tick_seconds=15, file="servegen_m-small_aggregate_10min.csv", diurnal=True),
        s("servegen-tenant-49", "one client, silent until 9 h, then all at once", "tune", LARGE, 120, 4 * HOUR,
          shaped(CLIENTS, DAY + 7.4 * HOUR, 4 * HOUR, 0.8, LONG, "49"), PATIENT, floor=0, tick_seconds=15,
          file=CLIENTS),
        s("flat-8b", "8/s, even, long answers", "report", SMALL, 30, 1200, drawn(lambda _: 8.0, LONG, 1200), PATIENT),
        s("step-70b", "0 to 8/s at once", "report", LARGE, 300, 1500, drawn(step(8, 60), CHAT, 1500), SLOW),
        s("bursts-8b", "6/s, CV 4, long answers", "report", SMALL, 120, 1500,
          drawn(lambda _: 6.0, LONG, 1500, cv=4), PATIENT),
        s("trickle-70b", "0.1/s, may go to zero", "report", NEW_LARGE, 300, 3600,
          drawn(lambda _: 0.1, CHAT, 3600), floor=0),
        s("sawtooth-70b", "1 to 6/s in 15 min", "report", LARGE, 30, 1800,
          drawn(sawtooth(1, 6, 900), CHAT, 1800), SLOW),
        s("heavy-8b", "25/s, heavy-tailed lengths", "report", SMALL, 30, 600, drawn(lambda _: 25.0, HEAVY, 600)),
        s("ramp-llm-d", "2 to 10 to 1/s in steps, 3 to 8 replicas (llm-d's own)", "report", MIDDLE, 100, 2730,
          drawn(_STAGES, _RAMP_LENGTHS, 2730, cv=_STEADY_CV), PATIENT, floor=3, ceiling=8),
        s("day-8b", "the rise and the beginning fall of a smooth day, long contexts", "report", SMALL, 120, 4 * HOUR,
          drawn(day(0.05, 1.3, peak_hour=3.0), CONTEXT, 4 * HOUR), PATIENT, tick_seconds=15, diurnal=True),
        s("azure-conv-2023", "half of a recorded hour of conversations", "report", LARGE, 120, 1750,
          recorded("azure2023_conv.csv.gz", 12_000), SLOW, file="azure2023_conv.csv.gz"),
        s("azure-code-thursday", "2024, 12 to 16 h, long answers", "report", LARGE, 300, 4 * HOUR,
          shaped(AZURE_2024, 6 * DAY + 12 * HOUR, 4 * HOUR, 0.7, LONG), PATIENT, tick_seconds=15, file=AZURE_2024,
          diurnal=True),
        s("mooncake", "half of a recorded hour of long contexts", "report", SMALL, 120, 1770,
          recorded("mooncake_conversation_trace.jsonl.gz", 11_000), PATIENT,
          file="mooncake_conversation_trace.jsonl.gz"),
        s("servegen-tenant-52", "one client, silent until 9 h, then even", "report", LARGE, 300, 4 * HOUR,
          shaped(CLIENTS, DAY + 7.4 * HOUR, 4 * HOUR, 0.5, LONG, "52"), PATIENT, floor=0, tick_seconds=15, file=CLIENTS,
          diurnal=True),
        *(s(f"jump-{cold_start}", "0 to 200/s at once", "shown", SMALL, cold_start, 560,
            drawn(step(200, 60), CHAT, 560), STEEP, ceiling=32) for cold_start in (0, 60, 240)),
    )  # fmt: skip


def _dear(**what: float) -> PriceWindow:
    """Two hours, from the first to the third of a scenario's clock, in which a GPU costs 6 instead of 2."""
    hours = {"start": "01:00", "end": "03:00", "zone": "UTC", "hour_price": 6.0}
    return PriceWindow.model_validate(hours | what)


def _with_a_past() -> Sequence[Scenario]:
    """What a learned season is judged by: an office's working day, its weekend, its holiday and what one of each leaves
    behind, the recorded days, and loads without a season.
    """
    four, morning, office = 4 * HOUR, 7.5 * HOUR, 0.6

    def synthetic(name: str, summary: str, rate: Rate, past: Past, floor: int = 1) -> Scenario:
        return Scenario(name, summary, "shown", LARGE, 120, four, drawn(rate, LONG, four), PATIENT, floor=floor,
                        tick_seconds=15, past=past)  # fmt: skip

    def of_file(name: str, summary: str, file: str, start: float, peak: float, client: str | None = None,
                cold_start: float = 120, seconds: float = four) -> Scenario:  # fmt: skip
        return Scenario(name, summary, "shown", LARGE, cold_start, seconds,
                        shaped(file, start, seconds, peak, LONG, client), PATIENT, floor=0 if client else 1,
                        tick_seconds=15, file=file, past=recorded_past(file, start, seconds, peak, client))  # fmt: skip

    def priced(name: str, summary: str, price: Price) -> Scenario:
        return Scenario(name, summary, "shown", LARGE, 120, four, drawn(day(0.2, 0.9, peak_hour=2.0), LONG, four),
                        PATIENT, tick_seconds=15, price=price, hour_price=2.0)  # fmt: skip

    saturday = 5 * DAY + morning
    monday_past = office_past(morning, office)
    return (
        synthetic("season-office", "everybody at nine, nobody at night", office_day(morning, office), monday_past, 0),
        synthetic("season-weekend", "their Saturday: nobody", office_day(saturday, office),
                  office_past(saturday, office), 0),
        synthetic("season-holiday", "a Monday on which nobody comes", office_day(morning, office, silent=(0,)),
                  monday_past, 0),
        synthetic("season-after-holiday", "the Monday after one", office_day(morning, office),
                  office_past(morning, office, holiday=-7), 0),
        synthetic("season-after-spike", "the Monday after one with a spike at eight", office_day(morning, office),
                  office_past(morning, office, spike=-7), 0),
        synthetic("season-smooth-day", "the same smooth day for four weeks, each as busy as it likes",
                  day(0.05, 0.65, peak_hour=3.0), smooth_past(day(0.05, 0.65, peak_hour=3.0))),
        synthetic("season-none", "0.5/s at every hour", lambda _: 0.5, steady_past(0.5)),
        synthetic("season-wandering", "up and down at no hour of its own", sawtooth(0.2, 0.6, 5400),
                  wandering_past(0.1, 0.7)),
        of_file("season-azure-tuesday", "2024, code, 12 to 16 h", AZURE_2024, 4 * DAY + 12 * HOUR, 0.7),
        of_file("season-azure-thursday", "2024, code, 11 to 15 h, slow cold start", AZURE_2024,
                6 * DAY + 11 * HOUR, 0.7, cold_start=300),
        of_file("season-tenant-49", "one client, silent until 9 h, then all at once", CLIENTS,
                9 * DAY + morning, 0.8, "49"),
        of_file("season-tenant-52", "one client, silent until 9 h, then even, slow cold start", CLIENTS,
                10 * DAY + morning, 0.5, "52", 300),
        priced("price-peak", "GPUs three times as dear for two hours, objectives 1.2 times as long then",
               Price(windows=(_dear(objective_factor=1.2),))),
        priced("price-ceiling", "the same, and no more than six replicas then",
               Price(windows=(_dear(objective_factor=1.2, ceiling=6),))),
    )  # fmt: skip


SCENARIOS = {scenario.name: scenario for scenario in (*_all(), *_with_a_past())}


def of_trace(path: Path, *, start: float = 0.0, seconds: float | None = None, most: int = MOST_REQUESTS) -> Scenario:
    """A scenario of somebody's own: a trace file from ``start`` on, for ``seconds`` or to its end, with about ``most``
    requests at the most, on one H100 a replica and a cold start of 120 s. Raises OSError,
    :class:`~scaler.lab.traces.TraceError`.
    """
    span = inf if seconds is None else seconds

    def build(folder: Path, seed: int) -> list[Request]:  # noqa: ARG001
        return read_trace(path, seed=seed, start=start, seconds=span, most=most)

    if seconds is None:
        requests = build(path, 0)
        if not requests:
            raise TraceError(f"{path}: there is no request in it from {start:g} s on")
        seconds = ceil(requests[-1].at + PROMPT.patience_seconds)
    summary = f"from {start:g} s on" if start else "somebody's trace"
    tick_seconds = 5.0 if seconds <= 2 * HOUR else 15.0
    return Scenario(path.name, summary, "shown", SMALL, 120.0, seconds, build, tick_seconds=tick_seconds)


def changed(
    scenario: Scenario,
    *,
    hardware_name: str | None = None,
    cold_start_seconds: float | None = None,
    floor: int | None = None,
    ceiling: int | None = None,
    ttft_seconds: float | None = None,
    tpot_seconds: float | None = None,
    fill_seconds: float | None = None,
) -> Scenario:
    """The scenario with what is not None in place of its own. Raises ``ValueError`` for a floor above the ceiling."""
    own = scenario.promise
    new = replace(
        scenario,
        hardware_name=hardware_name or scenario.hardware_name,
        cold_start_seconds=scenario.cold_start_seconds if cold_start_seconds is None else cold_start_seconds,
        floor=scenario.floor if floor is None else floor,
        ceiling=ceiling or scenario.ceiling,
        promise=replace(
            own, ttft_seconds=ttft_seconds or own.ttft_seconds, tpot_seconds=tpot_seconds or own.tpot_seconds
        ),
        fill_seconds=fill_seconds,
    )
    if new.floor > new.ceiling:
        raise ValueError(f"the floor ({new.floor}) is above the ceiling ({new.ceiling})")
    return new


def lengths_of(requests: Sequence[Request], most: int = 5000) -> list[tuple[int, int]]:
    """(prompt, output) tokens of some of the requests, evenly drawn: what a replica's capacity is measured with."""
    chosen = requests if len(requests) <= most else Random(0).sample(list(requests), most)
    return [(each.prompt_tokens, each.output_tokens) for each in chosen]
