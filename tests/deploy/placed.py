"""What must hold of every rendering, whoever made it: names, ports, labels and namespaces that belong together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml
from typer.main import get_command

from scaler.cli import app
from scaler.serve.grpc_server import HEALTH_SERVICES
from scaler.signals.kubernetes import ACCESS
from tests.deploy.tools import Installed, Manifest

CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "ClusterTriggerAuthentication"}


def container(rendered: Installed) -> Manifest:
    (only,) = rendered.one("Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(only)


def options(rendered: Installed) -> dict[str, Any]:
    """What our own command line makes of the rendered arguments; a wrong option fails."""
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    name, *arguments = container(rendered)["args"]
    assert name == "serve"
    return dict(command.make_context("serve", arguments).params)


def read_by_the_check(rendered: Installed) -> str:
    """Without rules and dashboards, which it does not look at and which are long."""
    left = [each for each in rendered.objects if each["kind"] not in ("PrometheusRule", "ConfigMap")]
    return yaml.safe_dump_all(left)


def one_spelling(rules: Manifest) -> Manifest:
    """How an expression is broken into lines hangs on how long a namespace's name is; what it says does not."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = "".join(rule["expr"].split())
    return rules


def selects(selector: Manifest, labels: Manifest) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def hangs_together(rendered: Installed, namespace: str, account: str = "") -> None:
    """Fails with what does not. ``account`` is the service account that is not made with it, but given."""
    deployment, service = rendered.one("Deployment"), rendered.one("Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for port in container(rendered)["ports"]}
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert selects(service["spec"]["selector"], labels)
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports.keys()
    for each in rendered.of("NetworkPolicy"):
        assert selects(each["spec"]["podSelector"]["matchLabels"], labels)
        let_in = {port["port"]: rule["from"] for rule in each["spec"]["ingress"] for port in rule["ports"]}
        assert let_in.keys() == ports.keys() - {"health"}, "the kubelet is always let in"
        for peer in let_in.get("peers", ()):
            assert selects(peer["podSelector"]["matchLabels"], labels), "scalers reach each other"
        assert all(rule["from"] for rule in each["spec"]["ingress"]), "an empty list lets everybody in"
    for each in rendered.of("PodDisruptionBudget"):
        assert selects(each["spec"]["selector"]["matchLabels"], labels)
    for each in rendered.of("ServiceMonitor"):
        monitored(each, service, namespace)
    for each in rendered.of("DaemonSet"):
        agents_hang_together(each, rendered)
    assert {each["metadata"].get("namespace") for each in rendered.objects if each["kind"] not in CLUSTER_SCOPED} >= {
        namespace
    }
    asks_what_is_served(rendered, ports)
    mounts_what_is_there(rendered)
    is_locked_down(rendered)
    may_do_what_it_asks(rendered, namespace, account)


def agents_hang_together(agents: Manifest, rendered: Installed) -> None:
    """The DaemonSet asks for what the agent serves, is scraped, and takes no part in what selects the scaler."""
    template = agents["spec"]["template"]
    labels, (agent,) = template["metadata"]["labels"], template["spec"]["containers"]
    assert selects(agents["spec"]["selector"]["matchLabels"], labels)
    assert not selects(rendered.one("Service")["spec"]["selector"], labels)
    is_an_agent(agent)
    assert agent_options(agent)["gpu_metrics"]
    (mount,), (volume,) = agent["volumeMounts"], template["spec"]["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], volume["hostPath"]["path"])
    assert str(agent_options(agent)["pod_resources"]).startswith(f"{mount['mountPath']}/")
    scrapers = [each["spec"] for each in rendered.of("PodMonitor") if "matchLabels" in each["spec"]["selector"]]
    for each in scrapers:
        assert selects(each["selector"]["matchLabels"], labels)
        assert [endpoint["port"] for endpoint in each["podMetricsEndpoints"]] == [agent["ports"][0]["name"]]
    assert bool(scrapers) is bool(rendered.of("PodMonitor"))


def agent_options(agent: Manifest) -> dict[str, Any]:
    """What the agent's command line makes of the container's arguments; a wrong option fails."""
    command = get_command(app).commands["agent"]  # type: ignore[attr-defined]
    name, *arguments = agent["args"]
    assert (agent["command"], name) == (["loadtide"], "agent")
    return dict(command.make_context("agent", arguments).params)


def is_an_agent(agent: Manifest) -> None:
    """Its one port is the one it serves, its probes ask it there, and it may do nothing that it need not."""
    (port,) = agent["ports"]
    assert str(agent_options(agent)["http"]).endswith(f":{port['containerPort']}")
    asked = {agent[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe") if probe in agent}
    assert asked == {port["name"]}
    assert agent["livenessProbe"]["httpGet"]["path"] == "/healthz"
    security = agent["securityContext"]
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert not any("gpu" in name for kind in agent["resources"].values() for name in kind), "it takes none from anybody"


def monitored(monitor: Manifest, service: Manifest, namespace: str) -> None:
    """G6-01: by its labels, in its namespace, by a port's name, and with our own labels kept."""
    assert selects(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"])
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["honorLabels"] is True
    reached = monitor["spec"].get("namespaceSelector", {"matchNames": [monitor["metadata"]["namespace"]]})
    assert reached == {"matchNames": [namespace]}


def asks_what_is_served(rendered: Installed, ports: dict[str, int]) -> None:
    """Every port and probe is one that the arguments make the process listen on."""
    told = options(rendered)
    listening = {name: int(told[name].rpartition(":")[2]) for name in ("grpc", "http", "health") if told[name]}
    shared = any(variable["name"] == "LOADTIDE_STORE" for variable in container(rendered)["env"])
    assert ports == listening | ({"peers": told["peers_port"]} if shared else {})
    for probe in ("readinessProbe", "livenessProbe"):
        asked = container(rendered)[probe]["grpc"]
        assert asked["service"] in HEALTH_SERVICES
        assert asked["port"] == (listening["health"] if told["grpc_cert"] else listening["grpc"])
    grace = rendered.one("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > container(rendered)["lifecycle"]["preStop"]["sleep"]["seconds"] + told["grace_seconds"]


def mounts_what_is_there(rendered: Installed) -> None:
    """An argument's file lies in a mount, every mount is a volume, every volume an object or a Secret."""
    pod, scaler = rendered.one("Deployment")["spec"]["template"]["spec"], container(rendered)
    mounts = {mount["mountPath"]: mount["name"] for mount in scaler["volumeMounts"]}
    files = [word.partition("=")[2] for word in scaler["args"] if word.partition("=")[2].startswith("/")]
    assert all(file.rpartition("/")[0] in mounts for file in files)
    assert sorted(mounts.values()) == sorted(volume["name"] for volume in pod["volumes"])
    names = {(each["kind"], each["metadata"]["name"]) for each in rendered.objects}
    for volume in pod["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in names
        if "persistentVolumeClaim" in volume:
            assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in names
            assert rendered.one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}, "never two on one file"


def is_locked_down(rendered: Installed) -> None:
    """G6-06."""
    pod, scaler = rendered.one("Deployment")["spec"]["template"]["spec"], container(rendered)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    locked = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert scaler["securityContext"] == locked
    assert not any("gpu" in name for kind in scaler["resources"].values() for name in kind)


def rights(roles: Iterable[Manifest]) -> set[tuple[str, str, tuple[str, ...]]]:
    return {
        (group, resource, tuple(rule["verbs"]))
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def may_do_what_it_asks(rendered: Installed, namespace: str, given: str) -> None:
    """G6-08: exactly what the code asks for, bound to its own account in its own namespace; or to a ``given`` one."""
    roles, bindings = (rendered.of(f"Cluster{kind}") + rendered.of(kind) for kind in ("Role", "RoleBinding"))
    pod = rendered.one("Deployment")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is bool(roles or given)
    assert len(roles) == len(bindings)
    if roles:
        assert rights(roles) == {(each.group, each.resource, each.verbs) for each in ACCESS}
    accounts = {each["metadata"]["name"] for each in rendered.of("ServiceAccount")} or {given or "default"}
    assert pod["serviceAccountName"] in accounts
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": namespace}
        assert binding["roleRef"]["name"] in {role["metadata"]["name"] for role in roles}
