"""A client that calls as KEDA's operator does, read in kedacore/keda 8b4f083 (August 2026) and 2.20.2.

- pkg/scalers/external_scaler.go: one connection for all ScaledObjects with our address, balancing over its addresses;
  the index prefix ``s0-`` is KEDA's own and does not reach us; GetMetrics, then IsActive, and an error of either is the
  error of both; a stream is opened again 2 s after a clean end, after 2, 4, 8 ... 60 s following errors, and an opened
  stream does not reset the wait, only a clean end does.
- pkg/scaling/scale_handler.go: a poll is GetMetricSpec, then those two, with no deadline; the HPA's request is the same
  trio under the API server's 60 s; both run at the same time for one ScaledObject.
- pkg/scaling/cache/scalers_cache.go: what fails is asked once more at once, with a scaler built anew; so is a spec that
  is empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import grpc

from scaler.serve.externalscaler_pb2 import (
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    ScaledObjectRef,
)
from scaler.serve.externalscaler_pb2_grpc import ExternalScalerStub

HPA_DEADLINE_SECONDS = 60.0
#: Of the scale loop's poll KEDA says none: a call that is never answered must end a test all the same.
PATIENCE_SECONDS = 60.0
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class Told:
    """What one trio gave: the metric in thousandths as the HPA gets it, its target, and the activity."""

    thousandths: int
    target_thousandths: int
    active: bool


@dataclass(slots=True)
class Operator:
    """One KEDA operator on one connection. ``second`` is how long a second of its waiting lasts in the test."""

    address: str
    second: float = 1.0
    credentials: grpc.ChannelCredentials | None = None
    options: tuple[tuple[str, object], ...] = ()
    trios: int = 0
    channel: grpc.aio.Channel = field(init=False)
    stub: ExternalScalerStub = field(init=False)

    def __post_init__(self) -> None:
        # One connection of its own: two operators in one process would otherwise share one.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.lb_policy_name", "round_robin"), *self.options]
        if self.credentials is None:
            self.channel = grpc.aio.insecure_channel(self.address, options=options)
        else:
            self.channel = grpc.aio.secure_channel(self.address, self.credentials, options=options)
        self.stub = ExternalScalerStub(self.channel)

    async def check(self, ref: ScaledObjectRef) -> Told:
        """The scale loop's poll. Raises grpc.aio.AioRpcError as KEDA gets it, after its second try."""
        return await self._trio(ref, PATIENCE_SECONDS)

    async def hpa_asks(self, ref: ScaledObjectRef) -> Told:
        """The metrics API's request, on behalf of the HPA."""
        return await self._trio(ref, HPA_DEADLINE_SECONDS)

    async def _trio(self, ref: ScaledObjectRef, deadline: float) -> Told:
        self.trios += 1

        async def specs() -> GetMetricSpecResponse:
            answer = await self.stub.GetMetricSpec(ref, timeout=deadline)
            assert answer.metricSpecs, "an empty spec is an error to KEDA"
            return answer

        async def metrics_and_activity() -> tuple[GetMetricsResponse, IsActiveResponse]:
            request = GetMetricsRequest(scaledObjectRef=ref, metricName=name)
            metrics = await self.stub.GetMetrics(request, timeout=deadline)
            return metrics, await self.stub.IsActive(ref, timeout=deadline)

        (spec,) = (await _twice(specs)).metricSpecs
        name = spec.metricName
        metrics, activity = await _twice(metrics_and_activity)
        assert metrics.metricValues, "no value is an error to KEDA"
        total = sum(thousandths(value.metricValueFloat, value.metricValue) for value in metrics.metricValues)
        return Told(total, thousandths(spec.targetSizeFloat, spec.targetSize), activity.result)

    def push(self, ref: ScaledObjectRef) -> PushScaler:
        """Open the trigger's stream and keep it open until it is stopped."""
        return PushScaler(self, ref)

    async def close(self) -> None:
        await self.channel.close()


T = TypeVar("T")


async def _twice(ask: Callable[[], Awaitable[T]]) -> T:
    try:
        return await ask()
    except grpc.aio.AioRpcError:
        return await ask()


def thousandths(exact: float, rounded_up: int) -> int:
    """KEDA's reading of the two fields: the float where it is above zero, in thousandths, rounded to the nearest."""
    return round(float(f"{exact if exact > 0 else float(rounded_up):.3f}") * 1000)


class PushScaler:
    """StreamIsActive as KEDA holds it. ``told`` are the messages, ``ends`` how each stream ended, ``waits`` how many of
    KEDA's seconds it waited before each further one.
    """

    def __init__(self, operator: Operator, ref: ScaledObjectRef) -> None:
        self.told: list[bool] = []
        self.ends: list[grpc.StatusCode] = []
        self.waits: list[float] = []
        self.opened = 0
        self._operator = operator
        self._ref = ref
        self._news = asyncio.Condition()
        self._running = asyncio.create_task(self._run())

    async def until(self, what: Callable[[PushScaler], bool], seconds: float = 60.0) -> None:
        """Return once ``what`` holds."""
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: what(self))

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while True:
            if await self._once():
                wait = FIRST_WAIT_SECONDS
            self.waits.append(wait)
            wait, now = min(wait * 2, LONGEST_WAIT_SECONDS), wait
            await asyncio.sleep(now * self._operator.second)

    async def _once(self) -> bool:
        """One stream to its end; whether that was a clean one."""
        call = self._operator.stub.StreamIsActive(self._ref)
        self.opened += 1
        try:
            async for message in call:
                self.told.append(message.result)
                await self._tell()
        except grpc.aio.AioRpcError as error:
            self.ends.append(error.code())
        else:
            self.ends.append(grpc.StatusCode.OK)
        finally:
            call.cancel()
        await self._tell()
        return self.ends[-1] is grpc.StatusCode.OK

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


def scaled_object(name: str, namespace: str = "prod", metadata: Mapping[str, str] | None = None) -> ScaledObjectRef:
    """What KEDA sends of a ScaledObject: its name, and the trigger's whole metadata with KEDA's own keys in it."""
    own = {"scalerAddress": "loadtide.loadtide.svc:6000", "enableTLS": "false"}
    return ScaledObjectRef(name=name, namespace=namespace, scalerMetadata={**own, **(metadata or {})})
