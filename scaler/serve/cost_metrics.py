"""What a workload takes, costs and expects, as samples of our own ``/metrics``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily

from scaler.serve.snapshot import Snapshot

#: Every gauge: its name without ``loadtide_``, and what it says.
COST_GAUGES: Mapping[str, str] = {
    "season_requests_per_second": "Arrivals that usually come a cold start from now, by how today goes. Absent: none.",
    "season_unexplained_ratio": "What the season leaves unexplained of the arrivals' ups and downs; absent: too new.",
    "season_believed": "1 while arrivals follow the time of day or week well enough to buy replicas for it.",
    "season_known_ratio": "The share of the last four weeks' quarter hours whose arrivals are known.",
    "gpus_per_replica": "GPUs that one replica takes, as declared: GPU-hours are counted by it.",
    "gpu_hour_price": "What a GPU costs an hour now. Absent: no price is declared.",
    "objective_factor_ratio": "How many times as long as declared the objectives are in this price window.",
    "budget_gpu_seconds": "GPU time that the present day or month may take. Absent: no budget.",
    "budget_spent_gpu_seconds": "GPU time taken of the present day's or month's budget. Absent: no budget.",
    "budget_reserved_gpu_seconds": "GPU time the floor takes until the budget's period ends. Absent: no budget.",
}
#: Their labels besides ``namespace`` and ``workload``.
COST_LABELS: Mapping[str, tuple[str, ...]] = {
    "season_unexplained_ratio": ("period",),
    "gpu_hour_price": ("currency",),
    "budget_gpu_seconds": ("per", "at_end"),
}
GPU_SECONDS, COST = "loadtide_gpu_seconds", "loadtide_cost"

#: Prometheus wants base units; people, policies and bills count hours.
HOUR = 3600.0

#: A gauge, its value (None: no sample), and its own labels.
Sample = tuple[str, float | None, Mapping[str, str]]


def cost_samples(snapshot: Snapshot) -> Iterator[Sample]:
    """One workload's samples of :data:`COST_GAUGES`."""
    memory, expected, policy = snapshot.decision.next_memory, snapshot.decision.season, snapshot.policy
    season, bill, utc = memory.season, memory.bill, snapshot.decided_at.utc
    yield "season_requests_per_second", None if expected is None else expected.rate, {}
    for period, skill in (("weekly", season.weekly), ("daily", season.daily)):
        yield (
            "season_unexplained_ratio",
            skill.unexplained if skill.unexplained < math.inf else None,
            {"period": period},
        )
    yield "season_believed", season.period is not None, {}
    yield "season_known_ratio", season.known_ratio, {}
    yield "gpus_per_replica", policy.gpu.per_replica, {}
    yield "gpu_hour_price", policy.hour_price(utc), {"currency": policy.gpu.currency}
    priced = policy.price.open(utc)
    yield "objective_factor_ratio", 1.0 if priced is None else priced.objective_factor, {}
    if policy.budget.gpu_hours is not None:
        told = {"per": policy.budget.per, "at_end": policy.budget.at_end}
        yield "budget_gpu_seconds", policy.budget.gpu_hours * HOUR, told
        yield "budget_spent_gpu_seconds", bill.in_period * HOUR, {}
        yield "budget_reserved_gpu_seconds", bill.reserved * HOUR, {}


class CostCounters:
    """What rises for ever: it is remembered with the workload, so that neither a restart nor a failover resets it."""

    def __init__(self) -> None:
        labels = ("namespace", "workload")
        self._seconds = CounterMetricFamily(
            GPU_SECONDS, "GPU time taken by the replicas asked for, since the workload is known.", labels=labels
        )
        self._cost = CounterMetricFamily(
            COST, "What that time cost, at the price of their time of day.", labels=(*labels, "currency")
        )

    def add(self, namespace: str, workload: str, snapshot: Snapshot) -> None:
        """One workload's; its cost only where a price is declared."""
        bill, policy = snapshot.decision.next_memory.bill, snapshot.policy
        self._seconds.add_metric((namespace, workload), bill.gpu_hours * HOUR)
        if policy.priced:
            self._cost.add_metric((namespace, workload, policy.gpu.currency), bill.money)

    def families(self) -> Iterator[CounterMetricFamily]:
        """Both, for the collector."""
        yield self._seconds
        yield self._cost
