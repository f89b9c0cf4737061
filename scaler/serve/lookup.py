"""Where each workload's replicas are and how many it has: asked anew every tick, with what was answered before."""

from __future__ import annotations

from collections.abc import Callable

from scaler.serve.workloads import Workload, Workloads
from scaler.signals.cluster_objects import Pod
from scaler.signals.discovery import NameLookup, Trail, Urls, resolve_urls
from scaler.signals.dns import Resolver
from scaler.signals.kubernetes import Cluster
from scaler.signals.observation import ReplicaCounts


class Lookup:
    """Names and the cluster, asked for what the policies of ``workloads`` declare: without any
    ``scrape.endpoint_slice`` and ``target`` the cluster is not even looked for.
    """

    def __init__(
        self,
        workloads: Workloads,
        *,
        names: NameLookup | None = None,
        cluster: Callable[[Callable[[], float]], Cluster] = Cluster,
    ) -> None:
        self._workloads = workloads
        self._names = names or Resolver()
        self._cluster = cluster(workloads.mono)
        self._trails: dict[str, Trail] = {}

    async def urls(self, workload: Workload) -> Urls:
        """The URLs to scrape now, within the scrape's own time limit."""
        policy = workload.resolved.policy
        trail, urls = await resolve_urls(
            policy.scrape,
            policy.target,
            _namespace(workload),
            self._trails.get(workload.name, Trail()),
            names=self._names,
            cluster=self._cluster,
        )
        if workload.name not in self._trails:
            self._forget_unknown()
        self._trails[workload.name] = trail
        return urls

    async def replica_counts(self, workload: Workload) -> ReplicaCounts | None:
        """How many replicas the workload's target has, within the scrape's time limit; None where none is declared."""
        policy = workload.resolved.policy
        return await self._cluster.replica_counts(
            _namespace(workload), policy.target, timeout=policy.scrape.timeout_seconds
        )

    async def pods(self, workload: Workload) -> tuple[Pod, ...] | None:
        """The target's pods, within the scrape's time limit; None where nothing tells them."""
        policy = workload.resolved.policy
        return await self._cluster.pods(_namespace(workload), policy.target, timeout=policy.scrape.timeout_seconds)

    async def close(self) -> None:
        """End what watches the cluster."""
        await self._cluster.close()

    def _forget_unknown(self) -> None:
        for name in [name for name in self._trails if self._workloads.get(name) is None]:
            del self._trails[name]


def _namespace(workload: Workload) -> str:
    return workload.name.partition("/")[0]
