"""What a person can do about what was decided: of a code, of a state, of sources and warnings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scaler.control.model import Code, LoadState

#: What an operator can do about a code, where there is something to do.
ADVICE: dict[str, str] = {
    Code.CEILING: "raise replicas.max and the ScaledObject's maxReplicaCount together, or accept longer waits",
    Code.BUDGET: "raise budget.gpu_hours, or write budget.at_end: warn; the next period begins with nothing spent",
    Code.BUDGET_SPENT: "raise budget.gpu_hours, or write budget.at_end: cap to go down to the floor when it is spent",
    Code.BUDGET_FLOOR: "raise budget.gpu_hours, or lower warm.floor, its windows and replicas.min: they take it all",
    Code.OBJECTIVE_UNREACHABLE: "loosen the objective: the answers take this long on an empty engine too",
    Code.INFEASIBLE: "loosen the objective to at least 1.2 times that, or run a faster engine",
    Code.MEMORY_PRESSURE: "if this keeps coming back, lower batch.max or give the engine more KV cache",
    Code.NOT_APPLIED: "let the engine follow what is published, by its plugin or loadtide agent",
    Code.KV_ROOM: "more load needs more replicas, not a larger batch: KV cache is the limit here",
    Code.UNSCHEDULABLE: "add nodes, or lower replicas.max: no node has room for what is asked for",
    Code.OVERDUE: "look at the pod's events: a replica has been loading for more than twice its usual time",
    Code.LOAD_FAILED: "look at the pod's events: it did not become ready within replicas.load_timeout_seconds",
    Code.WAKE_BACKOFF: "look at the pod's events: the last woken replica did not become ready",
    Code.STALLED: "restart the stalled replica: it has work, makes no progress, and gets no new capacity from us",
    Code.IDLE_UNPROVEN: "restore the missing signal, or the workload will never be taken to zero",
    Code.SIGNAL_LOST: "restore the missing signal: replicas cannot go down without it",
    Code.SIGNAL_LOST_TOO_LONG: "restore the missing signal: KEDA keeps the present count until then",
    Code.NO_WAKE_SOURCE: "declare gateway.urls or push.enabled: true, or nothing would wake what sleeps",
    Code.WAKE_FAILED: "look at the agent's log beside the engine: it says why the engine does not wake",
    Code.OSCILLATION: "if this keeps coming back, part the marks yourself: a lower memory.kv_growth_ratio, a longer "
    "batch.cooldown_seconds or replicas.down_window_seconds",
    Code.ASKED_UNKNOWN: "declare target.name, so that the cluster is asked how many replicas are to stay",
    Code.ADVISORY: "write mode: active to let the advice be carried out",
    Code.PAUSED: "write mode: active to let the laws rule again",
    Code.OVERRIDE: "end the override before its time with: loadtide override NAMESPACE/NAME --end",
    Code.UNATTRIBUTED: "declare a TTFT or TPOT objective: they tell queueing from slow steps",
}


def advice(document: dict[str, Any]) -> list[str]:
    """What to do about a workload, each thing once; empty where nothing asks for anything. ``document`` is that of
    ``GET /v1/workloads/{namespace}/{name}``.
    """
    return list(dict.fromkeys(_advice(document)))


def _advice(document: dict[str, Any]) -> Iterator[str]:
    if document["decided_at"] is None:
        yield "ask again in a few seconds: the first tick is being made"
        return
    if not document["current"]:
        yield "look at the scaler's log: it has not evaluated this workload lately, so KEDA is told UNAVAILABLE"
    for said in (*document["suppressed"], *document["reasons"]):
        if said["code"] in ADVICE:
            yield ADVICE[said["code"]]
    if document["state"] == LoadState.STALLED:
        yield ADVICE[Code.STALLED]
    failing = [source["endpoint"] for source in document["sources"] if not source["ok"]]
    if failing:
        url = next((endpoint for endpoint in failing if endpoint.startswith(("http://", "https://"))), "URL")
        yield f"make the failing sources answer; what the scaler gets, from its pod: loadtide probe {url}"
    if document["warnings"]:
        yield "settle the warnings: each says which policy key to write"
