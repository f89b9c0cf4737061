"""The cluster as a source: which endpoints of a Service are ready, and how many replicas a target has.

Without a cluster, the ``kubernetes`` extra or permission everything is unknown, never zero, and said once. The rights
it needs are :data:`ACCESS`, and no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from scaler.policy.model import ScaleTarget
from scaler.signals.api_server import ApiError, ApiServer, connect
from scaler.signals.cluster_objects import (
    LEADER_SET_LABEL,
    WORKER_INDEX_LABEL,
    Pod,
    Scale,
    Slice,
    count_replicas,
    is_leader_by_name,
    is_replica,
    read_pod,
    read_scale,
    read_slice,
    serving,
)
from scaler.signals.discovery import Answer, ResolveFailure
from scaler.signals.observation import ReplicaCounts
from scaler.signals.watched import Watched
from scaler.value import frozen

log = structlog.get_logger(__name__)


@frozen
class Access:
    """One rule of the role we need: these verbs on one resource."""

    group: str
    resource: str
    verbs: tuple[str, ...]


#: Everything that is ever asked of the API server, as RBAC spells it.
ACCESS = (
    Access("discovery.k8s.io", "endpointslices", ("list", "watch")),
    Access("", "pods", ("list", "watch")),
    Access("apps", "deployments/scale", ("get",)),
    Access("apps", "statefulsets/scale", ("get",)),
    Access("leaderworkerset.x-k8s.io", "leaderworkersets/scale", ("get",)),
)

_SCALED = {
    "deployment": "/apis/apps/v1/namespaces/{}/deployments/{}/scale",
    "statefulset": "/apis/apps/v1/namespaces/{}/statefulsets/{}/scale",
    "leaderworkerset": "/apis/leaderworkerset.x-k8s.io/v1/namespaces/{}/leaderworkersets/{}/scale",
}

#: A target's scale cannot be watched, and is asked for again after so long: once in every usual tick.
SCALE_SECONDS = 4.0
#: What the API server may take to tell it.
_SCALE_TIMEOUT_SECONDS = 10.0
#: Scales asked for at once: we are one of many the API server has to answer.
SCALES_AT_ONCE = 16
#: How long after a failed search for the cluster to look again.
SEARCH_SECONDS = 60.0


class Cluster:
    """The one cluster, looked for at first need. ``mono`` is the monotonic clock in seconds."""

    def __init__(self, mono: Callable[[], float], *, connect: Callable[[], Awaitable[ApiServer]] = connect) -> None:
        self._mono = mono
        self._connect = connect
        self._server: ApiServer | None = None
        self._searching = asyncio.Lock()
        self._searched: tuple[float, str] | None = None
        self._slices: dict[str, Watched[Slice]] = {}
        self._pods: dict[tuple[str, str], Watched[Pod]] = {}
        self._scales: dict[str, tuple[float, Scale | str]] = {}
        self._asking = asyncio.Semaphore(SCALES_AT_ONCE)

    async def endpoints(
        self, namespace: str, service: str, port: str, target: ScaleTarget, *, timeout: float
    ) -> Answer:
        """The ready endpoints of a Service; of a LeaderWorkerSet its leaders only."""
        try:
            async with asyncio.timeout(timeout):
                server = await self._found()
                slices = await self._slices_of(server, namespace).objects(timeout)
                if isinstance(slices, str):
                    return ResolveFailure(slices)
                if target.kind != "leaderworkerset" or target.name is None:
                    return serving(slices, service, port, lambda _: True)
                pods = await self._pods_of(server, namespace, _leaders(target.name)).objects(timeout)
                counts = is_leader_by_name(target.name) if isinstance(pods, str) else is_replica(pods)
                return serving(slices, service, port, counts)
        except ApiError as error:
            return ResolveFailure(str(error))
        except TimeoutError:
            return ResolveFailure(f"the cluster did not answer within {timeout:g} s")

    async def replica_counts(self, namespace: str, target: ScaleTarget, *, timeout: float) -> ReplicaCounts | None:
        """How many replicas the target has; None where the policy names no target."""
        if target.name is None:
            return None
        try:
            async with asyncio.timeout(timeout):
                server = await self._found()
                asked_at, scale = await self._scale(server, namespace, target)
                return count_replicas(asked_at, scale, await self._its_pods(server, namespace, target, scale, timeout))
        except ApiError as error:
            return ReplicaCounts(self._mono(), reason=str(error))
        except TimeoutError:
            return ReplicaCounts(self._mono(), reason=f"the cluster did not answer within {timeout:g} s")

    async def pods(self, namespace: str, target: ScaleTarget, *, timeout: float) -> tuple[Pod, ...] | None:
        """The target's pods, of a LeaderWorkerSet its leaders; None where the policy names no target, and where the
        cluster does not tell.
        """
        if target.name is None:
            return None
        try:
            async with asyncio.timeout(timeout):
                server = await self._found()
                # Which pods are its own does not change: an old answer tells that as well as a new one.
                known = self._scales.get(_scale_path(namespace, target))
                _, scale = known or await self._scale(server, namespace, target)
                pods = await self._its_pods(server, namespace, target, scale, timeout)
        except (ApiError, TimeoutError):
            return None
        return None if isinstance(pods, str) else pods

    async def _its_pods(
        self, server: ApiServer, namespace: str, target: ScaleTarget, scale: Scale | str, timeout: float
    ) -> tuple[Pod, ...] | str:
        """The target's pods, or why they are not known."""
        if target.kind == "leaderworkerset":
            selector = _leaders(target.name or "")
        elif isinstance(scale, str):
            return scale
        else:
            selector = scale.selector
        if not selector:
            return "which pods are the target's is not told"
        return await self._pods_of(server, namespace, selector).objects(timeout)

    async def close(self) -> None:
        """End every watch and connection."""
        await asyncio.gather(*[each.stop() for each in self._slices.values()])
        await asyncio.gather(*[each.stop() for each in self._pods.values()])
        if self._server is not None:
            await self._server.close()

    async def _found(self) -> ApiServer:
        """The API server. Raises :class:`ApiError` where there is none to talk to."""
        async with self._searching:
            if self._server is not None:
                return self._server
            if self._searched is not None and self._mono() - self._searched[0] < SEARCH_SECONDS:
                raise ApiError(self._searched[1])
            try:
                self._server = await self._connect()
            except ApiError as error:
                if self._searched is None or self._searched[1] != str(error):
                    log.warning("no cluster to ask; endpoints and replica counts are unknown", reason=str(error))
                self._searched = self._mono(), str(error)
                raise
            return self._server

    def _slices_of(self, server: ApiServer, namespace: str) -> Watched[Slice]:
        """One watch for all Services of a namespace: many workloads share one."""
        if namespace not in self._slices:
            path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
            self._slices[namespace] = Watched(server, path, "", read_slice, self._mono)
        return self._slices[namespace]

    def _pods_of(self, server: ApiServer, namespace: str, selector: str) -> Watched[Pod]:
        key = namespace, selector
        if key not in self._pods:
            self._pods[key] = Watched(server, f"/api/v1/namespaces/{namespace}/pods", selector, read_pod, self._mono)
        return self._pods[key]

    async def _scale(self, server: ApiServer, namespace: str, target: ScaleTarget) -> tuple[float, Scale | str]:
        """The target's scale, or why it is not known, and when that was so."""
        path = _scale_path(namespace, target)
        known = self._scales.get(path)
        if known is not None and self._mono() - known[0] < SCALE_SECONDS:
            return known
        async with self._asking:
            try:
                body: dict[str, Any] = await server.get(path, timeout=_SCALE_TIMEOUT_SECONDS)
                scale: Scale | str = read_scale(body)
            except ApiError as error:
                scale = str(error)
            except (KeyError, TypeError, ValueError) as error:
                scale = f"the target's scale cannot be read: {error!r}"
        if isinstance(scale, str) and (known is None or known[1] != scale):
            log.warning("replicas asked for are not known", target=f"{namespace}/{target.name}", reason=scale)
        self._scales[path] = self._mono(), scale
        return self._scales[path]


def _scale_path(namespace: str, target: ScaleTarget) -> str:
    return _SCALED[target.kind].format(namespace, target.name)


def _leaders(name: str) -> str:
    """The label selector of a LeaderWorkerSet's leaders."""
    return f"{LEADER_SET_LABEL}={name},{WORKER_INDEX_LABEL}=0"
