"""loadtide's own series, told by every scaler and recorded once for each workload; alerts about loadtide itself."""

from __future__ import annotations

from scaler.control.model import Code
from scaler.pack.model import Alert, Group, Options, Recording
from scaler.pack.promql import GAUGE_WINDOW, by, call, last, own, replaced
from scaler.pack.series import (
    APPLIED_BATCH,
    ASLEEP,
    BOUND,
    CALLED_AWAKE,
    CEILING,
    CODE,
    DEMAND,
    DESIRED,
    EMPTY_P95,
    ENGINE_INFO,
    FAILED_LOADS,
    GPU_FREE_EMERGENCY,
    HELD_BACK,
    INFEASIBLE,
    LOADING,
    NEEDED,
    OBJECTIVE,
    OBJECTIVE_SECONDS,
    OWN_P95,
    OWN_READY,
    REPLICA,
    SCALER_HEALTHY,
    SCALER_KNOWN,
    SIGNAL,
    SIGNALS_LOST,
    SOURCE_FAILING,
    STORE_UP,
    TARGET_BATCH,
    WAKE_SIGNALS_LOST,
    WORKLOAD,
)

#: Thresholds outlive the scaler this long: latency still pages while loadtide is away, and a bound taken back is not
#: remembered for long.
_THRESHOLD_WINDOW = "15m"

#: A ``tick`` may be set to 300 s at most.
_LONGEST_TICK_SECONDS = 300

#: The least P95 is judged by; the policy's ``objectives.minimum_samples``, whose default this is.
MINIMUM_REQUESTS = 20

#: Up in less than this share of the last minutes is failing though the last try worked: it flaps. One miss in three
#: is not enough.
_UP_SHARE, _UP_WINDOW = 0.65, "5m"

_USED_SIGNALS = (
    "pending",
    "wake_demand",
    "stalled_replicas",
    "kv_use_ratio",
    "preemptions_recent",
    "gpu_memory_free_ratio",
    "applied_batch",
)
_NEEDED_SIGNALS = ("arrivals_per_second", "running", "waiting", "ready_replicas")
_HELD_BACK = (Code.BUDGET, Code.UNSCHEDULABLE, Code.OVERDUE)
_WAKE_SIGNALS = ("pending", "wake_demand")


def scaler_group(options: Options) -> Group:
    """What normalises our own metrics, and ScalerDown, StoreDown, SignalStale, SourceDown."""
    return Group("loadtide.scaler", (*_health(options), *_told(), *_alerts(options)))


def _told() -> tuple[Recording, ...]:
    gauges = {
        DESIRED: "loadtide_desired_replicas",
        NEEDED: "loadtide_needed_replicas",
        CEILING: "loadtide_replicas_ceiling",
        OWN_READY: "loadtide_ready_replicas",
        TARGET_BATCH: "loadtide_target_batch_size",
        FAILED_LOADS: "loadtide_failed_loads",
        ASLEEP: "loadtide_asleep_replicas",
        CALLED_AWAKE: 'loadtide_rung{rung="awake"}',
    }
    latency = 'loadtide_signal_latency_{}{{signal=~"(ttft|tpot|e2e)_seconds"{}}}'
    bound = ',quantile="0.95",bound="{}"'
    low, high, samples = (
        by("max", OBJECTIVE, replaced(own(last(latency.format(*text))), "objective", "$1", "signal", "(.*)_seconds"))
        for text in (
            ("seconds", bound.format("low")),
            ("seconds", bound.format("high")),
            ("samples", ""),
        )
    )
    # The middle of the interval, as the page shows it; the lower bound where there is no upper one.
    p95 = f"(\n(({low}) + ({high} < +Inf)) / 2\nor\n{low}\n)\nand\n{samples} >= {MINIMUM_REQUESTS}"
    signal = last(f'loadtide_signal{{signal=~"{"|".join(_USED_SIGNALS)}"}}')
    return (
        *(Recording(record, by("max", WORKLOAD, own(last(metric)))) for record, metric in gauges.items()),
        Recording(APPLIED_BATCH, by("max", REPLICA, own(last("loadtide_applied_batch_size")))),
        Recording(
            ENGINE_INFO,
            by("max", f"{WORKLOAD}, engine, preallocates_gpu_memory", own(last("loadtide_engine_info"))),
        ),
        Recording(
            OBJECTIVE_SECONDS,
            by("max", f"{OBJECTIVE}, bound", own(last("loadtide_objective_seconds", _THRESHOLD_WINDOW))),
        ),
        Recording(
            GPU_FREE_EMERGENCY,
            by("max", WORKLOAD, own(last("loadtide_gpu_free_emergency_ratio", _THRESHOLD_WINDOW))),
        ),
        Recording(LOADING, _loading()),
        Recording(HELD_BACK, by("max", CODE, own(last(f'loadtide_suppressed{{code=~"{"|".join(_HELD_BACK)}"}}')))),
        # As long as the bounds themselves: what no replica can keep does not page because the scaler is away.
        Recording(
            INFEASIBLE,
            by("max", BOUND, own(last('loadtide_objective_verdict{verdict="infeasible"}', _THRESHOLD_WINDOW))),
        ),
        Recording(EMPTY_P95, by("max", OBJECTIVE, own(last("loadtide_empty_replica_seconds", _THRESHOLD_WINDOW)))),
        Recording(SIGNAL, by("max", f"{WORKLOAD}, signal", own(signal))),
        Recording(OWN_P95, p95),
        Recording(
            DEMAND,
            by("sum", WORKLOAD, f'{SIGNAL}{{signal=~"{"|".join(_WAKE_SIGNALS)}"}}'),
        ),
        Recording(
            SIGNALS_LOST,
            by("sum", WORKLOAD, _lost("stale", "") + "\nor\n" + _lost("unknown", "|".join(_NEEDED_SIGNALS))),
        ),
        Recording(WAKE_SIGNALS_LOST, by("sum", WORKLOAD, _lost("stale|unknown", "|".join(_WAKE_SIGNALS)))),
        Recording(SOURCE_FAILING, _source_failing()),
    )


def _loading() -> str:
    """How long a replica has been loading, while that is within the load time of the policy: then it is a failed load.
    Only where loadtide rules: by hand, or paused, a load is tried for ever.
    """
    loading, rules = (
        by("max", WORKLOAD, own(last(each)))
        for each in ('loadtide_condition_seconds{condition="loading"}', 'loadtide_mode{mode="active"}')
    )
    return f"{loading}\nand\n{rules} == 1"


def _lost(status: str, signals: str) -> str:
    which = f',signal=~"{signals}"' if signals else ""
    told = last(f'loadtide_signal_status{{status=~"{status}"{which}}}')
    return by("max", f"{WORKLOAD}, signal, status", own(told))


def _source_failing() -> str:
    """1 where the last read failed, or so many of the last minutes' that it flaps; else 0."""
    level = f"{WORKLOAD}, source, endpoint"
    now = by("max", level, own(last("loadtide_source_up")))
    lately = by("max", level, own(f"avg_over_time(loadtide_source_up[{_UP_WINDOW}])"))
    return call("clamp_max", f"({now} == bool 0)\n+ ({lately} < bool {_UP_SHARE})", "1")


def _health(options: Options) -> tuple[Recording, ...]:
    # Which targets are scalers shows in what they say, not in how the scrape job is called.
    known = "last_over_time(loadtide_build_info[1d])"
    ticks = "min by (job, instance) (loadtide_seconds_since_tick)"
    up = f"up == 1\nand on (job, instance) {known}\nand avg_over_time(up[{_UP_WINDOW}]) >= {_UP_SHARE}"
    healthy = f"{up}\nunless on (job, instance) {ticks} > {_LONGEST_TICK_SECONDS}"
    return (
        Recording(SCALER_KNOWN, by("count", "namespace", _at_home(known, options))),
        Recording(SCALER_HEALTHY, by("count", "namespace", _at_home(healthy, options))),
        Recording(STORE_UP, by("min", "namespace", _at_home(last("loadtide_store_up"), options))),
    )


def _at_home(vector: str, options: Options) -> str:
    """Scalers' targets, in the namespace that the scrape configuration says, else the one declared."""
    return replaced(vector, "namespace", options.namespace, "namespace", "")


def _alerts(options: Options) -> tuple[Alert, ...]:
    never = replaced(f"absent({SCALER_KNOWN})", "namespace", options.namespace, "namespace", "")
    return (
        Alert(
            "ScalerDown",
            f"{SCALER_KNOWN} unless on (namespace) {SCALER_HEALTHY}\nor on ()\n{never}",
            severity="critical",
            hold="5m",
            scope="scaler",
            dashboard="decisions",
            summary="No healthy loadtide in {{ $labels.namespace }}.",
            description=(
                "No loadtide in {{ $labels.namespace }} is scraped and ticking. KEDA keeps every replica count as it "
                "is: nothing scales, and nothing wakes from zero. Engines go back to their own batch size."
            ),
        ),
        Alert(
            "StoreDown",
            f"{STORE_UP} == 0",
            severity="warning",
            hold="5m",
            scope="scaler",
            dashboard="decisions",
            summary="loadtide in {{ $labels.namespace }} cannot store its memory.",
            description=(
                "What must survive a restart, or be shared between scalers, is not being stored. Decisions go on; a "
                "restart now would forget timers, batches and states."
            ),
        ),
        Alert(
            "SignalStale",
            f"{SIGNALS_LOST} > 0\nunless on ({WORKLOAD}) {DESIRED} == 0",
            severity="warning",
            hold="3m",
            keep=GAUGE_WINDOW,
            dashboard="decisions",
            summary="{{ $labels.namespace }}/{{ $labels.workload }} is judged on old or missing signals.",
            description=(
                "{{ $value | humanize }} signals of {{ $labels.workload }} are stale or lost. Its replicas are held "
                "and do not go down; after the policy's hold time KEDA is told UNAVAILABLE and keeps its count."
            ),
        ),
        Alert(
            "SourceDown",
            f"{SOURCE_FAILING} == 1\nunless on ({WORKLOAD}) {DESIRED} == 0",
            severity="warning",
            hold="3m",
            keep=GAUGE_WINDOW,
            dashboard="decisions",
            summary="loadtide cannot read {{ $labels.endpoint }} for {{ $labels.namespace }}/{{ $labels.workload }}.",
            description=(
                "Reading {{ $labels.endpoint }} ({{ $labels.source }}) fails now, or too often in the last "
                "five minutes. What it alone tells is stale or unknown."
            ),
        ),
        Alert(
            "SourceDown",
            f"{WAKE_SIGNALS_LOST} > 0\nand on ({WORKLOAD}) {DESIRED} == 0",
            severity="critical",
            hold="3m",
            keep=GAUGE_WINDOW,
            dashboard="decisions",
            summary="{{ $labels.namespace }}/{{ $labels.workload }} is at zero and nothing can wake it.",
            description=(
                "{{ $labels.workload }} has no replica, and loadtide cannot read what would tell of a request: "
                "callers get no answer until the source is back or somebody sets replicas.min to 1."
            ),
        ),
    )
