"""The examples with an agent mean what they say: to the agent, to the engine, and to the Envoy in front of one."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from typer.main import get_command

from scaler.agent.engines import EngineName, EngineOptions
from scaler.cli import app
from scaler.policy.layers import PolicyFile
from tests.deploy.test_examples import manifests, one, trigger, workload

SIDECARS = ("sglang-agent.yaml", "tgi-envoy.yaml")


def sidecar(name: str, container: str) -> dict[str, Any]:
    pod = one(name, "Deployment")["spec"]["template"]["spec"]
    (found,) = [each for each in pod["initContainers"] if each["name"] == container]
    return dict(found)


def options(arguments: list[str]) -> dict[str, str]:
    """What the agent's own command line makes of these; a wrong option fails."""
    command = get_command(app).commands["agent"]  # type: ignore[attr-defined]
    assert arguments[0] == "agent"
    return dict(command.make_context("agent", arguments[1:]).params)


@pytest.mark.parametrize("name", SIDECARS)
class TestASidecar:
    def test_the_agent_knows_its_options(self, name: str) -> None:
        told = options(sidecar(name, "loadtide-agent")["args"])
        assert told["workload"] == workload(name)
        assert told["scaler"] == "http://loadtide.loadtide.svc:8080"
        engine = EngineOptions(EngineName(told["engine"]), told["engine_url"], told["engine_name"], told["own_batch"])
        assert engine.url.startswith("http://127.0.0.1:")

    def test_it_lives_as_long_as_the_engine(self, name: str) -> None:
        for each in one(name, "Deployment")["spec"]["template"]["spec"]["initContainers"]:
            assert each["restartPolicy"] == "Always"

    def test_it_is_told_which_pod_it_is_in(self, name: str) -> None:
        told = {variable["name"]: variable for variable in sidecar(name, "loadtide-agent")["env"]}
        assert told["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
        assert told["POD_NAMESPACE"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"

    def test_its_probe_asks_its_port(self, name: str) -> None:
        agent = sidecar(name, "loadtide-agent")
        (port,) = agent["ports"]
        assert agent["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
        assert str(options(agent["args"])["http"]).endswith(f":{port['containerPort']}")

    def test_the_service_and_what_is_scraped_exist(self, name: str) -> None:
        labels = one(name, "Deployment")["spec"]["template"]["metadata"]["labels"]
        services = [each for each in manifests(name) if each["kind"] == "Service"]
        (headless,) = [each for each in services if each["spec"].get("clusterIP") == "None"]
        (port,) = headless["spec"]["ports"]
        host = "{name}.{namespace}.svc".format(**headless["metadata"])
        assert trigger(name)["metadata"]["scrapeDns"] == f"{host}:{port['port']}"
        assert all(each["spec"]["selector"].items() <= labels.items() for each in services)


def ceiling(name: str) -> int:
    policy = PolicyFile.empty().resolve(workload(name), trigger(name)["metadata"]).policy
    assert policy.batch.max is not None
    return policy.batch.max


def test_sglangs_ceiling_is_the_policys() -> None:
    (engine,) = one("sglang-agent.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    words = " ".join(engine["args"]).split()
    assert int(words[words.index("--max-running-requests") + 1]) == ceiling("sglang-agent.yaml")
    told = options(sidecar("sglang-agent.yaml", "loadtide-agent")["args"])
    assert str(told["engine_url"]).endswith(f":{words[words.index('--port') + 1]}")
    assert f"$(cat {told['engine_admin_key_file']})" in " ".join(engine["args"])


class TestEnvoyInFrontOfTgi:
    name = "tgi-envoy.yaml"

    def envoy(self) -> dict[str, Any]:
        return dict(yaml.safe_load(one(self.name, "ConfigMap")["data"]["envoy.yaml"]))

    def agent(self) -> dict[str, str]:
        return options(sidecar(self.name, "loadtide-agent")["args"])

    def test_the_agent_finds_its_admin_and_its_cluster(self) -> None:
        address = self.envoy()["admin"]["address"]["socket_address"]
        assert address["address"] == "127.0.0.1", "whoever reaches it can do anything"
        assert self.agent()["engine_url"] == f"http://127.0.0.1:{address['port_value']}"
        (cluster,) = self.envoy()["static_resources"]["clusters"]
        assert self.agent()["engine_name"] == cluster["name"]

    def test_every_number_for_the_batch_is_the_same(self) -> None:
        (cluster,) = self.envoy()["static_resources"]["clusters"]
        (threshold,) = cluster["circuit_breakers"]["thresholds"]
        (engine,) = one(self.name, "Deployment")["spec"]["template"]["spec"]["containers"]
        assert "--max-batch-size=64" in engine["args"]
        assert threshold["max_connections"] == self.agent()["own_batch"] == ceiling(self.name) == 64

    def test_clients_reach_the_envoy_and_it_the_engine(self) -> None:
        (listener,) = self.envoy()["static_resources"]["listeners"]
        (port,) = sidecar(self.name, "envoy")["ports"]
        assert listener["address"]["socket_address"]["port_value"] == port["containerPort"]
        (clients,) = [
            each
            for each in manifests(self.name)
            if each["metadata"]["name"] == "llama-8b" and each["kind"] == "Service"
        ]
        assert clients["spec"]["ports"][0]["targetPort"] == port["name"]
        (cluster,) = self.envoy()["static_resources"]["clusters"]
        endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"][
            "socket_address"
        ]
        (engine,) = one(self.name, "Deployment")["spec"]["template"]["spec"]["containers"]
        assert endpoint["port_value"] == engine["ports"][0]["containerPort"]
        assert f"--port={endpoint['port_value']}" in engine["args"]

    def test_one_worker(self) -> None:
        command = sidecar(self.name, "envoy")["command"]
        assert command[command.index("--concurrency") + 1] == "1"

    def test_the_queue_in_the_envoys_counts(self) -> None:
        """Without it nothing would tell the scaler of requests that wait there."""
        policy = PolicyFile.empty().resolve(workload(self.name), trigger(self.name)["metadata"]).policy
        assert policy.push.enabled
        assert policy.replicas.min == 1


class TestTheDaemonSet:
    name = "agent-daemonset.yaml"

    def container(self) -> dict[str, Any]:
        (only,) = one(self.name, "DaemonSet")["spec"]["template"]["spec"]["containers"]
        return dict(only)

    def test_it_exports_gpus_with_the_pods_that_hold_them(self) -> None:
        told = options(self.container()["args"])
        assert told["gpu_metrics"]
        (mount,) = self.container()["volumeMounts"]
        assert str(told["pod_resources"]).startswith(mount["mountPath"])
        assert not told["workload"]

    def test_it_takes_no_gpu_from_anybody(self) -> None:
        assert "nvidia.com/gpu" not in self.container()["resources"].get("limits", {})
        told = {variable["name"]: variable.get("value") for variable in self.container()["env"]}
        assert told["NVIDIA_VISIBLE_DEVICES"] == "all"

    def test_its_probes_and_prometheus_ask_its_port(self) -> None:
        container, template = self.container(), one(self.name, "DaemonSet")["spec"]["template"]
        (port,) = container["ports"]
        assert (
            container["livenessProbe"]["httpGet"]["port"]
            == container["readinessProbe"]["httpGet"]["port"]
            == port["name"]
        )
        assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
        assert str(options(container["args"])["http"]).endswith(f":{port['containerPort']}")
