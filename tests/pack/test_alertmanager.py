"""deploy/alertmanager.yaml in a real amtool: it loads, it routes, and its inhibitions can work (G6-05)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from scaler.pack.model import Options
from scaler.pack.written import alerts
from tests.pack.cases.written import every_case
from tests.pack.promtool import run

SAMPLE = Path(__file__).parents[2] / "deploy" / "alertmanager.yaml"
OURS = alerts(Options())


def sample() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(SAMPLE.read_text())
    return document


@pytest.mark.real
def test_amtool_accepts_it() -> None:
    status, said = run("amtool", "check-config", SAMPLE)
    assert status == 0, said
    assert "SUCCESS" in said


@pytest.mark.real
@pytest.mark.parametrize(("severity", "receiver"), [("critical", "pager"), ("warning", "chat"), ("info", "log")])
def test_only_critical_pages(severity: str, receiver: str) -> None:
    for namespace in ("ai-team", "loadtide"):
        status, said = run(
            "amtool",
            "config",
            "routes",
            "test",
            f"--config.file={SAMPLE}",
            f"--verify.receivers={receiver}",
            "alertname=Any",
            f"severity={severity}",
            f"namespace={namespace}",
        )
        assert status == 0, said


@pytest.mark.real
def test_a_team_can_route_by_its_own_namespace(tmp_path: Path) -> None:
    """G6-05: a ScaledObject in ai-team, the scaler in another namespace: what pages the team is a matcher of theirs."""
    team = sample()
    matchers = ['severity = "critical"', 'namespace = "ai-team"']
    team["route"]["routes"].insert(0, {"matchers": matchers, "receiver": "team"})
    team["receivers"].append({"name": "team"})
    path = tmp_path / "alertmanager.yaml"
    path.write_text(yaml.safe_dump(team))
    for namespace, receiver in (("ai-team", "team"), ("other", "pager")):
        labels = (f"namespace={namespace}", "alertname=WorkloadStalled", "severity=critical", "workload=m")
        status, said = run(
            "amtool", "config", "routes", "test", f"--config.file={path}", f"--verify.receivers={receiver}", *labels
        )
        assert status == 0, said


def test_notifications_are_grouped_by_what_a_person_acts_on() -> None:
    assert sample()["route"]["group_by"] == ["alertname", "namespace", "workload"]


def test_what_an_inhibition_compares_both_sides_have() -> None:
    """Labels that both lack are equal: a pair without them would silence everybody else's alerts as well."""
    carried: dict[str, set[str]] = {}
    for case in every_case():
        for _, firing in () if case.query else case.expected:
            for labels in firing:
                carried.setdefault(case.alert, set(labels)).intersection_update(labels)
    for rule in sample()["inhibit_rules"]:
        for matchers in (rule["source_matchers"], rule["target_matchers"]):
            for name in names(matchers):
                assert set(rule.get("equal", ())) <= carried[name], f"{name} lacks a label of {rule['equal']}"


def test_inhibitions_speak_of_alerts_that_there_are_and_a_source_outweighs_its_target() -> None:
    weight = {"critical": 2, "warning": 1, "info": 0}
    severities: dict[str, set[str]] = {}
    for alert in OURS:
        severities.setdefault(alert.name, set()).add(alert.severity)
    for rule in sample()["inhibit_rules"]:
        sources, targets = names(rule["source_matchers"]), names(rule["target_matchers"])
        assert {*sources, *targets} <= severities.keys()
        assert all(weight["critical"] in {weight[each] for each in severities[source]} for source in sources)


def test_every_critical_alert_with_a_warning_of_the_same_thing_inhibits_it() -> None:
    pairs = {
        (source, target)
        for rule in sample()["inhibit_rules"]
        for source in names(rule["source_matchers"])
        for target in names(rule["target_matchers"])
    }
    assert {
        ("LatencyP95Critical", "LatencyP95High"),
        ("LatencyBudgetBurn", "LatencyBudgetBurn"),
        ("WorkloadStalled", "ReplicaStalled"),
        ("VramHeadroomCritical", "VramHeadroomLow"),
        ("VramExhausted", "VramGrowth"),
        ("KvExhausted", "KvCacheHeadroomLow"),
        ("KvExhausted", "KvPreemptions"),
        ("SourceDown", "SourceDown"),
        ("WakeFailed", "WakeFailed"),
        ("ScalerDown", "SignalStale"),
    } <= pairs


def names(matchers: list[str]) -> list[str]:
    """The alert names that matchers choose."""
    chosen = next(matcher for matcher in matchers if matcher.startswith("alertname"))
    return str(chosen.partition('"')[2].rstrip('"')).split("|")
