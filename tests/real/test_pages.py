"""From the fault to the page: the real scaler, real Prometheus with the pack, real Alertmanager with the sample.

Engines and the DCGM exporter are pages that the test writes. Every wait and window of the rules is a thirtieth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaler.pack.model import Options
from scaler.pack.written import prometheus_rules
from tests.patience import at_last
from tests.real import alertmanager_server, prometheus_server
from tests.real.alertmanager_server import Alertmanager, Webhook
from tests.real.prometheus_server import Server, Target
from tests.running_scaler import RunningScaler, running_scaler

pytestmark = pytest.mark.real

SAMPLE = Path(__file__).parents[2] / "deploy" / "alertmanager.yaml"
SHORTENED = 30
#: For whatever is to come; it costs nothing when all is well.
LONG_SECONDS = 120.0
TOKEN = "gateway-token"
POLICY = """
tenancy: {{metadata_urls: allow}}
workloads:
  chat/late: {{scrape: {{urls: ["{late}"]}}, replicas: {{max: 4}}, batch: {{max: 64}}}}
  chat/kv: {{scrape: {{urls: ["{kv}"]}}, replicas: {{max: 4}}, batch: {{max: 64}}}}
  chat/vram: {{engine: triton, scrape: {{urls: ["{vram}"]}}, replicas: {{max: 4}}, batch: {{max: 64}}}}
  chat/hopeless:
    scrape: {{urls: ["{hopeless}"]}}
    replicas: {{max: 4}}
    batch: {{max: 64}}
    window_seconds: 10
    objectives: {{ttft_seconds: 1, ttft_critical_seconds: 4}}
  chat/asleep:
    scrape: {{urls: ["{asleep}"]}}
    replicas: {{max: 4, load_timeout_seconds: 3}}
    push: {{enabled: true}}
    idle: {{timeout_seconds: 1}}
"""


class Page:
    """A metrics page whose text a function writes anew for each scrape; ``up`` False refuses them."""

    def __init__(self, text: Callable[[float], str]) -> None:
        self.up = True
        page, began = self, time.monotonic()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if not page.up:
                    self.send_error(503)
                    return
                body = text(time.monotonic() - began).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{self.address}/metrics"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def vllm_page(
    seconds: float, *, slow: float, quick: float, kv: float = 0.1, preempted: float = 0.0, busy: int = 4
) -> str:
    """A vLLM's page after so many requests, slow ones with a TTFT of 5 to 10 s and quick ones of up to 0.5 s."""
    labels = 'engine="0",model_name="m"'
    finished = slow + quick
    buckets = {"0.5": quick, "1": quick, "5": quick, "10": finished, "+Inf": finished}
    return (
        f"vllm:num_requests_running{{{labels}}} {busy}\n"
        f"vllm:num_requests_waiting{{{labels}}} 0\n"
        f"vllm:kv_cache_usage_perc{{{labels}}} {kv}\n"
        f"vllm:num_preemptions_total{{{labels}}} {preempted}\n"
        f"vllm:prompt_tokens_total{{{labels}}} {finished * 100}\n"
        f"vllm:generation_tokens_total{{{labels}}} {finished * 50}\n"
        f'vllm:request_success_total{{{labels},finished_reason="stop"}} {finished}\n'
        + "".join(
            f'vllm:time_to_first_token_seconds_bucket{{{labels},le="{bound}"}} {count}\n'
            for bound, count in buckets.items()
        )
        + f"vllm:time_to_first_token_seconds_count{{{labels}}} {finished}\n"
        + f"vllm:time_to_first_token_seconds_sum{{{labels}}} {slow * 7 + quick * 0.3}\n"
    )


@dataclass
class Cluster:
    """Everything that runs."""

    webhook: Webhook
    alertmanager: Alertmanager
    prometheus: Server
    scaler: RunningScaler
    #: The seconds at which the late engine got well, once it did.
    well_since: list[float]
    began: float
    asleep: Page

    def suppressed(self, alert: str, workload: str) -> bool:
        """Whether Alertmanager has the alert, and keeps it to itself because another one says it."""
        return any(
            each["labels"]["alertname"] == alert
            and each["labels"].get("workload") == workload
            and each["status"]["inhibitedBy"]
            for each in self.alertmanager.alerts()
        )

    def until(self, true: Callable[[], Any], seconds: float, what: str) -> None:
        due = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < due, f"not within {seconds:g} s: {what}"
            time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("pages")
    well_since: list[float] = []

    def late(seconds: float) -> str:
        # Well again, it serves so much that the slow ones vanish from every window at once.
        ill = seconds if not well_since else well_since[0]
        return vllm_page(seconds, slow=10 * ill, quick=5000 * (seconds - ill))

    def asleep(seconds: float) -> str:
        return vllm_page(seconds, slow=0, quick=100, busy=0)

    pages = {
        "late": Page(late),
        "kv": Page(lambda seconds: vllm_page(seconds, slow=0, quick=10 * seconds, kv=0.99, preempted=2 * seconds)),
        "hopeless": Page(lambda seconds: vllm_page(seconds, slow=10 * seconds, quick=0, busy=1)),
        "vram": Page(lambda seconds: f'nv_inference_request_success{{model="m",version="1"}} {10 * seconds}\n'),
        "asleep": Page(asleep),
        "dcgm": Page(
            lambda _: "".join(
                f'DCGM_FI_DEV_FB_{field}{{gpu="0",UUID="GPU-1",pod="vram-6d5f7c9b8d-x2x4z",namespace="chat"}} {mib}\n'
                for field, mib in (("USED", 76000), ("FREE", 4000))
            )
        ),
    }
    policy = folder / "policy.yaml"
    policy.write_text(POLICY.format(**{name: page.url for name, page in pages.items()}))
    pack = folder / "loadtide.rules.yaml"
    pack.write_text(prometheus_rules(Options(), shortened=SHORTENED))
    with ExitStack() as stack:
        for page in pages.values():
            stack.callback(page.close)
        try:
            prometheus_server.binary()
            hook = stack.enter_context(alertmanager_server.webhook())
            alertmanager = stack.enter_context(alertmanager_server.serve(folder / "alertmanager", sample(hook.url)))
        except (prometheus_server.Unavailable, alertmanager_server.Unavailable) as reason:
            pytest.skip(str(reason))
        arguments = ("--policy", str(policy), "--store", "memory", "--tick-seconds", "0.2")
        scaler = stack.enter_context(running_scaler(folder, *arguments, environment={"LOADTIDE_TOKEN": TOKEN}))
        targets = [
            Target(page.address, {"namespace": "chat", "pod": f"{name}-6d5f7c9b8d-x2x4z"})
            for name, page in pages.items()
            if name != "dcgm"
        ]
        targets += [
            Target(pages["dcgm"].address, {"namespace": "gpu", "pod": "dcgm-exporter-x2x4z"}),
            Target(scaler.http, {"namespace": "ops", "pod": "loadtide-0"}),
        ]
        server = stack.enter_context(
            prometheus_server.serve(
                folder / "prometheus",
                targets,
                rule_files=[pack],
                configuration={
                    "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager.address]}]}]}
                },
            )
        )
        yield Cluster(hook, alertmanager, server, scaler, well_since, time.monotonic(), pages["asleep"])


def sample(hook: str) -> dict[str, Any]:
    """deploy/alertmanager.yaml, with the test's receivers and shorter waits: as long as what inhibits an alert may come
    after it on a machine that stands still now and then.
    """
    document: dict[str, Any] = yaml.safe_load(SAMPLE.read_text())
    for receiver in document["receivers"]:
        receiver["webhook_configs"][0]["url"] = f"{hook}/{receiver['name']}"
    document["route"] |= {"group_wait": "12s", "group_interval": "1s"}
    document["route"]["routes"][0]["group_wait"] = "4s"
    return document


def pages(cluster: Cluster, workload: str) -> list[str]:
    return [alert["labels"]["alertname"] for alert in cluster.webhook.alerts("pager", "firing", workload=workload)]


def test_a_workload_that_demand_waits_for_and_that_does_not_load_pages(cluster: Cluster) -> None:
    """First, because it takes a while: asleep, woken, and loading in vain."""
    cluster.until(
        lambda: 'loadtide_active{namespace="chat",workload="asleep"} 0.0' in cluster.scaler.text("/metrics"),
        LONG_SECONDS,
        "zero",
    )
    # Prometheus takes some seconds to find its targets: it must see the wake, which ends with the failed load.
    cluster.prometheus.wait_for('workload:failed_loads:max{workload="asleep"}')
    cluster.asleep.up = False
    time.sleep(1.5)  # until the last reading of it is old

    def paged() -> dict[str, Any]:
        """Woken again where Prometheus stood still for as long as the wake and its failed load are to be seen."""
        assert cluster.scaler.post("/v1/workloads/chat/asleep/wake", {}, TOKEN) == 202
        return cluster.webhook.wait_for("pager", "firing", 25, alertname="DemandWithoutReplicas", workload="asleep")

    alert = at_last(paged, LONG_SECONDS)
    assert alert["labels"] == {
        "alertname": "DemandWithoutReplicas",
        "cause": "load_failed",
        "namespace": "chat",
        "severity": "critical",
        "workload": "asleep",
    }


def test_a_broken_critical_latency_pages_once_with_its_links_and_inhibits_the_warning(cluster: Cluster) -> None:
    alert = cluster.webhook.wait_for("pager", "firing", LONG_SECONDS, alertname="LatencyP95Critical", workload="late")
    assert alert["labels"] == {
        "alertname": "LatencyP95Critical",
        "model_name": "m",
        "namespace": "chat",
        "objective": "ttft",
        "severity": "critical",
        "workload": "late",
    }
    said = alert["annotations"]
    assert said["summary"] == "P95 ttft of chat/late is 9.75s, over its critical bound."
    assert said["runbook_url"] == "https://runbooks.example.com/loadtide/LatencyP95Critical.md"
    assert said["dashboard_url"].endswith("/d/loadtide-overview?var-namespace=chat&var-workload=late")
    for inhibited in ("LatencyP95High", "LatencyBudgetBurn"):
        cluster.until(
            lambda name=inhibited: cluster.suppressed(name, "late"), LONG_SECONDS, f"{inhibited} is inhibited"
        )
    assert not cluster.webhook.alerts("chat", "firing", workload="late")
    cluster.well_since.append(time.monotonic() - cluster.began)
    cluster.webhook.wait_for("pager", "resolved", LONG_SECONDS, alertname="LatencyP95Critical", workload="late")
    assert pages(cluster, "late") == ["LatencyP95Critical"]


def test_a_bound_that_no_replica_can_keep_ends_its_page_and_stays_a_warning(cluster: Cluster) -> None:
    """Nearly empty, and slower than 4 s all the same: who is woken could do nothing."""
    told = 'workload_objective_bound:infeasible:max{workload="hopeless",bound="critical"} > 0'
    cluster.prometheus.wait_for(told)
    alert = cluster.webhook.wait_for(
        "chat", "firing", LONG_SECONDS, alertname="LatencyP95Critical", workload="hopeless", severity="warning"
    )
    assert alert["annotations"]["description"].endswith("less than 4 times as long as they do: nobody is paged.")

    def paging() -> bool:
        labels = [each["labels"] for each in cluster.alertmanager.alerts()]
        return any(each.get("workload") == "hopeless" and each["severity"] == "critical" for each in labels)

    cluster.until(lambda: not paging(), LONG_SECONDS, "what paged before that was known has ended")
    cluster.until(lambda: cluster.suppressed("LatencyP95High", "hopeless"), LONG_SECONDS, "LatencyP95High is inhibited")


def test_a_full_kv_cache_that_preempts_pages_and_inhibits_its_warnings(cluster: Cluster) -> None:
    alert = cluster.webhook.wait_for("pager", "firing", LONG_SECONDS, alertname="KvExhausted", workload="kv")
    assert alert["annotations"]["description"].startswith("kv uses 99% of its KV cache")
    for inhibited in ("KvCacheHeadroomLow", "KvPreemptions"):
        cluster.until(lambda name=inhibited: cluster.suppressed(name, "kv"), LONG_SECONDS, f"{inhibited} is inhibited")
        assert not cluster.webhook.alerts("chat", "firing", alertname=inhibited, workload="kv")
    assert pages(cluster, "kv") == ["KvExhausted"]


def test_a_full_gpu_pages_where_the_engine_does_not_preallocate(cluster: Cluster) -> None:
    alert = cluster.webhook.wait_for("pager", "firing", LONG_SECONDS, alertname="VramHeadroomCritical", workload="vram")
    assert alert["annotations"]["summary"] == "chat/vram has 5% of a GPU's memory left."
    assert "/d/loadtide-gpu?" in alert["annotations"]["dashboard_url"]
    cluster.until(lambda: cluster.suppressed("VramHeadroomLow", "vram"), LONG_SECONDS, "VramHeadroomLow is inhibited")
    assert pages(cluster, "vram") == ["VramHeadroomCritical"]


def test_a_scaler_that_is_gone_pages_in_its_own_namespace_and_hides_what_follows_from_it(cluster: Cluster) -> None:
    """Last: nothing is measured any more."""
    assert not cluster.webhook.alerts("pager", "firing", alertname="ScalerDown")
    cluster.scaler.kill()
    alert = cluster.webhook.wait_for("pager", "firing", LONG_SECONDS, alertname="ScalerDown")
    assert alert["labels"] == {"alertname": "ScalerDown", "namespace": "ops", "severity": "critical"}
    assert alert["annotations"]["runbook_url"].endswith("/ScalerDown.md")
    assert len(cluster.webhook.alerts("pager", "firing", alertname="ScalerDown")) == 1
