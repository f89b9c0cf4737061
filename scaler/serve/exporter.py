"""Our own ``/metrics``: one collector over the last snapshots, so that a scrape is one consistent picture.

Nothing is kept between scrapes. A deleted workload, a state that was left, an objective no longer declared have no
series because nothing says them any more; there is no gauge to forget. What is not known has no sample: never NaN,
never a zero that nobody measured. Labels come from the policy, the catalog, our own enums and the names of replicas
that report, never from error texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from scaler import __version__
from scaler.control.cold_start import measured_cold_starts
from scaler.control.feasible import empty_p95_seconds
from scaler.control.lasting import lasting
from scaler.control.model import Admission, Decision, LoadState, Mode, Rung, Target
from scaler.policy.model import Policy
from scaler.serve.cost_metrics import CostCounters, cost_samples
from scaler.serve.exposition import GaugeText, labels_text
from scaler.serve.gauges import GAUGES
from scaler.serve.published import PublishedWorkload, PublishedWorkloads
from scaler.serve.render import OBJECTIVES, endpoint_label, objective_bounds, verdict
from scaler.serve.snapshot import Snapshot
from scaler.signals.model import Known, Latency, Signal, Stale, Status, Verdict, status
from scaler.signals.preset import PresetError, load_preset

STATUSES: tuple[str, ...] = get_args(Status)
VERDICTS: tuple[str, ...] = get_args(Verdict)


DECISIONS = "loadtide_decisions"
DROPPED_SERIES = "loadtide_dropped_series"
WORKLOADS = "loadtide_workloads"
BUILD = "loadtide_build"


class WorkloadCollector:
    """A ``prometheus_client`` collector over ``workloads``.

    May be asked from another thread than the event loop's: the list of workloads, each snapshot and each table of
    counts are taken in single steps, and snapshots are immutable.
    """

    def __init__(self, workloads: PublishedWorkloads) -> None:
        self._workloads = workloads

    def collect(self) -> Iterator[Metric]:
        """Every family, all from one list of snapshots taken first."""
        mono = self._workloads.mono()
        taken = [
            (
                workload.name,
                workload.snapshot,
                dict(workload.decisions_total),
                workload.dropped_series_total,
                _warnings(workload),
                workload.guarded_mono,
            )
            for workload in map(self._workloads.get, list(self._workloads.names()))
            if workload is not None
        ]
        decisions = CounterMetricFamily(
            DECISIONS,
            "Changes decided, by target, direction and reason code.",
            labels=("namespace", "workload", "target", "direction", "code"),
        )
        dropped = CounterMetricFamily(
            DROPPED_SERIES,
            "Series left out, once at each read: of replicas that no longer exist, or older than may be used.",
            labels=("namespace", "workload"),
        )
        cost = CostCounters()
        gauges = {name: GaugeText(f"loadtide_{name}", help_text) for name, help_text in GAUGES.items()}
        for name, snapshot, counts, dropped_series, warnings, guarded_mono in taken:
            namespace, _, workload = name.partition("/")
            samples = _Samples(gauges, labels_text(namespace=namespace, workload=workload))
            samples.put("config_warnings", warnings)
            if guarded_mono is not None:
                samples.put("seconds_since_guard", max(0.0, mono - guarded_mono))
            if snapshot is not None:
                _tell(samples, snapshot, mono)
                cost.add(namespace, workload, snapshot)
            dropped.add_metric((namespace, workload), dropped_series)
            for (target, direction, code), count in counts.items():
                decisions.add_metric((namespace, workload, target, direction, code), count)
        yield InfoMetricFamily(BUILD, "The running version of loadtide.", value={"version": __version__})
        yield GaugeMetricFamily(WORKLOADS, "Workloads known.", value=len(taken))
        yield from gauges.values()
        yield decisions
        yield dropped
        yield from cost.families()


class _Samples:
    """Puts samples of one workload, whose labels are given as text, into the families."""

    def __init__(self, gauges: Mapping[str, GaugeText], labels: str) -> None:
        self._gauges = gauges
        self._labels = labels

    def put(self, gauge: str, value: float | None, **labels: str) -> None:
        """One sample; none where the value is not known or not a number."""
        if value is None or math.isnan(value):
            return
        self._gauges[gauge].add(f"{self._labels},{labels_text(**labels)}" if labels else self._labels, value)

    def one_hot(self, gauge: str, label: str, words: Iterable[str], held: str, **labels: str) -> None:
        """One sample per word: 1 for the one that holds, 0 for the others, in the same scrape."""
        self._gauges[gauge].add_words(self._labels, ((labels_text(**labels), label, tuple(words), held),))

    def statuses(self, snapshot: Snapshot) -> None:
        """One-hot, of every signal at once: more than half of all lines."""
        rows = ((labels_text(signal=name), "status", STATUSES, status(each)) for name, each in snapshot.signals.items())
        self._gauges["signal_status"].add_words(self._labels, tuple(rows))


def _tell(samples: _Samples, snapshot: Snapshot, mono: float) -> None:
    decision = snapshot.decision
    targets, capacity = decision.targets, decision.capacity
    samples.put("target_batch_size", targets.batch)
    samples.put("target_token_budget", targets.token_budget)
    samples.put("target_queue_limit", targets.queue_limit)
    samples.put("target_workers", targets.workers)
    samples.one_hot("admission", "admission", _words(Admission), targets.admission.value)
    samples.put("desired_replicas", targets.replicas)
    advised, override = decision.advised or targets, decision.next_memory.override
    samples.one_hot("mode", "mode", _words(Mode), decision.mode.value)
    if override is not None:
        left = (override.until - snapshot.decided_at.utc).total_seconds()
        samples.put("override_seconds", max(0.0, left))
    samples.put("advised_replicas", advised.replicas)
    samples.put("advised_active", advised.active)
    samples.put("advised_batch_size", advised.batch)
    samples.put("needed_replicas", decision.need)
    samples.put("replicas_floor", decision.floor)
    samples.put("replicas_ceiling", decision.ceiling)
    samples.put("ready_replicas", None if decision.ready is None else decision.ready + decision.asleep)
    _tell_rung(samples, decision)
    _tell_card(samples, snapshot)
    samples.put("active", targets.active)
    samples.put("available", decision.available)
    samples.one_hot("load_state", "state", _words(LoadState), decision.state.value)
    samples.put("load_state_seconds", decision.next_memory.state_seconds)
    for condition, seconds in lasting(decision.next_memory).items():
        samples.put("condition_seconds", seconds, condition=condition)
    samples.put("capacity_sequences", capacity.sequences, source=capacity.source)
    samples.put("capacity_requests_per_second", capacity.requests_per_second)
    samples.put("load_share_ratio", decision.load_share)
    samples.put("capacity_measured_sequences", capacity.low, bound="low")
    samples.put("capacity_measured_sequences", capacity.high, bound="high")
    samples.put("capacity_windows", capacity.windows)
    for node, quantile, seconds in measured_cold_starts(decision.next_memory.cold_starts):
        samples.put("cold_start_seconds", seconds, node=node, quantile=f"{quantile:g}")
    samples.put("expected_cold_start_seconds", decision.cold_start_seconds)
    samples.put("utilisation_ratio", decision.utilisation)
    memory = decision.next_memory
    for target, swing in (
        (Target.REPLICAS, memory.replicas_swing),
        (Target.BATCH, memory.batch_swing),
        (Target.TOKEN_BUDGET, memory.token_budget_swing),
    ):
        samples.put("direction_changes", len(swing.turns), target=target.value)
        samples.put("dead_band_widening_ratio", swing.widening, target=target.value)
    samples.put("idle_seconds", decision.next_memory.idle_seconds)
    if (seen := snapshot.activity) is not None:
        endpoint = endpoint_label(seen.endpoint) if seen.endpoint else ""
        samples.put("last_activity_seconds", max(0.0, mono - seen.at), signal=seen.signal, endpoint=endpoint)
    samples.put("failed_loads", decision.next_memory.failed_loads)
    samples.put("generation", snapshot.generation)
    samples.put("tick_duration_seconds", snapshot.tick_seconds)
    samples.put("seconds_since_tick", max(0.0, mono - snapshot.decided_at.mono))
    for held_target, code in sorted({(held.target.value, held.code.value) for held in decision.suppressed}):
        samples.put("suppressed", 1, target=held_target, code=code)
    for gauge, value, labels in cost_samples(snapshot):
        samples.put(gauge, value, **labels)
    samples.statuses(snapshot)
    for name, signal in snapshot.signals.items():
        _tell_signal(samples, name, signal, mono)
    _tell_applied(samples, snapshot)
    _tell_engine(samples, snapshot.policy)
    _tell_objectives(samples, snapshot)
    _tell_sources(samples, snapshot)


def _tell_rung(samples: _Samples, decision: Decision) -> None:
    samples.one_hot("rung", "rung", _words(Rung), decision.targets.rung.value)
    samples.put("asleep_replicas", None if decision.ready is None else decision.asleep)
    memory = decision.next_memory
    for rung, seconds in ((Rung.ASLEEP.value, memory.woken_seconds), ("zero", memory.loaded_seconds)):
        samples.put("wake_seconds", seconds, **{"from": rung})


def _tell_card(samples: _Samples, snapshot: Snapshot) -> None:
    name, card = snapshot.policy.gpu_group.name, snapshot.decision.next_memory.card
    if name is None or card is None:
        return
    for kind, part in (("time", card.time), ("memory", card.memory), ("own", card.own)):
        samples.put("card_ratio", part, card=name, kind=kind)
    samples.put("card_batch_size", card.bound, card=name)


def _tell_signal(samples: _Samples, name: str, signal: Signal[float] | Signal[Latency], mono: float) -> None:
    if not isinstance(signal, Known | Stale):
        return
    samples.put("signal_age_seconds", max(0.0, mono - signal.at), signal=name)
    value = signal.value
    if not isinstance(value, Latency):
        samples.put("signal", value, signal=name)
        return
    for quantile, interval in (("0.5", value.p50), ("0.95", value.p95), ("0.99", value.p99)):
        samples.put("signal_latency_seconds", interval.low, signal=name, quantile=quantile, bound="low")
        samples.put("signal_latency_seconds", interval.high, signal=name, quantile=quantile, bound="high")
    samples.put("signal_latency_mean_seconds", value.mean_seconds, signal=name)
    samples.put("signal_latency_samples", value.samples, signal=name)


def _tell_applied(samples: _Samples, snapshot: Snapshot) -> None:
    for each in snapshot.signals.applied:
        samples.put("applied_batch_size", each.batch_size, replica=each.replica)
        samples.put("applied_token_budget", each.token_budget, replica=each.replica)
        samples.put("applied_generation", each.generation, replica=each.replica)
        samples.put("applied_wake_seconds", each.wake_seconds, replica=each.replica)


def _tell_engine(samples: _Samples, policy: Policy) -> None:
    try:
        preallocates = load_preset(policy.engine).preallocates_gpu_memory
    except PresetError:  # taken away since the last tick
        return
    samples.put("engine_info", 1, engine=policy.engine, preallocates_gpu_memory=str(preallocates).lower())
    samples.put("gpu_free_emergency_ratio", None if preallocates else policy.memory.gpu_free_emergency_ratio)


def _tell_objectives(samples: _Samples, snapshot: Snapshot) -> None:
    objectives = snapshot.policy.at(snapshot.decided_at.utc).objectives
    empty = snapshot.decision.next_memory.empty
    for objective in OBJECTIVES:
        at_least = empty_p95_seconds(empty, objective, objectives.minimum_samples)
        samples.put("empty_replica_seconds", at_least, objective=objective)
        for bound, seconds in objective_bounds(objectives, objective).items():
            samples.put("objective_seconds", seconds, objective=objective, bound=bound)
            judged = verdict(snapshot.decision.verdicts, objective, bound)
            if judged is not None:
                samples.one_hot("objective_verdict", "verdict", VERDICTS, judged, objective=objective, bound=bound)


def _tell_sources(samples: _Samples, snapshot: Snapshot) -> None:
    """Endpoints whose URLs differ only in what is not shown share one series, which tells the worse of them: two
    samples with equal labels would make Prometheus refuse the whole scrape.
    """
    shown: dict[tuple[str, str], tuple[bool, float, float | None]] = {}
    for health in snapshot.health:
        key = (health.source, endpoint_label(health.endpoint))
        ok, seconds, stuck = shown.get(key, (True, 0.0, None))
        if health.no_progress_seconds is not None:
            stuck = max(health.no_progress_seconds, stuck or 0.0)
        shown[key] = (ok and health.ok, max(seconds, health.seconds), stuck)
    for (source, endpoint), (ok, seconds, stuck) in shown.items():
        samples.put("source_up", ok, source=source, endpoint=endpoint)
        samples.put("source_read_seconds", seconds, source=source, endpoint=endpoint)
        samples.put("no_progress_seconds", stuck, source=source, endpoint=endpoint)


def _warnings(workload: PublishedWorkload) -> int:
    return len(workload.resolved.warnings if workload.snapshot is None else workload.snapshot.warnings)


def _words(enum: type[StrEnum]) -> Iterator[str]:
    return (member.value for member in enum)
