"""A stand-in for a Prometheus' HTTP API: answers the queries of a round from a list of series, or as a test says.

It understands no PromQL but the shapes that :mod:`scaler.signals.prometheus.plan` writes; ``tests/real`` has the real
one.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

#: The server's clock, Unix seconds: nobody else's.
UNIX = 1_760_000_300.0


@dataclass
class Series:
    """One series: its labels, value, and when it was scraped, seconds before the server's now."""

    name: str
    labels: Mapping[str, str]
    value: float | str
    age: float = 1.0


@dataclass
class FakePrometheus:
    """The API at ``url``. ``respond`` may answer a query otherwise (None: as usual); ``forms`` is what was asked."""

    series: list[Series] = field(default_factory=list)
    unix: float = UNIX
    warnings: tuple[str, ...] = ()
    respond: Callable[[str], Awaitable[web.StreamResponse] | web.StreamResponse | None] = lambda query: None
    forms: list[Mapping[str, str]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    url: str = ""

    @property
    def queries(self) -> list[str]:
        return [form["query"] for form in self.forms]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        self.headers.append(dict(request.headers))
        other = self.respond(form["query"])
        if isinstance(other, web.StreamResponse):
            return other
        if other is not None:
            return await other
        return web.json_response(vector(*self.rows(form["query"]), unix=self.unix, warnings=self.warnings))

    def rows(self, query: str) -> list[tuple[dict[str, str], float | str]]:
        if query.startswith("timestamp("):
            named = self._named(query)
            return list(
                {tuple(each.labels.items()): (dict(each.labels), self.unix - each.age) for each in named}.values()
            )
        if "== 0 or count(" in query:
            known = [each for each in self.series if each.name == "up"]
            failing = [({"__name__": "up", **each.labels}, each.value) for each in known if each.value == 0]
            return [*failing, ({}, len(known))] if known else []
        return [
            ({"__name__": each.name, **each.labels}, each.value) for each in self._named(query.partition(" and ")[0])
        ]

    def _named(self, query: str) -> list[Series]:
        patterns = re.findall(r'__name__=~?"([^"]*)"', query)
        return [each for each in self.series if any(re.fullmatch(pattern, each.name) for pattern in patterns)]


def vector(
    *rows: tuple[Mapping[str, str], float | str], unix: float = UNIX, warnings: tuple[str, ...] = ()
) -> dict[str, object]:
    """An instant query's answer, as the API writes it."""
    result = [{"metric": dict(labels), "value": [unix, f"{value}".removesuffix(".0")]} for labels, value in rows]
    answer: dict[str, object] = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return answer | ({"warnings": list(warnings)} if warnings else {})


@asynccontextmanager
async def serving(fake: FakePrometheus, *, context: ssl.SSLContext | None = None) -> AsyncIterator[FakePrometheus]:
    """The API on loopback; ``fake.url`` says where."""
    app = web.Application(client_max_size=2**20)
    app.router.add_post("/api/v1/query", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        fake.url = f"{'https' if context else 'http'}://localhost:{runner.addresses[0][1]}"
        yield fake
    finally:
        await runner.cleanup()


def replica(
    pod: str, *, model: str = "m", namespace: str = "chat", age: float = 1.0, **values: float | str
) -> list[Series]:
    """A vLLM's series as a Prometheus holds them: gauges and counters by family, ``ttft`` counts fast requests."""
    place = {"namespace": namespace, "pod": pod, "instance": f"{pod}:8000", "job": "vllm"}
    own = {**place, "engine": "0", "model_name": model}
    names = {
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "kv_use": "vllm:kv_cache_usage_perc",
        "finished": "vllm:request_success_total",
    }
    found = [Series(names[key], own, value, age) for key, value in values.items() if key in names]
    if "ttft" in values:
        name, count = "vllm:time_to_first_token_seconds", values["ttft"]
        found += [Series(f"{name}_bucket", {**own, "le": bound}, count, age) for bound in ("0.1", "1.0", "+Inf")]
        found += [Series(f"{name}_count", own, count, age), Series(f"{name}_sum", own, float(count) * 0.05, age)]
    if "started" in values:
        found.append(Series("process_start_time_seconds", place, values["started"], age))
    return [*found, Series("up", place, 1, age)]
