"""Whose a GPU is: the readings that exporters gave, attached to the replicas they are under. Pure.

Wrong telemetry is worse than none: what cannot be told whose it is, or may lack a part, is attached to nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from scaler.policy.model import Policy
from scaler.serve.gpu_telemetry import Exporters
from scaler.signals.dcgm import PodName
from scaler.signals.dcgm_gpus import DcgmGpus
from scaler.signals.gpu import attach_gpu
from scaler.signals.observation import EngineSample, Observation, ReadFailure
from scaler.signals.scrape import Exporter

Endpoints: TypeAlias = Mapping[str, EngineSample | ReadFailure]

_POD_NOT_TOLD: Final = (
    "gpu: which pod a replica is cannot be told from its address; declare gpu.match, or target.name where the cluster "
    "may be asked"
)
_NONE_HELD: Final = "gpu: DCGM shows no GPU that the replica's pod holds; does its exporter map pods, and is it read?"


def pods_at(endpoints: Iterable[str], pods_by_host: Mapping[str, str]) -> dict[str, str]:
    """The pods of endpoints that are read at an IP address in ``pods_by_host``."""
    hosts = {endpoint: urlsplit(endpoint).hostname or "" for endpoint in endpoints}
    return {endpoint: pods_by_host[host] for endpoint, host in hosts.items() if host in pods_by_host}


def with_gpus(
    observation: Observation, exporters: Exporters, policy: Policy, namespace: str, *, preallocates: bool
) -> Endpoints:
    """The observation's endpoints with the readings of the GPUs under each replica.

    ``namespace`` is the workload's own. With ``gpu.match`` all matching GPUs together are every replica's; if any
    exporter failed some of them may be missing, and none is attached. Without it a replica's are those that its pod
    holds: they are all on one node, behind one exporter.
    """
    endpoints = observation.endpoints
    if not exporters:
        return endpoints
    said = [read.gpus for read in exporters.values() if isinstance(read, Exporter)]
    if policy.gpu.match:
        if len(said) < len(exporters):
            return endpoints
        readings = [reading for gpus in said for reading in gpus.matching(policy.gpu.match)]
        wanted = ", ".join(f'{label}="{value}"' for label, value in policy.gpu.match.items())
        return {
            endpoint: read
            if isinstance(read, ReadFailure)
            else attach_gpu(read, readings, preallocates=preallocates)
            if readings
            else _told(read, f"gpu: no DCGM series with {wanted}")
            for endpoint, read in endpoints.items()
        }
    return {
        endpoint: read
        if isinstance(read, ReadFailure)
        else _of_its_pod(read, pod_of(endpoint, observation, policy, namespace), said, preallocates=preallocates)
        for endpoint, read in endpoints.items()
    }


def pod_of(endpoint: str, observation: Observation, policy: Policy, namespace: str) -> PodName | None:
    """The pod that an endpoint is; None where nothing tells.

    Read from a Prometheus it is named by its pod. Else the cluster may have told which pod has the address, or the
    address itself does: a pod's own name in a headless Service (``llama-0.llama.chat.svc``, as a StatefulSet gives
    them).
    """
    if observation.source.startswith("prometheus"):
        *where, pod = endpoint.split("/")
        return PodName(policy.prometheus.match.get("namespace") or (where[-1] if where else ""), pod)
    if (known := observation.pods.get(endpoint)) is not None:
        return PodName(namespace, known)
    host = (urlsplit(endpoint).hostname or "").split(".")
    return PodName(host[2], host[0]) if len(host) > 3 and host[3] == "svc" else None


def _of_its_pod(
    sample: EngineSample, pod: PodName | None, said: Sequence[DcgmGpus], *, preallocates: bool
) -> EngineSample:
    if pod is None:
        return _told(sample, _POD_NOT_TOLD)
    readings = [reading for gpus in said for reading in gpus.held_by(pod)]
    if not readings:
        return _told(sample, _NONE_HELD) if said else sample
    return attach_gpu(sample, readings, preallocates=preallocates)


def _told(sample: EngineSample, warning: str) -> EngineSample:
    return replace(sample, warnings=(*sample.warnings, warning))
