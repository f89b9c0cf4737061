"""`loadtide probe` on a real vLLM's page and on a real Prometheus that scrapes one."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from scaler.cli import app
from scaler.policy.layers import PolicyFile
from tests.patience import at_last
from tests.real import prometheus_server, vllm_cpu
from tests.real.prometheus_server import Target
from tests.real.test_prometheus import Page, serving

pytestmark = pytest.mark.real

BODIES = Path(__file__).parents[1] / "signals" / "bodies"


def probe(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["probe", *arguments])


def test_a_real_vllm_misses_nothing(vllm: vllm_cpu.Server) -> None:
    result = probe(vllm.metrics_url)
    assert result.exit_code == 0, result.output
    assert "engine: vllm (18 of 18 families)" in result.stdout
    assert "missing" not in result.stdout
    lines = PolicyFile.parse("p.yaml", result.stdout[result.stdout.index("workloads:") :])
    (name,) = lines.workloads
    assert lines.resolve(name).policy.scrape.urls == (vllm.metrics_url,)


@pytest.mark.usefixtures("prometheus")
def test_a_real_prometheus_tells_engines_workloads_and_ages(tmp_path: Path) -> None:
    kube = 'kube_deployment_spec_replicas{namespace="chat",deployment="x"} 1\n'
    pages = {
        "a": (BODIES / "vllm-0.32-load.txt").read_text(),
        "b": (BODIES / "sglang.txt").read_text(),
        "c": (BODIES / "trtllm.txt").read_text(),
        "d": (BODIES / "tgi.txt").read_text() + kube,
    }
    with (
        serving(Page(pages["a"])) as a,
        serving(Page(pages["b"])) as b,
        serving(Page(pages["c"])) as c,
        serving(Page(pages["d"])) as d,
    ):
        targets = [
            Target(page.address, {"namespace": "chat", "pod": f"{name}-0"})
            for name, page in zip(pages, (a, b, c, d), strict=True)
        ]
        with prometheus_server.serve(tmp_path, targets) as server:
            server.wait_for('{__name__=~"up"} == 1', 4)
            at_last(lambda: everything_is_told(probe(server.url)))
            page = probe(f"{server.url}/metrics")
    assert page.exit_code == 1
    assert "give its API's address, without /metrics" in " ".join(page.stdout.split())


def everything_is_told(result: Result) -> None:
    said = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.output
    for engine in ("vllm", "sglang", "trtllm", "tgi"):
        assert f"engine {engine} (" in said
    assert 'namespace="chat", model_name="tiny": replicas: 1' in said
    assert 'namespace="chat", job="engines": replicas: 1' in said
    assert "replicas are told apart by pod" in said
    assert "fits less: triton" in said
    assert "kube-state-metrics: there" in said
    assert "vllm:num_requests_running" in said
    file = PolicyFile.parse("p.yaml", result.stdout[result.stdout.index("sources:") :])
    assert file.resolve("chat/tiny").policy.engine == "vllm"
