"""How far back the recorded series look: what ended is known for as long as its window, and no longer.

A last value counts for two minutes, so that a failed scrape or two change nothing and what is gone is gone; a threshold
for fifteen, so that latency still pages while loadtide is away. What grew is seen for as long as the series' name says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scaler.pack.series import (
    APPLIED_BATCH,
    ASLEEP,
    BUCKETS_5M,
    BUDGET,
    BUDGET_RESERVED,
    BUDGET_SPENT,
    CALLED_AWAKE,
    CEILING,
    DESIRED,
    EMPTY_P95,
    ENGINE_INFO,
    FAILED_LOADS,
    GPU_FREE,
    GPU_FREE_EMERGENCY,
    GPU_MEMORY,
    GPU_USED,
    GPU_XID,
    HELD_BACK,
    INFEASIBLE,
    KUBE_READY,
    KUBE_SEEN,
    KV_PREEMPTIONS,
    KV_USE,
    LOADING,
    NEEDED,
    OBJECTIVE_SECONDS,
    OUT_OF_MEMORY,
    OWN_P95,
    OWN_READY,
    PREEMPTIONS,
    PROGRESS,
    REQUESTS,
    RESTARTS,
    RUNNING,
    SCALER_HEALTHY,
    SCALER_KNOWN,
    SIGNAL,
    SIGNALS_LOST,
    SOURCE_FAILING,
    STORE_UP,
    TARGET_BATCH,
    WAITING,
    WAKE_SIGNALS_LOST,
)
from tests.pack.cases.case import POD, Case, engine, own, series, steady, then
from tests.pack.cases.vram import dcgm

NAME = "Normalising"
#: The last value is of 3:30 min; a rise the last time between 8:30 and 9:30.
ENDED, RISEN = "1x4 stale", "0+60x10 600x20"
ON = steady(1, 40)
LOST = {"status": "stale", "signal": "running"}

Series = dict[str, str]


def cases() -> list[Case]:
    return [*_own(), *_thresholds(), *_engines(), *_rises(), *_gpus(), *_kube(), *_p95(), *_sources(), *_a_day()]


def known(
    what: str, records: Mapping[str, Series], since: int, window: int, *, more: str = "", also: Series | None = None
) -> Case:
    """Every one of the series is in its record until it is ``window`` minutes old, and then none in any."""
    query = f'count by (__name__) ({{__name__=~"{"|".join(records)}"}}{more})'
    found = tuple({"__name__": record, "value": f"{len(raw)}"} for record, raw in records.items())
    raw = {name: values for each in (also or {}, *records.values()) for name, values in each.items()}
    last = since + window
    return Case(NAME, f"{what}: {window} min", raw, [(last, found), (last + 1, ())], query=query)


def _own() -> list[Case]:
    """loadtide's own gauges."""
    gauges: Mapping[str, Series] = {
        DESIRED: own("desired_replicas", ENDED),
        NEEDED: own("needed_replicas", ENDED),
        CEILING: own("replicas_ceiling", ENDED),
        OWN_READY: own("ready_replicas", ENDED),
        TARGET_BATCH: own("target_batch_size", ENDED),
        APPLIED_BATCH: own("applied_batch_size", ENDED, replica="a"),
        FAILED_LOADS: own("failed_loads", ENDED),
        ASLEEP: own("asleep_replicas", ENDED),
        CALLED_AWAKE: own("rung", ENDED, rung="awake"),
        ENGINE_INFO: own("engine_info", ENDED, engine="vllm", preallocates_gpu_memory="true"),
        HELD_BACK: own("suppressed", ENDED, target="replicas", code="budget"),
        SIGNAL: own("signal", ENDED, signal="pending"),
        STORE_UP: own("store_up", ENDED),
        BUDGET: own("budget_gpu_seconds", ENDED),
        BUDGET_SPENT: own("budget_spent_gpu_seconds", ENDED),
        BUDGET_RESERVED: own("budget_reserved_gpu_seconds", ENDED),
        SIGNALS_LOST: own("signal_status", ENDED, **LOST)
        | own("signal_status", ENDED, workload="other", status="unknown", signal="running"),
        WAKE_SIGNALS_LOST: own("signal_status", ENDED, status="unknown", signal="pending"),
    }
    loading, mode = {"condition": "loading"}, {"mode": "active"}
    return [
        known(
            "loadtide's gauges",
            gauges | {LOADING: own("condition_seconds", ENDED, **loading)},
            *(3, 2),
            also=own("mode", ON, **mode),
        ),
        Case(
            NAME,
            f"{LOADING}: of a workload whose mode is known",
            own("condition_seconds", ON, **loading) | own("mode", ENDED, **mode),
            [(5, ({"value": "1"},)), (6, ())],
            query=f"count({LOADING})",
        ),
    ]


def _thresholds() -> list[Case]:
    verdict = {"objective": "ttft", "bound": "critical", "verdict": "infeasible"}
    gauges = {
        OBJECTIVE_SECONDS: own("objective_seconds", ENDED, objective="ttft", bound="warning"),
        GPU_FREE_EMERGENCY: own("gpu_free_emergency_ratio", ENDED),
        INFEASIBLE: own("objective_verdict", ENDED, **verdict),
        EMPTY_P95: own("empty_replica_seconds", ENDED, objective="ttft"),
    }
    return [known("thresholds", gauges, 3, 15)]


def each(names: Sequence[str], values: str, **labels: str) -> Series:
    """One engine's page for each name, spelt with ``_`` too where it has a colon."""
    spelt = [spelling for name in names for spelling in dict.fromkeys((name, name.replace(":", "_")))]
    return {
        key: text
        for number, name in enumerate(spelt)
        for key, text in engine(name, values, f"m-{number}", model_name=f"model-{number}", **labels).items()
    }


def _engines() -> list[Case]:
    running = ["vllm:num_requests_running", "sglang:num_running_reqs", "tgi_batch_current_size"]
    waiting = ["vllm:num_requests_waiting", "vllm:num_requests_swapped", "sglang:num_queue_reqs", "tgi_queue_size"]
    kv_use = ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"]
    gauges = {
        RUNNING: each(running, ENDED),
        WAITING: each([*waiting, "nv_inference_pending_request_count"], ENDED),
        KV_USE: each(kv_use, ENDED),
    }
    return [
        known("engines' gauges", gauges, 3, 2),
        Case(
            NAME,
            f"{KV_PREEMPTIONS}: five minutes of what is recorded, which ends two after what is told",
            own("signal", ENDED, signal="preemptions_recent"),
            [(9, ({"value": "1"},)), (11, ())],
            query=f"count({KV_PREEMPTIONS})",
        ),
    ]


def _rises() -> list[Case]:
    latencies = [
        *("time_to_first_token_seconds", "inter_token_latency_seconds", "time_per_output_token_seconds"),
        "e2e_request_latency_seconds",
    ]
    buckets = [
        *(f"{prefix}:{name}" for prefix in ("vllm", "sglang") for name in latencies),
        *("vllm:request_time_per_output_token_seconds", "tgi_request_mean_time_per_token_duration"),
        "tgi_request_duration",
    ]
    tgi, triton = (
        [f"{prefix}_{end}" for end in ("success", "failure")] for prefix in ("tgi_request", "nv_inference_request")
    )
    requests = ["vllm:request_success_total", "sglang:num_requests_total", *tgi, *triton]
    tokens = [f"{prefix}:{kind}_tokens_total" for prefix in ("vllm", "sglang") for kind in ("prompt", "generation")]
    further = ["sglang:realtime_tokens_total", "tgi_request_generated_tokens_sum", "tgi_batch_inference_success"]
    preemptions = ["vllm:num_preemptions_total", "sglang:num_retracted_requests_total"]
    rises = {
        BUCKETS_5M: each([f"{name}_bucket" for name in buckets], RISEN, le="+Inf"),
        REQUESTS: each(requests, RISEN),
        PREEMPTIONS: each(preemptions, RISEN),
    }
    progress = {PROGRESS: each([*requests, *tokens, *further], RISEN)}
    return [
        known("what came, and was preempted", rises, 8, 5, more=" > 0"),
        known("progress", progress, 8, 2, more=" > 0"),
    ]


def _gpus() -> list[Case]:
    """Parts of one card; its memory is what is used, free and reserved together, 80,000 MiB here."""
    used, free, reserved = (
        dict.fromkeys(dcgm(f"FB_{part}", ""), value)
        for part, value in (("USED", 60_000), ("FREE", 15_000), ("RESERVED", 5_000))
    )

    def case(what: str, query: str, raw: Mapping[str, float], ends: Mapping[str, float], *expected: float) -> Case:
        """``expected``: at 5 min and at 6."""
        told = {name: steady(value, 40) for name, value in raw.items()}
        told |= {name: f"{value:g}x4 stale" for name, value in ends.items()}
        found = [(at, ({"value": f"{value:g}"},) if value else ()) for at, value in zip((5, 6), expected, strict=True)]
        return Case(NAME, f"{query}, {what} ends: 2 min", told, found, query=query)

    total, share, left = (f"sum({record})" for record in (GPU_MEMORY, GPU_USED, GPU_FREE))
    return [
        case("what is used", total, free | reserved, used, 80_000, 0),
        case("what is used", share, free | reserved, used, 0.75, 0),
        case("what is free", total, used | reserved, free, 80_000, 0),
        case("what is free", left, used | reserved, free, 0.1875, 0),
        case("what is free, nothing being reserved,", total, used, free, 75_000, 0),
        case("what is reserved", total, used | free, reserved, 80_000, 75_000),
        known("XIDs", {GPU_XID: dcgm("XID_ERRORS", ENDED)}, 3, 2),
    ]


def _kube() -> list[Case]:
    told = {"namespace": "chat", "job": "kube-state-metrics"}
    ready = series("kube_deployment_status_replicas_ready", ENDED, deployment="m", **told)
    ready |= series("kube_statefulset_status_replicas_ready", ENDED, statefulset="n", **told)
    container = {**told, "pod": POD, "container": "vllm"}
    desired = own("desired_replicas", ON) | own("desired_replicas", ON, workload="n")
    killed = "kube_pod_container_status_last_terminated_reason"
    gauges = {
        KUBE_SEEN: series("kube_pod_info", ENDED, **told, pod=POD),
        KUBE_READY: ready,
        OUT_OF_MEMORY: series(killed, ENDED, reason="OOMKilled", **container),
    }
    restarts = {RESTARTS: series("kube_pod_container_status_restarts_total", RISEN, **container)}
    return [
        known("kube-state-metrics' gauges", gauges, 3, 2, also=desired),
        known("restarts", restarts, 8, 10, more=" > 0", also=desired),
    ]


def _p95() -> list[Case]:
    """The middle of the interval 1 s to 3 s, as loadtide measured it, of 20 requests."""
    ttft = {"signal": "ttft_seconds"}

    def case(what: str, *expected: float, low: str = "1x40", high: str = "3x40", samples: str = "20x40") -> Case:
        raw = own("signal_latency_seconds", low, quantile="0.95", bound="low", **ttft)
        raw |= own("signal_latency_seconds", high, quantile="0.95", bound="high", **ttft)
        raw |= own("signal_latency_samples", samples, **ttft)
        found = [(at, ({"value": f"{value:g}"},) if value else ()) for at, value in zip((5, 6), expected, strict=True)]
        return Case(NAME, f"{OWN_P95}, {what} ends: 2 min", raw, found, query=f"sum({OWN_P95})")

    return [
        case("its lower bound", 2, 0, low=ENDED),
        case("its upper bound", 2, 1, high="3x4 stale"),
        case("its lower bound, without an upper one,", 1, 0, low=ENDED, high=then(("Inf", 40))),
        case("its upper bound, which is none,", 1, 1, high=then(("Inf", 5), ("stale", 1))),
        case("what is known of its requests", 2, 0, samples="20x4 stale"),
    ]


def _sources() -> list[Case]:
    source = {"source": "scrape", "endpoint": "http://m:8000/metrics"}
    return [
        known("a failing source", {SOURCE_FAILING: own("source_up", ENDED, **source)}, 3, 2),
        Case(
            NAME,
            f"{SOURCE_FAILING}: down for two of the last five tries, then for one",
            own("source_up", then((0, 6), (1, 30)), **source),
            [(8, ({"value": "1"},)), (9, ({"value": "0"},))],
            query=f"sum({SOURCE_FAILING})",
        ),
    ]


def _a_day() -> list[Case]:
    """A scaler that was seen in the last day is missed, and no longer: it may have been taken away."""
    placed = {"namespace": "loadtide", "job": "loadtide", "instance": "10.0.0.9:8080"}
    raw = series("loadtide_build_info", ENDED, **placed) | series("up", "1x1500", **placed)
    return [
        Case(
            NAME,
            f"{record}: a day",
            raw,
            [(1435, ({"value": "1"},)), (1445, ())],
            query=f"count({record})",
            step=5,
        )
        for record in (SCALER_KNOWN, SCALER_HEALTHY)
    ]
