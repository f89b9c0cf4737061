"""``loadtide savings`` as it is typed, against a server of canned minutes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest
from typer.testing import CliRunner

from scaler.cli import app

UNTIL = "2026-06-08T00:00:00Z"
Values = Callable[[float], float | None]


@dataclass
class Fake:
    """Answers the one query: each series' value by Unix seconds. ``status`` and ``body`` in its place."""

    url: str = ""
    series: list[tuple[dict[str, str], Values]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    status: int = 200
    body: bytes = b""

    def add(self, name: str, value: Values | float, workload: str = "llama", **labels: str) -> None:
        told = value if callable(value) else lambda _: float(value)
        own = {"__name__": f"loadtide_{name}", "namespace": "chat", "workload": workload, **labels}
        self.series.append((own, told))

    def answer(self, query: str, unix: float) -> bytes:
        seconds, step = (int(part) / 1000 for part in re.findall(r"(\d+)ms", query))
        times = [unix - seconds + step * index for index in range(int(seconds / step) + 1)]
        result: list[dict[str, Any]] = []
        for labels, value in self.series:
            values = [[at, str(value(at))] for at in times if value(at) is not None]
            if values:
                result.append({"metric": labels, "values": values})
        document = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        return json.dumps(document, separators=(",", ":")).encode()


@pytest.fixture
def fake() -> Iterator[Fake]:
    found = Fake()

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            found.queries.append(form["query"][0])
            body = found.body or found.answer(form["query"][0], float(form["time"][0]))
            self.send_response(found.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def days(fake: Fake) -> Fake:
    """Two workloads: one follows office hours, of the other only replicas are known."""

    def busy(at: float) -> bool:
        return 9 <= at % 86_400 / 3600 < 17

    fake.add("desired_replicas", lambda at: 4.0 if busy(at) else 0.0)
    fake.add("signal", lambda at: 36.0 if busy(at) else None, signal="running")
    fake.add("signal", lambda at: 0.0 if busy(at) else None, signal="waiting")
    fake.add("capacity_sequences", 10.0)
    fake.add("gpus_per_replica", 2.0)
    fake.add("gpu_hour_price", 3.0, currency="EUR")
    fake.add("replicas_floor", 0.0)
    fake.add("desired_replicas", 1.0, workload="embed")
    return fake


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["savings", *arguments], env={"COLUMNS": "300"})
    return result.exit_code, " ".join(result.output.split())


def asked(fake: Fake, *arguments: str) -> tuple[int, str]:
    return invoke("--prometheus", fake.url, "--until", UNTIL, *arguments)


def test_it_tells_hours_and_money_of_every_workload_and_what_it_assumes(days: Fake) -> None:
    code, text = asked(days, "--range", "2d")
    assert code == 0
    assert "chat/llama loadtide 128.0 384.00 EUR always on, 4 replicas 384.0 1,152.00 EUR 67%, 768.00 EUR" in text
    assert re.search(r"plain HPA, from 1 19\d\.\d 5\d\d\.\d\d EUR 3\d%", text)
    assert "chat/embed loadtide 48.0 always on, 1 replica 48.0 0%" in text
    assert "chat/embed: no plain HPA: its requests in flight" in text
    assert "always on: the most replicas asked for in the span" in text
    assert "latency is not compared" in text


def test_one_workload_a_price_and_gpus_of_ones_own_and_the_figures_as_json(days: Fake, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    code, _ = asked(
        days, "--range", "1d", "--workload", "chat/embed", "--gpu-hour-price", "2.5", "--currency", "USD",
        "--gpus-per-replica", "4", "--json", str(out),
    )  # fmt: skip
    assert code == 0
    (found,) = json.loads(out.read_text())["workloads"]
    assert found["loadtide"] == {"gpu_hours": pytest.approx(96.0), "money": pytest.approx(240.0)}
    assert (found["currency"], found["plain_hpa"], found["known_hours"]) == ("USD", None, pytest.approx(24.0))


def test_a_day_is_one_query_and_labels_narrow_it(days: Fake) -> None:
    asked(days, "--range", "3d", "--match", "cluster=eu-1")
    assert len(days.queries) == 3
    assert all(',cluster="eu-1"' in query and query.endswith("[86400000ms:60000ms]") for query in days.queries)


def test_little_of_the_range_recorded_is_exit_status_1(fake: Fake) -> None:
    began = 1_780_876_800.0 - 7200
    fake.add("desired_replicas", lambda at: 1.0 if at >= began else None)
    code, text = asked(fake, "--range", "1d")
    assert code == 1
    assert "only 2.0 of 24.0 hours were recorded" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no server: write --prometheus http://prometheus.monitoring:9090"),
        (["--prometheus", "prod"], "--prometheus prod: "),
        (["--prometheus", "http://127.0.0.1:9", "--range", "soon"], "'soon' is not a length of time"),
        (["--prometheus", "http://127.0.0.1:9", "--until", "2999-01-01"], "lies in the future"),
        (["--currency", ""], "--currency '': write an ISO 4217 code, three capital letters, for example EUR"),
        (["--currency", "euro"], "--currency 'euro': "),
        (["--currency", "EUR\n"], "--currency 'EUR\\n': "),
        (["--gpu-hour-price", "inf"], "--gpu-hour-price inf: write what a GPU costs an hour, for example 2.50"),
        (
            ["--prometheus", "https://p:9090", "--cert-file", "own.pem"],
            "cert_file and key_file belong together; write both",
        ),
    ],
)
def test_what_cannot_be_meant_is_said(arguments: list[str], says: str) -> None:
    code, text = invoke(*arguments)
    assert code == 2
    assert says in text


def test_a_workload_that_was_not_recorded_is_told_with_those_that_were(days: Fake) -> None:
    code, text = asked(days, "--range", "1d", "--workload", "chat/nobody")
    assert code == 2
    assert "chat/nobody: was not recorded in that range; there are chat/embed, chat/llama" in text


def test_a_server_that_has_nothing_of_ours_or_refuses(fake: Fake) -> None:
    code, text = asked(fake, "--range", "1d")
    assert code == 2
    assert "is /metrics of `loadtide serve` scraped there" in text
    fake.status, fake.body = 401, b"{}"
    code, text = asked(fake, "--range", "1d")
    assert code == 2
    assert "give credentials: --bearer-token-file" in text


def test_help_teaches() -> None:
    _, text = invoke("--help")
    for word in ("--range 30d", "plain HPA", "gpu.hour_price", "Exit status"):
        assert word in text
