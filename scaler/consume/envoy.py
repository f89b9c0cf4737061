"""Engines without a live setting (TGI, llama.cpp, LMDeploy): an Envoy beside the engine lets no more requests through.

The batch such an engine runs can't exceed the requests it has, so a limit of requests in flight is a limit of its
batch, and what is above it waits in Envoy, in order. The limit is the circuit breaker ``max_connections`` of a cluster
with HTTP/1.1 and ``max_requests_per_connection: 1`` (a connection is then a request; a kept connection would go on
taking requests after the limit was lowered), read at every new connection from the runtime key
``circuit_breakers.CLUSTER.default.max_connections``. ``POST /runtime_modify`` of Envoy's admin sets it, an empty value
takes it away again; ``GET /clusters`` tells the limit in force. deploy/examples/tgi-envoy.yaml is the whole.

Seen with a real Envoy 1.39.3 (tests/real/test_envoy.py). Read in Envoy's documentation
(https://www.envoyproxy.io/docs/envoy/latest, "Circuit breaking", "Admin interface", "Runtime"):

- Every worker thread may hold one connection over the limit, so run it with ``--concurrency 1``.
- A value that is no number is taken by the admin with ``200 OK`` and has no effect: what counts is read back.
- ``adaptive_concurrency`` finds a limit of its own from latency, and ``admission_control`` refuses by the success rate:
  neither can be told a number. A cluster replaced through xDS begins to count at zero beside the old one's requests.
- The setting lives in Envoy's memory: one that restarts has its own again until we look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from scaler.consume.engine import EngineBatch, EngineError
from scaler.consume.engine_http import EngineHttp

#: What Envoy takes when its configuration says nothing.
DEFAULT_CONNECTIONS: Final = 1024


class Envoy:
    """One cluster of an Envoy; ``http`` leads to its admin. ``own_batch``: the engine's own limit, never exceeded."""

    engine: Final = "envoy"
    reloads: Final = False

    def __init__(self, http: EngineHttp, cluster: str, *, own_batch: int | None = None) -> None:
        self._http = http
        self._cluster = cluster
        self._own_batch = own_batch
        self._key = f"circuit_breakers.{cluster}.default.max_connections"

    async def read(self) -> EngineBatch:
        """The limit in force, how many requests are with the engine, and how many wait for it here."""
        statuses = await self._http.json("GET", "/clusters?format=json")
        runtime = await self._http.json("GET", "/runtime?format=json")
        status = self._found(statuses)
        return EngineBatch(
            size=_limit(status),
            most=self._own_batch,
            follows_own=not _layers_say(runtime, self._key),
            running=_gauge(status, "rq_active"),
            waiting=_gauge(status, "rq_pending_active"),
        )

    async def write(self, size: int) -> None:
        """Set the runtime key."""
        await self._modify(str(size))

    async def restore(self) -> None:
        """Take the runtime key away: Envoy's configured limit rules."""
        await self._modify("")

    async def _modify(self, value: str) -> None:
        await self._http.text("POST", f"/runtime_modify?{quote(self._key)}={value}")

    def _found(self, statuses: object) -> Mapping[str, Any]:
        listed = statuses.get("cluster_statuses") if isinstance(statuses, Mapping) else None
        if not isinstance(listed, list):
            raise EngineError("GET /clusters: no cluster_statuses in the answer; is this Envoy's admin port?")
        clusters = {str(each.get("name")): each for each in listed if isinstance(each, Mapping)}
        if self._cluster not in clusters:
            raise EngineError(
                f"Envoy has no cluster {self._cluster!r}; it has: {', '.join(sorted(clusters)) or 'none'}"
            )
        return clusters[self._cluster]


def _limit(status: Mapping[str, Any]) -> int | None:
    """``max_connections`` of the default priority, which is the one whose name JSON leaves out."""
    for threshold in status.get("circuit_breakers", {}).get("thresholds", []):
        if threshold.get("priority", "DEFAULT") == "DEFAULT":
            value = threshold.get("max_connections", DEFAULT_CONNECTIONS)
            return value if type(value) is int and value >= 1 else None
    return None


def _gauge(status: Mapping[str, Any], name: str) -> int | None:
    """A gauge of the cluster's hosts, added up; an absent value is a 0 that JSON leaves out."""
    hosts = status.get("host_statuses", [])
    gauges = [stat for host in hosts for stat in host.get("stats", []) if stat.get("name") == name]
    try:
        return sum(int(stat.get("value", 0)) for stat in gauges) if gauges else None
    except (TypeError, ValueError):
        return None


def _layers_say(runtime: object, key: str) -> bool:
    entries = runtime.get("entries") if isinstance(runtime, Mapping) else None
    entry = entries.get(key) if isinstance(entries, Mapping) else None
    return isinstance(entry, Mapping) and entry.get("final_value") not in (None, "")
