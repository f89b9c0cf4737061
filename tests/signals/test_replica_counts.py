"""Replica counts out of kube-state-metrics' series."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.model import ScaleTarget
from scaler.signals.exposition import ExpositionError
from scaler.signals.kube_state import METRICS, Row, read_page, read_rows, replica_counts
from scaler.signals.observation import ReplicaCounts

VLLM = ScaleTarget(name="vllm")
LLAMA = ScaleTarget(kind="statefulset", name="llama")

#: As kube-state-metrics 2.x exposes it, cut to what matters and what is easily mistaken.
PAGE = """\
# HELP kube_deployment_spec_replicas [STABLE] Number of desired pods for a deployment.
# TYPE kube_deployment_spec_replicas gauge
kube_deployment_spec_replicas{namespace="chat",deployment="vllm"} 5
kube_deployment_spec_replicas{namespace="other",deployment="vllm"} 9
# HELP kube_deployment_status_replicas [STABLE] The number of replicas per deployment.
# TYPE kube_deployment_status_replicas gauge
kube_deployment_status_replicas{namespace="chat",deployment="vllm"} 5
# HELP kube_deployment_status_replicas_ready [STABLE] The number of ready replicas per deployment.
# TYPE kube_deployment_status_replicas_ready gauge
kube_deployment_status_replicas_ready{namespace="chat",deployment="vllm"} 2
kube_deployment_status_replicas_ready{namespace="other",deployment="vllm"} 9
# HELP kube_statefulset_replicas [STABLE] Number of desired pods for a StatefulSet.
# TYPE kube_statefulset_replicas gauge
kube_statefulset_replicas{namespace="chat",statefulset="llama"} 2
kube_statefulset_replicas{namespace="chat",statefulset="llama-0"} 1
# HELP kube_statefulset_status_replicas_ready [STABLE] The number of ready replicas per StatefulSet.
# TYPE kube_statefulset_status_replicas_ready gauge
kube_statefulset_status_replicas_ready{namespace="chat",statefulset="llama"} 0
# HELP kube_pod_status_phase [STABLE] The pods current phase.
# TYPE kube_pod_status_phase gauge
kube_pod_status_phase{namespace="chat",pod="vllm-7d9f8b6c5-x7k2m",uid="1",phase="Pending"} 1
# HELP kube_pod_status_unschedulable [STABLE] Describes the unschedulable status for the pod.
# TYPE kube_pod_status_unschedulable gauge
kube_pod_status_unschedulable{namespace="chat",pod="vllm-7d9f8b6c5-x7k2m",uid="1"} 1
kube_pod_status_unschedulable{namespace="chat",pod="vllm-router-7d9f8b6c5-x7k2m",uid="2"} 1
kube_pod_status_unschedulable{namespace="other",pod="vllm-7d9f8b6c5-x7k2m",uid="3"} 1
kube_pod_status_unschedulable{namespace="chat",pod="llama-1",uid="4"} 1
kube_pod_status_unschedulable{namespace="chat",pod="llama-0-1",uid="5"} 1
"""


def row(name: str, value: float, **labels: str) -> Row:
    return {"__name__": name, "namespace": "chat", **labels}, value


def counted(*rows: Row, target: ScaleTarget = VLLM) -> ReplicaCounts:
    return replica_counts(read_rows(rows), "chat", target, at=7.0)


def test_a_deployment_is_counted_out_of_a_page() -> None:
    counts = replica_counts(read_page(PAGE), "chat", VLLM, at=7.0)

    assert counts == ReplicaCounts(7.0, ready=2, asked=5, pending=2, unschedulable=1)


def test_the_same_rows_from_a_prometheus_say_the_same() -> None:
    rows = (
        row("kube_deployment_spec_replicas", 5.0, deployment="vllm", cluster="a"),
        row("kube_deployment_status_replicas_ready", 2.0, deployment="vllm"),
        row("kube_pod_status_unschedulable", 1.0, pod="vllm-7d9f8b6c5-x7k2m"),
        row("up", 1.0),
    )

    assert counted(*rows) == ReplicaCounts(7.0, ready=2, asked=5, pending=2, unschedulable=1)


@pytest.mark.parametrize("kind", ["statefulset", "leaderworkerset"])
def test_a_stateful_set_and_the_leaders_of_a_leader_worker_set_are_counted_alike(kind: Any) -> None:
    counts = replica_counts(read_page(PAGE), "chat", ScaleTarget(kind=kind, name="llama"), at=7.0)

    # llama-0-1 is a worker of the first group, which lacks nothing but a leader that is ready.
    assert counts == ReplicaCounts(7.0, ready=0, asked=2, pending=1, unschedulable=1)


def test_zero_asked_for_is_known_zero() -> None:
    counts = counted(
        row("kube_deployment_spec_replicas", 0.0, deployment="vllm"),
        row("kube_deployment_status_replicas_ready", 0.0, deployment="vllm"),
    )

    assert counts == ReplicaCounts(7.0, ready=0, asked=0, pending=0, unschedulable=0)


def test_a_target_without_series_is_unknown_never_zero() -> None:
    counts = counted(row("kube_deployment_spec_replicas", 3.0, deployment="another"))

    assert (counts.asked, counts.ready, counts.pending, counts.unschedulable) == (None, None, None, None)
    assert counts.reason == (
        "no kube_deployment_spec_replicas and no kube_deployment_status_replicas_ready of chat/vllm"
    )


def test_what_is_pending_is_not_known_without_the_ready_ones() -> None:
    counts = counted(row("kube_deployment_spec_replicas", 3.0, deployment="vllm"))

    assert (counts.asked, counts.ready, counts.pending) == (3, None, None)
    assert counts.reason == "no kube_deployment_status_replicas_ready of chat/vllm"


def test_more_ready_than_asked_for_is_no_negative_pending() -> None:
    rows = (
        row("kube_deployment_spec_replicas", 2.0, deployment="vllm"),
        row("kube_deployment_status_replicas_ready", 3.0, deployment="vllm"),
    )

    assert counted(*rows).pending == 0


def test_of_two_exporters_the_greater_count_and_each_pod_once() -> None:
    rows = [
        row("kube_deployment_spec_replicas", count, deployment="vllm", instance=instance)
        for instance, count in (("a", 3.0), ("b", 4.0))
    ]
    rows += [row("kube_pod_status_unschedulable", 1.0, pod="vllm-6c5-x7k2m", instance=name) for name in "ab"]

    assert (counted(*rows).asked, counted(*rows).unschedulable) == (4, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_value_that_is_no_count_is_not_told(value: float) -> None:
    assert counted(row("kube_deployment_spec_replicas", value, deployment="vllm")).asked is None


def test_without_a_target_nothing_is_counted() -> None:
    assert counted(target=ScaleTarget()).reason == "the policy names no target"


@pytest.mark.parametrize(
    ("pod", "is_one"),
    [
        ("vllm-7d9f8b6c5-x7k2m", True),
        ("vllm-7-x7k2m", True),
        ("vllm-x7k2m", False),  # a pod of a ReplicaSet named vllm
        ("vllm-api-7d9f8b6c5-x7k2m", False),  # of the Deployment vllm-api
        ("my-vllm-7d9f8b6c5-x7k2m", False),
        ("vllm-7d9f8b6c5-0", False),
        ("vllm-aeiou-x7k2m", False),  # no letters that a hash has
    ],
)
def test_a_pod_is_told_by_how_its_deployment_names_it(pod: str, is_one: bool) -> None:
    rows = (
        row("kube_deployment_spec_replicas", 3.0, deployment="vllm"),
        row("kube_pod_status_unschedulable", 1.0, pod=pod),
    )

    assert counted(*rows).unschedulable == int(is_one)


@given(st.integers(1, 120))
def test_a_long_name_is_cut_in_its_pods_names_and_still_told(length: int) -> None:
    name = ("llama-70b-instruct-" * 10)[:length].rstrip("-") or "x"
    replica_set = f"{name}-7d9f8b6c5-"
    rows = (
        row("kube_deployment_spec_replicas", 3.0, deployment=name),
        row("kube_pod_status_unschedulable", 1.0, pod=replica_set[:58] + "x7k2m"),
        row("kube_pod_status_unschedulable", 1.0, pod="another-7d9f8b6c5-x7k2m"),
    )

    assert counted(*rows, target=ScaleTarget(name=name)).unschedulable == 1


def test_a_page_that_is_none_is_refused() -> None:
    with pytest.raises(ExpositionError):
        read_page("<html>login</html>")


def test_every_metric_that_is_read_is_named() -> None:
    assert {name for name in METRICS if name in PAGE} == set(METRICS)
