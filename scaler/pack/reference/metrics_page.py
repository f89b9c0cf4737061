"""``metrics.md``: every metric of ``loadtide serve`` and ``loadtide agent``, with its kind and labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from scaler.agent.agent_metrics import AgentCollector, AgentState
from scaler.agent.gpu_page import FIELDS
from scaler.agent.gpu_page import LABELS as GPU_LABELS
from scaler.agent.local_guard import LocalGuard
from scaler.agent.ruling import Ruling
from scaler.consume.engine import EngineBatch
from scaler.consume.link import Followed
from scaler.consume.rung_link import Slept
from scaler.pack.reference.markdown import code, table
from scaler.policy.layers import PolicyFile
from scaler.serve.exporter import WorkloadCollector
from scaler.serve.gauges import GAUGES, LABELS
from scaler.serve.owner_metrics import OwnerCollector
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.workloads import Workloads
from scaler.signals.gpu import GpuTelemetry

_WORKLOAD = ("namespace", "workload")
_HEAD = """\
# Metrics

What is not known has no sample: never NaN, never a zero that nobody measured. A family of words (state, status, mode,
admission, verdict) has one sample for each word, 1 for the one that holds and 0 for the others, all in one scrape.
Names and labels follow [semantic versioning](../operations.md#what-a-version-promises).

## `loadtide serve`

At `GET /metrics` of the HTTP port. Scrape it with `honorLabels: true`: a workload's namespace is in our own label.

"""
_AGENT = """
## `loadtide agent`

At `GET /metrics` of its own port ([the agent](../agent.md)).

"""
_GPU = """
With `--gpu-metrics` also every GPU, under a DCGM exporter's names and labels:

"""


def metrics_page() -> str:
    """The page."""
    labels = ", ".join(map(code, GPU_LABELS))
    gpus = table(("metric", "labels", "meaning"), ((code(name), labels, field.text) for name, field in FIELDS.items()))
    return "".join((_HEAD, _families(_of_the_scaler()), _AGENT, _families(_of_the_agent()), _GPU, gpus))


def _families(families: Iterable[Metric]) -> str:
    rows = (
        (code(_name(family)), family.type, ", ".join(map(code, _labels(family))), family.documentation)
        for family in families
    )
    return table(("metric", "kind", "labels", "meaning"), rows)


def _name(family: Metric) -> str:
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def _labels(family: Metric) -> tuple[str, ...]:
    name = family.name.removeprefix("loadtide_")
    if name in GAUGES:
        return (*_WORKLOAD, *LABELS.get(name, ()))
    return tuple(getattr(family, "_labelnames", ()))  # the library's families keep them, and have no samples here


def _of_the_scaler() -> Iterator[Metric]:
    """Every family; of a scaler that knows no workload, so without samples."""
    workloads = Workloads(PolicyFile.empty(), tick_seconds=5.0)
    registry = CollectorRegistry()
    registry.register(WorkloadCollector(workloads))
    registry.register(OwnerCollector(workloads, workloads.ownership, lambda: None))
    RpcStatistics(registry)
    yield from registry.collect()


def _of_the_agent() -> Iterator[Metric]:
    """Every family of an agent that does all it can, but for the GPUs' own."""
    state = AgentState(
        gpus=GpuTelemetry(True, 0.0),
        holders={},
        workload="namespace/workload",
        guard=LocalGuard(1),
        ruling=Ruling(),
        followed=Followed(1, EngineBatch(1, 1, 1)),
        slept=Slept(),
    )
    yield from AgentCollector(lambda: state, hostname="", gpu_metrics=False).collect()
