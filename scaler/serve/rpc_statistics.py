"""What ``/metrics`` tells of the KEDA service itself: calls by method and code, their duration, values not sayable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, Counter, Histogram

#: KEDA's service; calls of other services (health, reflection) are not KEDA's and are not counted.
SERVICE = "externalscaler.ExternalScaler"
UNARY_METHODS = ("GetMetricSpec", "GetMetrics", "IsActive")
STREAM_METHODS = ("StreamIsActive",)

#: Seconds. We answer from memory: most calls fall below the first bound; 1 s is the longest a first call may wait.
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


Behaviour = Callable[[Any, Any], Awaitable[Any]]


class RpcStatistics:
    """Counters in ``registry`` (metric names ``loadtide_rpc_total``, ``loadtide_rpc_duration_seconds``,
    ``loadtide_bad_values_total``). A stream is counted when it ends, and has no duration: its length is KEDA's choice.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter("loadtide_rpc", "Calls by KEDA, by status code.", ["method", "code"], registry=registry)
        durations = Histogram(
            "loadtide_rpc_duration_seconds",
            "How long KEDA waited for a unary answer.",
            ["method"],
            buckets=_BOUNDS,
            registry=registry,
        )
        self._bad_values = Counter(
            "loadtide_bad_values",
            "Decided values that KEDA would misread, answered UNAVAILABLE instead.",
            ["reason"],
            registry=registry,
        )
        # From zero at once, so that a rate over the first call is right; and looked up once, not in every call.
        self._ok = {method: self._calls.labels(method, "OK") for method in (*UNARY_METHODS, *STREAM_METHODS)}
        self._durations = {method: durations.labels(method) for method in UNARY_METHODS}

    def call_ended(self, method: str, code: str, seconds: float | None) -> None:
        """Count one call: ``code`` is the status code's name (``OK``, ...), ``seconds`` None for a stream."""
        if code == "OK":
            self._ok[method].inc()
        else:
            self._calls.labels(method, code).inc()
        if seconds is not None:
            self._durations[method].observe(seconds)

    def bad_value(self, reason: str) -> None:
        """Count one value withheld from the wire."""
        self._bad_values.labels(reason).inc()

    def counted(self, service: Any) -> CountedService:
        """``service`` with every call of KEDA's four counted; it is what a server is given.

        A wrapper and no interceptor: an interceptor builds a new handler for every call, which costs a tenth of it.
        """
        unary = {name: self._counted(name, getattr(service, name), timed=True) for name in UNARY_METHODS}
        streams = {name: self._counted(name, getattr(service, name), timed=False) for name in STREAM_METHODS}
        return CountedService(**unary, **streams)

    def _counted(self, method: str, behaviour: Behaviour, *, timed: bool) -> Behaviour:
        async def counted(request: Any, context: Any) -> Any:
            started = time.perf_counter()
            error: BaseException | None = None
            try:
                return await behaviour(request, context)
            except BaseException as raised:
                error = raised
                raise
            finally:
                seconds = time.perf_counter() - started if timed else None
                self.call_ended(method, "OK" if error is None else _code(context, error), seconds)

        return counted


@dataclass(frozen=True, slots=True)
class CountedService:
    """KEDA's four methods, as the generated registration wants them: by their names."""

    GetMetricSpec: Behaviour
    GetMetrics: Behaviour
    IsActive: Behaviour
    StreamIsActive: Behaviour


def _code(context: Any, error: BaseException) -> str:
    """The name of the status code a call ended with; the handler's exception tells what the context does not yet."""
    if isinstance(error, asyncio.CancelledError):
        return "CANCELLED"
    if isinstance(error, grpc.aio.AbortError):
        code = context.code()
        return code.name if isinstance(code, grpc.StatusCode) else _CODE_NAMES.get(code, "UNKNOWN")
    return "UNKNOWN"


_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
