"""What gateways tell any scaler, on its way to the one that ticks the workload, and to that one's successor."""

from __future__ import annotations

from scaler.serve.demand_body import DemandReport
from scaler.serve.inbox import FORGET_AFTER_SECONDS, MISSED_REPORTS
from scaler.serve.membership import Membership
from scaler.serve.redis_store import Demand, RedisStore
from scaler.serve.workloads import Workload


class DemandRelay:
    """Reports and wakes through ``store``, where they lie with Redis's time until they no longer say anything."""

    def __init__(self, store: RedisStore, membership: Membership) -> None:
        self._store = store
        self._membership = membership

    async def tell(self, workload: Workload, report: DemandReport | None) -> bool:
        """Keep a report, or a wake (None), and call the owner; False where too many gateways report already. Raises
        RedisTrouble.
        """
        push = workload.resolved.policy.push
        every = push.report_every_seconds
        kept = push.demand_ttl_seconds if every is None else max(FORGET_AFTER_SECONDS, MISSED_REPORTS * every)
        return await self._store.tell_demand(workload.name, report, kept, self._membership.session)

    def put(self, workload: Workload, demand: Demand) -> None:
        """Make the workload's inbox hold exactly ``demand``."""
        mono_at = self._membership.mono_at
        workload.inbox.replace(
            ((report.source, report.pending, report.arrivals_per_second, mono_at(at)) for report, at in demand.reports),
            None if demand.wake_at_ms is None else mono_at(demand.wake_at_ms),
        )
