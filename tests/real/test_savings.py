"""Savings and a season's backfill on a real Prometheus, with a past whose truth the lab knows.

Four hours of a day are played under our policy. What two scalers would have told of each tick is in the storage, as
their exporter writes it, beside the engines' own pages; and an HPA has been played on the same requests.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.control.decide import decide
from scaler.control.model import Now
from scaler.lab.contest import initial_replicas, measured_truth, play
from scaler.lab.ours import Ours
from scaler.lab.policies import POLICIES, Case
from scaler.lab.scenarios import SCENARIOS
from scaler.lab.simulate import BEGIN_UTC, Wish, World, simulate
from scaler.policy.model import SLOT_SECONDS, Policy, Prometheus
from scaler.policy.prometheus import PrometheusServer
from scaler.policy.texts import Texts
from scaler.serve.exporter import WorkloadCollector
from scaler.serve.season_backfill import arrivals_query, read_rates
from scaler.signals.model import Signals
from scaler.signals.preset import load_preset
from scaler.signals.prometheus.api import Api
from tests.real import prometheus_server
from tests.real.prometheus_server import Server, binary
from tests.real.recorded_past import BLOCK_SECONDS, Past
from tests.serve.tide import FakeWorkloads, snapshot

pytestmark = pytest.mark.real

SCENARIO = SCENARIOS["price-peak"]
UNTIL = "2026-06-01T04:00:00Z"
TOLD = ("loadtide_desired", "loadtide_replicas_", "loadtide_capacity_seq", "loadtide_gpu", "loadtide_signal{")


@dataclass
class Recording(Ours):
    """Our policy, and the lines that two scalers' exporters would have told at every minute."""

    lines: dict[int, list[str]] = field(default_factory=dict)

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
        before = self.memory
        wish = super().tick(signals, now, asked)
        if int(now.utc.timestamp()) % 30 == 0:
            workloads = FakeWorkloads()
            again = decide(self.policy, before, signals, now)
            workloads.add("chat/llama", snapshot("chat/llama", policy=self.policy, signals=signals, decided_at=now))
            told = workloads.get("chat/llama")
            assert told is not None
            assert told.snapshot is not None
            object.__setattr__(told.snapshot, "decision", again)
            registry = CollectorRegistry()
            registry.register(WorkloadCollector(workloads))
            self._keep(generate_latest(registry).decode(), now.utc.timestamp())
        return wish

    def _keep(self, page: str, unix: float) -> None:
        block = self.lines.setdefault(int(unix // BLOCK_SECONDS), [])
        for line in page.splitlines():
            if line.startswith(TOLD):
                name, _, value = line.rpartition(" ")
                for scaler in ("a", "b"):
                    block.append(f'{name[:-1]},instance="{scaler}",job="loadtide"}} {value} {unix:.3f}')


@dataclass(frozen=True)
class Played:
    """The server, what was taken and spent live, and what an HPA took live."""

    server: Server
    gpu_hours: float
    money: float
    hpa_hours: float
    requests: int


@pytest.fixture(scope="module")
def played(prometheus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("savings")
    truth, requests = measured_truth(SCENARIO, None), SCENARIO.requests(None, 1)
    built, enactor = POLICIES["adaptive"].build(Case(SCENARIO, truth, 1.0, requests))
    assert isinstance(built, Ours)
    ours, engines = Recording("adaptive", built.policy), Past(folder)
    world = World(
        SCENARIO.hardware, SCENARIO.cold_start_seconds, SCENARIO.batch,
        initial_replicas=initial_replicas(SCENARIO, requests, truth), tick_seconds=SCENARIO.tick_seconds,
    )  # fmt: skip
    simulate(requests, ours, enactor, world, seconds=SCENARIO.seconds, seed=1, watch=engines.watch)
    hpa = play(SCENARIO, "hpa-in-flight", requests, truth, 1.0, 1).run
    data = engines.blocks()
    for number, lines in ours.lines.items():
        source = folder / f"ours-{number}.om"
        source.write_text("\n".join([*lines, "# EOF", ""]), encoding="utf-8")
        run = [binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", "-q", str(source), str(data)]
        subprocess.run(run, check=True, capture_output=True)
    tick = SCENARIO.tick_seconds / 3600 * SCENARIO.hardware.gpus
    with prometheus_server.serve(folder, options=["--storage.tsdb.retention.time=10y"]) as server:
        yield Played(
            server,
            ours.memory.bill.gpu_hours,
            ours.memory.bill.money,
            sum(moment.asked for moment in hpa.timeline) * tick,
            len(requests),
        )


def test_hours_and_money_are_those_that_were_counted_live_and_the_hpa_is_near_the_one_played(
    played: Played, tmp_path: Path
) -> None:
    out = tmp_path / "figures.json"
    arguments = ["--prometheus", played.server.url, "--range", "4h", "--until", UNTIL, "--json", str(out)]
    result = CliRunner().invoke(app, ["savings", *arguments])
    assert result.exit_code == 0, result.output
    (found,) = json.loads(out.read_text())["workloads"]
    assert found["workload"] == "chat/llama"
    assert found["currency"] == "USD"
    assert found["known_hours"] == pytest.approx(4.0, abs=0.1)
    assert found["loadtide"]["gpu_hours"] == pytest.approx(played.gpu_hours, rel=0.02)
    assert found["loadtide"]["money"] == pytest.approx(played.money, rel=0.02)
    assert found["plain_hpa"]["gpu_hours"] == pytest.approx(played.hpa_hours, rel=0.08)
    assert found["always_on"]["gpu_hours"] > found["loadtide"]["gpu_hours"]


def test_the_arrivals_of_a_past_are_read_by_the_engines_own_counter(played: Played) -> None:
    policy = Policy(
        prometheus=Prometheus(source="main", match=Texts({"namespace": "chat", "model_name": "meta/llama"}))
    )
    query = arrivals_query(policy, load_preset("vllm"))
    end = BEGIN_UTC.timestamp() + 4 * 3600

    async def asked() -> bytes:
        async with aiohttp.ClientSession() as session:
            api = Api(PrometheusServer(url=played.server.url, timeout_seconds=30.0))
            return await api.fetch(session, f"({query})[2419200s:{SLOT_SECONDS}s]", unix=end)

    rates = read_rates(asyncio.run(asked()))
    assert len(rates) >= 15
    assert sum(rates.values()) * SLOT_SECONDS == pytest.approx(played.requests, rel=0.1)
    assert datetime.fromtimestamp(min(rates), UTC) >= BEGIN_UTC
