"""A Prometheus for the tests that remembers what it is given and answers the shapes of query a backtest asks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Noon of a Sunday: a whole number of every part and tick.
BEGIN = 1_780_315_200.0
_NAMES = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+) (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_MATCHER = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)(=~|!=|=)"((?:[^"\\]|\\.)*)"')
_LOOKBACK_SECONDS = 300.0

Labels = tuple[tuple[str, str], ...]


@dataclass
class Remembered:
    """Series by their labels, samples in order of time. ``asked`` are the queries so far, ``refuse`` gives what
    is raised in place of an answer.
    """

    series: dict[Labels, list[tuple[float, float]]] = field(default_factory=dict)
    asked: list[tuple[str, float]] = field(default_factory=list)
    refuse: Callable[[str, float], Exception | None] = lambda query, unix: None
    partial: str = ""

    def add(self, name: str, labels: Mapping[str, str], at: float, value: float) -> None:
        """One sample, ``at`` seconds after the beginning."""
        key = tuple(sorted({"__name__": name, **labels}.items()))
        self.series.setdefault(key, []).append((BEGIN + at, value))

    def scrape(
        self, at: float, pod: str, *, namespace: str = "chat", job: str = "vllm", up: bool = True, **numbers: float
    ) -> None:
        """One scrape of a vLLM: ``running``, ``waiting``, ``finished`` so far, the seconds each request took to its
        ``first`` token and per ``token``, and when the process ``started`` (seconds after the beginning).
        """
        where = {"namespace": namespace, "pod": pod, "instance": f"{pod}:8000", "job": job}
        self.add("up", where, at, float(up))
        if not up:
            return
        own = {**where, "engine": "0", "model_name": "llama"}
        finished = numbers.get("finished", 0.0)
        for name, value in (
            ("num_requests_running", numbers.get("running", 0.0)),
            ("num_requests_waiting", numbers.get("waiting", 0.0)),
            ("kv_cache_usage_perc", numbers.get("kv", 0.1)),
            ("prompt_tokens_total", 100 * finished),
            ("generation_tokens_total", 100 * finished),
        ):
            self.add(f"vllm:{name}", own, at, value)
        self.add("vllm:request_success_total", {**own, "finished_reason": "stop"}, at, finished)
        first, token = numbers.get("first", 0.1), numbers.get("token", 0.01)
        for name, seconds, bounds in (
            ("time_to_first_token_seconds", first, (0.05, 0.2, 0.5, 1.0, 5.0)),
            ("request_time_per_output_token_seconds", token, (0.005, 0.02, 0.05, 0.1)),
            ("e2e_request_latency_seconds", first + 100 * token, (1.0, 10.0)),
            ("request_queue_time_seconds", numbers.get("queued", 0.0), (1.0,)),
            ("request_prefill_time_seconds", first, (1.0,)),
            ("request_decode_time_seconds", 100 * token, (1.0,)),
            ("request_prompt_tokens", 100.0, (1000.0,)),
            ("request_generation_tokens", 100.0, (1000.0,)),
        ):
            for bound in bounds:
                count = finished if seconds <= bound else 0.0
                self.add(f"vllm:{name}_bucket", {**own, "le": f"{bound}"}, at, count)
            self.add(f"vllm:{name}_bucket", {**own, "le": "+Inf"}, at, finished)
            self.add(f"vllm:{name}_sum", own, at, seconds * finished)
            self.add(f"vllm:{name}_count", own, at, finished)
        self.add("process_start_time_seconds", where, at, BEGIN + numbers.get("started", -86_400.0))

    def pulse(self, at: float) -> None:
        """A scrape of somebody else: the server is there."""
        self.add("up", {"job": "prometheus", "instance": "localhost:9090"}, at, 1.0)

    def load(self, text: str) -> None:
        """OpenMetrics lines with time stamps."""
        for line in text.splitlines():
            if (found := _NAMES.match(line)) is not None:
                labels = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _LABEL.findall(found[2] or "")}
                self.add(found[1], labels, float(found[4]) - BEGIN, float(found[3]))

    async def __call__(self, query: str, unix: float) -> bytes:
        """The body that answers an instant query."""
        self.asked.append((query, unix))
        if (said := self.refuse(query, unix)) is not None:
            raise said
        kind, result = self._answer(query, unix)
        document: dict[str, Any] = {"status": "success", "data": {"resultType": kind, "result": result}}
        if self.partial:
            document["warnings"] = [self.partial]
        return json.dumps(document, separators=(",", ":")).encode()

    def _answer(self, query: str, unix: float) -> tuple[str, list[dict[str, Any]]]:
        if (found := re.fullmatch(r"(\{.*\})\[(\d+)ms\]", query)) is not None:
            since = unix - int(found[2]) / 1000
            chosen = ((labels, _between(samples, since, unix)) for labels, samples in self._select(found[1]))
            return "matrix", [
                {"metric": dict(labels), "values": [[at, _text(value)] for at, value in samples]}
                for labels, samples in chosen
                if samples
            ]
        if (found := re.fullmatch(r"\((.*)\)\[(\d+)ms:(\d+)ms\]", query)) is not None:
            step, since = int(found[3]) / 1000, unix - int(found[2]) / 1000
            at, values = (since // step) * step, []
            while at <= unix:
                rows = self._instant(found[1], at)
                values += [[at, _text(rows[0][1])]] if rows else []
                at += step
            return "matrix", [{"metric": {}, "values": values}] if values else []
        return "vector", [
            {"metric": dict(labels), "value": [unix, _text(value)]} for labels, value in self._instant(query, unix)
        ]

    def _instant(self, query: str, unix: float) -> list[tuple[Labels, float]]:
        if (found := re.fullmatch(r"count(?: by \((\w+)\))? ?\((.*)\)", query)) is not None:
            groups: dict[Labels, float] = {}
            for labels, _ in self._instant(found[2], unix):
                kept = tuple(item for item in labels if item[0] == found[1])
                groups[kept] = groups.get(kept, 0.0) + 1.0
            return list(groups.items())
        if (found := re.fullmatch(r"(sum|min)\((.*)\)", query)) is not None:
            values = [value for _, value in self._instant(found[2], unix)]
            return [((), sum(values) if found[1] == "sum" else min(values))] if values else []
        rows: dict[Labels, float] = {}
        for part in re.split(r" or ", query):
            seconds = _LOOKBACK_SECONDS
            if (over := re.fullmatch(r"last_over_time\((.*)\[(\d+)(ms|s)\]\)", part)) is not None:
                part, seconds = over[1], int(over[2]) / (1000 if over[3] == "ms" else 1)
            for labels, samples in self._select(part):
                if recent := _between(samples, unix - seconds, unix):
                    rows.setdefault(labels, recent[-1][1])
        return list(rows.items())

    def _select(self, selector: str) -> Iterable[tuple[Labels, list[tuple[float, float]]]]:
        name, _, inner = selector.partition("{")
        matchers = [(key, sign, re.sub(r"\\(.)", r"\1", text)) for key, sign, text in _MATCHER.findall(inner)]
        if name:
            matchers.append(("__name__", "=", name))
        for labels, samples in self.series.items():
            values = dict(labels)
            if all(_matches(values.get(key, ""), sign, text) for key, sign, text in matchers):
                yield labels, samples


def _matches(value: str, sign: str, text: str) -> bool:
    match sign:
        case "=":
            return value == text
        case "!=":
            return value != text
        case _:
            return re.fullmatch(text, value) is not None


def _between(samples: list[tuple[float, float]], since: float, until: float) -> list[tuple[float, float]]:
    return [(at, value) for at, value in samples if since <= at <= until]


def _text(value: float) -> str:
    return "NaN" if value != value else "+Inf" if value == float("inf") else f"{value:.17g}"


def of_folder(folder: Path) -> Remembered:
    """What a recorded past (``tests/real/recorded_past.py``) wrote, before it became blocks."""
    server = Remembered()
    for path in sorted(folder.glob("block-*.om")):
        server.load(path.read_text())
    return server
