"""What gateways and engines tell any scaler, on its way to the one that ticks the workload, and to its successor."""

from __future__ import annotations

from scaler.consume.contract import REPORT_LASTS_SECONDS, AppliedReport
from scaler.serve.inbox import FORGET_AFTER_SECONDS, MISSED_REPORTS
from scaler.serve.membership import Membership
from scaler.serve.ownership import Told
from scaler.serve.redis_store import RedisStore
from scaler.serve.redis_values import AppliedAt, Demand
from scaler.serve.workloads import Workload


class Relay:
    """Reports and wakes through ``store``, where they lie with Redis's time until they no longer say anything."""

    def __init__(self, store: RedisStore, membership: Membership) -> None:
        self._store = store
        self._membership = membership

    async def tell(self, workload: Workload, told: Told) -> bool:
        """Keep what was pushed, and call the owner; False where too many report already. Raises RedisTrouble."""
        session = self._membership.session
        if isinstance(told, AppliedReport):
            return await self._store.tell_applied(workload.name, told, REPORT_LASTS_SECONDS, session)
        push = workload.resolved.policy.push
        every = push.report_every_seconds
        kept = push.demand_ttl_seconds if every is None else max(FORGET_AFTER_SECONDS, MISSED_REPORTS * every)
        return await self._store.tell_demand(workload.name, told, kept, session)

    def put(self, workload: Workload, demand: Demand, *, ours: bool) -> None:
        """Make the workload's inbox hold exactly ``demand``; where the workload is ``ours`` already, add it to what the
        inbox holds: while Redis was away, or before it was emptied, we may have been told what it does not know.
        """
        mono_at, inbox = self._membership.mono_at, workload.inbox
        (inbox.add if ours else inbox.replace)(
            ((report.source, report.pending, report.arrivals_per_second, mono_at(at)) for report, at in demand.reports),
            None if demand.wake_at_ms is None else mono_at(demand.wake_at_ms),
        )

    def put_applied(self, workload: Workload, applied: AppliedAt) -> None:
        """Add what replicas reported to other scalers."""
        workload.applied.merge((report, self._membership.mono_at(at)) for report, at in applied)

    async def take_applied(self, workload: Workload) -> None:
        """Add what replicas reported to any scaler. Raises RedisTrouble."""
        self.put_applied(workload, await self._store.applied(workload.name))
