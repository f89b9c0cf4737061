"""What the workloads have: memory that is left, the batch size, and replicas."""

from __future__ import annotations

from scaler.pack.dashboards.model import Panel, Query, Row, Step
from scaler.pack.dashboards.queries import chosen, chosen_model, each, signal, signal_or_zero
from scaler.pack.series import GPU_FREE_EMERGENCY, KV_PREEMPTIONS, VRAM_FREE

#: The alerts' thresholds (KvCacheHeadroomLow, KvExhausted, KvPreemptions; VramHeadroomLow relative to the policy's
#: emergency line). tests/pack/test_dashboards.py compares them with the alerts.
KV_HEADROOM_LOW, KV_HEADROOM_NONE = 0.10, 0.02
PREEMPTIONS_PER_SECOND = 0.1
VRAM_BUFFER = 1.5

_GONE = "Scaled to zero"
_MODEL = "{{namespace}}/{{workload}} {{model_name}}"


def resource_rows() -> tuple[Row, ...]:
    """Two rows of Overview."""
    return Row("Memory", _memory()), Row("Batch and replicas", _targets())


def _memory() -> tuple[Panel, ...]:
    headroom = (Step(None, "red"), Step(KV_HEADROOM_NONE, "orange"), Step(KV_HEADROOM_LOW, "green"))
    return (
        Panel(
            "KV-cache headroom",
            "timeseries",
            "percentunit",
            "The share of the KV cache that is free, in the fullest engine. Under 10 % KvCacheHeadroomLow warns; under "
            "2 % with preemptions KvExhausted pages. This is the memory pressure of engines that preallocate.",
            (Query(f"1 - {signal('kv_use_ratio')}"),),
            nothing=_GONE,
            width=8,
            steps=headroom,
            maximum=1.0,
        ),
        Panel(
            "VRAM headroom",
            "timeseries",
            "percentunit",
            "The share of device memory that is free on the fullest GPU. Engines that preallocate (vLLM, SGLang, TGI) "
            "run at 8 % free whatever the load: look at the KV cache there. The lines are the policy's emergency bound "
            "(VramHeadroomCritical) and the buffer above it (VramHeadroomLow), for engines that do not preallocate.",
            (
                Query(chosen(VRAM_FREE)),
                Query(chosen(GPU_FREE_EMERGENCY), "{{namespace}}/{{workload}} emergency", dashed=True, optional=True),
                Query(
                    f"{VRAM_BUFFER} * {chosen(GPU_FREE_EMERGENCY)}",
                    "{{namespace}}/{{workload}} buffer",
                    dashed=True,
                    optional=True,
                ),
            ),
            nothing="No GPU is read",
            width=8,
            maximum=1.0,
            needs="dcgm",
        ),
        Panel(
            "Preemptions per second",
            "timeseries",
            "reqps",
            "Running requests that the engines throw out of their KV cache and compute again. Above 0.1 KvPreemptions "
            "warns.",
            (Query(chosen_model(KV_PREEMPTIONS), _MODEL),),
            nothing=_GONE,
            width=8,
            steps=(Step(None, "green"), Step(PREEMPTIONS_PER_SECOND, "orange")),
            needs="rules",
        ),
    )


def _targets() -> tuple[Panel, ...]:
    ready = each("ready_replicas")
    average = f"avg_over_time(({ready})[$__range:1m])"
    hours = "$__range_s / 3600"
    return (
        Panel(
            "Target and applied batch",
            "timeseries",
            "short",
            "The batch size that loadtide publishes (at most so many sequences in one replica at once), the one that "
            "the engines report they run with (the least and the most of the replicas), and the sequences that the "
            "busiest replica really runs. No target: the engine keeps its own setting. Target and applied apart for 5 "
            "minutes: BatchNotApplied.",
            (
                Query(each("target_batch_size"), "{{namespace}}/{{workload}} target"),
                Query(signal("applied_batch"), "{{namespace}}/{{workload}} applied", optional=True),
                Query(each("applied_batch_size"), "{{namespace}}/{{workload}} applied, most", optional=True),
                Query(signal_or_zero("busiest_running"), "{{namespace}}/{{workload}} busiest replica"),
            ),
            nothing="The engines keep their own",
            decimals=0,
            stairs=True,
        ),
        Panel(
            "Replicas",
            "timeseries",
            "short",
            "Replicas decided (what KEDA is told), ready, needed by the load before floor, ceiling and holds, and the "
            "ceiling. Desired at the ceiling for 15 minutes: AtMaxReplicas. Desired and ready apart: "
            "ReplicasNotConverging.",
            (
                Query(each("desired_replicas"), "{{namespace}}/{{workload}} desired"),
                Query(each("ready_replicas"), "{{namespace}}/{{workload}} ready"),
                Query(each("needed_replicas"), "{{namespace}}/{{workload}} needed"),
                Query(each("replicas_ceiling"), "{{namespace}}/{{workload}} ceiling", dashed=True, optional=True),
            ),
            nothing="No workload",
            decimals=0,
            stairs=True,
        ),
        Panel(
            "Replica-hours used",
            "stat",
            "h",
            "Ready replicas times the time that is shown.",
            (Query(f"{average} * {hours}"),),
            nothing="No workload",
            height=5,
        ),
        Panel(
            "Replica-hours saved against a fixed fleet",
            "stat",
            "h",
            "What a fleet of fixed size would have used more: one as large as the most replicas that were ready at "
            "any time that is shown. It is a fact about these hours, not a forecast.",
            (Query(f"(max_over_time(({ready})[$__range:1m]) - {average}) * {hours}"),),
            nothing="No workload",
            height=5,
        ),
    )
