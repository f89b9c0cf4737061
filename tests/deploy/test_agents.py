"""The agent on GPU nodes and beside engines, by chart and by kustomization: the same, valid, and it does its work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
import yaml

from tests.agent.running_agent import beside, running_agent, until
from tests.agent.test_process import reported
from tests.consume.engine_doubles import SGLangDouble
from tests.deploy.placed import agent_options, is_an_agent
from tests.deploy.test_kustomize import COMPONENTS, bare
from tests.deploy.tools import OVERLAYS, Installed, Manifest, Release, Tools
from tests.running_scaler import running_scaler, said

pytestmark = pytest.mark.real

PATIENCE = 180.0  # a scaler's start
ON = {
    "agent": {"gpuMetrics": {"enabled": True}, "sidecar": {"enabled": True}},
    "monitoring": {"podMonitor": {"enabled": True}},
}
#: An engine of somebody's, as docs and NOTES want it to be.
ENGINE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: qwen3-14b
  labels: {loadtide/agent: sidecar}
spec:
  selector: {matchLabels: {app: qwen3-14b}}
  template:
    metadata:
      labels: {app: qwen3-14b, loadtide/workload: qwen3-14b}
      annotations: {loadtide/engine: sglang, loadtide/engine-url: "http://127.0.0.1:30000"}
    spec:
      initContainers:
        - {name: weights, image: "busybox:1.37"}
      containers:
        - {name: sglang, image: "lmsysorg/sglang:v0.5.23"}
"""


def built(tools: Tools, folder: Path, *components: str, **resources: str) -> Installed:
    """A kustomization of one's own with these components."""
    for name, text in resources.items():
        (folder / f"{name}.yaml").write_text(text)
    base = [os.path.relpath(OVERLAYS.parent / "base", folder.resolve())] if not resources else []
    said = {
        "namespace": "chat" if resources else "loadtide",
        "resources": [*base, *(f"{name}.yaml" for name in resources)],
        "components": [os.path.relpath(COMPONENTS / each, folder.resolve()) for each in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(said))
    return tools.kustomize(folder)


@pytest.fixture(scope="module")
def chart(tools: Tools) -> Installed:
    (installed,) = tools.install(Release(values=ON))
    return installed


def printed(chart: Installed) -> Manifest:
    """The patch that the chart's NOTES have between their marks."""
    found = re.search(r"^# >>> sidecar\n(.*)^# <<< sidecar$", chart.notes, re.MULTILINE | re.DOTALL)
    assert found is not None
    return dict(yaml.safe_load(found[1]))


def sidecar(deployment: Manifest) -> Manifest:
    (found,) = [
        each for each in deployment["spec"]["template"]["spec"]["initContainers"] if each["name"] == "loadtide-agent"
    ]
    return dict(found)


def test_gpu_nodes_get_the_same_from_both(tools: Tools, chart: Installed, tmp_path: Path) -> None:
    kustomized = built(tools, tmp_path, "agent-gpus-monitored")
    for name in ("DaemonSet/loadtide-gpus", "PodMonitor/loadtide-gpus"):
        ours, theirs = bare(kustomized)[name], bare(chart)[name]
        theirs["spec"].pop("namespaceSelector", None)  # said, or the default
        assert ours == theirs


def test_nodes_that_are_told_apart_by_another_label_are_found(tools: Tools) -> None:
    """Those of GKE have no label of GPU feature discovery."""
    theirs = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    (installed,) = tools.install(Release(values={"agent": {"gpuMetrics": {"enabled": True, "nodeSelector": theirs}}}))
    assert installed.one("DaemonSet")["spec"]["template"]["spec"]["nodeSelector"] == theirs


def test_without_the_operator_the_nodes_have_it_too(tools: Tools, tmp_path: Path) -> None:
    kustomized = built(tools, tmp_path, "agent-gpus")
    assert kustomized.of("DaemonSet")
    assert not kustomized.of("PodMonitor")


class TestBesideAnEngine:
    def test_the_component_is_what_the_notes_print(self, chart: Installed) -> None:
        component = yaml.safe_load((COMPONENTS / "agent-sidecar" / "sidecar.yaml").read_text())
        ours, theirs = sidecar(component), sidecar(printed(chart))
        theirs["image"] = theirs["image"].partition(":")[0]
        assert ours == theirs

    def test_engines_that_ask_for_it_get_it_and_no_others(self, tools: Tools, tmp_path: Path) -> None:
        other = ENGINE.replace("  labels: {loadtide/agent: sidecar}\n", "").replace("qwen3-14b", "other")
        objects = built(tools, tmp_path, "agent-sidecar", engine=ENGINE, other=other).objects
        assert tools.problems(objects) == {}
        engines = {each["metadata"]["name"]: each for each in objects}
        names = [each["name"] for each in engines["qwen3-14b"]["spec"]["template"]["spec"]["initContainers"]]
        assert sorted(names) == ["loadtide-agent", "weights"]
        assert [each["name"] for each in engines["other"]["spec"]["template"]["spec"]["initContainers"]] == ["weights"]
        agent = sidecar(engines["qwen3-14b"])
        assert ":" in agent["image"]
        is_an_agent(agent)
        assert agent["restartPolicy"] == "Always"

    def test_a_scaler_in_another_namespace_is_said_by_the_patch_that_the_component_shows(
        self, tools: Tools, tmp_path: Path
    ) -> None:
        words = (COMPONENTS / "agent-sidecar" / "kustomization.yaml").read_text()
        shown = re.search(r"^#   patches:\n(?:#    .*\n)+", words, re.MULTILINE)
        assert shown is not None
        built(tools, tmp_path, "agent-sidecar", engine=ENGINE)
        with (tmp_path / "kustomization.yaml").open("a") as own:
            own.write(re.sub("^#   ", "", shown[0], flags=re.MULTILINE).replace("NAMESPACE", "scaling"))
        (engine,) = tools.kustomize(tmp_path).objects
        assert tools.problems([engine]) == {}
        env = {each["name"]: each for each in sidecar(engine)["env"]}
        component = sidecar(yaml.safe_load((COMPONENTS / "agent-sidecar" / "sidecar.yaml").read_text()))
        ours = {"LOADTIDE_SCALER": {"name": "LOADTIDE_SCALER", "value": "http://loadtide.scaling.svc:8080"}}
        assert env == {each["name"]: each for each in component["env"]} | ours

    def test_it_finds_scaler_workload_and_engine_by_what_the_pod_says(
        self, tools: Tools, chart: Installed, tmp_path: Path
    ) -> None:
        """Started with the variables that the kubelet would make; those of missing annotations are empty."""
        pod = yaml.safe_load(ENGINE)["spec"]["template"]["metadata"]
        pod |= {"name": "qwen3-14b-abc", "namespace": "chat"}
        double = SGLangDouble(max_running_requests=64)
        token = {"LOADTIDE_TOKEN": "tide"}
        with beside(double.routes()) as engine:
            (tmp_path / "policy.yaml").write_text(
                "workloads:\n  chat/qwen3-14b:\n    engine: sglang\n    replicas: {min: 1, max: 4}\n"
                f'    scrape: {{urls: ["{engine}/metrics"]}}\n    batch: {{max: 8}}\n'
            )
            served = ("--policy", str(tmp_path / "policy.yaml"), "--store=memory", "--tick-seconds=1")
            with running_scaler(tmp_path, *served, environment=token) as scaler:
                pod["annotations"]["loadtide/engine-url"] = engine
                told = environment(sidecar(printed(chart)), pod)
                assert told["LOADTIDE_SCALER"] == "http://loadtide.loadtide.svc:8080"
                own = told | token | {"LOADTIDE_SCALER": f"http://{scaler.http}"}
                assert agent_options(sidecar(printed(chart)))["workload"] == "", "all of it comes from the variables"
                with running_agent(tmp_path, environment=own):
                    until(lambda: double.caps == [8], PATIENCE, "the target is applied")
                    until(
                        lambda: reported(scaler) == {"qwen3-14b-abc": 8.0}, PATIENCE, "and reported by the pod's name"
                    )


def test_it_is_let_in_where_readers_need_a_token_and_the_scaler_speaks_tls(tools: Tools, tmp_path: Path) -> None:
    values = {"tokens": {"read": {"secret": "readers"}}, "tls": {"http": {"secret": "loadtide-http"}}}
    (installed,) = tools.install(Release(values={**ON, **values}))
    assert "SSL_CERT_FILE" in installed.notes
    agent = sidecar(printed(installed))
    pod = yaml.safe_load(ENGINE)["spec"]["template"]["metadata"] | {"name": "qwen3-14b-abc", "namespace": "chat"}
    secrets = {"loadtide-token": "pushes", "readers": "reads"}
    tokens = {
        each["name"]: secrets[each["valueFrom"]["secretKeyRef"]["name"]]
        for each in agent["env"]
        if "secretKeyRef" in each.get("valueFrom", {})
    }
    authority, double = trustme.CA(), SGLangDouble(max_running_requests=64)
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    with beside(double.routes()) as engine:
        (tmp_path / "policy.yaml").write_text(
            "workloads:\n  chat/qwen3-14b:\n    engine: sglang\n    replicas: {min: 1, max: 4}\n"
            f'    scrape: {{urls: ["{engine}/metrics"]}}\n    batch: {{max: 8}}\n'
        )
        served = ("--policy", str(tmp_path / "policy.yaml"), "--store=memory", "--tick-seconds=1")
        tls = ("--http-cert", str(tmp_path / "tls.crt"), "--http-key", str(tmp_path / "tls.key"))
        own = {"LOADTIDE_TOKEN": "pushes", "LOADTIDE_READ_TOKEN": "reads"}
        with speaking_tls(tmp_path, *served, *tls, environment=own) as url:
            pod["annotations"]["loadtide/engine-url"] = engine
            told = environment(agent, pod) | tokens
            assert told["LOADTIDE_SCALER"].startswith("https://")
            told |= {"LOADTIDE_SCALER": url, "SSL_CERT_FILE": str(tmp_path / "ca.crt")}
            with running_agent(tmp_path, environment=told):
                until(lambda: double.caps == [8], PATIENCE, "the target is applied")


@contextmanager
def speaking_tls(folder: Path, *arguments: str, environment: dict[str, str]) -> Iterator[str]:
    """A scaler whose HTTP is TLS; gives its URL."""
    log, words = folder / "scaler.log", (sys.executable, "-m", "scaler", "serve", "--grpc=127.0.0.1:0")
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*words, "--http=127.0.0.1:0", *arguments], stderr=sink, stdout=sink, env=os.environ | environment
        )
    try:
        until(lambda: bool(said(log, "serving")), PATIENCE, "it serves")
        (serving,) = said(log, "serving")
        yield f"https://{serving['http']}"
    finally:
        process.terminate()
        process.wait(60)


def environment(agent: Manifest, pod: Manifest) -> dict[str, str]:
    """As the kubelet makes it: in order, fields looked up, ``$(NAME)`` of what came before put in, absent ones ""."""
    found: dict[str, str] = {}
    for each in agent["env"]:
        source = each.get("valueFrom", {})
        if "secretKeyRef" in source:
            assert source["secretKeyRef"]["optional"], "the kubelet would not start it without"
            continue
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            keyed = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
            value = pod[keyed[1]].get(keyed[2], "") if keyed else pod[path.removeprefix("metadata.")]
        else:
            value = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], each["value"])
        found[each["name"]] = value
    return found
