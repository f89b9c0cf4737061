"""What is asked for one part of the span: raw samples, and no more series than the decision needs.

A range selector in an instant query gives every sample as it was scraped, with its own time; Prometheus, Thanos and
Mimir answer so, and VictoriaMetrics does for a bare selector. Nothing is resampled, so that resets, gaps and restarts
are seen as the server in production sees them.

Of a histogram all buckets are read only where an objective is declared on it. Of the others sum and count make the
mean; their +Inf bucket stands for the rest, so that their quantiles are unbounded, which is to say unknown, and so is
how lengths spread, which the batch's memory bound alone would look at. That is less than half of the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final

from scaler.lab.backtest.binding import Binding
from scaler.policy.model import Objectives, ScaleTarget
from scaler.policy.promql import any_of, quoted
from scaler.signals.kube_state import METRICS
from scaler.signals.preset import PROCESS_START, Preset
from scaler.signals.prometheus.plan import series_of
from scaler.value import frozen

#: More pods than these are not written in a query; their series then come with those of everybody in the place.
_PODS_WRITTEN: Final = 50
_INFINITE: Final = r',le=~"[+]?Inf"'


@frozen
class Questions:
    """The selectors of one workload. Each is asked as ``selector[seconds]``."""

    preset: Preset
    binding: Binding
    objectives: Objectives

    @property
    def numbers(self) -> str:
        """Every family of one value per series, and of histograms sum and count."""
        names: dict[str, None] = {}
        for family in self.preset.families.values():
            if family.kind == "info":
                continue
            parts = ("_sum", "_count") if family.kind == "histogram" else ("",)
            names.update(dict.fromkeys(name + part for name in family.names for part in parts))
            names.update(dict.fromkeys(family.plus))
            if family.derived:
                names.update(dict.fromkeys((*family.derived.names, *family.derived.count)))
        return series_of(names, self.binding.narrow)

    def buckets(self, present: Set[str]) -> list[str]:
        """One for each histogram under an objective, and one for the +Inf buckets of the others. Of a family's names
        only those are asked for that are ``present`` (normalised, without suffix); where there are two of them at one
        time, in different replicas, both are.
        """
        whole: list[list[str]] = []
        others: list[str] = []
        for key, family in self.preset.families.items():
            if family.kind != "histogram":
                continue
            names = [name for name in family.names if name in present]
            promised = getattr(self.objectives, f"{key}_seconds", None) is not None
            if promised and names:
                whole.append([f"{name}_bucket" for name in names])
            else:
                others += [f"{name}_bucket" for name in names]
        asked = [series_of(names, self.binding.narrow) for names in whole]
        return [*asked, series_of(dict.fromkeys(others), self.binding.narrow + _INFINITE)] if others else asked

    def processes(self, pods: Mapping[str, Iterable[str]]) -> str:
        """What is told of a whole process, and so without its model: its start and its static facts. ``pods``: the
        values of the label that tells replicas apart.
        """
        infos = [name for family in self.preset.families.values() if family.kind == "info" for name in family.names]
        return series_of([PROCESS_START, *infos], self._of_targets(pods))

    def up(self, pods: Mapping[str, Iterable[str]]) -> str:
        """Whether each target could be scraped."""
        return f'{{__name__="up"{self._of_targets(pods)}}}'

    def _of_targets(self, pods: Mapping[str, Iterable[str]]) -> str:
        own = {self.preset.model_label, self.preset.engine_label, *self.preset.rank_labels}
        match = {label: value for label, value in self.binding.match.items() if label not in own}
        narrow = "".join(f",{label}{any_of([value])}" for label, value in sorted(match.items()))
        for label, values in pods.items():
            several = sorted(set(values))
            if 0 < len(several) <= _PODS_WRITTEN:
                narrow += f",{label}{any_of(several)}"
        return narrow


@frozen
class Cluster:
    """What kube-state-metrics tells of the workload's target and pods. ``prefix`` is what stands before its own labels
    where the server does not honour them (``exported_``).
    """

    namespace: str
    cluster: str | None
    prefix: str = ""

    def counts(self, target: ScaleTarget) -> str:
        """How many replicas the target is asked for, and has ready."""
        kind = "deployment" if target.kind == "deployment" else "statefulset"
        names = [name for name in METRICS if kind in name]
        return f'{{__name__=~"{"|".join(names)}"{self._place},{kind}={quoted(target.name or "")}}}'

    @property
    def without_node(self) -> str:
        """The namespace's pods that no node has room for."""
        return f'{{__name__="kube_pod_status_unschedulable"{self._place}}}'

    def created(self, pods: Iterable[str], seconds: float) -> str:
        """When pods were created (Unix seconds), of as many as may be written in a query."""
        several = sorted(set(pods))[:_PODS_WRITTEN]
        series = f'{{__name__="kube_pod_created"{self._place},{self.prefix}pod{any_of(several)}}}'
        return f"last_over_time({over(series, seconds)})"

    def own(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Its series' labels as it exposed them."""
        told = {name: labels[self.prefix + name] for name in ("namespace", "pod") if self.prefix + name in labels}
        return {**labels, **told}

    @property
    def _place(self) -> str:
        cluster = "" if self.cluster is None else f",cluster={quoted(self.cluster)}"
        return f",{self.prefix}namespace={quoted(self.namespace)}{cluster}"


def over(selector: str, seconds: float) -> str:
    """The selector's samples of so long, up to the time at which it is asked."""
    return f"{selector}[{max(1, round(seconds * 1000))}ms]"


def jobs_up(namespace: str) -> str:
    """How many targets each job has, apart from those of ``namespace``."""
    return f"count by (job) (up{{namespace!={quoted(namespace)}}})"


def pulse_of(jobs: Iterable[str]) -> str:
    """``up`` of these jobs: while it is written at all, the server is there."""
    return f'{{__name__="up",job{any_of(list(jobs))}}}'


def applied_batch(workload: str) -> str:
    """The least batch that a replica of ``workload`` (NS/NAME) said it ran with, where a scaler of ours recorded that.
    No engine's page tells it; a replica that is gone says nothing after a minute.
    """
    namespace, _, name = workload.partition("/")
    series = f"loadtide_applied_batch_size{{namespace={quoted(namespace)},workload={quoted(name)}}}"
    return f"min(last_over_time({series}[60s]))"


def sampled(query: str, seconds: float, step_seconds: float) -> str:
    """A query of the operator's own, evaluated every ``step_seconds``."""
    return f"({query})[{max(1, round(seconds * 1000))}ms:{max(1, round(step_seconds * 1000))}ms]"
