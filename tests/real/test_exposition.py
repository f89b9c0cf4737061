"""Our own /metrics as Prometheus takes it: promtool finds nothing to say, and a real server reads every sample."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import LONG_SECONDS, at_last
from tests.real import prometheus_server
from tests.real.prometheus_server import Target
from tests.running_scaler import KedaPoll, RunningScaler, running_scaler
from tests.serve.test_process import Engine, policy

pytestmark = pytest.mark.real

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def scaler(tmp_path: Path) -> Iterator[RunningScaler]:
    """A scaler with a busy workload."""
    engine = Engine()
    engine.running, engine.waiting = 20, 5
    with running_scaler(tmp_path, *policy(tmp_path, engine, "objectives: {ttft_seconds: 1}")) as scaler:
        keda = KedaPoll(scaler, "chat", "m")
        keda.until(lambda replicas, _: replicas >= 1, LONG_SECONDS, "an answer")
        keda.close()
        yield scaler
    engine.server.shutdown()
    engine.server.server_close()


def read(scaler: RunningScaler, accept: str) -> str:
    request = urllib.request.Request(f"http://{scaler.http}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def test_promtool_finds_nothing_to_say(prometheus: str, scaler: RunningScaler) -> None:
    text = read(scaler, "text/plain")
    promtool = prometheus_server.binary("promtool")
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_a_real_prometheus_asks_for_openmetrics_and_reads_every_sample(
    prometheus: str, scaler: RunningScaler, tmp_path: Path
) -> None:
    def samples(accept: str) -> int:
        return sum(not line.startswith("#") for line in read(scaler, accept).splitlines())

    assert read(scaler, OPENMETRICS).endswith("# EOF\n")
    with prometheus_server.serve(tmp_path / "prometheus", [Target(scaler.http, {})]) as server:

        def all_is_read() -> None:
            told = server.wait_for("loadtide_signal_status == 1")
            assert {series["metric"]["workload"] for series in told} == {"m"}
            [scraped] = server.wait_for("scrape_samples_scraped")
            # Samples come and go between two reads (a suppressed move, a counter's first step), but none by the dozen.
            for accept in ("text/plain", OPENMETRICS):
                assert abs(float(scraped["value"][1]) - samples(accept)) <= 12

        at_last(all_is_read)
