"""Replica counts that a Prometheus holds of kube-state-metrics, where its answer is not whole."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from scaler.policy.model import ScaleTarget
from scaler.policy.prometheus import PrometheusServer
from scaler.signals.observation import ReplicaCounts
from scaler.signals.prometheus.api import Api
from scaler.signals.prometheus.kube_counts import KubeCounts
from tests.signals.fake_prometheus import FakePrometheus, serving, vector

ROWS = [
    ({"__name__": "kube_deployment_spec_replicas", "namespace": "chat", "deployment": "vllm"}, 5.0),
    ({"__name__": "kube_deployment_status_replicas_ready", "namespace": "chat", "deployment": "vllm"}, 2.0),
]


async def counted(rows: list[tuple[dict[str, str], float]], *warnings: str) -> ReplicaCounts:
    async with serving(FakePrometheus()) as fake, aiohttp.ClientSession() as session:
        fake.respond = lambda _: web.json_response(vector(*rows, warnings=warnings))
        return await KubeCounts("main", Api(PrometheusServer(url=fake.url))).counts(
            session,
            lambda: 100.0,
            tick_seconds=5.0,
            namespace="chat",
            cluster=None,
            target=ScaleTarget(name="vllm"),
            namespaces=lambda: frozenset({"chat"}),
        )


async def test_a_whole_answer_without_pods_that_lack_a_node_says_that_the_others_load() -> None:
    assert await counted(ROWS) == ReplicaCounts(100.0, 2, 5, pending=3, unschedulable=0)


@pytest.mark.parametrize(("rows", "missing"), [(ROWS, ""), (ROWS[1:], "no kube_deployment_spec_replicas")])
async def test_a_partial_one_does_not_say_that_they_load(
    rows: list[tuple[dict[str, str], float]], missing: str
) -> None:
    """Pods without a node are no capacity to come, and their series may be what is missing."""
    told = await counted(rows, "store b: down")
    assert (told.ready, told.pending, told.unschedulable) == (2, None, None)
    assert told.asked == (None if missing else 5)
    assert told.reason.startswith("source main: partial data: store b: down")
    assert missing in told.reason
