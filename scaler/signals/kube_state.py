"""Replica counts out of kube-state-metrics' series: from its own page, or from a Prometheus that scraped it. Pure.

Names and labels are those of kubernetes/kube-state-metrics, ``docs/metrics/workload`` (all of them stable):

- A Deployment's are ``kube_deployment_spec_replicas`` and ``kube_deployment_status_replicas_ready``; a StatefulSet's
  are spelt differently, ``kube_statefulset_replicas`` and ``kube_statefulset_status_replicas_ready``.
- A LeaderWorkerSet has none of its own, but its leaders are a StatefulSet of its name
  (kubernetes-sigs/lws, ``constructLeaderStatefulSetApplyConfiguration``), one leader to a replica.
- ``kube_pod_status_unschedulable`` exists only for pods without a node, and only with the value 1
  (``internal/store/pod.go``). It names the pod, not its owner: pods are told by how they are named.

``kube_pod_status_phase`` is not read: a pod that loads its model is ``Running``, so the phase does not tell the pending
ones. What is asked for, not ready, and not without a node is pending.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from scaler.policy.model import ScaleTarget
from scaler.signals.exposition import parse
from scaler.signals.observation import ReplicaCounts
from scaler.value import frozen

#: One series: its labels, the metric's name among them as ``__name__``, and its value.
Row: TypeAlias = tuple[Mapping[str, str], float]


class _Names(NamedTuple):
    """Where a kind's counts stand: the metrics of asked for and ready, and the label with the object's name."""

    asked: str
    ready: str
    label: str


_DEPLOYMENT: Final = _Names("kube_deployment_spec_replicas", "kube_deployment_status_replicas_ready", "deployment")
_STATEFULSET: Final = _Names("kube_statefulset_replicas", "kube_statefulset_status_replicas_ready", "statefulset")
_NAMES: Final = {"deployment": _DEPLOYMENT, "statefulset": _STATEFULSET, "leaderworkerset": _STATEFULSET}
_UNSCHEDULABLE: Final = "kube_pod_status_unschedulable"

#: Every metric that is read.
METRICS: Final = (*_DEPLOYMENT[:2], *_STATEFULSET[:2], _UNSCHEDULABLE)

_LABELS: Final = {name: kind.label for kind in (_DEPLOYMENT, _STATEFULSET) for name in kind[:2]}

#: The letters of what a ReplicaSet's name and its pods' names end in (k8s.io/apimachinery ``util/rand``), and how much
#: of a ReplicaSet's name a pod's name keeps (``maxGeneratedNameLength``).
_LETTERS: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_BASE_LENGTH, _RANDOM_LENGTH = 58, 5


@frozen
class KubeState:
    """The rows in order: counts by (metric, namespace, object), and the pods without a node by namespace."""

    counts: Mapping[tuple[str, str, str], int]
    without_node: Mapping[str, frozenset[str]]


def read_rows(rows: Iterable[Row]) -> KubeState:
    """Put rows in order, once for all workloads. Rows of other metrics, and values that are no count, are left out.

    Two exporters that say different things of one object are between two updates: the greater count is taken.
    """
    counts: dict[tuple[str, str, str], int] = {}
    without_node: dict[str, set[str]] = {}
    for labels, value in rows:
        name, namespace = labels.get("__name__", ""), labels.get("namespace", "")
        if not math.isfinite(value) or value < 0:
            continue
        if name in _LABELS:
            key = (name, namespace, labels.get(_LABELS[name], ""))
            counts[key] = max(int(value), counts.get(key, 0))
        elif name == _UNSCHEDULABLE and value:
            without_node.setdefault(namespace, set()).add(labels.get("pod", ""))
    return KubeState(counts, {namespace: frozenset(pods) for namespace, pods in without_node.items()})


def read_page(body: str) -> KubeState:
    """The same of kube-state-metrics' own page. Raises
    :class:`~scaler.signals.exposition.ExpositionError` for a body that is cut, or no metrics.
    """
    samples = parse(body, METRICS.__contains__).samples
    return read_rows(
        ({**sample.labels.values, "__name__": name}, sample.value) for name, each in samples.items() for sample in each
    )


def replica_counts(state: KubeState, namespace: str, target: ScaleTarget, at: float) -> ReplicaCounts:
    """The counts of one target as of ``at`` (monotonic seconds). What the rows do not tell is None, never 0."""
    if target.name is None:
        return ReplicaCounts(at, reason="the policy names no target")
    names = _NAMES[target.kind]
    asked = state.counts.get((names.asked, namespace, target.name))
    ready = state.counts.get((names.ready, namespace, target.name))
    missing = [name for name, count in ((names.asked, asked), (names.ready, ready)) if count is None]
    reason = f"no {' and no '.join(missing)} of {namespace}/{target.name}" if missing else ""
    if asked is None:
        return ReplicaCounts(at, ready=ready, reason=reason)
    # Those without a node have series of their own only where there are any: none is told by the target's being known.
    stuck = sum(_is_pod_of(pod, target) for pod in state.without_node.get(namespace, ()))
    pending = None if ready is None else max(0, asked - ready - stuck)
    return ReplicaCounts(at, ready, asked, pending, stuck, reason)


def _is_pod_of(pod: str, target: ScaleTarget) -> bool:
    """Whether a pod is named as the target's replicas are: ``NAME-HASH-RANDOM``, or ``NAME-0`` of a StatefulSet."""
    name = target.name or ""
    if target.kind != "deployment":
        return re.fullmatch(rf"{re.escape(name)}-\d+", pod, re.ASCII) is not None
    base, random = pod[:-_RANDOM_LENGTH], pod[-_RANDOM_LENGTH:]
    if re.fullmatch(_LETTERS + f"{{{_RANDOM_LENGTH}}}", random) is None:
        return False
    if len(base) < _BASE_LENGTH:
        return re.fullmatch(rf"{re.escape(name)}-{_LETTERS}{{1,10}}-", base) is not None
    start = f"{name}-"[:_BASE_LENGTH]
    return base.startswith(start) and re.fullmatch(rf"{_LETTERS}{{0,10}}-?", base[len(start) :]) is not None
