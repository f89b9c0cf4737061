"""Secrets planted wherever one may stand, and searched for wherever something is told or written down.

A real process: its log, its pages, its metrics, its refusals and its state file are read as others would read them.
"""

from __future__ import annotations

import itertools
import json
import logging
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from scaler.policy.metadata import is_whole, storable
from scaler.process.logs import LIBRARY_LINES, LIBRARY_SECONDS, LibraryLogs
from scaler.serve.externalscaler_pb2 import ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub
from tests.running_scaler import KedaPoll, RunningScaler, running_scaler

#: No two alike, and none a part of anything else.
WORDS = (f"hush{number:03}x" for number in itertools.count())
PAGE = b"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nprocess_start_time_seconds 1.7e9\n"


@pytest.fixture
def engine() -> Iterator[str]:
    """An engine at ``host:port`` that answers only who shows a user and a password."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization", "").startswith("Basic ")
            self.send_response(200 if known else 401)
            self.end_headers()
            self.wfile.write(PAGE if known else b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


class Planted:
    """The secrets handed out so far."""

    def __init__(self) -> None:
        self.secrets: list[str] = []

    def secret(self) -> str:
        self.secrets.append(next(WORDS))
        return self.secrets[-1]

    def found_in(self, text: str) -> list[str]:
        return [secret for secret in self.secrets if secret in text]


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return once ``true()`` is; fail the test after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def told(scaler: RunningScaler, names: list[str]) -> dict[str, str]:
    """Everything that the process tells anybody, by where it tells it."""
    said = {path: scaler.text(path) for path in ("/", "/page/page.js", "/metrics", "/v1/workloads")}
    for name in names:
        for path in (f"/v1/workloads/{name}", f"/v1/workloads/{name}/target", f"/v1/workloads/{name}/decisions"):
            try:
                said[path] = scaler.text(path)
            except urllib.error.HTTPError as error:
                said[path] = error.read().decode()
    return said


def refusals(scaler: RunningScaler, metadata: dict[str, str]) -> str:
    """What KEDA is told when it calls with this metadata."""
    with grpc.insecure_channel(scaler.grpc) as channel:
        stub = ExternalScalerStub(channel)
        ref = ScaledObjectRef(namespace="chat", name="refused", scalerMetadata=metadata)
        texts = []
        for call in (stub.GetMetricSpec, stub.IsActive):
            try:
                call(ref, timeout=60)
                texts.append("answered")
            except grpc.RpcError as error:
                texts.append(str(error.details()) + repr(error.trailing_metadata()))  # type: ignore[attr-defined]
    return "\n".join(texts)


def pushed(scaler: RunningScaler, token: str, name: str) -> str:
    request = urllib.request.Request(
        f"http://{scaler.http}/v1/workloads/{name}/wake", method="POST", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode()) + str(error.headers)


def test_no_secret_is_told_or_written_down(engine: str, tmp_path: Path) -> None:
    planted = Planted()
    secret = planted.secret
    policy, database, token = tmp_path / "policy.yaml", tmp_path / "memory.db", secret()
    policy.write_text(
        json.dumps(
            {
                "tenancy": {"metadata_urls": "allow", "metadata_queries": "allow"},
                "sources": {
                    "main": {
                        "url": "http://127.0.0.1:1",
                        "bearer_token": secret(),
                        "headers": {"X-Scope-OrgID": secret()},
                    }
                },
                "workloads": {
                    "chat/good": {
                        "scrape": {"urls": [f"http://{secret()}:{secret()}@{engine}/metrics?key={secret()}"]},
                        "push": {"enabled": True},
                    },
                    "chat/failing": {"scrape": {"urls": [f"http://u:{secret()}@127.0.0.1:1/metrics"]}},
                    "chat/asked": {"prometheus": {"source": "main", "match": {"namespace": "chat"}}},
                },
            }
        )
    )
    called = {
        "scrapeUrlsFromEnv": f"http://{secret()}:{secret()}@{engine}/metrics?token={secret()}#{secret()}",
        "apiTokenFromEnv": secret(),
        "tlsClientKey": secret(),
        "caCert": secret(),
        "replicasMax": "3",
    }
    refused: list[dict[str, str]] = [
        {"replicasMaxFromEnv": secret()},
        {"engineFromEnv": secret()},
        {"policyFromEnv": secret()},
        {"strategyFromEnv": secret()},
        {"scrapeUrlsFromEnv": secret()},
        {"scrapeDnsFromEnv": f"{secret()} {secret()}"},
        {"jumpRowsFromEnv": f"[{{rate_at_least: 1, {secret()}: 2}}]"},
        {"warmWindowsFromEnv": f"[{secret()}"},
        {"warmWindowsFromEnv": f'[{{start: "08:00", end: "09:00", zone: {secret()}}}]'},
        {"prometheusSourceFromEnv": secret()},
        {"replicasMinFromEnv": "73195", "replicasMax": "3"},
    ]
    arguments = ("--policy", str(policy), "--store", str(database), "--tick-seconds", "0.2", "--log-level", "debug")
    names = ["chat/good", "chat/failing", "chat/asked", "chat/called"]
    with running_scaler(tmp_path, *arguments, environment={"LOADTIDE_TOKEN": token}) as scaler:
        keda = KedaPoll(scaler, "chat", "called", called)
        keda.until(lambda replicas, _: replicas >= 1, 60, "an answer for the workload with a secret address")
        keda.close()
        answers = {str(sorted(metadata)): refusals(scaler, metadata) for metadata in refused}
        answers["a wrong token"] = pushed(scaler, secret(), "chat/good")
        answers["the right token"] = pushed(scaler, token, "chat/good")
        for wrong in (
            {"workloads": {"chat/a": {"scrape": {"urls": [f"ftp://u:{secret()}@h/m?{secret()}"]}}}},
            {"sources": {"main": {"url": "http://h", "bearer_token": [secret()]}}},
            {"sources": {"main": {"url": f"http://u:{secret()}@h:1", "headers": {"a": [secret()]}}}},
        ):
            before = len(scaler.lines("policy file refused, the one before stays in force"))
            policy.write_text(json.dumps(wrong))
            until(lambda: len(scaler.lines("policy file refused, the one before stays in force")) > before)  # noqa: B023
        said = told(scaler, names) | answers
        log = scaler.log
    said["log"] = log.read_text()
    assert "accepted" in answers["the right token"]
    assert all("answered" not in answer for name, answer in answers.items() if "FromEnv" in name)
    assert '"ok": true' in said["/v1/workloads/chat/called"], "the engine was read with the secret address"
    leaked = {where: found for where, text in said.items() if (found := planted.found_in(text))}
    assert not leaked
    assert "73195" not in "".join(answers.values())
    _state_is_clean(database, planted)


def _state_is_clean(database: Path, planted: Planted) -> None:
    """The file holds memories and what the metadata says of the policy, and no secret in any of its parts."""
    with sqlite3.connect(database) as connection:
        rows = dict(connection.execute("SELECT name, body FROM workload"))
    connection.close()
    assert json.loads(rows["chat/called"])["metadata"] == {"scrapeUrlsFromEnv": "", "replicasMax": "3"}
    for part in database.parent.glob(f"{database.name}*"):
        assert not planted.found_in(part.read_bytes().decode("latin-1")), part


def test_a_workload_whose_metadata_was_withheld_waits_for_its_next_call(engine: str, tmp_path: Path) -> None:
    """Its memory is there when the call comes; until then nothing is decided from half a policy."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("tenancy: {metadata_urls: allow}\n")
    arguments = ("--policy", str(policy), "--store", str(tmp_path / "memory.db"), "--tick-seconds", "0.2")
    metadata = {"scrapeUrlsFromEnv": f"http://u:p@{engine}/metrics", "replicasMax": "3"}
    with running_scaler(tmp_path, *arguments) as scaler:
        keda = KedaPoll(scaler, "chat", "m", metadata)
        keda.until(lambda replicas, _: replicas >= 1, 60, "an answer")
        keda.close()
    with running_scaler(tmp_path, *arguments, name="again") as scaler:
        assert scaler.get("/v1/workloads")["workloads"] == []
        keda = KedaPoll(scaler, "chat", "m", metadata)
        keda.until(lambda replicas, _: replicas >= 1, 60, "an answer")
        keda.close()
        assert [line["workload"] for line in scaler.lines("workload restored")] == ["chat/m"]
        assert not scaler.lines("workload metadata changed")


class TestStorable:
    def test_keeps_what_says_something_of_the_policy(self) -> None:
        metadata = {
            "replicasMax": " 3 ",
            "scalerAddress": "a:1",
            "caCert": "x",
            "typo": "y",
            "empty": "",
            "engine": "vllm",
        }
        assert storable(metadata) == {"replicasMax": "3", "engine": "vllm"}
        assert is_whole(storable(metadata))

    def test_withholds_what_came_from_the_environment_and_says_so(self) -> None:
        kept = storable({"engineFromEnv": "vllm", "apiTokenFromEnv": "x", "replicasMax": "3"})
        assert kept == {"engineFromEnv": "", "replicasMax": "3"}
        assert not is_whole(kept)


class TestLibraryLogs:
    def test_are_lines_of_ours_without_a_traceback_and_few(self) -> None:
        seconds = 0.0
        library = logging.getLogger("grpc.made.up")
        handler = LibraryLogs(lambda: seconds)
        library.addHandler(handler)
        library.propagate = False
        try:
            with capture_logs() as lines:
                for _ in range(LIBRARY_LINES + 5):
                    try:
                        raise ValueError("x" * 10_000)
                    except ValueError:
                        library.exception("it went wrong")
                seconds = LIBRARY_SECONDS + 1
                library.warning("later")
        finally:
            library.removeHandler(handler)
        assert len(lines) == LIBRARY_LINES + 2
        assert lines[0]["said"] == "it went wrong"
        assert len(lines[0]["problem"]) == 500
        assert lines[-2] == {"event": "a library said more", "library": "grpc", "left_out": 5, "log_level": "warning"}
        assert lines[-1]["said"] == "later"
