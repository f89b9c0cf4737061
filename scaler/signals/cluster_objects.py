"""What a cluster's objects say about a workload: its ready endpoints, and how many replicas it has. Pure.

Objects come as the API server's JSON. Only the fields that are needed are kept, and one that is missing is read as the
API's own documentation says (an endpoint whose ``ready`` is absent is ready; a Scale without ``spec.replicas`` asks for
none: both are how the server leaves out a default).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from scaler.signals.discovery import Address, Answer, Resolved, ResolveFailure, one_family
from scaler.signals.observation import ReplicaCounts
from scaler.value import frozen

SERVICE_LABEL = "kubernetes.io/service-name"
LEADER_SET_LABEL = "leaderworkerset.sigs.k8s.io/name"
WORKER_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"

#: Why a pod has no node: none has room, or something holds it back until there is (Kueue). Neither is loading.
_WITHOUT_NODE = ("Unschedulable", "SchedulingGated")

Json = Mapping[str, Any]


@frozen
class Endpoint:
    """One endpoint of a slice: its first address (the others are equivalent) and the pod behind it, if one is."""

    host: str
    pod: str | None
    ready: bool
    terminating: bool


@frozen
class Slice:
    """One EndpointSlice: its Service, its ports by name, its endpoints. Those named by host name (FQDN) are left out:
    no Service with a selector has any.
    """

    name: str
    service: str
    ports: Mapping[str, int]
    endpoints: tuple[Endpoint, ...]


@frozen
class Pod:
    """One pod: whether it serves, whether it has ended or is ending, and whether no node has room for it. ``hosts`` are
    its IP addresses.
    """

    name: str
    worker_index: str | None
    ready: bool
    ended: bool
    without_node: bool
    hosts: tuple[str, ...] = ()

    @property
    def leads(self) -> bool:
        """Whether it is a replica of its own: the leader of a group, or a pod that belongs to none."""
        return self.worker_index in (None, "0")


@frozen
class Scale:
    """A target's ``/scale``: how many replicas are asked for, and the label selector of its pods ("": not told)."""

    asked: int
    selector: str


def read_slice(body: Json) -> Slice:
    """One EndpointSlice. Raises KeyError or TypeError for a body that is none."""
    metadata = body["metadata"]
    addressed_by_ip = body["addressType"] in ("IPv4", "IPv6")
    return Slice(
        name=str(metadata["name"]),
        service=str((metadata.get("labels") or {}).get(SERVICE_LABEL, "")),
        ports={str(port.get("name") or ""): int(port["port"]) for port in body.get("ports") or () if port.get("port")},
        endpoints=tuple(_endpoint(each) for each in body.get("endpoints") or ()) if addressed_by_ip else (),
    )


def _endpoint(body: Json) -> Endpoint:
    conditions = body.get("conditions") or {}
    pod = body.get("targetRef") or {}
    # A Service with publishNotReadyAddresses (every LeaderWorkerSet's own) calls all its pods ready; `serving` tells
    # the truth there too.
    ready = conditions.get("ready") is not False and conditions.get("serving") is not False
    return Endpoint(
        host=str(body["addresses"][0]),
        pod=str(pod["name"]) if pod.get("kind") == "Pod" else None,
        ready=ready,
        terminating=conditions.get("terminating") is True,
    )


def read_pod(body: Json) -> Pod:
    """One pod. Raises KeyError or TypeError for a body that is none."""
    metadata, status = body["metadata"], body.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    return Pod(
        name=str(metadata["name"]),
        worker_index=(metadata.get("labels") or {}).get(WORKER_INDEX_LABEL),
        ready=conditions.get("Ready", {}).get("status") == "True",
        ended=status.get("phase") in ("Succeeded", "Failed") or metadata.get("deletionTimestamp") is not None,
        without_node=scheduled.get("status") == "False" and scheduled.get("reason") in _WITHOUT_NODE,
        hosts=tuple(str(each["ip"]) for each in status.get("podIPs") or () if each.get("ip")),
    )


def read_scale(body: Json) -> Scale:
    """A target's ``/scale``. Raises KeyError, TypeError or ValueError for a body that is none."""
    if body["kind"] != "Scale":
        raise ValueError(f"not a Scale but {body['kind']}")
    asked = (body.get("spec") or {}).get("replicas", 0)
    return Scale(int(asked), str((body.get("status") or {}).get("selector") or ""))


def is_replica(pods: Iterable[Pod]) -> Callable[[str | None], bool]:
    """Whether a pod of that name is a replica, as the labels of ``pods`` say: leaders are, workers are not."""
    leaders = {pod.name for pod in pods if pod.leads}
    return lambda name: name in leaders


def is_leader_by_name(leader_set: str) -> Callable[[str | None], bool]:
    """The same without seeing pods: leaders are named ``SET-GROUP``, workers ``SET-GROUP-WORKER``."""
    leader = re.compile(rf"{re.escape(leader_set)}-\d+", re.ASCII)
    return lambda name: name is not None and leader.fullmatch(name) is not None


def pods_by_host(pods: Collection[Pod]) -> Mapping[str, str]:
    """IP address → name of the pod that has it. One that several have (pods in their node's network) is nobody's; that
    of an ended pod may be another's by now, which then is the one.
    """

    def holders(ended: bool) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for pod in pods:
            if pod.ended is ended:
                for host in pod.hosts:
                    found.setdefault(host, set()).add(pod.name)
        return found

    found = {**holders(ended=True), **holders(ended=False)}
    return {host: min(names) for host, names in found.items() if len(names) == 1}


def serving(slices: Iterable[Slice], service: str, port: str, counts: Callable[[str | None], bool]) -> Answer:
    """The ready endpoints of a Service, of those whose pod ``counts``.

    ``port`` is a number (of the pods, whether or not the Service has it) or the name of a Service port. An endpoint
    that is not ready or is ending is none; but where all are such, the load is in doubt, not zero: pods stop being
    ready under load too.
    """
    own = [each for each in slices if each.service == service]
    addresses: set[Address] = set()
    not_ready: set[str] = set()
    without_port: set[str] = set()
    for each in own:
        number = int(port) if port.isdigit() else each.ports.get(port)
        for endpoint in each.endpoints:
            if endpoint.terminating or not counts(endpoint.pod):
                continue
            if not endpoint.ready:
                not_ready.add(endpoint.pod or endpoint.host)
            elif number is None:
                without_port |= {name or "one without a name" for name in each.ports}
            else:
                addresses.add(Address(endpoint.host, number, endpoint.pod))
    if without_port and not addresses:
        return ResolveFailure(f"Service {service} has no port named {port}, but {', '.join(sorted(without_port))}")
    if not_ready and not addresses:
        return ResolveFailure(f"of Service {service} none of {len(not_ready)} endpoints is ready")
    # The control plane keeps a slice for every Service with a selector, even an empty one: its being there is proof.
    return Resolved(one_family(addresses), f"Service {service} has no endpoint", certain=bool(own))


def count_replicas(at: float, scale: Scale | str, pods: Iterable[Pod] | str) -> ReplicaCounts:
    """The replica counts as of ``at`` (monotonic seconds); in place of ``scale`` or ``pods`` the reason why it could
    not be had.
    """
    reasons = dict.fromkeys(each for each in (scale, pods) if isinstance(each, str))
    asked = None if isinstance(scale, str) else scale.asked
    if isinstance(pods, str):
        return ReplicaCounts(at, asked=asked, reason="; ".join(reasons))
    replicas = [pod for pod in pods if pod.leads and not pod.ended]
    ready = [pod for pod in replicas if pod.ready]
    without_node = [pod for pod in replicas if pod.without_node and not pod.ready]
    return ReplicaCounts(
        at,
        ready=len(ready),
        asked=asked,
        pending=len(replicas) - len(ready) - len(without_node),
        unschedulable=len(without_node),
        reason="; ".join(reasons),
    )
