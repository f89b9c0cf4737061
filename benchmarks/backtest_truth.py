"""How near is a backtest to the truth? The lab plays a workload under one scaler while a Prometheus remembers; what the
backtest of our policy says of that past is set beside our policy played live on the same requests.

``make bench NAME=backtest_truth``; each row is one past, in a real Prometheus (``promtool`` makes its storage).
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import aiohttp

from scaler.lab.backtest.asking import Patience
from scaler.lab.backtest.span import Span
from scaler.lab.backtest.study import Backtest, Setting, study
from scaler.lab.policies import POLICIES
from scaler.lab.scenarios import HOUR, LARGE, LONG, PATIENT, SMALL, Scenario, drawn, lengths_of, step
from scaler.lab.traces import day, piecewise, sawtooth
from scaler.lab.truth import measure_truth
from scaler.policy.prometheus import PrometheusServer
from scaler.signals.preset import load_preset
from scaler.signals.prometheus.api import Api
from tests.lab.backtest.lab_past import BEGIN, live, policy_for
from tests.real import prometheus_server
from tests.real.recorded_past import Past

OFFICE = piecewise([(0, 0), (1799, 0), (1800, 0.5), (5400, 3.0), (9900, 1.5), (9901, 0), (14_400, 0)])
SCENARIOS = (
    Scenario("smooth day, 70B", "", "report", LARGE, 120, 4 * HOUR,
             drawn(day(0.05, 0.65, peak_hour=3.0), LONG, 4 * HOUR), PATIENT, tick_seconds=15),
    Scenario("office day that sleeps, 8B", "", "report", SMALL, 120, 4 * HOUR, drawn(OFFICE, LONG, 4 * HOUR), PATIENT,
             floor=0, tick_seconds=15),
    Scenario("sawtooth of 15 min, 8B", "", "report", SMALL, 120, 2 * HOUR,
             drawn(sawtooth(1, 9, 900), LONG, 2 * HOUR), PATIENT, tick_seconds=15),
    Scenario("step, cold start 300 s, 70B", "", "report", LARGE, 300, HOUR, drawn(step(1.2, 600), LONG, HOUR), PATIENT,
             ceiling=24, tick_seconds=15),
)  # fmt: skip
PASTS = ("adaptive", "static", "hpa-in-flight", "keda-waiting", "llm-d-slo")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


async def backtested(url: str, setting: Setting) -> Backtest:
    """What the backtest says."""
    async with aiohttp.ClientSession() as session:
        server = PrometheusServer(url=url, timeout_seconds=60.0)
        return await study(setting, Patience(Api(server), session), lambda *_: None)


def main() -> None:
    """Every scenario, every past."""
    errors = []
    for scenario in SCENARIOS:
        requests = scenario.requests(None, 1)
        truth = measure_truth(scenario.hardware, lengths_of(requests), scenario.promise, scenario.batch)
        lived = live(scenario, truth, "adaptive", requests)
        say(f"{scenario.name}: live {lived.replica_hours:.2f} replica-hours, short {lived.short_minutes:.1f} min")
        span = Span(BEGIN, BEGIN + scenario.seconds)
        setting = Setting("chat/llama", policy_for(scenario, truth), load_preset("vllm"), "lab", span)
        for policy in PASTS:
            with tempfile.TemporaryDirectory() as scratch:
                past = Past(Path(scratch), scaled_by_us=POLICIES[policy].ours)
                live(scenario, truth, policy, requests, past.watch)
                past.blocks()
                with prometheus_server.serve(Path(scratch), options=["--storage.tsdb.retention.time=10y"]) as server:
                    found = asyncio.run(backtested(server.url, setting)).findings
            error = found.ours.replica_hours / lived.replica_hours - 1
            errors.append(abs(error))
            say(
                f"  past of {policy:14s} ran {found.ran.replica_hours:6.2f} h; backtest "
                f"{found.ours.replica_hours:6.2f} h ({error:+.1%}), short {found.ours.short_minutes:.1f} min"
            )
    median = sorted(errors)[len(errors) // 2]
    say(f"result: median_error={median:.3f} largest_error={max(errors):.3f}")


if __name__ == "__main__":
    main()
