"""The KEDA service: answers KEDA's four calls from each workload's last snapshot, and never from anything slower.

No call advances state and none waits for a source; only the very first call of a workload may wait, at most a second,
for its first tick. What we do not know is UNAVAILABLE, because KEDA then keeps the replica count (or counts towards the
operator's ``fallback``), while ``false`` or 0 would take replicas away.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar

import grpc

from scaler.control.model import Code, Decision, Mode, Reason, Suppressed
from scaler.policy.errors import PolicyError
from scaler.serve import externalscaler_pb2_grpc
from scaler.serve.externalscaler_pb2 import (
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    ScaledObjectRef,
)
from scaler.serve.limits import LimitReached, Limits, Seats
from scaler.serve.ownership import OwnerUnheard
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.snapshot import Snapshot
from scaler.serve.wire import (
    ACTIVE,
    INACTIVE,
    METRIC_NAME,
    UnsayableValue,
    match_metric_name,
    metric_spec,
    metrics_answer,
)

#: How often an open stream says ``true`` again while the workload is active and still has no replica: KEDA drops a
#: pushed ``true`` that comes before the metric's name is in the ScaledObject's status.
REPEAT_SECONDS = 30.0
#: Characters of an error text. It travels as a header, and a client drops the whole answer where those pass some 8 KiB.
_LONGEST_TEXT = 1_500

W = TypeVar("W", bound="CalledWorkload")
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class CalledWorkload(Protocol):
    """What the service reads of a workload."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def snapshot(self) -> Snapshot | None: ...

    called: ScaledObjectRef | None
    """The service's own: what the last good call carried; taken away when the metadata or the policy changes."""


class CalledWorkloads(Protocol[W]):
    """What the service asks of the registry of workloads (:class:`scaler.serve.workloads.Workloads`)."""

    def validate(self, name: str, metadata: Mapping[str, str]) -> None:
        """Raise PolicyError where the metadata cannot be meant."""

    def register(self, name: str, metadata: Mapping[str, str]) -> W:
        """The workload of that name, new or known. Raises PolicyError for bad or conflicting metadata, LimitReached for
        one workload too many.
        """

    def get(self, name: str) -> W | None:
        """The workload of that name, None where there is none."""

    def at_hand(self, workload: W) -> Snapshot | None:
        """The snapshot to answer a further call from, noted as asked for; None where there is none to stand by, or
        anything must be found out first.
        """

    def asked(self, workload: W) -> None:
        """Note that somebody still wants to know: a workload that nobody asks for is forgotten."""

    async def first_snapshot(self, workload: W) -> Snapshot | None:
        """The workload's snapshot, awaited at most a second where there was none yet; None where still none. Raises
        OwnerUnheard where another scaler's last decision cannot be known.
        """

    async def wait_change(self, workload: W, version: int, timeout: float) -> None:
        """Return when the workload's version is above ``version``, or after ``timeout`` seconds."""

    def is_current(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot is young enough to be believed, which it is not once the loop is dead."""


class KedaService(externalscaler_pb2_grpc.ExternalScalerServicer, Generic[W]):
    """KEDA's service over ``workloads``. Setting ``closing`` ends every open stream with OK: a stream that ends with an
    error is reopened only after a back-off of up to a minute.
    """

    def __init__(
        self,
        workloads: CalledWorkloads[W],
        statistics: RpcStatistics,
        closing: asyncio.Event,
        repeat_seconds: float = REPEAT_SECONDS,
        limits: Limits = Limits(),  # noqa: B008  a frozen value
    ) -> None:
        self._streams = Seats("StreamIsActive calls", limits.streams_per_workload, limits.streams)
        self._workloads = workloads
        self._statistics = statistics
        self._closing = closing
        self._repeat_seconds = repeat_seconds

    async def GetMetricSpec(self, request: ScaledObjectRef, context: Context) -> GetMetricSpecResponse:  # noqa: N802
        """The one metric, whatever the workload's state: while this fails there is no HPA, and no fallback either."""
        name, metadata = await _asked_for(request, context)
        try:
            self._workloads.validate(name, metadata)
        except PolicyError as error:
            await _invalid(context, str(error))
        # The first tick can begin now. A conflict between two triggers, or one workload too many, is for the other
        # calls to tell: an error here would freeze every trigger of the ScaledObject, and this answer depends on the
        # metadata alone.
        with contextlib.suppress(PolicyError, LimitReached):
            self._workloads.register(name, metadata)
        return metric_spec()

    async def GetMetrics(self, request: GetMetricsRequest, context: Context) -> GetMetricsResponse:  # noqa: N802
        """The desired replicas of the last decision; 0 while it is to be inactive."""
        ref, asked_name = request.scaledObjectRef, request.metricName
        if not match_metric_name(asked_name):
            name, _ = await _asked_for(ref, context)
            await _invalid(context, f"{name} has no metric {asked_name!r}; its one metric is {METRIC_NAME!r}")
        targets = (self._at_hand(ref) or await self._snapshot(ref, context)).decision.targets
        try:
            return metrics_answer(asked_name, float(targets.replicas) if targets.active else 0.0)
        except UnsayableValue as unsayable:
            self._statistics.bad_value(unsayable.reason)
            await _unavailable(context, f"{ref.namespace}/{ref.name}: {unsayable}")

    async def IsActive(self, request: ScaledObjectRef, context: Context) -> IsActiveResponse:  # noqa: N802
        """Whether the last decision wants the workload above zero."""
        snapshot = self._at_hand(request) or await self._snapshot(request, context)
        return ACTIVE if snapshot.decision.targets.active else INACTIVE

    async def StreamIsActive(self, request: ScaledObjectRef, context: Context) -> None:  # noqa: N802
        """``true`` on open if active, when activity begins, and again every :data:`REPEAT_SECONDS` while there is no
        ready replica. Nothing else: older KEDA acts at once on a pushed ``false``, past other triggers and cooldown.
        In advisory mode nothing at all: a pushed ``true`` could only wake what somebody has just put to zero.
        """
        name, metadata = await _asked_for(request, context)
        workload = await self._registered(name, metadata, context)
        try:
            with self._streams.take(name):
                await self._tell_activity(workload, context)
        except LimitReached as error:
            await _exhausted(context, str(error))

    async def _tell_activity(self, workload: W, context: Context) -> None:
        loop = asyncio.get_running_loop()
        closing = asyncio.create_task(self._closing.wait())
        was_active, due = False, loop.time()
        try:
            while not self._closing.is_set():
                self._workloads.asked(workload)
                version = workload.version
                decision = self._judged(workload.snapshot)
                if (
                    decision is not None and decision.mode is not Mode.ADVISORY
                ):  # doubt is no edge: neither a falling one nor, after it, a rising one
                    active = decision.targets.active
                    waits_for_replica = decision.ready in (0, None)
                    if active and (not was_active or (waits_for_replica and loop.time() >= due)):
                        await context.write(ACTIVE)
                        due = loop.time() + self._repeat_seconds
                    was_active = active
                timeout = due - loop.time() if was_active and due > loop.time() else self._repeat_seconds
                changed = asyncio.create_task(self._workloads.wait_change(workload, version, timeout))
                try:
                    done, _ = await asyncio.wait((changed, closing), return_when=asyncio.FIRST_COMPLETED)
                    if changed in done:
                        changed.result()  # a failure there must end the stream, not spin it
                finally:
                    changed.cancel()
        finally:
            closing.cancel()

    def _judged(self, snapshot: Snapshot | None) -> Decision | None:
        """The snapshot's decision, None where there is none to stand by."""
        if snapshot is None or not snapshot.decision.available or not self._workloads.is_current(snapshot):
            return None
        return snapshot.decision

    async def _registered(self, name: str, metadata: Mapping[str, str], context: Context) -> W:
        try:
            return self._workloads.register(name, metadata)
        except PolicyError as error:
            await _invalid(context, str(error))
        except LimitReached as error:
            await _exhausted(context, str(error))

    def _at_hand(self, ref: ScaledObjectRef) -> Snapshot | None:
        """The snapshot to answer a call from that says what the last one said: there is nothing to validate. Nearly all
        do, and comparing two messages costs a tenth of taking one apart.
        """
        workload = self._workloads.get(f"{ref.namespace}/{ref.name}")
        return None if workload is None or workload.called != ref else self._workloads.at_hand(workload)

    async def _snapshot(self, ref: ScaledObjectRef, context: Context) -> Snapshot:
        """The snapshot to answer any call from; ends the call with UNAVAILABLE, saying why, where there is none."""
        name, metadata = await _asked_for(ref, context)
        workload = await self._registered(name, metadata, context)
        if workload.called != ref:
            workload.called = ScaledObjectRef()
            workload.called.CopyFrom(ref)  # a part of a request would keep the whole of it
        try:
            snapshot = await self._workloads.first_snapshot(workload)
        except OwnerUnheard as unheard:
            await _unavailable(context, str(unheard))
        if snapshot is None:
            await _unavailable(context, f"{name}: no tick yet; its first one is still being made")
        if not self._workloads.is_current(snapshot):
            await _unavailable(context, f"{name}: no tick since {snapshot.decided_at.utc:%Y-%m-%d %H:%M:%S} UTC")
        if not snapshot.decision.available:
            await _unavailable(context, f"{name}: {lost_signals(snapshot.decision)}")
        return snapshot


def lost_signals(decision: Decision) -> str:
    """One sentence on the signals whose loss makes ``decision`` unavailable."""
    if any(reason.code is Code.ASKED_UNKNOWN for reason in decision.reasons):
        return f"mode {decision.mode}: the replicas asked for are to stay, and no source tells how many those are"
    said = {Code.SIGNAL_LOST, Code.SIGNAL_LOST_TOO_LONG}
    causes: tuple[Reason | Suppressed, ...] = (*decision.reasons, *decision.suppressed)
    lost = [cause.signal for cause in causes if cause.code in said and cause.signal]
    if not lost:
        codes = ", ".join(dict.fromkeys(reason.code.value for reason in decision.reasons))
        return f"the load cannot be judged ({codes or 'no reason given'})"
    return f"lost for too long to hold on to the last answer: {', '.join(dict.fromkeys(lost))}"


async def _asked_for(ref: ScaledObjectRef, context: Context) -> tuple[str, dict[str, str]]:
    """The workload's name and metadata; ends the call where the reference names no ScaledObject."""
    for part, value in (("name", ref.name), ("namespace", ref.namespace)):
        if not value or "/" in value:
            await _invalid(
                context,
                f"the ScaledObjectRef's {part} is {value!r}; KEDA fills in the ScaledObject's own",
            )
    return f"{ref.namespace}/{ref.name}", dict(ref.scalerMetadata)


async def _invalid(context: Context, text: str) -> NoReturn:
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text[:_LONGEST_TEXT])


async def _exhausted(context: Context, text: str) -> NoReturn:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text[:_LONGEST_TEXT])


async def _unavailable(context: Context, text: str) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAVAILABLE, text[:_LONGEST_TEXT])
