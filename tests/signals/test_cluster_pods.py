"""Which pod has an address, as the cluster's objects tell it: and never another pod's name."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.model import ScaleTarget, Scrape
from scaler.signals.cluster_objects import Pod, pods_by_host, read_pod, read_slice, serving
from scaler.signals.discovery import Resolved, ResolveFailure, Trail, judge
from scaler.signals.kubernetes import Cluster
from tests.signals.api_server_double import PODS, ClusterDouble, endpoint, endpoint_slice, pod, scale
from tests.signals.test_kubernetes import DEPLOYMENT, LEADERS, TIMEOUT, Moment, cluster

SERVICE = Scrape(endpoint_slice="vllm:8000")


def read(*bodies: object) -> list[Pod]:
    return [read_pod(body) for body in bodies]  # type: ignore[arg-type]


def test_every_address_of_a_pod_is_its_own() -> None:
    pods = read(pod("vllm-a", hosts=("10.0.0.7", "fd00::7")), pod("vllm-b", hosts=("10.0.0.8",)), pod("vllm-c"))
    assert pods_by_host(pods) == {"10.0.0.7": "vllm-a", "fd00::7": "vllm-a", "10.0.0.8": "vllm-b"}


def test_an_address_that_two_pods_have_tells_nothing() -> None:
    """Pods in their node's network have the node's address."""
    assert pods_by_host(read(pod("vllm-a", hosts=("10.0.0.7",)), pod("vllm-b", hosts=("10.0.0.7",)))) == {}


def test_the_address_of_an_ended_pod_is_the_new_ones_and_a_pod_that_is_ending_keeps_its_own() -> None:
    ended, ending = pod("vllm-a", phase="Failed", hosts=("10.0.0.7",)), pod("vllm-b", ending=True, hosts=("10.0.0.8",))
    assert pods_by_host(read(ended, ending)) == {"10.0.0.7": "vllm-a", "10.0.0.8": "vllm-b"}
    assert pods_by_host(read(ended, pod("vllm-c", hosts=("10.0.0.7",)), ending))["10.0.0.7"] == "vllm-c"


pods = st.lists(
    st.builds(
        Pod,
        st.sampled_from(["a", "b", "c"]),
        st.none(),
        st.booleans(),
        st.booleans(),
        st.just(False),
        st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2"]), max_size=2).map(tuple),
    ),
    max_size=6,
)


@given(pods, st.randoms(use_true_random=False))
def test_whoever_is_named_has_the_address_and_order_means_nothing(several: list[Pod], rng: random.Random) -> None:
    found = pods_by_host(several)
    for host, name in found.items():
        assert any(each.name == name and host in each.hosts for each in several)
        assert not any(each.name != name and host in each.hosts and not each.ended for each in several)
    shuffled = [*several]
    rng.shuffle(shuffled)
    assert pods_by_host(shuffled) == found


# An EndpointSlice names the pod of each endpoint


def test_an_endpoints_pod_goes_with_its_url_and_comes_back_while_no_answer_does() -> None:
    body = endpoint_slice("vllm", endpoint("10.0.0.7", "vllm-a"), endpoint("10.0.0.8"), endpoint("10.0.0.9", "vllm-c"))
    answer = serving([read_slice(body)], "vllm", "8000", lambda _: True)
    assert isinstance(answer, Resolved)
    trail, urls = judge(Trail("chat/vllm:8000"), answer, SERVICE)
    named = {"http://10.0.0.7:8000/metrics": "vllm-a", "http://10.0.0.9:8000/metrics": "vllm-c"}
    assert urls.pods == named
    assert len(urls.urls) == 3

    trail, held = judge(trail, ResolveFailure("the cluster did not answer"), SERVICE)
    assert (held.urls, held.pods) == (urls.urls, named)
    _, gone = judge(trail, Resolved((), certain=True), SERVICE)
    assert (gone.urls, gone.pods) == ((), {})


def test_an_address_is_the_same_whatever_pod_has_it() -> None:
    """So that one which two slices tell, once with its pod and once without, is not two replicas."""
    bodies = [
        endpoint_slice("vllm", endpoint("10.0.0.7", name), name=f"vllm-{number}")
        for number, name in enumerate(("vllm-a", None))
    ]
    answer = serving([read_slice(body) for body in bodies], "vllm", "8000", lambda _: True)
    assert isinstance(answer, Resolved)
    assert len(answer.addresses) == 1


# The cluster is asked for the target's pods


async def names(found: Cluster, target: ScaleTarget, timeout: float = TIMEOUT) -> list[str] | None:
    told = await found.pods("chat", target, timeout=timeout)
    return None if told is None else sorted(each.name for each in told)


async def test_the_targets_pods_are_told_and_nobody_elses() -> None:
    double = ClusterDouble(scales={"vllm": scale(2)})
    double.put(PODS, pod("vllm-a"), pod("vllm-b", ready=False), pod("other", labels={"app": "other"}))
    async with cluster(double) as found:
        assert await names(found, DEPLOYMENT) == ["vllm-a", "vllm-b"]
        assert await names(found, ScaleTarget()) is None


async def test_of_a_leader_worker_set_only_leaders_are_told() -> None:
    double = ClusterDouble(scales={"llama": scale(1)})
    for name, index in (("llama-0", "0"), ("llama-0-1", "1")):
        labels = {"leaderworkerset.sigs.k8s.io/name": "llama", "leaderworkerset.sigs.k8s.io/worker-index": index}
        double.put(PODS, pod(name, labels=labels))
    async with cluster(double) as found:
        assert await names(found, LEADERS) == ["llama-0"]


async def test_without_permission_or_answer_no_pod_is_told_and_nothing_fails() -> None:
    for double in (ClusterDouble(forbidden={"*"}), ClusterDouble(forbidden={"pods"}), ClusterDouble(silent=True)):
        async with cluster(double) as found:
            assert await names(found, DEPLOYMENT, timeout=0.2) is None


async def test_pods_cost_no_question_beside_those_for_the_counts() -> None:
    double = ClusterDouble(scales={"vllm": scale(1)})
    double.put(PODS, pod("vllm-a"))
    clock = Moment()
    async with cluster(double, clock) as found:
        for _ in range(5):
            await found.replica_counts("chat", DEPLOYMENT, timeout=TIMEOUT)
            assert await names(found, DEPLOYMENT) == ["vllm-a"]
            clock.moved += 5
    assert double.count(("apps", "deployments/scale"), "get") == 5
    assert double.count(PODS, "list") == 1
