"""The command as it is typed: what it says of what cannot be done, and what it writes where it can."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest
import typer
from typer.testing import CliRunner

from scaler.cli import app
from tests.lab.backtest.remembered import BEGIN, Remembered

A, B = "llama-7d9f8c5b6d-x2kqz", "llama-7d9f8c5b6d-b2kqz"
UNTIL = "2026-06-01T13:00:00Z"  # an hour after the beginning


@dataclass
class Served:
    """A remembered past behind HTTP. ``answer`` may give (status, body) for a request's headers and query instead."""

    past: Remembered
    url: str = ""
    queries: list[str] = field(default_factory=list)
    answer: Callable[[dict[str, str], str], tuple[int, bytes] | None] = lambda headers, query: None


@contextmanager
def serving(past: Remembered) -> Iterator[Served]:
    served = Served(past)

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            query, unix = form["query"][0], float(form.get("time", [str(time.time())])[0])
            served.queries.append(query)
            other = served.answer(dict(self.headers), query)
            status, body = other or (200, asyncio.run(served.past(query, unix)))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    Thread(target=server.serve_forever, daemon=True).start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def hour() -> Remembered:
    """An hour of two replicas that each finish two requests a second."""
    past = Remembered()
    for at in range(15, 3601, 15):
        past.pulse(float(at))
        for pod in (A, B):
            past.scrape(float(at), pod, running=6.0, finished=2.0 * at)
    return past


@pytest.fixture
def served(hour: Remembered) -> Iterator[Served]:
    with serving(hour) as found:
        yield found


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["backtest", *arguments], env={"COLUMNS": "400"})
    return result.exit_code, result.output


def asked(served: Served, *arguments: str, workload: str = "chat/llama") -> tuple[int, str]:
    return invoke("--prometheus", served.url, "--workload", workload, "--range", "1h", "--until", UNTIL, *arguments)


def test_a_backtest_says_what_it_found_and_writes_it(served: Served, tmp_path: Path) -> None:
    html, figures = tmp_path / "page.html", tmp_path / "figures.json"
    code, text = asked(served, "--set", "replicas.max=8", "--html", str(html), "--json", str(figures))
    assert code == 0, text
    for words in ("GPU-hours", "Where latency stands", "What this cannot know", "Next", f"page: {html}"):
        assert words in text
    assert html.read_text(encoding="utf-8").startswith("<!doctype html>")
    document = json.loads(figures.read_text(encoding="utf-8"))
    assert document["gpu_hours"]["ran"] == pytest.approx(2.0, abs=0.05)
    assert "no source" not in text, "a live scaler's way to read is not this command's business"


PRICED = """
workloads:
  chat/llama:
    gpu: {per_replica: 4, hour_price: 2.50, currency: EUR}
    replicas: {max: 8}
"""


def figures_of(served: Served, folder: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    path = folder / "figures.json"
    code, text = asked(served, "--json", str(path), *arguments)
    assert code == 0, text
    return json.loads(path.read_text(encoding="utf-8")), text


def test_the_policy_files_gpus_and_price_are_counted_by(served: Served, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(PRICED, encoding="utf-8")
    found, text = figures_of(served, tmp_path, "--policy", str(policy))
    assert found["gpu_hours"]["ran"] == pytest.approx(8.0, abs=0.2)
    assert found["money"]["ran"] == pytest.approx(2.5 * found["gpu_hours"]["ran"])
    assert found["money"]["loadtide"] == pytest.approx(2.5 * found["gpu_hours"]["loadtide"])
    assert re.search(r"cost +[\d.,]+ EUR +[\d.,]+ EUR", text)
    assert "a replica takes 4 GPUs; a GPU costs 2.5 EUR an hour" in text


def test_what_is_typed_wins_over_the_policy_files_gpus_and_price(served: Served, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(PRICED, encoding="utf-8")
    typed = ("--gpus-per-replica", "0.5", "--gpu-hour-price", "10", "--currency", "CHF")
    found, text = figures_of(served, tmp_path, "--policy", str(policy), *typed)
    assert found["gpu_hours"]["ran"] == pytest.approx(1.0, abs=0.05)
    assert found["money"]["ran"] == pytest.approx(10 * found["gpu_hours"]["ran"])
    assert found["currency"] == "CHF"
    assert "EUR" not in text


def test_a_price_without_a_currency_is_told_without_one(served: Served, tmp_path: Path) -> None:
    found, text = figures_of(served, tmp_path, "--gpu-hour-price", "2")
    assert found["money"]["ran"] == pytest.approx(2 * found["gpu_hours"]["ran"])
    assert found["currency"] is None
    assert "USD" not in text


def test_without_a_price_there_is_no_money(served: Served, tmp_path: Path) -> None:
    found, text = figures_of(served, tmp_path)
    assert found["money"] is None
    assert not re.search(r"^ *cost ", text, re.MULTILINE)


def test_kept_answers_spare_the_server(served: Served, tmp_path: Path) -> None:
    keep = ("--keep", str(tmp_path / "keep"))
    first = asked(served, *keep)
    before = len(served.queries)
    again = asked(served, *keep, "--set", "capacity.sequences=3")
    assert before > 5
    assert len(served.queries) == before
    assert (first[0], again[0]) == (0, 0)
    assert first[1] != again[1], "another policy decides otherwise"


def test_little_data_is_exit_status_1(served: Served) -> None:
    code, text = invoke("--prometheus", served.url, "--workload", "chat/llama", "--range", "6h", "--until", UNTIL)
    assert code == 1
    assert "conclude nothing from this yet" in text
    assert "begin only 2026-06-01 12:00 UTC" in text


def test_an_empty_range_says_so(served: Served) -> None:
    code, text = invoke(
        "--prometheus", served.url, "--workload", "chat/llama", "--range", "1h", "--until", "2026-05-01T00:00:00Z"
    )
    assert code == 2
    assert "the server holds nothing at all between 2026-04-30 23:00 and 2026-05-01 00:00 UTC" in text


def test_a_workload_that_is_not_there_is_told_with_those_that_are(served: Served) -> None:
    code, text = asked(served, workload="chap/llama")
    assert code == 2
    assert 'values of namespace that are there: "chat"' in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--range", "a week"), "'a week' is not a length of time; write for example 7d"),
        (("--until", "soon"), "'soon' is not a time"),
        (("--until", "2199-01-01"), "--until 2199-01-01: lies in the future"),
        (("--set", "replicas.max"), "--set replicas.max: write KEY=VALUE, for example --set replicas.max=12"),
        (("--set", "replicas.maxi=3"), 'did you mean "replicasMax"?'),
        (("--set", "replicas.max=many"), "--set 'replicas.max': 'many' is not allowed"),
        (("--set", "replicas.min=5", "--set", "replicas.max=3"), "max (3) is below min (5)"),
        (("--match", "model_name"), "--match model_name: write KEY=VALUE"),
        (("--match", "bad-label=x"), "'bad-label' is not a label"),
        (("--header", "X-Scope-OrgID"), "--header: write NAME: VALUE"),
        (("--engine", "bard"), "engine 'bard' is not known"),
        (("--currency", ""), "--currency '': write an ISO 4217 code, three capital letters, for example EUR"),
        (("--currency", "e" * 60), "--currency 'eeeeeeee"),
        (("--gpu-hour-price", "inf"), "--gpu-hour-price inf: write what a GPU costs an hour, for example 2.50"),
        (("--basic-user", "me"), "--basic-user and --basic-password-file belong together"),
        (("--policy", "/nowhere/policy.yaml"), "/nowhere/policy.yaml: cannot be read"),
        (("--workload", "llama"), "write namespace/name"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_asked(
    served: Served, arguments: tuple[str, ...], words: str
) -> None:
    code, text = asked(served, *arguments)
    assert code == 2
    assert words.replace("'", '"') in text.replace("'", '"')
    assert served.queries == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9/", "connection refused"),
        ("prometheus:9090", "is not a URL; write for example http://prometheus.monitoring.svc:9090"),
        ("http://me:secret@prometheus:9090", "give them by --basic-user and --basic-password-file"),
        ("http://prometheus:9090/api/v1/query", "leads into the API"),
    ],
)
def test_a_wrong_address_says_what_is_wrong_with_it(url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaler.lab.backtest.asking.WAITS_SECONDS", ())
    code, text = invoke("--prometheus", url, "--workload", "chat/llama")
    assert code == 2
    assert words in text
    assert "Traceback" not in text


def test_no_server_at_all_says_how_to_name_one() -> None:
    code, text = invoke("--workload", "chat/llama")
    assert code == 2
    assert "no server: write --prometheus http://prometheus.monitoring:9090" in text


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"", "--bearer-token-file, --basic-user, or --header"),
        (404, b"not here", "the address is what stands before /api/v1"),
        (200, b"<html>Grafana</html>", "the answer is HTML (a login page?) (the address is what stands before /api/v1"),
        (200, b'{"hello": "world"}', "not of a Prometheus API"),
    ],
)
def test_a_server_that_is_none_or_wants_to_know_who_asks(served: Served, status: int, body: bytes, words: str) -> None:
    served.answer = lambda headers, query: (status, body)
    code, text = asked(served)
    assert code == 2
    assert words in text


def test_reading_that_stops_halfway_says_where_and_how_to_go_on(served: Served, tmp_path: Path) -> None:
    error = b'{"status":"error","errorType":"execution","error":"query processing would load too many samples"}'
    served.answer = lambda headers, query: (422, error) if "running" in query and query.endswith("ms]") else None
    code, text = asked(served)
    assert code == 2
    assert "reading stopped at 2026-06-01 12:00 UTC: HTTP 422: execution: query processing would load too many" in text
    assert "with --keep FOLDER a second run would go on there" in text
    assert "the same command goes on there" in asked(served, "--keep", str(tmp_path))[1]


def test_credentials_are_sent_and_never_shown(served: Served, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret")
    seen: list[dict[str, str]] = []

    def refuse(headers: dict[str, str], _query: str) -> tuple[int, bytes]:
        seen.append(headers)
        return 403, b""

    served.answer = refuse
    _, text = asked(served, "--bearer-token-file", str(token), "--header", "X-Scope-OrgID: chat")
    assert seen[0]["Authorization"] == "Bearer s3cret"
    assert seen[0]["X-Scope-OrgID"] == "chat"
    assert "s3cret" not in text
    asked(served, "--basic-user", "me", "--basic-password-file", str(token))
    assert seen[1]["Authorization"] == "Basic " + base64.b64encode(b"me:s3cret").decode()


POLICY = """
sources:
  main: {{url: "{url}", headers: {{X-Scope-OrgID: chat}}}}
workloads:
  chat/llama:
    prometheus: {{source: main, match: {{namespace: chat, model_name: llama}}}}
    replicas: {{min: 1, max: 6}}
    capacity: {{sequences: 6}}
"""


def test_a_policy_file_names_the_server_the_labels_and_the_bounds(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(url=served.url))
    when = ("--workload", "chat/llama", "--range", "1h", "--until", UNTIL, "--policy", str(path))
    code, text = invoke(*when)
    assert code == 0, text
    assert 'bound by namespace="chat", model_name="llama"' in text
    assert f"policy: {path}; replicas 1 to 6" in text
    assert "as the policy declares" in text
    assert invoke(*when, "--prometheus", "main")[0] == 0
    code, text = invoke(*when, "--prometheus", "mian")
    assert code == 2
    assert "--prometheus mian: neither a URL nor a source of the policy file, which has main" in text


def test_a_file_that_cannot_be_written_is_said(served: Served) -> None:
    code, text = asked(served, "--html", "/nowhere/page.html")
    assert code == 2
    assert "/nowhere/page.html: cannot be written (No such file or directory)" in text
    assert served.queries == [], "said before minutes of reading"


def test_a_file_that_was_written_before_is_left_until_there_is_more_to_write(served: Served, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("last week's")
    served.answer = lambda headers, query: (401, b"")
    assert asked(served, "--html", str(page))[0] == 2
    assert page.read_text() == "last week's"


def test_a_place_where_no_answer_can_be_kept_is_said_with_what_it_is_for(served: Served, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "keep"):
        code, text = asked(served, "--keep", str(place))
        assert code == 2
        assert f"--keep {place}: a file is there already; name a folder for the server's answers" in text
    code, text = asked(served, "--keep", "/proc/loadtide")
    assert code == 2
    assert "--keep /proc/loadtide: nothing can be written there" in text
    assert "name a folder for the server's answers" in text
    assert served.queries == [], "said before minutes of reading"


def test_help_teaches() -> None:
    code, text = invoke("--help")
    assert code == 0
    for words in ("Try it:", "Then:", "Exit status: 0 backtested", "what it cannot know"):
        assert words in " ".join(text.split())


def test_what_the_guide_shows_can_be_typed() -> None:
    text = (Path(__file__).parents[3] / "docs" / "backtest.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = re.findall(r"(?:^ *|`)loadtide ([a-z]+)([^`\n]*)", text, re.MULTILINE)
    assert sum(command == "backtest" for command, _ in shown) >= 3
    for command, arguments in shown:
        known = {option for parameter in commands[command].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", arguments)) <= known
    own = {option for parameter in commands["backtest"].params for option in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= own
    links = re.findall(r"\]\((?!https?://)([^)#]+)", text)
    assert [link for link in links if not (Path(__file__).parents[3] / "docs" / link).exists()] == []


def test_the_past_is_what_the_tests_say(hour: Remembered) -> None:
    assert max(at for samples in hour.series.values() for at, _ in samples) == BEGIN + 3600
