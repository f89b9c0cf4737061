"""What ``/metrics`` tells of the KEDA service itself: calls by method and code, their duration, values not sayable."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator
from itertools import accumulate
from typing import Any

import grpc
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from scaler.value import frozen

#: KEDA's service; calls of other services (health, reflection) are not KEDA's and are not counted.
SERVICE = "externalscaler.ExternalScaler"
UNARY_METHODS = ("GetMetricSpec", "GetMetrics", "IsActive")
STREAM_METHODS = ("StreamIsActive",)

#: Seconds. We answer from memory: most calls fall below the first bound; 1 s is the longest a first call may wait.
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


Behaviour = Callable[[Any, Any], Awaitable[Any]]


class _Calls:
    """The calls of one method: how many ended with each code, and in which bucket their durations fell.

    Plain numbers, because only the event loop writes them: the library's own counters take a lock for each, and what
    they did took a tenth of a call.
    """

    __slots__ = ("buckets", "codes", "seconds")

    def __init__(self) -> None:
        # From zero at once, so that a rate over the first call is right.
        self.codes = {"OK": 0}
        self.buckets = [0] * (len(_BOUNDS) + 1)
        self.seconds = 0.0


class RpcStatistics:
    """The families ``loadtide_rpc_total``, ``loadtide_rpc_duration_seconds`` and ``loadtide_bad_values_total``, in
    ``registry``. A stream is counted when it ends, and has no duration: its length is KEDA's choice.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = {method: _Calls() for method in (*UNARY_METHODS, *STREAM_METHODS)}
        self._bad_values: dict[str, int] = {}
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The families as they stand. May be asked from another thread than the event loop's."""
        calls = CounterMetricFamily("loadtide_rpc", "Calls by KEDA, by status code.", labels=("method", "code"))
        durations = HistogramMetricFamily(
            "loadtide_rpc_duration_seconds", "How long KEDA waited for a unary answer.", labels=("method",)
        )
        bounds = [floatToGoString(bound) for bound in (*_BOUNDS, float("inf"))]  # type: ignore[no-untyped-call]
        for method, counted in self._calls.items():
            for code, number in list(counted.codes.items()):
                calls.add_metric((method, code), number)
            if method in UNARY_METHODS:
                buckets = [
                    (bound, float(number)) for bound, number in zip(bounds, accumulate(counted.buckets), strict=True)
                ]
                durations.add_metric((method,), buckets, counted.seconds)
        bad_values = CounterMetricFamily(
            "loadtide_bad_values",
            "Decided values that KEDA would misread, answered UNAVAILABLE instead.",
            labels=("reason",),
        )
        for reason, number in list(self._bad_values.items()):
            bad_values.add_metric((reason,), number)
        yield from (calls, durations, bad_values)

    def bad_value(self, reason: str) -> None:
        """Count one value withheld from the wire."""
        self._bad_values[reason] = self._bad_values.get(reason, 0) + 1

    def counted(self, service: Any) -> CountedService:
        """``service`` with every call of KEDA's four counted; it is what a server is given.

        A wrapper and no interceptor: an interceptor builds a new handler for every call, which costs a tenth of it.
        """
        unary = {name: _counted(getattr(service, name), self._calls[name], timed=True) for name in UNARY_METHODS}
        streams = {name: _counted(getattr(service, name), self._calls[name], timed=False) for name in STREAM_METHODS}
        return CountedService(**unary, **streams)


def _counted(behaviour: Behaviour, calls: _Calls, *, timed: bool) -> Behaviour:
    async def counted(request: Any, context: Any) -> Any:
        started, code = time.perf_counter(), "OK"
        try:
            return await behaviour(request, context)
        except BaseException as raised:
            code = _code(context, raised)
            raise
        finally:
            calls.codes[code] = calls.codes.get(code, 0) + 1
            if timed:
                seconds = time.perf_counter() - started
                calls.buckets[bisect_left(_BOUNDS, seconds)] += 1
                calls.seconds += seconds

    return counted


@frozen
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
