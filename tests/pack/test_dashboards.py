"""The dashboards as files: in step with their source, importable anywhere, true to the metrics and alerts they show.

Field cases G6-02 (dashboards that show nothing when provisioned), G3-01 and G3-05 (renamed and respelt metrics).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from scaler.cli import app
from scaler.control.model import LoadState
from scaler.pack.dashboards import dashboards
from scaler.pack.dashboards.machinery import LOOP_LATENCY, OBJECT_ERRORS, SCALER_ERRORS, SCALER_LATENCY
from scaler.pack.dashboards.model import Panel
from scaler.pack.dashboards.names import metric_names
from scaler.pack.dashboards.words import STATES
from scaler.pack.dashboards.written import Form, files
from scaler.pack.model import Alert, Options, Recording
from scaler.pack.rules import groups
from scaler.pack.series import SCALER_HEALTHY
from scaler.serve.exporter import WorkloadCollector
from scaler.serve.owner_metrics import OwnerCollector
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.signals.dcgm import FIELDS
from scaler.signals.kube_state import METRICS
from scaler.signals.preset import load_preset
from tests.serve.tide import FakeWorkloads

FOLDER = Path(__file__).parents[2] / "dashboards"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

#: Other people's metrics, with where their names stand.
KEDA = {SCALER_ERRORS, OBJECT_ERRORS, SCALER_LATENCY, LOOP_LATENCY}  # keda, pkg/metricscollector/prommetrics.go
HPA = {"kube_horizontalpodautoscaler_status_desired_replicas"}  # kube-state-metrics, docs/metrics/workload
PROMETHEUS = {"ALERTS"}

PANELS = [
    pytest.param(dashboard.uid, panel, id=f"{dashboard.uid}: {panel.title}")
    for dashboard in dashboards()
    for panel in dashboard.panels
]


@cache
def documents() -> dict[str, Any]:
    return {name.removesuffix(".json"): json.loads(text) for name, text in files(Form.JSON).items()}


def nodes(document: Any) -> Iterator[Any]:
    yield document
    children = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    for child in children:
        yield from nodes(child)


def panels_of(document: Any) -> list[dict[str, Any]]:
    return [node for node in nodes(document["panels"]) if isinstance(node, dict) and "gridPos" in node]


@cache
def existing_metrics() -> frozenset[str]:
    registry = CollectorRegistry()
    registry.register(WorkloadCollector(FakeWorkloads()))
    registry.register(OwnerCollector(FakeWorkloads(), None, lambda: None))  # type: ignore[arg-type]
    RpcStatistics(registry)
    own = set()
    for family in registry.collect():
        match family.type:
            case "counter":
                own.add(f"{family.name}_total")
            case "histogram":
                own |= {f"{family.name}_{part}" for part in ("bucket", "count", "sum")}
            case "info":
                own.add(f"{family.name}_info")
            case _:
                own.add(family.name)
    engines = {
        name
        for engine in ("vllm", "sglang", "tgi", "triton")
        for family in load_preset(engine).families.values()
        for name in (*family.names, *family.plus)
    }
    recorded = {rule.record for group in groups(Options()) for rule in group.rules if isinstance(rule, Recording)}
    return frozenset(own | engines | recorded | set(FIELDS) | set(METRICS) | KEDA | HPA | PROMETHEUS)


def every_expression() -> Iterator[tuple[str, str]]:
    """(where it stands, expression) of every panel, annotation and variable."""
    for dashboard in dashboards():
        for panel in dashboard.panels:
            for query in panel.queries:
                yield f"{dashboard.uid}: {panel.title}", query.expr
        for annotation in dashboard.annotations:
            yield f"{dashboard.uid}: {annotation.name}", annotation.expr
        for variable in dashboard.variables:
            yield f"{dashboard.uid}: ${variable.name}", variable.series


# --- in step with their source


def test_the_committed_files_are_the_generated_ones() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert committed == files(Form.JSON), "run: python -m scaler.pack.dashboards"


# --- importable anywhere


@pytest.mark.parametrize("uid", ["loadtide-overview", "loadtide-decisions", "loadtide-gpu"])
def test_a_dashboard_can_be_provisioned_from_its_file(uid: str) -> None:
    document = documents()[uid]
    assert (document["uid"], document["id"], document["schemaVersion"]) == (uid, None, 39)
    assert not {"__inputs", "__requires", "__elements"} & document.keys()
    assert "${DS_" not in json.dumps(document)


@pytest.mark.parametrize("uid", documents())
def test_every_data_source_is_the_variable(uid: str) -> None:
    document = documents()[uid]
    sources = [node["datasource"] for node in nodes(document) if isinstance(node, dict) and "datasource" in node]
    assert sources
    assert all(source == DATASOURCE for source in sources)
    asking = [*panels_of(document), *document["annotations"]["list"], *document["templating"]["list"][1:]]
    assert all("datasource" in each for each in asking if each["type" if "type" in each else "name"] != "row")
    targets = [target for panel in panels_of(document) for target in panel.get("targets", ())]
    assert all("datasource" in target for target in targets)
    first = document["templating"]["list"][0]
    assert (first["type"], first["query"], first["name"]) == ("datasource", "prometheus", "datasource")


@pytest.mark.parametrize("uid", documents())
def test_the_choices_are_the_same_on_every_dashboard_and_all_means_all(uid: str) -> None:
    chosen = {each["name"]: each for each in documents()[uid]["templating"]["list"][1:]}
    assert {"namespace", "workload", "model_name"} <= chosen.keys()
    for variable in chosen.values():
        assert (variable["multi"], variable["includeAll"], variable["allValue"]) == (True, True, ".+")
        assert variable["query"].startswith("query_result(" if variable["name"] == "node" else "label_values(")


def test_a_choice_is_matched_as_a_pattern_and_one_by_model_hides_no_engine_that_names_none() -> None:
    used = set()
    for where, expr in every_expression():
        for label, operator, text in re.findall(r'(\w+)(=~|=|!=|!~)"([^"]*\$(?!__)[^"]*)"', expr):
            assert operator == "=~", where
            used.add(text)
            if label in ("model_name", "Hostname", "hostname"):  # labels that a series may lack
                assert text.endswith("|"), where
    assert {"$namespace", "$workload", "$model_name|", "$node|"} <= used


@pytest.mark.parametrize("uid", documents())
def test_dashboards_lead_to_one_another_with_time_and_choices(uid: str) -> None:
    document = documents()[uid]
    (link,) = document["links"]
    assert (link["type"], link["includeVars"], link["keepTime"]) == ("dashboards", True, True)
    assert set(link["tags"]) <= set(document["tags"])


@pytest.mark.parametrize("uid", documents())
def test_decisions_and_firing_alerts_are_marked_on_every_dashboard(uid: str) -> None:
    marks = {mark["name"]: mark["expr"] for mark in documents()[uid]["annotations"]["list"]}
    assert metric_names(marks["Decisions"]) == ("loadtide_decisions_total",)
    assert 'alertstate="firing"' in marks["Firing alerts"]
    # Grafana works these out wrongly for annotations (grafana/grafana#82636).
    assert not [expr for expr in marks.values() if "$__" in expr]


@pytest.mark.parametrize("uid", documents())
def test_panels_have_ids_of_their_own_and_do_not_overlap(uid: str) -> None:
    panels = panels_of(documents()[uid])
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in documents()[uid]["panels"]):
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells


# --- true to what they show


def test_every_metric_in_every_expression_exists() -> None:
    strangers = {
        (where, name)
        for where, expr in every_expression()
        for name in metric_names(expr)
        if name not in existing_metrics()
    }
    assert not strangers


def test_the_reader_of_names_sees_metrics_and_nothing_else() -> None:
    expr = (
        'max by (a, b) (rate(x_total{l=~"not_me|y{}",m="n"}[5m] offset 1m)) > 0 and on (c) rec:y:sum or vector(0) / Inf'
    )
    assert metric_names(expr) == ("x_total", "rec:y:sum")
    assert metric_names("max_over_time(timestamp((a unless b offset 1m) > bool 0)[$__range:1m]) * 1e3") == ("a", "b")


def test_no_engine_is_asked_by_one_spelling_of_a_name() -> None:
    """Engines rename and respell; the recorded series have every spelling behind them (G3-01, G3-05)."""
    engines = ("vllm", "sglang", "tgi_", "nv_inference", "lmdeploy", "llamacpp")
    assert not [name for _, expr in every_expression() for name in metric_names(expr) if name.startswith(engines)]


@pytest.mark.parametrize(("uid", "panel"), PANELS)
def test_a_panel_says_what_it_shows_and_what_nothing_means(uid: str, panel: Panel) -> None:
    assert len(panel.meaning) > 20
    assert panel.unit
    assert panel.nothing
    (document,) = [each for each in panels_of(documents()[uid]) if each["title"] == panel.title]
    for query in panel.queries:
        for name in metric_names(query.expr):
            assert f"`{name}`" in document["description"]
    defaults = document["fieldConfig"]["defaults"]
    assert defaults["noValue"] == panel.nothing
    assert defaults["mappings"][-1]["options"]["match"] == "null+nan"
    assert defaults["thresholds"]["steps"][0]["value"] is None


@pytest.mark.parametrize(("uid", "panel"), PANELS)
def test_ranges_of_rates_follow_the_graph(uid: str, panel: Panel) -> None:
    """A fixed range is blank on short times and blind on long ones; an alert's own is a fact about the alert."""
    alerts_own = {"Changes of replicas and batch in 30 minutes"}
    for query in panel.queries:
        for function, window in re.findall(r"\b(rate|increase|irate)\([^\[]*\[([^\]]+)\]", query.expr):
            assert window == "$__rate_interval" or panel.title in alerts_own, (function, window)


def test_every_load_state_has_its_word() -> None:
    assert {word.text for word in STATES.values()} == {state.value for state in LoadState}


def test_no_two_panels_of_a_dashboard_have_one_title() -> None:
    for dashboard in dashboards():
        titles = [panel.title for panel in dashboard.panels]
        assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("alert", "panel", "on_the_panel"),
    [
        ("KvCacheHeadroomLow", "KV-cache headroom", lambda value: 1 - value),
        ("KvExhausted", "KV-cache headroom", lambda value: 1 - value),
        ("KvCacheHeadroomLow", "KV-cache use, by model", float),
        ("KvExhausted", "KV-cache use, by model", float),
        ("KvPreemptions", "Preemptions per second", float),
        ("VramGrowth", "Growth since loading", float),
        ("Flapping", "Changes of replicas and batch in 30 minutes", float),
    ],
)
def test_a_panels_thresholds_are_its_alerts(alert: str, panel: str, on_the_panel: Any) -> None:
    compared = first_number_compared(alert)
    steps = [step.value for shown in all_panels(panel) for step in shown.steps if step.value is not None]
    assert any(step == pytest.approx(on_the_panel(compared)) for step in steps), (compared, steps)


def test_the_buffer_of_device_memory_is_drawn_where_its_alert_is() -> None:
    (factor,) = re.findall(r"([\d.]+) \* workload:gpu_free_emergency_ratio", alert_expression("VramHeadroomLow"))
    drawn = [query.expr for panel in all_panels("VRAM headroom") for query in panel.queries]
    assert any(expr.startswith(f"{factor} * workload:gpu_free_emergency_ratio") for expr in drawn)


def test_latency_is_held_against_the_objectives_that_its_alerts_compare() -> None:
    recorded = "workload_objective:objective_seconds:max"
    assert recorded in metric_names(alert_expression("LatencyP95Critical"))
    (shown,) = all_panels("P95 that the alerts compare")
    (factor,) = re.findall(r"(\d+) \* workload_objective:empty_replica", alert_expression("LatencyP95Critical"))
    assert any(query.expr.startswith(f"{factor} * workload_objective:empty_replica") for query in shown.queries)
    assert {metric_names(query.expr) for query in shown.queries} == {
        (recorded,),
        ("workload_objective:empty_replica_seconds:max",),
        ("workload_model_name_objective:latency_seconds:p95",),
    }
    for title in ("P95 time to first token", "P95 time per output token", "P95 end to end"):
        (panel,) = all_panels(title)
        assert ("loadtide_objective_seconds",) in {metric_names(query.expr) for query in panel.queries if query.dashed}


def all_panels(title: str) -> list[Panel]:
    return [panel for dashboard in dashboards() for panel in dashboard.panels if panel.title == title]


def alert_expression(name: str) -> str:
    rules = (rule for group in groups(Options()) for rule in group.rules)
    return next(rule.expr for rule in rules if isinstance(rule, Alert) and rule.name == name)


def first_number_compared(alert: str) -> float:
    found = re.search(r"[<>]=?\s*(\d[\d.]*)", alert_expression(alert))
    assert found
    return float(found[1])


def test_a_scaler_counts_as_hanging_where_its_alert_says() -> None:
    (healthy,) = [
        rule.expr
        for group in groups(Options())
        for rule in group.rules
        if isinstance(rule, Recording) and rule.record == SCALER_HEALTHY
    ]
    (shown,) = all_panels("Age of the last decision")
    assert f"> {shown.steps[-1].value}" in healthy


def test_dashboards_of_alerts_exist() -> None:
    alerts = [rule for group in groups(Options()) for rule in group.rules if isinstance(rule, Alert)]
    assert {f"loadtide-{alert.dashboard}" for alert in alerts} <= documents().keys()


# --- provisioning


def test_config_maps_carry_the_sidecars_label_and_the_same_json() -> None:
    made = CliRunner().invoke(app, ["dashboards", "--format", "configmap", "--namespace", "monitoring"])
    assert made.exit_code == 0, made.output
    maps = list(yaml.safe_load_all(made.output))
    assert [each["kind"] for each in maps] == ["ConfigMap"] * 3
    for each in maps:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["namespace"] == "monitoring"
        ((name, text),) = each["data"].items()
        assert text == files(Form.JSON)[name]
        # kubectl apply keeps a copy in an annotation, which holds no more than 256 KiB.
        assert len(text.encode()) < 200_000


def test_a_data_source_can_be_chosen_beforehand() -> None:
    made = CliRunner().invoke(app, ["dashboards", "gpu", "--datasource", "Thanos"])
    first = json.loads(made.output)["templating"]["list"][0]
    assert (first["current"]["text"], first["current"]["value"]) == ("Thanos", "Thanos")
    plain = json.loads(CliRunner().invoke(app, ["dashboards", "gpu"]).output)
    assert plain["templating"]["list"][0]["current"] == {}
    assert plain == json.loads(files(Form.JSON)["loadtide-gpu.json"])


def test_all_three_are_written_into_a_folder(tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["dashboards", "--out", str(tmp_path / "new")])
    assert made.exit_code == 0, made.output
    assert {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "new").iterdir()} == files(Form.JSON)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    made = CliRunner().invoke(app, ["dashboards", "--out", str(tmp_path / "file" / "new")])
    assert made.exit_code == 2
    assert "cannot be written (Not a directory)" in " ".join(made.output.replace("│", "").split())


def test_a_namespace_that_no_cluster_takes_is_refused() -> None:
    made = CliRunner().invoke(app, ["dashboards", "--format", "configmap", "--namespace", "My_Space"])
    assert made.exit_code == 2
    assert "is no namespace" in " ".join(made.output.replace("│", "").split())


def test_three_dashboards_are_not_printed_as_one_json() -> None:
    made = CliRunner().invoke(app, ["dashboards"])
    assert made.exit_code == 2
    assert "name one" in " ".join(made.output.split())
