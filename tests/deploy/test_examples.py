"""The files of deploy/examples mean what they say: to KEDA, to the HPA, to the kubelet and to us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from scaler.check.examine import examine
from scaler.policy.layers import PolicyFile
from scaler.policy.metadata import parse, reference
from scaler.policy.model import Policy
from scaler.serve.grpc_server import HEALTH_SERVICES

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
ENGINES = ("vllm-external.yaml", "vllm-external-push.yaml")
#: Looked at in test_agent_examples.py and test_door_examples.py; the folder in test_scaledobjects.py.
ELSEWHERE = {"agent-daemonset.yaml", "envoy-door.yaml", "keda-http.yaml", "sglang-agent.yaml", "tgi-envoy.yaml"}
#: What KEDA reads for itself and hands on to us as well.
KEDA_KEYS = {"scalerAddress"}

Manifest = dict[str, Any]


def manifests(name: str) -> list[Manifest]:
    return [document for document in yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")) if document]


def one(name: str, kind: str) -> Manifest:
    found = [manifest for manifest in manifests(name) if manifest["kind"] == kind]
    assert len(found) == 1, f"{name} has {len(found)} of kind {kind}"
    return found[0]


def trigger(name: str) -> Manifest:
    triggers = one(name, "ScaledObject")["spec"]["triggers"]
    assert len(triggers) == 1
    return dict(triggers[0])


def workload(name: str) -> str:
    metadata = one(name, "ScaledObject")["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def policy(name: str) -> Policy:
    """What the metadata alone makes of the workload."""
    return PolicyFile.empty().resolve(workload(name), trigger(name)["metadata"]).policy


def container(name: str) -> Manifest:
    (only,) = one(name, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(only)


def flag(name: str, flag_name: str) -> int:
    """The number given to the engine as ``--flag=number``."""
    (value,) = [text.partition("=")[2] for text in container(name)["args"] if text.startswith(f"{flag_name}=")]
    return int(value)


def test_every_example_is_looked_at_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {
        *ENGINES,
        *ELSEWHERE,
        "loadtide.yaml",
        "policy.yaml",
        "scaledobjects",
    }


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_passes_the_check(path: Path) -> None:
    assert examine({str(path): path.read_text(encoding="utf-8")}) == []


def test_and_those_that_belong_together_agree() -> None:
    together = [*ENGINES, "loadtide.yaml", "policy.yaml"]
    assert examine({name: (EXAMPLES / name).read_text(encoding="utf-8") for name in together}) == []


@pytest.mark.parametrize("name", [*ENGINES, "loadtide.yaml"])
def test_manifests_are_complete(name: str) -> None:
    for manifest in manifests(name):
        assert {"apiVersion", "kind", "metadata"} <= manifest.keys()
        assert manifest["metadata"]["namespace"], "an example without a namespace lands in whichever is current"


@pytest.mark.parametrize("name", ENGINES)
class TestScaledObject:
    def test_metadata_is_texts_only(self, name: str) -> None:
        """The API server refuses an unquoted number before the scaler sees it."""
        metadata = trigger(name)["metadata"]
        assert {key: value for key, value in metadata.items() if not isinstance(value, str)} == {}

    def test_metadata_keys_are_spelled_as_the_reference_spells_them(self, name: str) -> None:
        assert trigger(name)["metadata"].keys() - KEDA_KEYS <= {row.metadata_key for row in reference()}

    def test_nothing_is_left_to_warn_about(self, name: str) -> None:
        metadata = trigger(name)["metadata"]
        assert parse(metadata).warnings == ()
        assert PolicyFile.empty().resolve(workload(name), metadata).warnings == ()

    def test_bounds_agree_with_the_policy(self, name: str) -> None:
        spec, bounds = one(name, "ScaledObject")["spec"], policy(name).replicas
        assert bounds.max == spec["maxReplicaCount"]
        if "idleReplicaCount" in spec:
            assert spec["idleReplicaCount"] == 0, "KEDA supports no other"
            assert spec["minReplicaCount"] > spec["idleReplicaCount"]
            assert bounds.activation == spec["minReplicaCount"]
            assert bounds.min == 0, "a floor above zero would never let it be idle"
        else:
            assert bounds.min == spec["minReplicaCount"]

    def test_the_idle_timer_is_ours_alone(self, name: str) -> None:
        spec = one(name, "ScaledObject")["spec"]
        assert spec["cooldownPeriod"] <= 60
        assert spec["initialCooldownPeriod"] <= 60

    def test_doubt_is_left_to_us(self, name: str) -> None:
        assert "fallback" not in one(name, "ScaledObject")["spec"]

    def test_the_metric_is_a_replica_count(self, name: str) -> None:
        """``Value`` multiplies by the present count and runs away with an absolute metric."""
        assert trigger(name)["metricType"] == "AverageValue"

    def test_the_hpa_lets_a_jump_through_and_paces_the_way_down(self, name: str) -> None:
        behavior = one(name, "ScaledObject")["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        up, down = behavior["scaleUp"], behavior["scaleDown"]
        assert (up["stabilizationWindowSeconds"], up["selectPolicy"]) == (0, "Max")
        allowed = {rule["type"]: rule["value"] for rule in up["policies"]}
        least, most = 1, policy(name).replicas.max
        assert most is not None
        assert max(least * (1 + allowed["Percent"] / 100), least + allowed["Pods"]) >= most
        assert [(rule["type"], rule["value"]) for rule in down["policies"]] == [("Percent", 50)]
        assert all(rule["periodSeconds"] >= 60 for rule in down["policies"])

    def test_it_asks_the_loadtide_of_these_examples(self, name: str) -> None:
        service = one("loadtide.yaml", "Service")
        host = "{name}.{namespace}.svc".format(**service["metadata"])
        ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
        assert trigger(name)["metadata"]["scalerAddress"] == f"{host}:{ports['grpc']}"

    def test_the_policy_file_says_the_same(self, name: str) -> None:
        from_file = PolicyFile.load(EXAMPLES / "policy.yaml").resolve(workload(name))
        assert from_file.warnings == ()
        assert from_file.policy == policy(name)


@pytest.mark.parametrize("name", ENGINES)
class TestEngine:
    def test_it_is_the_one_that_is_scaled(self, name: str) -> None:
        scaled, deployment = one(name, "ScaledObject"), one(name, "Deployment")
        assert scaled["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
        assert scaled["metadata"]["namespace"] == deployment["metadata"]["namespace"]
        assert "replicas" not in deployment["spec"], "it would fight the HPA at every apply"

    def test_running_streams_may_end(self, name: str) -> None:
        pod, engine = one(name, "Deployment")["spec"]["template"]["spec"], container(name)
        command, seconds = engine["lifecycle"]["preStop"]["exec"]["command"]
        assert command == "sleep"
        assert pod["terminationGracePeriodSeconds"] > int(seconds) + flag(name, "--shutdown-timeout")

    def test_no_more_is_asked_of_it_than_it_takes(self, name: str) -> None:
        assert flag(name, "--max-num-seqs") == policy(name).batch.max

    def test_it_may_load_as_long_as_we_wait(self, name: str) -> None:
        probe = container(name)["startupProbe"]
        allowed = probe["periodSeconds"] * probe["failureThreshold"]
        assert allowed == policy(name).replicas.load_timeout_seconds
        assert container(name)["readinessProbe"]["httpGet"]["path"] == "/health"

    def test_it_has_gpus(self, name: str) -> None:
        assert int(container(name)["resources"]["limits"]["nvidia.com/gpu"]) >= 1

    def test_the_scraped_name_is_its_headless_service(self, name: str) -> None:
        labels = one(name, "Deployment")["spec"]["template"]["metadata"]["labels"]
        services = [manifest for manifest in manifests(name) if manifest["kind"] == "Service"]
        (headless,) = [service for service in services if service["spec"].get("clusterIP") == "None"]
        host = "{name}.{namespace}.svc".format(**headless["metadata"])
        (port,) = headless["spec"]["ports"]
        (listening,) = container(name)["ports"]
        # A headless Service forwards nothing: its port must be the container's own.
        assert (port["port"], port["targetPort"]) == (listening["containerPort"], listening["name"])
        assert port["port"] == flag(name, "--port")
        assert trigger(name)["metadata"]["scrapeDns"] == f"{host}:{port['port']}"
        assert all(service["spec"]["selector"].items() <= labels.items() for service in services)


def test_one_of_them_goes_to_zero_and_can_be_woken() -> None:
    sleeper = policy("vllm-external-push.yaml")
    assert sleeper.can_wake
    assert trigger("vllm-external-push.yaml")["type"] == "external-push"
    assert sleeper.warm.windows
    assert sleeper.jump.rows


class TestLoadtide:
    def test_never_two_on_one_file(self) -> None:
        spec = one("loadtide.yaml", "Deployment")["spec"]
        assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")

    def test_the_probes_ask_for_services_that_answer(self) -> None:
        scaler = container("loadtide.yaml")
        ports = {port["name"]: port["containerPort"] for port in scaler["ports"]}
        for probe in ("readinessProbe", "livenessProbe"):
            assert scaler[probe]["grpc"]["service"] in HEALTH_SERVICES
            assert scaler[probe]["grpc"]["port"] == ports["grpc"]

    def test_the_service_reaches_both_ports(self) -> None:
        service, scaler = one("loadtide.yaml", "Service"), container("loadtide.yaml")
        assert {port["targetPort"] for port in service["spec"]["ports"]} == {port["name"] for port in scaler["ports"]}
        labels = one("loadtide.yaml", "Deployment")["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()

    def test_it_writes_only_to_its_volume(self) -> None:
        pod, scaler = one("loadtide.yaml", "Deployment")["spec"]["template"]["spec"], container("loadtide.yaml")
        assert pod["securityContext"]["runAsNonRoot"]
        assert scaler["securityContext"]["readOnlyRootFilesystem"]
        (mount,) = scaler["volumeMounts"]
        store = scaler["args"][scaler["args"].index("--store") + 1]
        assert Path(store).parent == Path(mount["mountPath"])
        claim = next(volume for volume in pod["volumes"] if volume["name"] == mount["name"])
        claimed = claim["persistentVolumeClaim"]["claimName"]
        assert claimed == one("loadtide.yaml", "PersistentVolumeClaim")["metadata"]["name"]


def test_the_policy_file_declares_the_workloads_of_the_examples() -> None:
    assert set(PolicyFile.load(EXAMPLES / "policy.yaml").workloads) == {workload(name) for name in ENGINES}
