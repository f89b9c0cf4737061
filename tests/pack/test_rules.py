"""The rule pack as data: in step with its files, complete, routable (G6-05) and selectable (G6-01)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from scaler.cli import app
from scaler.pack.__main__ import files
from scaler.pack.dashboards.names import metric_names
from scaler.pack.model import Alert, Options, Recording
from scaler.pack.rules import SOURCES, groups
from scaler.pack.written import alerts, prometheus_rule, prometheus_rules
from scaler.policy.model import Objectives, ReplicaRange
from scaler.serve.gauges import GAUGES
from scaler.signals.dcgm import FIELDS
from scaler.signals.preset import load_preset
from tests.pack.cases.case import Case
from tests.pack.cases.written import RULES, every_case
from tests.pack.cases.written import files as case_files
from tests.pack.closure import misnamed, resting_on

OURS = alerts(Options())
NAMES = sorted({alert.name for alert in OURS})
CASES = every_case()
DOCUMENT = yaml.safe_load(prometheus_rules(Options()))


def cases_of(name: str) -> list[Case]:
    return [case for case in CASES if case.alert == name]


def rests_on_engines(name: str) -> bool:
    left = resting_on(DOCUMENT, {name})["groups"]
    return any(group["rules"] for group in left if group["name"] == "loadtide.vllm")


def test_the_committed_rules_are_the_generated_ones() -> None:
    for path, text in files().items():
        assert path.read_text() == text, f"{path.name} is not in step: python -m scaler.pack"


def test_the_committed_rule_tests_are_the_generated_ones() -> None:
    generated = case_files()
    assert set((RULES / "tests").glob("*.yaml")) == generated.keys(), "python -m tests.pack.cases"
    for path, text in generated.items():
        assert path.read_text() == text, f"{path.name} is not in step: python -m tests.pack.cases"


def test_every_alert_has_a_runbook_page_and_every_page_an_alert() -> None:
    pages = {path.stem: path.read_text() for path in (RULES / "runbooks").glob("*.md")}
    assert sorted(pages) == NAMES
    for name, text in pages.items():
        assert text.startswith(f"# {name}\n")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["What it means", "How to see it", "What to do first", "When to wake someone"], name


def test_what_a_runbook_does_in_the_scalers_pod_its_image_has() -> None:
    """There is no shell in it, and no curl: ``loadtide`` is all that can be run there."""
    pages = {path.stem: path.read_text() for path in (RULES / "runbooks").glob("*.md")}
    for name, text in pages.items():
        here = re.findall(r"scaler's pod: `([^`]+)`", text) + re.findall(r"`(kubectl[^`]* exec [^`]+)`", text)
        for command in here:
            asked = re.fullmatch(r"kubectl -n NAMESPACE exec deploy/loadtide -- loadtide (\w+) .*", command)
            assert asked, f"{name}: {command}"
            assert asked[1] in get_command(app).commands  # type: ignore[attr-defined]
    assert "loadtide probe" in pages["SourceDown"]


@pytest.mark.parametrize("alert", OURS, ids=lambda alert: f"{alert.name}-{alert.severity}")
def test_an_alert_can_be_read_and_routed(alert: Alert) -> None:
    assert alert.severity in ("critical", "warning", "info")
    assert re.fullmatch(r"\d+[smh]", alert.hold)
    assert alert.summary.endswith(".")
    assert alert.description.endswith(".")
    said = next(each for group in DOCUMENT["groups"] for each in group["rules"] if each.get("alert") == alert.name)
    assert said["annotations"]["runbook_url"] == f"https://runbooks.example.com/loadtide/{alert.name}.md"
    assert f"/d/loadtide-{alert.dashboard}" in said["annotations"]["dashboard_url"]


@pytest.mark.parametrize("name", NAMES)
def test_what_fires_carries_the_namespace_and_what_its_text_names(name: str) -> None:
    """G6-05. Seen on the alerts that promtool saw fire, absent() forms among them."""
    fired = [labels for case in cases_of(name) for _, firing in case.expected for labels in firing]
    assert fired
    for alert in (each for each in OURS if each.name == name):
        named = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
        optional = set(re.findall(r"{{ if \$labels\.(\w+) }}", alert.description))
        own = [labels for labels in fired if {"severity": alert.severity, **alert.labels}.items() <= labels.items()]
        assert own, f"no case sees {alert.name} fire as {alert.severity}"
        for labels in own:
            assert labels["namespace"]
            assert alert.scope == "scaler" or labels["workload"], "the workload's name is missing"
            assert named - optional <= labels.keys()


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_is_tried_at_rest_at_zero_in_a_gap_and_in_both_spellings(name: str) -> None:
    tried = " | ".join(case.name for case in cases_of(name))
    assert any(firing for case in cases_of(name) for _, firing in case.expected)
    for what in ("idle|nobody", "zero", "failed scrape|failed read|goes? away"):
        assert re.search(what, tried), f"{name}: no case for {what}"
    if rests_on_engines(name):
        assert "spelt with _" in tried
    if rests_on_engines(name) and name not in (
        "KvCacheHeadroomLow",
        "VramGrowth",
        "EngineMetricsMissing",
        "VramExhausted",
    ):
        assert "restart" in tried, f"{name}: no case for a counter that begins anew"


def expressions(kind: type[Recording] | type[Alert]) -> Iterator[tuple[str, str]]:
    for group in groups(Options()):
        for rule in group.rules:
            if isinstance(rule, kind):
                yield rule.record if isinstance(rule, Recording) else rule.name, rule.expr


def test_alerts_read_recorded_series_only() -> None:
    recorded = {name for name, _ in expressions(Recording)}
    for name, expr in expressions(Alert):
        assert set(metric_names(expr)) <= recorded, name


def test_every_raw_series_is_one_that_somebody_exports() -> None:
    recorded = {name for name, _ in expressions(Recording)}
    known = {f"loadtide_{name}" for name in GAUGES} | FIELDS.keys() | {"up", "loadtide_build_info", "loadtide_store_up"}
    known |= {f"DCGM_FI_DEV_FB_{part}" for part in ("USED", "FREE", "RESERVED")}
    for engine in SOURCES[:-2]:
        known |= load_preset(engine).wanted
    for name, expr in expressions(Recording):
        raw = {metric.replace(":", "_") for metric in metric_names(expr) if metric not in recorded}
        assert {metric for metric in raw if not metric.startswith("kube_")} <= known, name


def test_no_rule_reads_a_dead_name_alone() -> None:
    """G3-01, G3-05."""
    for name, expr in expressions(Recording):
        read = set(metric_names(expr))
        for metric in read:
            if metric.startswith(("vllm:", "sglang:")):
                assert metric.replace(":", "_", 1) in read, f"{name} reads {metric} in one spelling only"
        if "vllm:gpu_cache_usage_perc" in read:
            assert "vllm:kv_cache_usage_perc" in read


def test_every_aggregation_of_ours_keeps_the_namespace() -> None:
    gpus = "by (UUID, GPU_I_ID)"  # joined with the holder, whose namespace it then has
    targets = "by (job, instance)"
    for kind in (Recording, Alert):
        for name, expr in expressions(kind):
            for clause in re.findall(r"\bby \([^)]*\)", expr):
                assert "namespace" in clause or clause in (gpus, targets), f"{name}: {clause}"


def test_names_are_level_metric_operations() -> None:
    for name, _ in expressions(Recording):
        assert re.fullmatch(r"[a-z_]+:[a-z_]+:[a-z0-9_]+", name), name


def test_nothing_that_a_newer_prometheus_has_not() -> None:
    """3.x took ``holt_winters`` away, writes ``le`` as 1.0, and reads ranges open on the left."""
    for kind in (Recording, Alert):
        for name, expr in expressions(kind):
            assert "holt_winters" not in expr, name
            assert set(re.findall(r'\ble(?:!=|=~?|!~)"([^"]*)"', expr)) <= {"+Inf"}, name


def test_defaults_are_the_policys() -> None:
    assert (
        f">= {Objectives().minimum_samples}" in dict(expressions(Recording))["workload_objective:latency_seconds:p95"]
    )
    waits = {alert.hold for alert in OURS if alert.labels.get("cause") == "not_ready"}
    assert waits == {f"{ReplicaRange().load_timeout_seconds / 60:g}m"}


def test_a_prometheusrule_carries_the_labels_it_is_selected_by() -> None:
    """G6-01."""
    document = yaml.safe_load(prometheus_rule(Options(namespace="ops", labels={"release": "kps"})))
    assert (document["apiVersion"], document["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert document["metadata"]["labels"]["release"] == "kps"
    assert document["metadata"]["namespace"] == "ops"
    assert document["spec"]["groups"] == yaml.safe_load(prometheus_rules(Options(namespace="ops")))["groups"]


def test_a_prometheusrule_fits_into_one_kubectl_apply() -> None:
    """kubectl keeps the whole object in an annotation, which may have 256 KiB."""
    import json

    assert len(json.dumps(yaml.safe_load(prometheus_rule(Options())))) < 200_000


def test_a_series_looks_over_the_window_that_its_name_tells() -> None:
    recorded = [rule for group in DOCUMENT["groups"] for rule in group["rules"] if "record" in rule]
    assert [rule["record"] for rule in recorded if misnamed(rule)] == []
    named = next(rule for rule in recorded if rule["record"].endswith(":rate5m"))
    assert misnamed(named | {"expr": named["expr"].replace("[5m]", "[10m]")})
    summed = next(rule for rule in recorded if rule["record"].endswith("_increase6h"))
    assert misnamed(summed | {"expr": summed["expr"].replace("[359m:5m]", "[719m:5m]")})


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_is_left_out_with_its_alerts(source: str) -> None:
    left = groups(Options(without=frozenset({source})))
    assert {group.name for group in groups(Options())} - {group.name for group in left} == {f"loadtide.{source}"}


def test_the_command_prints_the_pack() -> None:
    run = CliRunner().invoke
    assert run(app, ["rules"]).output == prometheus_rules(Options())
    wanted = Options(
        namespace="ops",
        labels={"release": "kps"},
        without=frozenset({"dcgm", "tgi"}),
        runbooks="https://wiki/r",
        grafana="https://g",
    )
    said = ["--namespace", "ops", "--label", "release=kps", "--without", "dcgm,tgi"]
    urls = ["--runbooks", "https://wiki/r/", "--grafana", "https://g"]
    assert run(app, ["rules", "--format", "prometheusrule", *said, *urls]).output == prometheus_rule(wanted)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--without", "dgcm"], "no such source: dgcm"),
        (["--label", "release"], "NAME=VALUE"),
        (["--label", "my release=kps"], "no label that Kubernetes takes"),
        (["--label", "release=a b"], "no label that Kubernetes takes"),
        (["--namespace", "My_Space"], "is no namespace"),
        (["--namespace", ""], "is no namespace"),
        (["--runbooks", "wiki/runbooks"], "is not a URL"),
        (["--grafana", 'https://g" onload='], "is not a URL"),
    ],
)
def test_a_mistake_is_said(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["rules", *arguments])
    assert result.exit_code == 2
    assert said in re.sub(r"[\s│]+", " ", result.output)


def test_every_wait_and_window_can_be_shortened() -> None:
    text = prometheus_rules(Options(), shortened=60)
    assert not re.search(r"\[\d+[smhd]\b", text)
    assert not re.search(r"(?:for|keep_firing_for|interval): (?!0s)\d+[smhd]\b", text)
    assert "[5000ms]" in text
