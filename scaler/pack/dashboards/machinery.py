"""The machinery: loadtide's ticks and KEDA's calls, and what KEDA itself says went wrong."""

from __future__ import annotations

from scaler.pack.dashboards.model import Panel, Query, Row, Step
from scaler.pack.dashboards.queries import chosen, each
from scaler.pack.dashboards.words import YES_NO
from scaler.pack.promql import by, replaced

#: KEDA's own metrics (kedacore/keda, pkg/metricscollector/prommetrics.go): names and labels of KEDA 2.15 and later.
SCALER_ERRORS = "keda_scaler_detail_errors_total"
OBJECT_ERRORS = "keda_scaled_object_errors_total"
SCALER_LATENCY = "keda_scaler_metrics_latency_seconds"
LOOP_LATENCY = "keda_internal_scale_loop_latency_seconds"

#: No tick may be set longer apart; ScalerDown takes an older one for a scaler that hangs.
LONGEST_TICK_SECONDS = 300


def machinery_row() -> Row:
    """Ticks and calls."""
    durations = "rate(loadtide_rpc_duration_seconds_{}[$__rate_interval])"
    buckets = by("sum", "method, le", durations.format("bucket"))
    called = f"{by('sum', 'method', durations.format('count'))} > 0"
    return Row(
        "loadtide itself",
        (
            Panel(
                "Calls by KEDA",
                "timeseries",
                "reqps",
                "Calls a second by method and status. UNAVAILABLE is how loadtide says that it does not know: KEDA "
                "then keeps the replica count. (A stream counts when it ends.)",
                (
                    Query(
                        by("sum", "method, code", "rate(loadtide_rpc_total[$__rate_interval])"),
                        "{{method}} {{code}}",
                    ),
                ),
                nothing="No loadtide is scraped",
                width=8,
            ),
            Panel(
                "How long KEDA waits: P99",
                "timeseries",
                "s",
                "The 99th percentile of the unary calls, over all scalers. Answers come from memory, in milliseconds.",
                (Query(f"histogram_quantile(0.99, {buckets})\nand on (method)\n{called}", "{{method}}"),),
                nothing="KEDA does not call",
                width=8,
                needs_traffic=True,
            ),
            Panel(
                "Values withheld",
                "timeseries",
                "cps",
                "Decided values that KEDA would misread, answered UNAVAILABLE instead. Each is a defect: please report "
                "it.",
                (Query(by("sum", "reason", "rate(loadtide_bad_values_total[$__rate_interval])"), "{{reason}}"),),
                nothing="None",
                width=8,
                empty_when_well=True,
            ),
            Panel(
                "Time a tick takes",
                "timeseries",
                "s",
                "How long the last tick of each workload took.",
                (Query(each("tick_duration_seconds")),),
                nothing="No workload",
                width=8,
            ),
            Panel(
                "Age of the last decision",
                "timeseries",
                "s",
                "Time since each workload's last tick. Over 300 s the scaler does not count as healthy any more "
                "(ScalerDown).",
                (Query(by("min", "namespace, workload", chosen("loadtide_seconds_since_tick"))),),
                nothing="No workload",
                width=8,
                steps=(Step(None, "green"), Step(LONGEST_TICK_SECONDS, "red")),
            ),
            Panel(
                "Scalers, their store, and what they know",
                "stat",
                "short",
                "Scalers that are scraped; whether all can store their memory; workloads that the busiest one knows; "
                "warnings about the configuration of the chosen workloads (the API words them).",
                (
                    Query("count(loadtide_build_info)", "scalers"),
                    Query("min(loadtide_store_up)", "store up (1: yes)"),
                    Query("max(loadtide_workloads)", "workloads"),
                    Query(f"sum({each('config_warnings')})", "warnings"),
                ),
                nothing="No loadtide is scraped",
                width=8,
            ),
            Panel(
                "KEDA gets a number",
                "state-timeline",
                "short",
                "Whether each workload has a decision that KEDA may be told. No: signals are lost for longer than the "
                "policy holds, and KEDA is told UNAVAILABLE.",
                (Query(by("min", "namespace, workload", chosen("loadtide_available"))),),
                nothing="No workload",
                width=24,
                height=6,
                words=YES_NO,
                minimum=None,
            ),
        ),
    )


def keda_row() -> Row:
    """What KEDA's operator says. Its series name the ScaledObject, and the namespace as ``exported_namespace`` where
    Prometheus does not honour labels.
    """
    labels = "namespace, scaledObject"

    def told(vector: str, operator: str = "sum") -> str:
        return by(operator, labels, replaced(vector, "namespace", "$1", "exported_namespace", "(.+)"))

    legend = "{{namespace}}/{{scaledObject}}"
    chosen_object = '{scaledObject=~"$workload"}'
    return Row(
        "KEDA",
        (
            Panel(
                "Errors",
                "timeseries",
                "cps",
                "Errors that KEDA counts a second, by ScaledObject and of our scaler's triggers. An error keeps the "
                "replica count; without a fallback nothing scales meanwhile.",
                (
                    Query(told(f"rate({OBJECT_ERRORS}{chosen_object}[$__rate_interval])"), legend),
                    Query(told(f"rate({SCALER_ERRORS}{chosen_object}[$__rate_interval])"), f"{legend} scaler"),
                ),
                nothing="KEDA is not scraped",
                steps=(Step(None, "green"), Step(0.001, "orange")),
                needs="keda",
            ),
            Panel(
                "Time KEDA takes",
                "timeseries",
                "s",
                "How long KEDA waited for the scaler, and how far its scale loops lag behind their time.",
                (
                    Query(told(f"{SCALER_LATENCY}{chosen_object}", "max"), f"{legend} waits"),
                    Query(
                        by("max", "namespace, resource", f'{LOOP_LATENCY}{{resource=~"$workload"}}'),
                        "{{namespace}}/{{resource}} loop lags",
                    ),
                ),
                nothing="KEDA is not scraped",
                needs="keda",
            ),
        ),
    )
