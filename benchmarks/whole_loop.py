"""Ten minutes of a load wave on a real engine, with the whole loop closed: ``make bench NAME=whole_loop``.

Quiet, a ramp, a jump beyond what one replica serves, an ebb, a burst of long prompts, quiet. A real vLLM with our
plugin (in slow motion, :mod:`benchmarks.slow_motion`), the real scaler, and a real Prometheus that scrapes both under
the rule pack. There is no KEDA: more replicas are asked for and never come, so the batch has to bear all of it.

The figure goes to docs/closed-loop.svg, or where ``--picture`` says; the adjustments, with their reasons and beside the
phases of the load, are printed, and go where ``--log`` says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.engine_rig import (
    BOOT,
    CHAT,
    DOCUMENT,
    TOKEN,
    TOKENS,
    WORKLOAD,
    Done,
    Kind,
    Load,
    client,
    following_engine,
    table,
)
from benchmarks.figure import picture
from scaler.lab.chart import Band, Panel, Series
from tests.real import prometheus_server, vllm_cpu
from tests.running_scaler import running_scaler

ROOT = Path(__file__).parents[1]
#: Small, so that the long prompts fill it: 96 blocks of 128 tokens and 2 MiB. A chat takes one, a document five.
KV_CACHE_BYTES = 96 << 21
SLOW_MOTION = 16.0
POLICY = f"""\
workloads:
  {WORKLOAD}:
    scrape: {{urls: ["ENGINE"]}}
    replicas: {{min: 1, max: 4, cold_start_seconds: 60}}
    batch: {{max: {BOOT}, token_budget: {TOKENS}}}
    objectives: {{ttft_seconds: 6, ttft_critical_seconds: 30, tpot_seconds: 0.8}}
"""
TITLE = "A load wave on a real vLLM that follows loadtide"
STATES = {
    "idle": "#d9d9d9",
    "low": "#9ecae1",
    "normal": "#a1d99b",
    "high": "#fdae6b",
    "critical": "#de2d26",
    "unknown": "#bcbddc",
    "stalled": "#756bb1",
}


@dataclass(frozen=True)
class Phase:
    """A stretch of the wave: arrivals per second at its start and its end, of chats and of documents."""

    name: str
    seconds: float
    chats: tuple[float, float] = (0.0, 0.0)
    documents: tuple[float, float] = (0.0, 0.0)


WAVE = (
    Phase("quiet", 60),
    Phase("ramp", 120, (0.2, 1.5)),
    Phase("plateau", 60, (1.5, 1.5)),
    Phase("jump", 60, (5.0, 5.0)),
    Phase("ebb", 90, (0.6, 0.6)),
    Phase("long prompts", 60, (0.4, 0.4), (0.5, 0.5)),
    Phase("quiet again", 150),
)


def phase_at(at: float) -> tuple[Phase, float]:
    """The phase of a moment of the wave, and the share of it that is over; after the wave its end."""
    for phase in WAVE:
        if at < phase.seconds:
            return phase, at / phase.seconds
        at -= phase.seconds
    return WAVE[-1], 1.0


def offered(at: float) -> tuple[float, float]:
    """(chats, documents) per second at a moment of the wave."""
    phase, share = phase_at(at)
    chats, documents = (low + (high - low) * share for low, high in (phase.chats, phase.documents))
    return chats, documents


async def wave(load: Load, seconds: float) -> tuple[list[Done], list[Done]]:
    """The whole wave: chats and documents, when all are answered."""

    async def arrivals(kind: Kind, which: int) -> list[Done]:
        sent: list[asyncio.Task[Done]] = []
        while (at := time.monotonic() - load.began) < seconds:
            # Thinning: candidates at the highest rate, each kept with the share that the moment's rate is of it.
            await asyncio.sleep(load.chance.expovariate(10.0))
            if load.chance.random() < offered(at)[which] / 10.0:
                sent.append(asyncio.create_task(load.one(kind)))
        return list(await asyncio.gather(*sent))

    load.began = time.monotonic()
    return await asyncio.gather(arrivals(CHAT, 0), arrivals(DOCUMENT, 1))


class Recorded:
    """What a Prometheus has recorded, as points from the start of the wave."""

    def __init__(self, server: prometheus_server.Server, started: float, seconds: float) -> None:
        self._server, self._started, self._seconds = server, started, seconds

    def series(self, query: str, step: float = 2.0) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Every series of a range query, with its labels."""
        form = {"query": query, "start": self._started, "end": self._started + self._seconds, "step": step}
        url = f"{self._server.url}/api/v1/query_range?{urllib.parse.urlencode(form)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found = json.load(answer)["data"]["result"]
        return [
            (each["metric"], [(at - self._started, float(value)) for at, value in each["values"]]) for each in found
        ]

    def line(self, query: str) -> list[tuple[float, float]]:
        """The one series of a query; none where there is none."""
        found = self.series(query)
        return found[0][1] if found else []


def p95_of(done: Sequence[Done], seconds: float, window: float = 30.0) -> list[tuple[float, float]]:
    """P95 of whole requests by when they ended, over the last half minute."""
    ended = [(each.at + each.seconds, each.seconds) for each in done if not each.problem]
    points = []
    for at in range(0, int(seconds), 5):
        near = [taken for end, taken in ended if at - window < end <= at]
        if len(near) >= 5:
            points.append((float(at), statistics.quantiles(near, n=20)[-1]))
    return points


def stretches(states: Sequence[tuple[float, str]]) -> list[Band]:
    """A band for each time that a state lasted."""
    bands: list[Band] = []
    for at, state in states:
        if bands and bands[-1].name == state:
            bands[-1] = replace(bands[-1], end=at + 2.0)
        else:
            bands.append(Band(at, at + 2.0, state, STATES[state]))
    return bands


def panels(recorded: Recorded, done: Sequence[Done], seconds: float) -> list[Panel]:
    own = f'{{workload="{WORKLOAD.partition("/")[2]}"}}'

    def signal(name: str) -> list[tuple[float, float]]:
        return recorded.line(f'loadtide_signal{{signal="{name}"}}')

    held = recorded.series("loadtide_load_state == 1")
    states = stretches(sorted((at, labels["state"]) for labels, points in held for at, _ in points))
    ttft = 'loadtide_signal_latency_seconds{signal="ttft_seconds",quantile="0.95",bound="low"}'
    rate = [(at, sum(offered(at))) for at in map(float, range(0, int(seconds), 2))]
    return [
        Panel(
            "Requests per second",
            (
                Series("offered", rate, "#999999", dashed=True),
                Series("arriving, as loadtide sees it", signal("arrivals_recent_per_second"), "#1f77b4"),
                Series("finished", recorded.line("sum(rate(vllm:request_success_total[20s]))"), "#2ca02c"),
            ),
            height=90,
        ),
        Panel("Load state", bands=states),
        Panel(
            "Batch",
            (
                Series("target", recorded.line(f"loadtide_target_batch_size{own}"), "#d62728", step=True, dashed=True),
                Series("applied", recorded.line("loadtide_engine_batch_size"), "#111111", step=True),
                Series("running", recorded.line("vllm:num_requests_running"), "#1f77b4", area=True),
                Series("waiting", recorded.line("vllm:num_requests_waiting"), "#ff7f0e"),
            ),
            least_top=BOOT,
            height=150,
        ),
        Panel(
            "Tokens per step",
            (
                Series(
                    "target", recorded.line(f"loadtide_target_token_budget{own}"), "#d62728", step=True, dashed=True
                ),
                Series("applied", recorded.line("loadtide_engine_token_budget"), "#111111", step=True),
            ),
            least_top=TOKENS,
            height=60,
        ),
        Panel(
            "KV cache in use",
            (Series("share", recorded.line("vllm:kv_cache_usage_perc"), "#9467bd", area=True),),
            least_top=1.0,
            height=60,
        ),
        Panel(
            "P95, seconds",
            (
                Series("whole request, at the client", p95_of(done, seconds), "#8c564b"),
                Series("first token, at least", recorded.line(ttft), "#e377c2", step=True),
            ),
            rule=("first token: objective 6 s", 6.0),
            height=110,
        ),
        Panel(
            "Replicas",
            (
                Series("desired", recorded.line(f"loadtide_desired_replicas{own}"), "#d62728", step=True),
                Series("ready", recorded.line(f"loadtide_ready_replicas{own}"), "#111111", step=True),
            ),
            least_top=4,
            height=60,
        ),
    ]


def adjustments(decisions: Sequence[dict[str, Any]], started: float) -> str:
    """The log, oldest first: when, in which phase, what changed, and the reasons told for what changed."""
    rows = []
    for entry in reversed(decisions):
        at = datetime.fromisoformat(entry["at"]).timestamp() - started
        changed = {change["what"] for change in entry["changes"]}
        what = ", ".join(f"{each['what']} {each['from']} → {each['to']}" for each in entry["changes"])
        why = "; ".join(dict.fromkeys(each["sentence"] for each in entry["reasons"] if each["target"] in changed))
        rows.append((f"{at:.0f} s", phase_at(at)[0].name, what, why))
    return table(("when", "load", "change", "why"), rows)


@dataclass(frozen=True)
class Outcome:
    """What came of a wave: the figure, the adjustments as a table, the alerts that fired, the requests."""

    figure: str
    adjustments: str
    alerts: list[str]
    done: list[Done]
    late_share: float


async def run(first: bool) -> Outcome:
    port, seconds = vllm_cpu.free_port(), sum(phase.seconds for phase in WAVE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with following_engine(
            folder, port, kv_cache_bytes=KV_CACHE_BYTES, slow_motion=SLOW_MOTION, first=first
        ) as engine:
            policy = folder / "policy.yaml"
            policy.write_text(POLICY.replace("ENGINE", engine.server.metrics_url))
            arguments = ("--policy", str(policy), "--store", "memory", "--http", f"127.0.0.1:{port}")
            targets = [
                prometheus_server.Target(engine.server.url.removeprefix("http://"), {"job": "engines"}),
                prometheus_server.Target(f"127.0.0.1:{port}", {"job": "loadtide"}),
            ]
            rules = (ROOT / "rules" / "loadtide.rules.yaml",)
            with (
                running_scaler(folder, *arguments, environment={"LOADTIDE_TOKEN": TOKEN}) as scaler,
                prometheus_server.serve(folder / "prometheus", targets, scrape_seconds=2.0, rule_files=rules) as server,
            ):
                async with client() as session:
                    await asyncio.sleep(5)
                    load, before, started = Load(engine, session, random.Random(3)), engine.stepped(), time.time()
                    done = [one for each in await wave(load, seconds) for one in each]
                    late = load.late_share(before)
                recorded = Recorded(server, started, seconds)
                told = scaler.get(f"/v1/workloads/{WORKLOAD}/decisions?limit=1000")["decisions"]
                fired = recorded.series('ALERTS{alertstate="firing"}', step=15.0)
                alerts = sorted({labels["alertname"] for labels, _ in fired})
                figure = picture(TITLE, panels(recorded, done, seconds), seconds)
    return Outcome(figure, adjustments(told, started), alerts, done, late)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--picture", type=Path, default=ROOT / "docs" / "closed-loop.svg")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--first", action="store_true", help="before all other work of the machine (root)")
    given = parser.parse_args()
    outcome = asyncio.run(run(given.first))
    given.picture.write_text(outcome.figure)
    if given.log is not None:
        given.log.write_text(outcome.adjustments)
    failed = [each.problem for each in outcome.done if each.problem]
    print(f"{outcome.adjustments}\n\nalerts that fired: {', '.join(outcome.alerts) or 'none'}; failures: {failed[:5]}")  # noqa: T201
    print(f"result: requests={len(outcome.done)} failed={len(failed)} late_share={outcome.late_share:.3f}")  # noqa: T201


if __name__ == "__main__":
    main()
