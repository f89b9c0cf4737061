"""The Helm chart, installed by a real Helm engine into a double of the cluster's API: no cluster took part.

Field cases G6-01 (monitors and rules that nobody selects), G6-06 (locked down) and G6-08 (rights and namespaces).
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from scaler.check.examine import examine
from scaler.pack.dashboards.written import Form
from scaler.pack.dashboards.written import files as dashboards
from scaler.pack.model import Options
from scaler.pack.written import prometheus_rules
from tests.deploy.placed import (
    CLUSTER_SCOPED,
    container,
    hangs_together,
    one_spelling,
    options,
    read_by_the_check,
    selects,
)
from tests.deploy.test_examples import EXAMPLES
from tests.deploy.tools import CHART, Installed, Manifest, Release, Tools

pytestmark = pytest.mark.real

OPERATOR = {
    "monitoring": {
        "labels": {"release": "kps"},
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "rules": {"enabled": True, "without": ["dcgm", "tgi"], "runbooks": "https://wiki/r", "grafana": "https://g"},
        "dashboards": {"enabled": True},
    }
}
TLS = {"tls": {"grpc": {"secret": "grpc"}, "http": {"secret": "http"}}, "tokens": {"read": {"secret": "read"}}}
REDIS = {"replicas": 2, "store": {"type": "redis", "redisSecret": {"name": "redis"}}}
AGENTS = {"gpuMetrics": {"enabled": True}, "sidecar": {"enabled": True}}
RELEASES = {
    "defaults": Release(custom=False),
    "operator": Release("x", "team-a", OPERATOR),
    "tls": Release("x", "team-b", {**TLS, **OPERATOR, "keda": {"authentication": {"kind": "cluster"}}}),
    "namespaced": Release(
        "y",
        "team-a",
        {**TLS, "keda": {"authentication": {"kind": "namespaced", "namespaces": ["chat", "code"]}}},
    ),
    "ha": Release("x", "team-c", REDIS),
    "no rights": Release("x", "team-d", {"rbac": {"create": False}, "serviceAccount": {"create": False}}, custom=False),
    "own rights": Release(
        "x",
        "team-h",
        {
            "rbac": {"create": False},
            "serviceAccount": {"create": False, "name": "given"},
            "priorityClassName": "system-cluster-critical",
        },
        custom=False,
    ),
    "some namespaces": Release("x", "team-e", {"rbac": {"namespaces": ["chat", "code"]}}, custom=False),
    "agents": Release("x", "team-g", {**OPERATOR, "agent": AGENTS}),
    "memory": Release("x", "team-f", {"store": {"type": "memory"}, "networkPolicy": {"enabled": False}}, custom=False),
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two on one file": ({"replicas": 2}, "Set store.type=redis and store.redisSecret.name, or replicas=1"),
    "two without memory": ({"replicas": 2, "store": {"type": "memory"}}, "Set store.type=redis"),
    "redis where": ({"store": {"type": "redis"}}, "store.type=redis needs store.redisSecret.name"),
    "keda without tls": ({"keda": {"authentication": {"kind": "cluster"}}}, "set tls.grpc.secret as well"),
    "no time to end": ({"terminationGracePeriodSeconds": 20}, "write at least 21"),
    "no replica": ({"replicas": 0}, "replicas"),
    "unknown store": ({"store": {"type": "etcd"}}, "store/type"),
    "misspelt": ({"monitoring": {"serviceMonitors": {"enabled": True}}}, "serviceMonitors"),
    "a port's number": ({"monitoring": {"podMonitor": {"port": "8000"}}}, "podMonitor/port"),
    "unknown source": ({"monitoring": {"rules": {"without": ["dgcm"]}}}, "rules/without"),
    "policy as a mapping": ({"policy": {"defaults": {}}}, "policy"),
    "no such agent": ({"agent": {"gpuMetric": {"enabled": True}}}, "gpuMetric"),
    "everybody let in": ({"networkPolicy": {"grpcFrom": []}}, "grpcFrom"),
}


@pytest.fixture(scope="module")
def installs(tools: Tools) -> dict[str, Installed]:
    return dict(zip(RELEASES, tools.install(*RELEASES.values()), strict=True))


@pytest.fixture(scope="module")
def problems(tools: Tools, installs: dict[str, Installed]) -> dict[str, dict[str, str]]:
    return tools.problems_of({name: installed.objects for name, installed in installs.items()})


@pytest.fixture(scope="module")
def refused(tools: Tools) -> dict[str, Installed]:
    return dict(zip(REFUSED, tools.install(*(Release(values=each) for each, _ in REFUSED.values())), strict=True))


@pytest.mark.parametrize("name", RELEASES)
class TestEveryInstall:
    def test_hangs_together(self, installs: dict[str, Installed], name: str) -> None:
        assert not installs[name].error
        account = RELEASES[name].values.get("serviceAccount", {}).get("name", "")
        hangs_together(installs[name], RELEASES[name].namespace, account)

    def test_is_valid(self, problems: dict[str, dict[str, str]], name: str) -> None:
        assert problems[name] == {}

    def test_passes_our_own_check(self, installs: dict[str, Installed], name: str) -> None:
        assert examine({name: read_by_the_check(installs[name])}) == []

    def test_is_seen_to_work_by_its_notes(self, installs: dict[str, Installed], name: str) -> None:
        service, namespace = installs[name].one("Service"), RELEASES[name].namespace
        notes = installs[name].notes
        assert f"scalerAddress: {service['metadata']['name']}.{namespace}.svc:6000" in notes
        assert f"rollout status deployment/{service['metadata']['name']}" in notes
        monitored = bool(installs[name].of("ServiceMonitor"))
        assert ("get servicemonitors,podmonitors,prometheusrules --show-labels" in notes) is monitored
        authentications = installs[name].of("TriggerAuthentication") + installs[name].of("ClusterTriggerAuthentication")
        assert all(f"name: {each['metadata']['name']}" in notes for each in authentications)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_in_words(refused: dict[str, Installed], name: str) -> None:
    assert REFUSED[name][1] in refused[name].error
    assert not refused[name].objects


class TestManyReleases:
    """G6-08."""

    def test_none_makes_what_another_made(self, tools: Tools) -> None:
        values = {**OPERATOR, **TLS, "keda": {"authentication": {"kind": "namespaced", "namespaces": ["chat"]}}}
        values |= {"rbac": {"namespaces": ["chat"]}, "agent": AGENTS}
        names = [("x", "team-a"), ("x-loadtide", "team-a"), ("loadtide", "team-a"), ("x", "team-b"), ("a-x", "team")]
        everything = [
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
            for release in tools.install(*(Release(*each, values) for each in names))
            for each in release.objects
        ]
        assert len(set(everything)) == len(everything)

    def test_nor_in_the_whole_cluster(self, installs: dict[str, Installed]) -> None:
        everywhere = [
            (each["kind"], each["metadata"]["name"])
            for release in installs.values()
            for each in release.objects
            if each["kind"] in CLUSTER_SCOPED
        ]
        assert everywhere
        assert len(set(everywhere)) == len(everywhere)

    def test_none_selects_anothers_pods(self, installs: dict[str, Installed]) -> None:
        x, y = installs["operator"], installs["namespaced"]
        labels = y.one("Deployment")["spec"]["template"]["metadata"]["labels"]
        assert not selects(x.one("Service")["spec"]["selector"], labels)
        assert not selects(x.one("Deployment")["spec"]["selector"]["matchLabels"], labels)
        assert not selects(installs["agents"].one("DaemonSet")["spec"]["selector"]["matchLabels"], labels)
        assert not selects(
            x.one("ServiceMonitor")["spec"]["selector"]["matchLabels"], y.one("Service")["metadata"]["labels"]
        )


class TestMonitoring:
    """G6-01."""

    def test_nothing_of_the_operators_without_a_switch(self, installs: dict[str, Installed]) -> None:
        """Or a cluster without its kinds would refuse the whole install; the double has none here, and did not."""
        groups = {each["apiVersion"].partition("/")[0] for each in installs["defaults"].objects}
        assert not groups & {"monitoring.coreos.com", "keda.sh"}

    def test_a_cluster_without_the_operator_says_so(self, tools: Tools) -> None:
        (answer,) = tools.install(Release(values=OPERATOR, custom=False))
        assert 'no matches for kind "ServiceMonitor"' in answer.error

    @pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor", "PrometheusRule"])
    def test_all_carry_the_labels_they_are_selected_by(self, installs: dict[str, Installed], kind: str) -> None:
        assert installs["operator"].one(kind)["metadata"]["labels"]["release"] == "kps"

    def test_the_values_name_the_label_beside_the_switch(self) -> None:
        text = (CHART / "values.yaml").read_text()
        assert "labels: {release: kps}" in text.partition("\nmonitoring:")[2].partition("serviceMonitor:")[0]

    def test_engines_are_scraped_with_their_workload(self, installs: dict[str, Installed]) -> None:
        monitor = installs["operator"].one("PodMonitor")["spec"]
        (endpoint,) = monitor["podMetricsEndpoints"]
        assert endpoint["relabelings"] == [
            {"sourceLabels": ["__meta_kubernetes_pod_label_loadtide_workload"], "targetLabel": "workload"}
        ]
        assert endpoint["honorLabels"] is False
        assert monitor["selector"] == {"matchExpressions": [{"key": "loadtide/workload", "operator": "Exists"}]}

    def test_another_label_is_spelt_as_prometheus_does(self, tools: Tools) -> None:
        pods = {"enabled": True, "workloadLabel": "app.kubernetes.io/name", "namespaces": ["chat"]}
        (answer,) = tools.install(Release(values={"monitoring": {"podMonitor": pods}}))
        monitor = answer.one("PodMonitor")["spec"]
        (relabeling,) = monitor["podMetricsEndpoints"][0]["relabelings"]
        assert relabeling["sourceLabels"] == ["__meta_kubernetes_pod_label_app_kubernetes_io_name"]
        assert monitor["namespaceSelector"] == {"matchNames": ["chat"]}

    def test_the_rules_are_the_packs(self, installs: dict[str, Installed]) -> None:
        wanted = Options(
            namespace="team-a", without=frozenset({"dcgm", "tgi"}), runbooks="https://wiki/r", grafana="https://g"
        )
        pack = yaml.safe_load(prometheus_rules(wanted))
        assert one_spelling(installs["operator"].one("PrometheusRule")["spec"]) == one_spelling(pack)
        assert "LOADTIDE-" not in json.dumps(installs["operator"].objects)

    def test_the_dashboards_are_the_packs(self, installs: dict[str, Installed]) -> None:
        maps = [
            each for each in installs["operator"].of("ConfigMap") if "grafana_dashboard" in each["metadata"]["labels"]
        ]
        assert {name: text for each in maps for name, text in each["data"].items()} == dashboards(Form.JSON)

    def test_https_and_a_read_token_are_told_to_prometheus(self, installs: dict[str, Installed]) -> None:
        service, monitor = installs["tls"].one("Service"), installs["tls"].one("ServiceMonitor")
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"]["serverName"] == f"{service['metadata']['name']}.team-b.svc"
        assert endpoint["authorization"] == {"credentials": {"name": "read", "key": "token"}}


class TestKedaAuthentication:
    def test_one_in_each_namespace_of_scaledobjects(self, installs: dict[str, Installed]) -> None:
        made = installs["namespaced"].of("TriggerAuthentication")
        assert {each["metadata"]["namespace"] for each in made} == {"chat", "code"}
        parameters = {each["parameter"]: each["key"] for each in made[0]["spec"]["secretTargetRef"]}
        assert parameters == {"caCert": "ca.crt", "tlsClientCert": "tls.crt", "tlsClientKey": "tls.key"}

    def test_or_one_for_all(self, installs: dict[str, Installed]) -> None:
        assert "namespace" not in installs["tls"].one("ClusterTriggerAuthentication")["metadata"]


def test_scalers_that_share_redis_are_spread_and_not_drained_at_once(installs: dict[str, Installed]) -> None:
    ha = installs["ha"]
    spec = ha.one("Deployment")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")
    spread = spec["template"]["spec"]["topologySpreadConstraints"]
    assert all(selects(each["labelSelector"]["matchLabels"], labels) for each in spread)
    disruption = ha.one("PodDisruptionBudget")["spec"]
    assert (disruption["maxUnavailable"], disruption["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert not ha.of("PersistentVolumeClaim")
    (store,) = [each for each in container(ha)["env"] if each["name"] == "LOADTIDE_STORE"]
    assert store["valueFrom"]["secretKeyRef"] == {"name": "redis", "key": "url"}
    assert not installs["defaults"].of("PodDisruptionBudget")


def test_rights_that_an_admin_gives_are_used_and_none_are_made(installs: dict[str, Installed]) -> None:
    own, without = (
        installs[name].one("Deployment")["spec"]["template"]["spec"] for name in ("own rights", "no rights")
    )
    assert (own["serviceAccountName"], own["automountServiceAccountToken"]) == ("given", True)
    assert (without["serviceAccountName"], without["automountServiceAccountToken"]) == ("default", False)
    kinds = {each["kind"] for name in ("own rights", "no rights") for each in installs[name].objects}
    assert not kinds & {"ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}


def test_it_is_as_important_as_an_admin_says(installs: dict[str, Installed]) -> None:
    own, defaults = (
        installs[name].one("Deployment")["spec"]["template"]["spec"] for name in ("own rights", "defaults")
    )
    assert own["priorityClassName"] == "system-cluster-critical"
    assert "priorityClassName" not in defaults


def test_a_policy_file_goes_in_as_it_is(tools: Tools) -> None:
    text = (EXAMPLES / "policy.yaml").read_text() + "# {{ not a template }} 1000000\n"
    (answer,) = tools.install(Release(values={"policy": text}))
    assert answer.one("ConfigMap")["data"]["policy.yaml"] == text


def test_the_examples_call_what_the_defaults_install(installs: dict[str, Installed]) -> None:
    service: Manifest = installs["defaults"].one("Service")
    (grpc,) = [port["port"] for port in service["spec"]["ports"] if port["name"] == "grpc"]
    address = "{name}.{namespace}.svc".format(**service["metadata"])
    called = {
        word
        for path in EXAMPLES.rglob("*.yaml")
        for word in re.findall(r"^\s+scalerAddress: (\S+)", path.read_text(), re.MULTILINE)
        if not word.startswith("keda-add-ons-http")
    }
    assert called == {f"{address}:{grpc}"}


def test_the_store_is_where_it_is_said(installs: dict[str, Installed]) -> None:
    assert options(installs["memory"])["store"] == "memory"
    assert options(installs["defaults"])["store"] == "/var/lib/loadtide/memory.db"
