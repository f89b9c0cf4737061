"""Every panel asked of a real Prometheus that scrapes a real ``loadtide serve``, a stand-in for vLLM, and pages of
DCGM, kube-state-metrics and KEDA: under load something everywhere, at zero replicas no NaN and no error.

Time is shortened as for the rule pack: its waits and windows are a fraction of the shipped ones, and so are the fixed
steps in the panels' expressions. No Grafana takes part: what it does to an expression (variables, intervals) is done
here as it documents it.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import pytest

from scaler.pack.dashboards import dashboards
from scaler.pack.dashboards.model import Panel, Query
from scaler.pack.dashboards.queries import changed
from scaler.pack.dashboards.written import Form, files
from scaler.pack.model import Options
from scaler.pack.written import prometheus_rules
from tests.pack import promtool
from tests.pack.promtool import RELEASES
from tests.patience import at_last
from tests.real import load, prometheus_server, vllm_cpu
from tests.running_scaler import KedaPoll, RunningScaler, running_scaler

pytestmark = pytest.mark.real

#: The rule pack's durations are divided by this: 5 minutes are 10 seconds.
SHORTENED = 30.0
#: Seen: 15 s alone on the machine; a busy one takes what it takes.
SHOWN_SECONDS = 200.0
POD = "llama-8b-7d4b9c6f5d-x2k4v"

POLICY = """
sources:
  prometheus: {{url: "{prometheus}"}}
workloads:
  chat/llama-8b:
    scrape: {{urls: ["{engine}"]}}
    prometheus:
      source: prometheus
      queries:
        gpu_busy_ratio: max(DCGM_FI_DEV_GPU_UTIL) / 100
        sm_active_ratio: max(DCGM_FI_PROF_SM_ACTIVE)
    push: {{enabled: true}}
    window_seconds: 10
    hold_seconds: 5
    idle: {{timeout_seconds: 6}}
    objectives: {{ttft_seconds: 1, ttft_critical_seconds: 5, tpot_seconds: 0.05, e2e_seconds: 20}}
    batch: {{max: 16}}
    gpu_group: {{name: node-a/gpu-0, share_ratio: 0.5, batch: 16}}
    gpu: {{hour_price: 2.5}}
    budget: {{gpu_hours: 100}}
    replicas: {{max: 4, cold_start_seconds: 10, down_window_seconds: 4, down_step_seconds: 2}}
  images/classifier: # does not preallocate, and nobody answers
    engine: triton
    scrape: {{urls: ["http://127.0.0.1:9/metrics"]}}
"""

_GPU = 'gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="node-a"'
_HELD = f'{_GPU},namespace="chat",pod="{POD}",container="vllm"'
#: Of another node, whose exporter is newer: the label is written small since NVIDIA/dcgm-exporter#655.
_MIG = 'gpu="1",UUID="GPU-2",modelName="NVIDIA A100 80GB",hostname="node-b",GPU_I_ID="3",GPU_I_PROFILE="3g.40gb"'
#: As dcgm-exporter writes it. The card is there twice: as its pod has it, and as it stood before the pod came.
DCGM = "\n".join(
    [
        *(
            f"DCGM_FI_{field}{{{labels}}} {value}"
            for labels in (_HELD, _GPU)
            for field, value in {
                "DEV_GPU_UTIL": 97,
                "DEV_FB_USED": 74_000,
                "DEV_FB_FREE": 6_600,
                "DEV_FB_RESERVED": 650,
                "DEV_POWER_USAGE": 512.5,
                "DEV_GPU_TEMP": 61,
                "DEV_XID_ERRORS": 0,
                "PROF_GR_ENGINE_ACTIVE": 0.96,
                "PROF_SM_ACTIVE": 0.71,
                "PROF_SM_OCCUPANCY": 0.24,
            }.items()
        ),
        f"DCGM_FI_DEV_FB_USED{{{_MIG}}} 18000",
        f"DCGM_FI_DEV_FB_FREE{{{_MIG}}} 22000",
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_MIG}}} 0.42",
        "",
    ]
)
KUBE = """
kube_horizontalpodautoscaler_status_desired_replicas{namespace="chat",horizontalpodautoscaler="keda-hpa-llama-8b"} 1
kube_deployment_spec_replicas{namespace="chat",deployment="llama-8b"} 1
kube_deployment_status_replicas_ready{namespace="chat",deployment="llama-8b"} 1
kube_pod_info{namespace="chat",pod="any"} 1
"""
_TRIGGER = 'scaledObject="llama-8b",scaler="s0",triggerIndex="0",metric="desired-replicas",type="scaledobject"'
KEDA = f"""
keda_scaler_detail_errors_total{{exported_namespace="chat",namespace="keda",{_TRIGGER}}} 0
keda_scaled_object_errors_total{{exported_namespace="chat",namespace="keda",scaledObject="llama-8b"}} 0
keda_scaler_metrics_latency_seconds{{exported_namespace="chat",namespace="keda",{_TRIGGER}}} 0.004
keda_internal_scale_loop_latency_seconds{{namespace="chat",type="scaledobject",resource="llama-8b"}} 0.01
"""


#: Panels that are empty when all is well, hold only for some engines, or show what need not be declared: not here.
EXCEPTIONAL = (
    "Last decisions",
    "Decisions by target, direction and reason",
    "Sources that cannot be read",
    "VRAM headroom",
    "Budget of GPU-hours",
    "GPU-hours against always-on at peak size",
)


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = {"/dcgm": DCGM, "/kube": KUBE, "/keda": KEDA}[self.path].encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass
class World:
    """Everything that runs, at the end of a load (``loaded``) or at zero replicas."""

    prometheus: prometheus_server.Server
    scaler: RunningScaler
    engine: subprocess.Popen[str]
    url: str

    def targets(self, pages: str, *, engine: bool) -> list[prometheus_server.Target]:
        found = [
            prometheus_server.Target(self.scaler.http, {"job": "loadtide"}),
            *(prometheus_server.Target(pages, {"__metrics_path__": f"/{each}"}) for each in ("dcgm", "kube", "keda")),
        ]
        if engine:
            where = {"namespace": "chat", "pod": POD}
            found.append(prometheus_server.Target(self.url.removeprefix("http://"), where))
        return found


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module", params=RELEASES)
def world(request: pytest.FixtureRequest, pages: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    program = promtool.program("prometheus", request.param)
    folder = tmp_path_factory.mktemp("dashboards")
    rules = folder / "rules.yaml"
    rules.write_text(prometheus_rules(Options(), SHORTENED))
    command = [sys.executable, "-m", "scaler.lab.standin", "--speed", "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        try:
            assert engine.stdout is not None
            url = json.loads(engine.stdout.readline())["url"]
            storage = folder / "prometheus"
            with prometheus_server.serve(
                storage, rule_files=[rules], configuration=scraping(storage), program=program
            ) as server:
                policy = folder / "policy.yaml"
                policy.write_text(POLICY.format(engine=f"{url}/metrics", prometheus=server.url))
                arguments = ("--policy", str(policy), "--store", "memory", "--tick-seconds", "1")
                with running_scaler(folder, *arguments) as scaler:
                    yield World(server, scaler, engine, url)
        finally:
            engine.kill()


def scraping(storage: Path) -> dict[str, object]:
    """As dashboards/README.md asks: the namespace that a page names is the workload's, and is honoured."""
    discovered = [{"files": [str(storage / "targets.json")], "refresh_interval": "1s"}]
    return {"scrape_configs": [{"job_name": "pages", "honor_labels": True, "file_sd_configs": discovered}]}


def as_grafana_asks(
    expr: str, *, namespace: str = ".+", workload: str = ".+", model_name: str = ".+", node: str = ".+"
) -> str:
    """Grafana's variables filled in, and time shortened."""
    for name, value in (
        ("$__rate_interval", "8s"),
        ("$__interval", "2s"),
        ("$__range_s", "60"),
        ("$__range", "60s"),
        ("$namespace", namespace),
        ("$workload", workload),
        ("$model_name", model_name),
        ("$node", node),
    ):
        expr = expr.replace(name, value)
    assert not re.search(r"\$(?!\d)", expr), expr  # "$1" is label_replace's; Grafana has no variable 1
    return re.sub(r"(?<=:)1m\]|(?<=offset )1m\b|(?<=\[)30m(?=\])", lambda found: found[0].replace("m", "s"), expr)


def every_query() -> list[tuple[str, Panel, Query]]:
    return [
        (f"{dashboard.uid}: {panel.title} / {query.title or query.legend}", panel, query)
        for dashboard in dashboards()
        for panel in dashboard.panels
        for query in panel.queries
    ]


def silent(server: prometheus_server.Server, **chosen: str) -> dict[str, str]:
    """Queries that return nothing though they should: where → the expression asked."""
    asked = {
        where: as_grafana_asks(query.expr, **chosen)
        for where, panel, query in every_query()
        if not query.optional and not panel.empty_when_well
    }
    return {where: expr for where, expr in asked.items() if not server.query(expr)}


def not_numbers(server: prometheus_server.Server) -> list[str]:
    return [
        where
        for where, _, query in every_query()
        for series in server.query(as_grafana_asks(query.expr))
        if math.isnan(float(series["value"][1]))
    ]


def test_under_load_every_panel_shows_something(world: World, pages: str) -> None:
    world.prometheus.retarget(world.targets(pages, engine=True))
    keda = KedaPoll(world.scaler, "chat", "llama-8b")
    # Decisions are taken and a source fails: what is rightly empty otherwise is not now.
    exceptional = {where: query for where, panel, query in every_query() if panel.title in EXCEPTIONAL}
    assert len(exceptional) >= len(EXCEPTIONAL)

    def everything_is_shown() -> None:
        with suppress(grpc.RpcError):  # KEDA asks again
            keda.poll()
        for where, query in tuple(exceptional.items()):
            if world.prometheus.query(f"last_over_time(({as_grafana_asks(query.expr)})[60s:1s])"):
                del exceptional[where]  # a decision is not taken again and again
        missing = silent(world.prometheus)
        assert not missing, "\n\n".join(f"{where}\n{expr}" for where, expr in missing.items())
        assert not silent(world.prometheus, namespace="chat", workload="(llama-8b|other)", model_name="stand-in")
        assert not exceptional

    with closing(keda), load.streaming(world.url, streams=24, max_tokens=96):
        at_last(everything_is_shown, SHOWN_SECONDS)
        assert not not_numbers(world.prometheus)


def test_a_choice_of_another_namespace_shows_no_workload_of_this_one(world: World) -> None:
    by_workload = [each for each in every_query() if 'namespace=~"$namespace"' in each[2].expr]
    assert len(by_workload) > 40
    for where, panel, query in by_workload:
        found = world.prometheus.query(as_grafana_asks(query.expr, namespace="elsewhere"))
        assert panel.title == "Firing alerts" or not any(each["metric"].get("namespace") for each in found), where


def test_one_card_is_one_line_however_often_it_is_repeated(world: World) -> None:
    def line(query: Query) -> dict[str, str]:
        (only,) = world.prometheus.wait_for(as_grafana_asks(query.expr))
        return dict(only["metric"])

    for where, panel, query in every_query():
        if panel.title in ("Power", "Temperature", "Utilisation of each card"):
            assert line(query)["UUID"] == "GPU-1", where
        if panel.title == "Framebuffer by pod":
            assert line(query) == {"namespace": "chat", "pod": POD}, where


def test_a_node_is_found_and_chosen_by_either_spelling_of_its_label(world: World) -> None:
    gpu = json.loads(files(Form.JSON)["loadtide-gpu.json"])
    (variable,) = [each for each in gpu["templating"]["list"] if each["name"] == "node"]
    asked = re.fullmatch(r"query_result\((.+)\)", variable["query"], re.DOTALL)
    assert asked is not None

    def nodes() -> set[str]:
        # Grafana writes each series as the text of its labels, and takes what the pattern finds in it.
        texts = [
            ",".join(f'{name}="{value}"' for name, value in series["metric"].items())
            for series in world.prometheus.query(asked[1])
        ]
        return {found[1] for text in texts if (found := re.search(variable["regex"].strip("/"), text))}

    cards = {panel.title: query for _, panel, query in every_query()}

    def shown(title: str, node: str) -> set[str]:
        found = world.prometheus.query(as_grafana_asks(cards[title].expr, node=node))
        return {series["metric"]["hostname"] for series in found}

    def each_is_found() -> None:
        assert nodes() == {"node-a", "node-b"}
        assert (shown("Power", "node-a"), shown("Power", "node-b")) == ({"node-a"}, set())
        assert shown("Framebuffer of each instance", "node-a") == set()
        assert shown("Framebuffer of each instance", "node-b") == {"node-b"}

    at_last(each_is_found)


def test_annotations_and_choices_are_answered(world: World) -> None:
    for dashboard in dashboards():
        decided, firing = (as_grafana_asks(each.expr) for each in dashboard.annotations)
        assert world.prometheus.query(f"max_over_time(({decided})[10m:1s])")
        world.prometheus.query(firing)  # no error; nothing needs to fire
        for variable in dashboard.variables:
            found = world.prometheus.wait_for(as_grafana_asks(variable.series))
            assert any(series["metric"].get(variable.label) for series in found), variable


def test_at_zero_replicas_nothing_is_an_error_or_not_a_number(world: World, pages: str) -> None:
    server = world.prometheus
    server.wait_for('loadtide_desired_replicas{workload="llama-8b"} == 0', seconds=120)
    world.engine.kill()  # what KEDA and Kubernetes then do
    server.retarget(world.targets(pages, engine=False))
    server.wait_for('loadtide_ready_replicas{workload="llama-8b"} == 0')
    server.wait_for("absent(vllm:num_requests_running)")
    # The last reading is held for a while, and shown as long.
    server.wait_for('absent(loadtide_signal{signal="kv_use_ratio",workload="llama-8b"})', seconds=60)
    assert not not_numbers(server)
    at_last(lambda: zero_is_shown(server))


def zero_is_shown(server: prometheus_server.Server) -> None:
    shown = {
        f"{panel.title} / {query.title or query.legend}": [float(each["value"][1]) for each in found]
        for where, panel, query in every_query()
        if (found := server.query(as_grafana_asks(query.expr, namespace="chat")))
    }
    for title in ("State", "Ready", "Desired", "Running", "Waiting", "Age"):
        assert f"Workloads / {title}" in shown
    assert shown["Workloads / Running"] == [0.0]
    assert shown["Workloads / Ready"] == [0.0]
    assert shown["Replicas / {{namespace}}/{{workload}} ready"] == [0.0]
    assert shown["Requests per second / {{namespace}}/{{workload}} arriving"] == [0.0]
    for title in ("KV-cache headroom", "P95 time to first token", "Waiting for each ready replica"):
        assert not [each for each in shown if each.startswith(title) and "objective" not in each], title
    # A bound is a fact with or without traffic, and so is what the scaler knows and does.
    assert "P95 time to first token / {{namespace}}/{{workload}} {{bound}} objective" in shown
    assert "Load state / {{namespace}}/{{workload}}" in shown


def test_the_engine_panels_show_a_real_vllm(prometheus: str, vllm: vllm_cpu.Server, tmp_path: Path) -> None:
    """Names as an engine of today writes them, not as our stand-in does."""
    rules, policy = tmp_path / "rules.yaml", tmp_path / "policy.yaml"
    rules.write_text(prometheus_rules(Options(), SHORTENED))
    read = {"scrape": {"urls": [vllm.metrics_url]}, "window_seconds": 10}
    policy.write_text(json.dumps({"workloads": {"chat/tiny": read}}))  # YAML is a superset of JSON
    arguments = ("--policy", str(policy), "--store", "memory", "--tick-seconds", "1")
    storage = tmp_path / "prometheus"
    with (
        running_scaler(tmp_path, *arguments) as scaler,
        prometheus_server.serve(storage, rule_files=[rules], configuration=scraping(storage)) as server,
    ):
        engine = {"namespace": "chat", "pod": "tiny-7d4b9c6f5d-x2k4v"}
        server.retarget(
            [
                prometheus_server.Target(scaler.http, {}),
                prometheus_server.Target(vllm.url.removeprefix("http://"), engine),
            ]
        )
        asked = {
            where: as_grafana_asks(query.expr, namespace="chat", workload="tiny", model_name="tiny")
            for where, panel, query in every_query()
            if panel.needs == "rules" and not query.optional and panel.title != "Firing alerts"
        }
        assert len(asked) > 8
        with load.streaming(vllm.url, streams=12, max_tokens=32):

            def every_one_shows() -> None:
                missing = {where: expr for where, expr in asked.items() if not server.query(expr)}
                assert not missing, "\n\n".join(f"{where}\n{expr}" for where, expr in missing.items())

            at_last(every_one_shows, SHOWN_SECONDS)


@pytest.mark.parametrize(
    ("told", "marked"),
    [
        ("0 0 1 1 1", [2]),
        ("_ _ 1 1 3", [2, 4]),  # a series is born with its first decision
        ("2 2 stale 2 2", []),  # a missed scrape is no decision
        ("2 2 stale 3 3", [3]),
        ("5 5 0 0 1", [4]),  # a scaler that began anew
    ],
)
def test_each_decision_is_marked_once_and_nothing_else_is(
    prometheus: str, told: str, marked: list[int], tmp_path: Path
) -> None:
    labels = 'namespace="chat",workload="llama-8b",target="batch",direction="down",code="memory_pressure"'
    expr = f"count({as_grafana_asks(changed('60s'))})"
    tests = {
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": f"loadtide_decisions_total{{{labels}}}", "values": f"{told} {told[-1]}x3"}],
                "promql_expr_test": [
                    {
                        "expr": expr,
                        "eval_time": f"{minute}m",
                        "exp_samples": [{"labels": "{}", "value": 1}] if minute in marked else [],
                    }
                    for minute in range(1, 5)  # at 0 the storage begins, and with it everything
                ],
            }
        ],
    }
    path = tmp_path / "decisions.yaml"
    path.write_text(json.dumps(tests))
    command = [prometheus_server.binary("promtool"), "test", "rules", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
