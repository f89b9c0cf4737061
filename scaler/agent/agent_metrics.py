"""The agent's own ``/metrics``: one collector over its state at the moment of a scrape; what is not known is absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from scaler import __version__
from scaler.agent.gpu_page import gpu_families
from scaler.agent.holders import Holders
from scaler.agent.local_guard import LocalGuard
from scaler.agent.ruling import Ruler, Ruling
from scaler.consume.contract import RUNGS, ServedTarget
from scaler.consume.link import Followed
from scaler.consume.rung_link import Slept
from scaler.signals.gpu import GpuTelemetry
from scaler.value import frozen

RULERS: Final[tuple[str, ...]] = get_args(Ruler)
LABELS: Final = ("namespace", "workload", "replica")


@frozen
class AgentState:
    """All that is told, taken at one moment. A part that this agent does not do is None."""

    gpus: GpuTelemetry
    holders: Holders
    workload: str = ""
    replica: str = ""
    target: ServedTarget | None = None
    target_seconds: float | None = None
    scaler_up: bool | None = None
    guard: LocalGuard | None = None
    guard_moves: tuple[int, int] = (0, 0)
    """How often the guard lowered and raised its limit."""
    engine_read: bool | None = None
    ruling: Ruling | None = None
    followed: Followed | None = None
    changes: int = 0
    slept: Slept | None = None
    rung_changes: int = 0


class AgentCollector:
    """A ``prometheus_client`` collector. ``gpu_metrics``: the GPUs as well, under a DCGM exporter's names."""

    def __init__(self, state: Callable[[], AgentState], *, hostname: str, gpu_metrics: bool) -> None:
        self._state = state
        self._hostname = hostname
        self._gpu_metrics = gpu_metrics

    def collect(self) -> Iterator[Metric]:
        """Every family, from one state."""
        state = self._state()
        yield InfoMetricFamily(
            "loadtide_agent_build", "The running version of loadtide agent.", value={"version": __version__}
        )
        readings = len({reading.identity for reading in state.gpus.readings})
        yield GaugeMetricFamily("loadtide_agent_gpus", "GPUs and MIG instances that NVML reads.", value=readings)
        yield GaugeMetricFamily(
            "loadtide_agent_gpus_up", "1 while NVML answers; 0 also where there is no GPU.", value=float(state.gpus.up)
        )
        if state.workload:
            yield from _of_workload(state)
        if self._gpu_metrics:
            yield from gpu_families(state.gpus, state.holders, self._hostname)


def _of_workload(state: AgentState) -> Iterator[Metric]:
    namespace, _, workload = state.workload.partition("/")
    labels = (namespace, workload, state.replica)

    def gauge(name: str, text: str, value: float | None) -> Metric:
        family = GaugeMetricFamily(f"loadtide_agent_{name}", text, labels=LABELS)
        if value is not None:
            family.add_metric(labels, value)
        return family

    yield gauge(
        "scaler_up", "1 while the scaler answers with a target.", None if state.scaler_up is None else state.scaler_up
    )
    yield gauge(
        "target_batch_size",
        "The scaler's target as it is held here. Absent: none, expired, or the engine's own setting.",
        state.target.batch_size if state.target else None,
    )
    yield gauge("target_seconds", "For how much longer the target may be used.", state.target_seconds)
    if state.guard is not None:
        yield gauge("guard_batch_size", "The memory guard's limit. Absent: it limits nothing.", state.guard.limit)
        yield gauge("guard_pressed", "1 while memory is short.", float(state.guard.pressed))
        yield gauge("engine_read", "1 while the engine's metrics are read.", state.engine_read)
        moves = CounterMetricFamily(
            "loadtide_agent_guard_moves", "How often the guard moved its limit.", labels=(*LABELS, "direction")
        )
        for direction, count in zip(("down", "up"), state.guard_moves, strict=True):
            moves.add_metric((*labels, direction), count)
        yield moves
    if state.ruling is not None:
        rules = GaugeMetricFamily(
            "loadtide_agent_ruler", "1 for whose batch rules the engine, 0 for the others.", labels=(*LABELS, "ruler")
        )
        for ruler in RULERS:
            rules.add_metric((*labels, ruler), float(ruler == state.ruling.ruler))
        yield rules
    if state.followed is not None:
        batch = state.followed.batch
        yield gauge(
            "applied_batch_size",
            "The batch the engine says it runs with. Absent: it does not tell.",
            state.followed.size,
        )
        yield gauge("own_batch_size", "The engine's own setting, where it tells.", batch.own if batch else None)
        yield gauge("engine_follows", "1 while the engine runs what is wanted of it.", not state.followed.trouble)
        changes = CounterMetricFamily(
            "loadtide_agent_batch_changes", "How often the engine was set to another batch.", labels=LABELS
        )
        changes.add_metric(labels, state.changes)
        yield changes
    if state.slept is not None:
        yield from _of_rung(state.slept, state.rung_changes, labels)


def _of_rung(slept: Slept, changes: int, labels: tuple[str, ...]) -> Iterator[Metric]:
    rungs = GaugeMetricFamily(
        "loadtide_agent_rung", "1 for the rung the engine says it is on, 0 for the other.", labels=(*LABELS, "rung")
    )
    for rung in RUNGS if slept.rung else ():
        rungs.add_metric((*labels, rung), float(rung == slept.rung))
    yield rungs
    follows = GaugeMetricFamily(
        "loadtide_agent_rung_follows", "1 while the engine is on the rung that is wanted of it.", labels=LABELS
    )
    follows.add_metric(labels, float(not slept.trouble))
    yield follows
    woken = GaugeMetricFamily("loadtide_agent_wake_seconds", "How long the engine's last wake took.", labels=LABELS)
    if slept.wake_seconds is not None:
        woken.add_metric(labels, slept.wake_seconds)
    yield woken
    moves = CounterMetricFamily(
        "loadtide_agent_rung_changes", "How often the engine was put to sleep or woken.", labels=LABELS
    )
    moves.add_metric(labels, changes)
    yield moves
