"""The examples of doors mean what they say: to KEDA, to the HPA that takes the greater of two, and to loadtide."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.check.examine import examine
from scaler.lab.hpa import Hpa, propose
from scaler.policy.layers import PolicyFile
from scaler.policy.metadata import parse
from scaler.policy.model import Policy
from scaler.signals.gateway_preset import load_gateway_preset
from tests.deploy.test_examples import EXAMPLES, manifests, one

DOCS = Path(__file__).parents[2] / "docs" / "demand-at-zero.md"


def adds_on(name: str = "keda-http.yaml") -> tuple[dict[str, Any], dict[str, Any]]:
    """The two triggers: the add-on's and ours."""
    theirs, ours = one(name, "ScaledObject")["spec"]["triggers"]
    return theirs, ours


def the_add_ons() -> list[dict[str, Any]]:
    """The ScaledObjects with the add-on's trigger, of every engine."""
    return [
        each
        for path in sorted((EXAMPLES / "scaledobjects").glob("*.yaml"))
        for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if each and len(each["spec"]["triggers"]) > 1
    ]


class TestTheHttpAddOn:
    name = "keda-http.yaml"

    def route(self) -> dict[str, Any]:
        return dict(one(self.name, "InterceptorRoute"))

    def policy(self) -> Policy:
        return PolicyFile.empty().resolve("chat/qwen3-4b", adds_on()[1]["metadata"]).policy

    def test_the_check_lets_it_pass_and_knows_ours(self) -> None:
        text = (EXAMPLES / self.name).read_text(encoding="utf-8")
        assert examine({self.name: text}) == []
        without = text.replace("# loadtide: allow several-triggers, not-ours", "")
        assert {finding.rule for finding in examine({self.name: without})} == {"several-triggers", "not-ours"}

    def test_the_trigger_names_the_route_and_the_route_the_service(self) -> None:
        assert adds_on()[0]["metadata"]["interceptorRoute"] == self.route()["metadata"]["name"]
        target = self.route()["spec"]["target"]
        services = {each["metadata"]["name"]: each for each in manifests(self.name) if each["kind"] == "Service"}
        assert services[target["service"]]["spec"]["ports"][0]["port"] == target["port"]
        assert "clusterIP" not in services[target["service"]]["spec"]

    def test_nothing_of_it_gives_up_before_the_client_does(self) -> None:
        """Add-on 0.14 and newer, ``interceptor/config/timeouts.go``: 0 switches a limit off."""
        assert self.route()["spec"]["timeouts"] == {"readiness": "0s", "responseHeader": "0s", "request": "0s"}

    def test_ours_can_go_to_zero_and_says_nothing_unknown(self) -> None:
        ours = adds_on()[1]["metadata"]
        assert parse(ours).warnings == ()
        assert self.policy().can_wake
        assert self.policy().replicas.max == one(self.name, "ScaledObject")["spec"]["maxReplicaCount"]

    @settings(deadline=None)
    @given(in_flight=st.integers(0, 500_000), ours=st.integers(0, 8), replicas=st.integers(1, 8))
    def test_the_greater_of_both_is_ours(self, in_flight: int, ours: int, replicas: int) -> None:
        """The HPA proposes from each metric by itself and takes the greatest proposal. With requests in flight the
        add-on's is 1 whatever their number, and ours, which is at least that, is what is enacted.
        """
        target = self.route()["spec"]["scalingMetric"]["concurrency"]["targetValue"]
        theirs = propose(Hpa(8, target=float(target)), float(in_flight), asked=replicas, existing=replicas)
        mine = propose(Hpa(8), float(ours), asked=replicas, existing=replicas)
        assert theirs <= 1
        assert max(theirs, mine, 1) == max(mine, 1)

    @pytest.mark.parametrize(("in_flight", "asked"), [(99, 1), (250, 3), (800, 8)])
    def test_with_a_target_near_the_load_the_add_on_would_buy(self, in_flight: int, asked: int) -> None:
        """100, the ``targetPendingRequests`` of an HTTPScaledObject that says nothing."""
        assert asked == math.ceil(in_flight / 100)
        assert propose(Hpa(8, target=100.0), float(in_flight), asked=1, existing=1) == asked

    def test_either_keeps_it_awake(self) -> None:
        """KEDA asks both and is active while any is: an answer that streams on holds the replica although loadtide, at
        its next idle proof, would let go; and with no client loadtide's idle time rules. Both are asked by a stream.
        """
        assert [trigger["type"] for trigger in adds_on()] == ["external-push", "external-push"]
        assert {trigger["metricType"] for trigger in adds_on()} == {"AverageValue"}

    def test_a_replica_whose_client_hung_up_may_load(self) -> None:
        """Then both are inactive, and taken to zero while it loads it would be woken for ever (field case G2-05)."""
        for spec in (one(self.name, "ScaledObject")["spec"], *(each["spec"] for each in the_add_ons())):
            (ours,) = [each["metadata"] for each in spec["triggers"] if "scrapeDns" in each["metadata"]]
            assert spec["cooldownPeriod"] > float(ours["replicasColdStartSeconds"])
            assert spec["initialCooldownPeriod"] > float(ours["replicasColdStartSeconds"])


class TestTheEnvoyDoor:
    name = "envoy-door.yaml"

    def envoy(self) -> dict[str, Any]:
        return dict(yaml.safe_load(one(self.name, "ConfigMap")["data"]["envoy.yaml"]))

    def trigger_lines(self) -> dict[str, str]:
        """The lines that the comment at the end tells to write into the trigger."""
        text = (EXAMPLES / self.name).read_text(encoding="utf-8")
        lines = re.findall(r"^#         (gateway\w+: .+)$", text, re.MULTILINE)
        return dict(yaml.safe_load("\n".join(lines)))

    def test_loadtide_finds_its_requests(self) -> None:
        policy = PolicyFile.empty().resolve("chat/qwen3-32b", self.trigger_lines()).policy
        assert policy.can_wake
        preset = load_gateway_preset(policy.gateway.preset or "")
        assert preset.counts_in_flight
        requests = self.envoy()["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        assert policy.gateway.match == {preset.match_labels[0]: requests["stat_prefix"]}

    def test_its_statistics_are_where_the_trigger_says(self) -> None:
        (url,) = PolicyFile.empty().resolve("chat/qwen3-32b", self.trigger_lines()).policy.gateway.urls
        service = one(self.name, "Service")
        ports = {port["name"]: port for port in service["spec"]["ports"]}
        host = "{name}.{namespace}.svc".format(**service["metadata"])
        assert url == f"http://{host}:{ports['statistics']['port']}/stats/prometheus"
        listener = self.envoy()["static_resources"]["listeners"][1]
        assert listener["address"]["socket_address"]["port_value"] == ports["statistics"]["port"]

    def test_the_admin_itself_is_out_of_reach(self) -> None:
        assert self.envoy()["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"
        listener = self.envoy()["static_resources"]["listeners"][1]
        (host,) = listener["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
        assert [route["match"] for route in host["routes"]] == [{"path": "/stats/prometheus"}]

    def test_its_health_is_asked_where_nothing_counts_as_demand(self) -> None:
        listeners = {each["name"]: each for each in self.envoy()["static_resources"]["listeners"]}
        (probe,) = [
            container["readinessProbe"]["httpGet"]
            for container in one(self.name, "Deployment")["spec"]["template"]["spec"]["containers"]
        ]
        ports = {each["name"]: each["port"] for each in one(self.name, "Service")["spec"]["ports"]}
        address = listeners["health"]["address"]["socket_address"]
        assert address["port_value"] == ports[probe["port"]]
        answered = listeners["health"]["filter_chains"][0]["filters"][0]["typed_config"]
        assert answered["stat_prefix"] not in self.trigger_lines()["gatewayMatch"]
        (route,) = answered["route_config"]["virtual_hosts"][0]["routes"]
        assert route == {"match": {"path": probe["path"]}, "direct_response": {"status": 200}}

    def test_only_what_reached_nobody_is_tried_again(self) -> None:
        requests = self.envoy()["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
        (route,) = requests["route_config"]["virtual_hosts"][0]["routes"]
        retry = route["route"]["retry_policy"]
        assert retry["retry_on"] == "connect-failure"
        load_timeout = PolicyFile.empty().resolve("a/b", {}).policy.replicas.load_timeout_seconds
        mean_seconds = 0.5  # full jitter up to max_interval
        assert retry["num_retries"] * mean_seconds >= load_timeout

    def test_it_asks_the_service_with_an_address(self) -> None:
        cluster = self.envoy()["static_resources"]["clusters"][0]
        (endpoints,) = cluster["load_assignment"]["endpoints"]
        address = endpoints["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
        (clients,) = [
            each
            for each in manifests("vllm-external-push.yaml")
            if each["kind"] == "Service" and "clusterIP" not in each["spec"]
        ]
        assert address["address"] == "{name}.{namespace}.svc.cluster.local".format(**clients["metadata"])
        assert address["port_value"] == clients["spec"]["ports"][0]["port"]
