"""The kustomizations, built by a real kubectl: each overlay, and a second install beside the first. No cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaler.check.examine import examine
from tests.deploy.placed import (
    CLUSTER_SCOPED,
    container,
    hangs_together,
    one_spelling,
    options,
    read_by_the_check,
    selects,
)
from tests.deploy.tools import OVERLAYS, Installed, Manifest, Release, Tools

pytestmark = pytest.mark.real

NAMES = sorted(path.name for path in OVERLAYS.iterdir())
COMPONENTS = OVERLAYS.parent / "components"
#: A part of ``agent-gpus-monitored``.
WITHIN = "agent-gpus"
#: What the comments in base and components tell to write.
SECOND = {
    "namespace": "team-a",
    "namePrefix": "second-",
    "labels": [
        {
            "pairs": {"app.kubernetes.io/instance": "second"},
            "includeSelectors": True,
            "fields": [
                {"path": "spec/selector/matchLabels", "kind": kind} for kind in ("ServiceMonitor", "PodMonitor")
            ],
        },
        {"pairs": {"release": "kps"}},
    ],
}


@pytest.fixture(scope="module")
def built(tools: Tools) -> dict[str, Installed]:
    return {name: tools.kustomize(OVERLAYS / name) for name in NAMES}


@pytest.fixture(scope="module")
def second(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Everything at once, under another name."""
    folder = tmp_path_factory.mktemp("overlay")
    said = {
        **SECOND,
        "resources": [os.path.relpath(OVERLAYS.parent / "base", folder.resolve())],
        "components": [
            os.path.relpath(each, folder.resolve()) for each in sorted(COMPONENTS.iterdir()) if each.name != WITHIN
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(said))
    return tools.kustomize(folder)


@pytest.fixture(scope="module")
def problems(tools: Tools, built: dict[str, Installed], second: Installed) -> dict[str, dict[str, str]]:
    apart = yaml.safe_load((COMPONENTS / "tls" / "keda-authentication.yaml").read_text())
    everything = {name: overlay.objects for name, overlay in built.items()}
    return tools.problems_of({**everything, "second": second.objects, "keda": [apart]})


def test_there_is_an_overlay_for_each_way_to_run_it() -> None:
    assert NAMES == ["ha", "plain", "prometheus-operator", "tls"]


@pytest.mark.parametrize("name", NAMES)
class TestEveryOverlay:
    def test_hangs_together(self, built: dict[str, Installed], name: str) -> None:
        hangs_together(built[name], "loadtide")

    def test_is_valid(self, problems: dict[str, dict[str, str]], name: str) -> None:
        assert problems[name] == {}

    def test_passes_our_own_check(self, built: dict[str, Installed], name: str) -> None:
        assert examine({name: read_by_the_check(built[name])}) == []


def bare(rendered: Installed) -> dict[str, Manifest]:
    """Without what only Helm writes, and with one name for what lives in no namespace."""
    found: dict[str, Manifest] = {}
    for each in json.loads(json.dumps(rendered.objects).replace('"loadtide.loadtide"', '"loadtide"')):
        each["metadata"].pop("annotations", None)
        for metadata in (each["metadata"], each.get("spec", {}).get("template", {}).get("metadata", {})):
            for label in ("app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"):
                metadata.get("labels", {}).pop(label, None)
        found[f"{each['kind']}/{each['metadata']['name']}"] = each
    return found


def meant(name: str, body: Manifest) -> Any:
    """One spelling of what two say differently."""
    if name == "NetworkPolicy/loadtide":
        peer = body["spec"]["ingress"][0]["from"][0]["podSelector"]
        if "matchExpressions" in peer:
            ((only,),) = (each["values"] for each in peer.pop("matchExpressions"))
            peer["matchLabels"] = {"app": only}
    if name == "ConfigMap/loadtide-policy":
        body["data"] = yaml.safe_load(body["data"]["policy.yaml"])
    return body


def test_plain_is_what_the_charts_defaults_are(tools: Tools, built: dict[str, Installed]) -> None:
    (chart,) = tools.install(Release(custom=False))
    ours, theirs = bare(built["plain"]), bare(chart)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert meant(name, ours[name]) == meant(name, theirs[name])


def test_the_operators_overlay_is_the_charts_with_its_switches(tools: Tools, built: dict[str, Installed]) -> None:
    on = {each: {"enabled": True} for each in ("serviceMonitor", "podMonitor", "rules", "dashboards")}
    (chart,) = tools.install(Release(values={"monitoring": on}))
    ours, theirs = bare(built["prometheus-operator"]), bare(chart)
    assert ours.keys() == theirs.keys()
    rules = [each["PrometheusRule/loadtide"]["spec"] for each in (ours, theirs)]
    assert one_spelling(rules[0]) == one_spelling(rules[1])
    assert ours["PodMonitor/loadtide"]["spec"] == theirs["PodMonitor/loadtide"]["spec"]
    assert (
        ours["ServiceMonitor/loadtide"]["spec"]["endpoints"] == theirs["ServiceMonitor/loadtide"]["spec"]["endpoints"]
    )
    for name in ("overview", "decisions", "gpu"):
        assert ours[f"ConfigMap/loadtide-{name}"]["data"] == theirs[f"ConfigMap/loadtide-{name}"]["data"]
        assert ours[f"ConfigMap/loadtide-{name}"]["metadata"]["labels"]["grafana_dashboard"] == "1"


class TestASecondOne:
    """G6-08."""

    def test_hangs_together(self, second: Installed) -> None:
        hangs_together(second, "team-a")

    def test_is_valid(self, problems: dict[str, dict[str, str]]) -> None:
        assert problems["second"] == {}

    def test_makes_nothing_that_the_first_made(self, built: dict[str, Installed], second: Installed) -> None:
        def names(rendered: Installed) -> set[tuple[str, str, str]]:
            return {
                (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
                for each in rendered.objects
            }

        assert all(not names(each) & names(second) for each in built.values())
        assert any(kind in CLUSTER_SCOPED for kind, _, _ in names(second))

    def test_selects_nothing_of_the_first(self, built: dict[str, Installed], second: Installed) -> None:
        labels = built["plain"].one("Deployment")["spec"]["template"]["metadata"]["labels"]
        selectors = [
            second.one("Service")["spec"]["selector"],
            second.one("Deployment")["spec"]["selector"]["matchLabels"],
            second.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
            second.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
            second.one("ServiceMonitor")["spec"]["selector"]["matchLabels"],
            second.one("DaemonSet")["spec"]["selector"]["matchLabels"],
        ]
        assert not any(selects(each, labels) for each in selectors)

    def test_still_lets_keda_in(self, second: Installed) -> None:
        (keda,) = second.one("NetworkPolicy")["spec"]["ingress"][0]["from"]
        only = {"key": "app", "operator": "In", "values": ["keda-operator"]}
        assert keda["podSelector"] == {"matchExpressions": [only]}

    def test_carries_the_labels_it_is_selected_by(self, second: Installed) -> None:
        """G6-01."""
        for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
            assert {each["metadata"]["labels"]["release"] for each in second.of(kind)} == {"kps"}


def test_the_file_is_gone_where_redis_is(built: dict[str, Installed]) -> None:
    assert not built["ha"].of("PersistentVolumeClaim")
    assert built["ha"].one("Deployment")["spec"]["replicas"] == 2
    assert not any(word.startswith("--store") for word in container(built["ha"])["args"])
    assert "LOADTIDE_STORE" in {each["name"] for each in container(built["ha"])["env"]}


def test_keda_shows_what_the_tls_overlay_asks_for(
    problems: dict[str, dict[str, str]], built: dict[str, Installed]
) -> None:
    assert options(built["tls"])["grpc_client_ca"]
    authentication = yaml.safe_load(Path(COMPONENTS / "tls" / "keda-authentication.yaml").read_text())
    assert problems["keda"] == {}
    parameters = {each["parameter"] for each in authentication["spec"]["secretTargetRef"]}
    assert parameters == {"caCert", "tlsClientCert", "tlsClientKey"}
