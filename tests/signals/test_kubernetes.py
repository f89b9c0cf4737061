"""The cluster as a source, against a small API server: what counts as a replica, and what is no answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from scaler.policy.model import ScaleTarget
from scaler.signals import watched
from scaler.signals.api_server import ApiError, ApiServer, connect
from scaler.signals.discovery import Address, Answer, Resolved, ResolveFailure
from scaler.signals.kubernetes import ACCESS, Cluster
from scaler.signals.observation import ReplicaCounts
from tests.signals.api_server_double import (
    PODS,
    SLICES,
    ClusterDouble,
    api_server,
    client_of,
    endpoint,
    endpoint_slice,
    pod,
    scale,
)

DEPLOYMENT = ScaleTarget(name="vllm")
LEADERS = ScaleTarget(kind="leaderworkerset", name="llama")
TIMEOUT = 60.0


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(watched, "RETRY_FORBIDDEN_SECONDS", 0.05)


class Moment:
    """A clock that a test moves on, beside the real one that goes on by itself."""

    def __init__(self) -> None:
        self.moved = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.moved


@asynccontextmanager
async def cluster(double: ClusterDouble, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[Cluster]:
    """A cluster source connected to the double."""
    async with api_server(double) as port, connected(client_of(port), clock) as found:
        yield found


@asynccontextmanager
async def connected(server: ApiServer, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[Cluster]:
    async def to_server() -> ApiServer:
        return server

    found = Cluster(clock, connect=to_server)
    try:
        yield found
    finally:
        await found.close()


async def ready(found: Cluster, port: str = "http", target: ScaleTarget = DEPLOYMENT, service: str = "vllm") -> Answer:
    return await found.endpoints("chat", service, port, target, timeout=TIMEOUT)


async def hosts(found: Cluster, **more: Any) -> list[str] | str:
    answer = await ready(found, **more)
    return answer.reason if isinstance(answer, ResolveFailure) else [each.host for each in answer.addresses]


async def counted(found: Cluster, target: ScaleTarget = DEPLOYMENT) -> ReplicaCounts:
    counts = await found.replica_counts("chat", target, timeout=TIMEOUT)
    assert counts is not None
    return counts


async def until(asked: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Wait until it is so; fail with what it is instead."""
    last: object = None
    for _ in range(3000):
        last = await asked()
        if last == wanted:
            return
        await asyncio.sleep(0.02)
    assert last == wanted


# Which endpoints are replicas


async def test_ready_endpoints_are_replicas_and_nothing_else_is() -> None:
    double = ClusterDouble()
    double.put(
        SLICES,
        endpoint_slice(
            "vllm",
            endpoint("10.0.0.1", "vllm-a"),
            endpoint("10.0.0.2", "vllm-b", ready=False),
            endpoint("10.0.0.3", "vllm-c", ready=False, serving=True, ending=True),
            endpoint("10.0.0.4", "vllm-d", ready=None),  # left out: to be taken for ready
        ),
        endpoint_slice("vllm", endpoint("10.0.0.5", "vllm-e"), name="vllm-second"),
        endpoint_slice("other", endpoint("10.0.0.9", "other-a")),
    )
    async with cluster(double) as found:
        assert await ready(found) == Resolved(
            (Address("10.0.0.1", 8000), Address("10.0.0.4", 8000), Address("10.0.0.5", 8000)),
            "Service vllm has no endpoint",
            certain=True,
        )


async def test_a_service_that_publishes_pods_not_ready_is_seen_through() -> None:
    double = ClusterDouble()
    double.put(
        SLICES,
        endpoint_slice(
            "vllm",
            endpoint("10.0.0.1", ready=True, serving=True),
            endpoint("10.0.0.2", ready=True, serving=False),
            endpoint("10.0.0.3", ready=True, serving=True, ending=True),
        ),
    )
    async with cluster(double) as found:
        assert await hosts(found) == ["10.0.0.1"]


async def test_a_dual_stack_replica_counts_once_and_host_names_are_none() -> None:
    double = ClusterDouble()
    double.put(
        SLICES,
        endpoint_slice("vllm", endpoint("10.0.0.1", "vllm-a"), name="four"),
        endpoint_slice("vllm", endpoint("fd00::1", "vllm-a"), name="six", family="IPv6"),
        endpoint_slice("vllm", endpoint("elsewhere.example"), name="names", family="FQDN"),
    )
    async with cluster(double) as found:
        assert await hosts(found) == ["10.0.0.1"]


async def test_a_port_is_a_name_of_the_service_or_a_number_of_the_pods() -> None:
    double = ClusterDouble()
    double.put(
        SLICES,
        endpoint_slice("vllm", endpoint("10.0.0.1"), name="old", ports={"http": 8000}),
        endpoint_slice("vllm", endpoint("10.0.0.2"), name="new", ports={"http": 9000}),
    )
    async with cluster(double) as found:
        named, numbered = await ready(found, "http"), await ready(found, "8001")
        assert isinstance(named, Resolved)
        assert named.addresses == (Address("10.0.0.1", 8000), Address("10.0.0.2", 9000))
        assert isinstance(numbered, Resolved)
        assert numbered.addresses == (Address("10.0.0.1", 8001), Address("10.0.0.2", 8001))
        assert await ready(found, "metrics") == ResolveFailure("Service vllm has no port named metrics, but http")


async def test_only_leaders_of_a_leader_worker_set_are_replicas() -> None:
    double = ClusterDouble()
    names = ("llama-0", "llama-0-1", "llama-1", "llama-1-1")
    double.put(SLICES, endpoint_slice("vllm", *(endpoint(f"10.0.0.{n}", name) for n, name in enumerate(names))))
    for name in names:
        labels = {
            "leaderworkerset.sigs.k8s.io/name": "llama",
            "leaderworkerset.sigs.k8s.io/worker-index": "1" if name.count("-") == 2 else "0",
        }
        double.put(PODS, pod(name, labels=labels))
    async with cluster(double) as found:
        assert await hosts(found, target=LEADERS) == ["10.0.0.0", "10.0.0.2"]

    double.forbidden.add("pods")  # then their names must tell
    async with cluster(double) as found:
        assert await hosts(found, target=LEADERS) == ["10.0.0.0", "10.0.0.2"]


# None, and no answer


async def test_an_empty_slice_proves_that_there_is_no_replica() -> None:
    double = ClusterDouble()
    double.put(SLICES, endpoint_slice("vllm", ports={}))
    async with cluster(double) as found:
        assert await ready(found) == Resolved((), "Service vllm has no endpoint", certain=True)


async def test_a_service_without_any_slice_may_not_exist() -> None:
    async with cluster(ClusterDouble()) as found:
        answer = await ready(found)
        assert isinstance(answer, Resolved)
        assert (answer.addresses, answer.certain) == ((), False)


async def test_where_no_replica_is_ready_the_load_is_in_doubt_and_not_zero() -> None:
    double = ClusterDouble()
    double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.1", ready=False), endpoint("10.0.0.2", ready=False)))
    async with cluster(double) as found:
        assert await hosts(found) == "of Service vllm none of 2 endpoints is ready"


async def test_changes_are_seen_as_they_happen() -> None:
    double = ClusterDouble()
    double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.1")))
    async with cluster(double) as found:
        assert await hosts(found) == ["10.0.0.1"]
        double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.1"), endpoint("10.0.0.2")))
        await until(lambda: hosts(found), ["10.0.0.1", "10.0.0.2"])
        double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.3"), name="vllm-more"))
        await until(lambda: hosts(found), ["10.0.0.1", "10.0.0.2", "10.0.0.3"])
        double.delete(SLICES, "vllm-abc")
        await until(lambda: hosts(found), ["10.0.0.3"])
        assert double.count(SLICES, "list") == 1


async def test_a_long_list_is_read_in_pages() -> None:
    double = ClusterDouble(page=2)
    double.put(SLICES, *(endpoint_slice("vllm", endpoint(f"10.0.0.{n}"), name=f"vllm-{n}") for n in range(5)))
    async with cluster(double) as found:
        assert await hosts(found) == [f"10.0.0.{n}" for n in range(5)]
        assert double.count(SLICES, "list") == 3


async def test_a_watch_that_has_expired_begins_anew_with_a_whole_list() -> None:
    double = ClusterDouble()
    double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.1")), endpoint_slice("other", name="other"))
    async with cluster(double) as found:
        assert await hosts(found) == ["10.0.0.1"]
        double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.2")))
        double.forget()  # before the watch could send it
        with capture_logs() as logs:
            await until(lambda: hosts(found), ["10.0.0.2"])
        assert logs == []  # everyday life, not a warning


async def test_a_cut_watch_is_no_list_until_it_is_read_again() -> None:
    double = ClusterDouble()
    double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.1")))
    async with cluster(double) as found:
        assert await hosts(found) == ["10.0.0.1"]
        double.forbidden.add("endpointslices")
        double.drop_watches()
        await until(lambda: hosts(found), "the cluster forbids to read endpointslices (HTTP 403)")
        double.forbidden.clear()
        await until(lambda: hosts(found), ["10.0.0.1"])


async def test_a_restarted_api_server_is_found_again() -> None:
    double = ClusterDouble()
    double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.1")))
    async with AsyncExitStack() as first:
        port = await first.enter_async_context(api_server(double))
        async with connected(client_of(port)) as found:
            assert await hosts(found) == ["10.0.0.1"]
            await first.aclose()

            async def is_lost() -> bool:
                said = await hosts(found)
                return isinstance(said, str) and said.startswith("the cluster cannot be reached")

            await until(is_lost, True)
            double.forget()
            double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.2")))
            async with api_server(double, port):
                await until(lambda: hosts(found), ["10.0.0.2"])


async def test_a_silent_api_server_holds_nobody_up() -> None:
    double = ClusterDouble(silent=True)
    async with cluster(double) as found:
        began = time.monotonic()
        answer = await found.endpoints("chat", "vllm", "http", DEPLOYMENT, timeout=0.2)
        counts = await found.replica_counts("chat", DEPLOYMENT, timeout=0.2)

        assert answer == ResolveFailure("the cluster did not answer within 0.2 s")
        assert counts is not None
        assert (counts.asked, counts.reason) == (None, "the cluster did not answer within 0.2 s")
        assert time.monotonic() - began < 20  # it would be silent for longer


async def test_many_services_of_a_namespace_share_one_watch() -> None:
    double = ClusterDouble()
    double.put(SLICES, *(endpoint_slice(f"vllm-{n}", endpoint(f"10.0.0.{n}")) for n in range(20)))
    async with cluster(double) as found:
        said = await asyncio.gather(*(hosts(found, service=f"vllm-{n}") for n in range(20)))
        assert said == [[f"10.0.0.{n}"] for n in range(20)]
        assert double.count(SLICES, "list") == 1


async def test_what_nobody_asks_for_is_not_watched_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "UNASKED_SECONDS", 60.0)
    clock, double = Moment(), ClusterDouble()
    double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.1")))
    async with cluster(double, clock) as found:
        assert await hosts(found) == ["10.0.0.1"]
        clock.moved += 61
        double.forget()  # the watch ends and would begin anew
        await asyncio.sleep(0.3)
        assert double.count(SLICES, "list") == 1
        assert await hosts(found) == ["10.0.0.1"]
        assert double.count(SLICES, "list") == 2


# Replica counts


def rollout() -> ClusterDouble:
    """Five asked for: two serve, one loads, one waits for a node, one is gated; others have ended or are ending."""
    double = ClusterDouble(scales={"vllm": scale(5)})
    double.put(
        PODS,
        pod("vllm-a"),
        pod("vllm-b"),
        pod("vllm-c", ready=False),
        pod("vllm-d", ready=False, phase="Pending", without_node="Unschedulable"),
        pod("vllm-e", ready=False, phase="Pending", without_node="SchedulingGated"),
        pod("vllm-f", ready=False, phase="Failed"),
        pod("vllm-g", ready=True, ending=True),
        pod("other", labels={"app": "other"}, ready=False),
    )
    return double


async def test_replicas_are_counted_by_what_they_do() -> None:
    async with cluster(rollout()) as found:
        counts = await counted(found)
        assert (counts.asked, counts.ready, counts.pending, counts.unschedulable) == (5, 2, 1, 2)
        assert counts.reason == ""
        assert counts.at <= time.monotonic()


@pytest.mark.parametrize("kind", ["deployment", "statefulset", "leaderworkerset"])
async def test_zero_asked_for_is_known_zero(kind: Any) -> None:
    async with cluster(ClusterDouble(scales={"vllm": scale(0)})) as found:
        counts = await counted(found, ScaleTarget(kind=kind, name="vllm"))
        assert (counts.asked, counts.ready, counts.pending, counts.unschedulable) == (0, 0, 0, 0)


async def test_a_pod_whose_node_is_found_is_loading() -> None:
    double = rollout()
    async with cluster(double) as found:
        assert (await counted(found)).unschedulable == 2
        double.put(PODS, pod("vllm-d", ready=False, phase="Pending"))

        async def loading_and_stuck() -> tuple[int | None, int | None]:
            counts = await counted(found)
            return counts.pending, counts.unschedulable

        await until(loading_and_stuck, (2, 1))


async def test_replicas_of_a_leader_worker_set_are_its_leaders() -> None:
    double = ClusterDouble(scales={"llama": scale(2, "ignored=true")})
    for name, index, is_ready in (("llama-0", "0", True), ("llama-0-1", "1", True), ("llama-1", "0", False)):
        labels = {"leaderworkerset.sigs.k8s.io/name": "llama", "leaderworkerset.sigs.k8s.io/worker-index": index}
        double.put(PODS, pod(name, labels=labels, ready=is_ready))
    async with cluster(double) as found:
        counts = await counted(found, LEADERS)
        assert (counts.asked, counts.ready, counts.pending, counts.unschedulable) == (2, 1, 1, 0)


async def test_without_permission_counts_are_unknown_never_zero_and_one_warning_is_given() -> None:
    clock, double = Moment(), ClusterDouble(forbidden={"*"})
    with capture_logs() as logs:
        async with cluster(double, clock) as found:
            for _ in range(5):
                counts = await counted(found)
                assert (counts.asked, counts.ready, counts.pending, counts.unschedulable) == (None, None, None, None)
                assert counts.reason == "the cluster forbids to read deployments/vllm/scale (HTTP 403)"
                assert await hosts(found) == "the cluster forbids to read endpointslices (HTTP 403)"
                clock.moved += 10
                await asyncio.sleep(0.1)
    assert double.count(SLICES, "list") > 1
    assert sorted((each["log_level"], each["event"]) for each in logs) == [
        ("warning", "cluster list lost"),
        ("warning", "replicas asked for are not known"),
    ]


async def test_without_permission_for_pods_what_is_asked_for_is_still_known() -> None:
    double = ClusterDouble(scales={"vllm": scale(3)}, forbidden={"pods"})
    async with cluster(double) as found:
        counts = await counted(found)
        assert (counts.asked, counts.ready, counts.pending) == (3, None, None)
        assert counts.reason == "the cluster forbids to read pods (HTTP 403)"


async def test_a_target_that_does_not_exist_is_unknown() -> None:
    async with cluster(ClusterDouble()) as found:
        counts = await counted(found)
        assert counts.asked is None
        assert counts.reason == ("the cluster refused deployments/vllm/scale: HTTP 404, deployments/scale not found")


async def test_a_scale_that_cannot_be_read_is_unknown() -> None:
    async with cluster(ClusterDouble(scales={"vllm": {"kind": "Deployment", "spec": {"replicas": 3}}})) as found:
        counts = await counted(found)
        assert counts.asked is None
        assert "not a Scale but Deployment" in counts.reason


async def test_without_a_target_nobody_counts() -> None:
    async with cluster(ClusterDouble()) as found:
        assert await found.replica_counts("chat", ScaleTarget(), timeout=TIMEOUT) is None


async def test_a_scale_is_not_asked_for_more_than_once_a_tick() -> None:
    clock, double = Moment(), ClusterDouble(scales={"vllm": scale(3)})
    async with cluster(double, clock) as found:
        await counted(found)
        double.scales["vllm"] = scale(4)
        assert (await counted(found)).asked == 3
        clock.moved += 5
        assert (await counted(found)).asked == 4


# No cluster, and the rights that are needed


async def test_without_a_cluster_everything_is_unknown_and_it_is_said_once() -> None:
    clock, searches = Moment(), 0

    async def nowhere() -> ApiServer:
        nonlocal searches
        searches += 1
        raise ApiError("there is no cluster: not in a pod, and no kubeconfig (none)")

    found = Cluster(clock, connect=nowhere)
    with capture_logs() as logs:
        for _ in range(3):
            assert (await hosts(found)) == "there is no cluster: not in a pod, and no kubeconfig (none)"
            assert (await counted(found)).asked is None
        clock.moved += 61
        await hosts(found)
    await found.close()
    assert searches == 2
    assert [each["event"] for each in logs] == ["no cluster to ask; endpoints and replica counts are unknown"]


async def test_where_there_is_no_cluster_looking_for_one_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from kubernetes_asyncio.config import kube_config

    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(ApiError, match="there is no cluster: not in a pod, and no kubeconfig"):
        await connect()


async def test_g6_08_nothing_is_asked_that_the_role_does_not_allow() -> None:
    double = ClusterDouble(scales={"vllm": scale(1), "llama": scale(1)})
    double.put(SLICES, endpoint_slice("vllm", endpoint("10.0.0.1")))
    async with cluster(double) as found:
        for kind in ("deployment", "statefulset", "leaderworkerset"):
            target = ScaleTarget(kind=kind, name="vllm")
            await ready(found, target=target)
            await counted(found, target)
        await until(lambda: _value(double.count(PODS, "watch") > 0 and double.count(SLICES, "watch") > 0), True)

    allowed = {(access.group, access.resource, verb) for access in ACCESS for verb in access.verbs}
    assert set(double.asked) == allowed


async def _value(value: object) -> object:
    return value
