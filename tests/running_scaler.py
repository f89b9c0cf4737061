"""A ``loadtide serve`` process of the test's own, and a client that calls it as KEDA does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from scaler.serve.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub

#: Seen: 1 s; 40 s beside an engine that is at work on both cores.
START_SECONDS = 180.0
#: For one answer of its HTTP. How soon it comes is measured elsewhere: a busy machine may stop a process for seconds.
ANSWER_SECONDS = 30.0


@dataclass
class RunningScaler:
    """One process; ``log`` is where its JSON lines go."""

    process: subprocess.Popen[bytes]
    log: Path
    grpc: str
    http: str

    def get(self, path: str) -> Any:
        """A JSON document of the API."""
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=ANSWER_SECONDS) as answer:
            return json.load(answer)

    def text(self, path: str) -> str:
        """A text document, as /metrics."""
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=ANSWER_SECONDS) as answer:
            return str(answer.read().decode())

    def post(self, path: str, body: object, token: str) -> int:
        """Push demand; the HTTP status."""
        request = urllib.request.Request(
            f"http://{self.http}{path}",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return int(answer.status)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        return said(self.log, event)

    def kill(self) -> None:
        """SIGKILL: what an out-of-memory kill or a lost node looks like."""
        self.process.kill()
        self.process.wait(ANSWER_SECONDS)


def said(log: Path, event: str, began: int = 0) -> list[dict[str, Any]]:
    """The JSON lines of one event that are whole, from byte ``began`` of ``log`` on."""
    lines = log.read_bytes()[began:].rpartition(b"\n")[0].splitlines()
    found = [json.loads(line) for line in lines if line.startswith(b"{")]
    return [line for line in found if line["event"] == event]


@contextmanager
def running_scaler(
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    name: str = "scaler",
    program: Sequence[str] = (sys.executable, "-m", "scaler"),
) -> Iterator[RunningScaler]:
    """Start ``loadtide serve`` on free ports of the loopback and wait until its first round of ticks is done."""
    log = folder / f"{name}.log"
    command = [*program, "serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", *arguments]
    with log.open("ab") as sink:
        began = sink.tell()
        process = subprocess.Popen(command, stderr=sink, stdout=sink, env={**os.environ, **(environment or {})})
    try:
        yield _when_ready(process, log, began)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(ANSWER_SECONDS)


def _when_ready(process: subprocess.Popen[bytes], log: Path, began: int) -> RunningScaler:
    deadline = time.monotonic() + START_SECONDS
    scaler: RunningScaler | None = None
    while time.monotonic() < deadline:
        assert process.poll() is None, f"loadtide serve ended with {process.returncode}:\n{log.read_text()}"
        if scaler is None:
            for line in said(log, "serving", began):
                scaler = RunningScaler(process, log, line["grpc"], line["http"])
        else:
            try:
                scaler.text("/readyz")
                return scaler
            except OSError:
                pass
        time.sleep(0.05)
    raise AssertionError(f"loadtide serve was not ready within {START_SECONDS:g} s:\n{log.read_text()}")


@dataclass
class KedaPoll:
    """KEDA's poll of one ScaledObject: GetMetricSpec, GetMetrics, IsActive, over one lasting connection."""

    scaler: RunningScaler
    namespace: str
    name: str
    metadata: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._channel = grpc.insecure_channel(self.scaler.grpc)
        self._stub = ExternalScalerStub(self._channel)
        self._ref = ScaledObjectRef(name=self.name, namespace=self.namespace, scalerMetadata=self.metadata)

    def close(self) -> None:
        """Let the connection go."""
        self._channel.close()

    def poll(self) -> tuple[float, bool]:
        """(replicas asked for, active), as one check of KEDA sees them. Raises grpc.RpcError as KEDA would get it."""
        spec = self._stub.GetMetricSpec(self._ref)
        [metric] = spec.metricSpecs
        answer = self._stub.GetMetrics(GetMetricsRequest(scaledObjectRef=self._ref, metricName=metric.metricName))
        [value] = answer.metricValues
        return value.metricValueFloat / metric.targetSizeFloat, self._stub.IsActive(self._ref).result

    def until(self, wanted: Any, seconds: float, what: str) -> tuple[float, bool]:
        """Poll until ``wanted(replicas, active)``; fails the test after ``seconds``. A call that is refused with
        UNAVAILABLE is one KEDA makes again.
        """
        deadline = time.monotonic() + seconds
        seen: list[Any] = []
        while time.monotonic() < deadline:
            try:
                answer = self.poll()
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:  # type: ignore[attr-defined]
                    raise
                seen.append("UNAVAILABLE")
            else:
                if wanted(*answer):
                    return answer
                seen.append(answer)
            time.sleep(0.2)
        raise AssertionError(f"not within {seconds:g} s: {what}; the last answers were {seen[-10:]}")
