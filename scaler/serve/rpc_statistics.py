"""What ``/metrics`` tells of the KEDA service itself: calls by method and code, their duration, values not sayable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc.aio import ServerInterceptor
from prometheus_client import CollectorRegistry, Counter, Histogram

#: KEDA's service; calls of other services (health, reflection) are not KEDA's and are not counted.
SERVICE = "externalscaler.ExternalScaler"
UNARY_METHODS = ("GetMetricSpec", "GetMetrics", "IsActive")
STREAM_METHODS = ("StreamIsActive",)

#: Seconds. We answer from memory: most calls fall below the first bound; 1 s is the longest a first call may wait.
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class RpcStatistics:
    """Counters in ``registry`` (metric names ``loadtide_rpc_total``, ``loadtide_rpc_duration_seconds``,
    ``loadtide_bad_values_total``). A stream is counted when it ends, and has no duration: its length is KEDA's choice.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter("loadtide_rpc", "Calls by KEDA, by status code.", ["method", "code"], registry=registry)
        self._durations = Histogram(
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
        # From zero at once, so that a rate over the first call is right.
        for method in (*UNARY_METHODS, *STREAM_METHODS):
            self._calls.labels(method, "OK")
        for method in UNARY_METHODS:
            self._durations.labels(method)

    def call_ended(self, method: str, code: str, seconds: float | None) -> None:
        """Count one call: ``code`` is the status code's name (``OK``, ...), ``seconds`` None for a stream."""
        self._calls.labels(method, code).inc()
        if seconds is not None:
            self._durations.labels(method).observe(seconds)

    def bad_value(self, reason: str) -> None:
        """Count one value withheld from the wire."""
        self._bad_values.labels(reason).inc()

    def interceptor(self) -> ServerInterceptor:
        """The interceptor that counts every call of KEDA's service on the server it is given to."""
        return _CountingInterceptor(self)


class _CountingInterceptor(ServerInterceptor):
    def __init__(self, statistics: RpcStatistics) -> None:
        self._statistics = statistics

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        service, _, method = handler_call_details.method.lstrip("/").partition("/")
        if handler is None or service != SERVICE:  # None: a method nobody serves, whose name a client made up
            return handler
        if method in STREAM_METHODS:
            return grpc.unary_stream_rpc_method_handler(
                self._counted(method, handler.unary_stream, timed=False),
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._counted(method, handler.unary_unary, timed=True),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _counted(self, method: str, behaviour: Callable[[Any, Any], Awaitable[Any]], timed: bool) -> Any:
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
                self._statistics.call_ended(method, _code(context, error), seconds)

        return counted


def _code(context: Any, error: BaseException | None) -> str:
    """The name of the status code a call ended with; the handler's exception tells what the context does not yet."""
    if error is None:
        return "OK"
    if isinstance(error, asyncio.CancelledError):
        return "CANCELLED"
    if isinstance(error, grpc.aio.AbortError):
        code = context.code()
        return code.name if isinstance(code, grpc.StatusCode) else _CODE_NAMES.get(code, "UNKNOWN")
    return "UNKNOWN"


_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
