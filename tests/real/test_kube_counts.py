"""kube-state-metrics' series in a real Prometheus: the one query for them is understood, labels come as exposed."""

from __future__ import annotations

import time
from pathlib import Path

import aiohttp
import pytest

from scaler.policy.model import ScaleTarget
from scaler.policy.prometheus import PrometheusServer
from scaler.signals.observation import ReplicaCounts
from scaler.signals.prometheus.api import Api
from scaler.signals.prometheus.kube_counts import KubeCounts
from tests.patience import comes_to
from tests.real import prometheus_server
from tests.real.test_prometheus import Page, serving
from tests.signals.test_replica_counts import PAGE

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("prometheus")]


@pytest.mark.parametrize("honour", [True, False])
async def test_a_target_is_counted_out_of_a_real_prometheus(tmp_path: Path, honour: bool) -> None:
    with serving(Page(PAGE)) as page:
        job = {
            "job_name": "kube-state-metrics",
            "honor_labels": honour,
            "static_configs": [{"targets": [page.address], "labels": {"namespace": "monitoring", "pod": "ksm-0"}}],
        }
        with prometheus_server.serve(tmp_path, configuration={"scrape_configs": [job]}) as server:
            server.wait_for("kube_deployment_spec_replicas", 2)
            counts = KubeCounts("main", Api(PrometheusServer(url=server.url)))
            async with aiohttp.ClientSession() as session:

                async def counted(namespace: str, target: ScaleTarget) -> ReplicaCounts:
                    return await counts.counts(
                        session,
                        time.monotonic,
                        tick_seconds=5.0,
                        namespace=namespace,
                        cluster=None,
                        target=target,
                        namespaces=lambda: frozenset({"chat", "other"}),
                    )

                async def all_are_counted() -> None:
                    vllm, llama = ScaleTarget(name="vllm"), ScaleTarget(kind="statefulset", name="llama")
                    deployment = await counted("chat", vllm)
                    assert (deployment.asked, deployment.ready) == (5, 2)
                    assert (deployment.pending, deployment.unschedulable) == (2, 1)
                    assert 0 <= time.monotonic() - deployment.at < 10
                    stateful = await counted("chat", llama)
                    assert (stateful.asked, stateful.ready, stateful.unschedulable) == (2, 0, 1)
                    nobody = await counted("elsewhere", vllm)
                    assert (nobody.asked, nobody.reason[:35]) == (None, "no kube_deployment_spec_replicas an")

                await comes_to(all_are_counted)
