"""The signals behind the decisions: each against its band, and how far each can be trusted."""

from __future__ import annotations

from scaler.pack.dashboards.model import Panel, Query, Row, Step
from scaler.pack.dashboards.queries import CHOSEN, chosen_model, each, signal, signal_or_zero
from scaler.pack.dashboards.words import STATUSES, VERDICTS, status, verdict
from scaler.pack.series import LATENCY_P95
from scaler.policy.model import LoadThresholds, MemoryGuard
from scaler.signals.model import CATALOG
from scaler.signals.reading import STALE_AFTER_SECONDS

#: The bands a policy starts from. One that sets its own is judged by those, which no metric tells.
_LOAD, _MEMORY = LoadThresholds(), MemoryGuard()

#: What can lower replicas, end in zero, or cut a batch: losing one of these is felt.
_NEEDED = "|".join(name for name, kind in CATALOG.items() if kind.required_for)


def signal_rows() -> tuple[Row, ...]:
    """Both rows of Decisions."""
    return Row("Signals against their bands", _bands()), Row("How good the signals are", _signals())


def _bands() -> tuple[Panel, ...]:
    policy_note = "The lines are the defaults; a policy may set others."
    utilisation = f"clamp_max({each('utilisation_ratio')}, 10)"
    return (
        Panel(
            "Load ÷ capacity",
            "timeseries",
            "percentunit",
            f"Load over what the ready replicas serve within the objectives. Low below the first line, high above the "
            f"second. 1000 %: demand, and no replica. {policy_note}",
            (Query(utilisation),),
            width=8,
            nothing="Scaled to zero",
            steps=(Step(None, "blue"), Step(_LOAD.low_utilisation, "green"), Step(_LOAD.high_utilisation, "orange")),
        ),
        Panel(
            "Waiting for each ready replica",
            "timeseries",
            "short",
            "Requests queued in the engines, by ready replica.",
            (Query(f"({signal_or_zero('waiting')})\n/\n({each('ready_replicas')} > 0)"),),
            width=8,
            nothing="Scaled to zero",
        ),
        Panel(
            "KV-cache use",
            "timeseries",
            "percentunit",
            f"The fullest engine. From the first line on the batch does not grow; from the second it shrinks at once. "
            f"{policy_note}",
            (Query(signal("kv_use_ratio")), Query(signal("kv_use_mean_ratio"), "{{namespace}}/{{workload}} mean")),
            width=8,
            nothing="Scaled to zero",
            maximum=1.0,
            steps=(
                Step(None, "green"),
                Step(_MEMORY.kv_growth_ratio, "orange"),
                Step(_MEMORY.kv_emergency_ratio, "red"),
            ),
        ),
        Panel(
            "GPU busy and SMs active",
            "timeseries",
            "percentunit",
            f"Share of the time a kernel ran; above the second line, with a growing queue, the load is high. SMs under "
            f'40 % active are room, whatever "busy" says. {policy_note}',
            (
                Query(signal("gpu_busy_ratio"), "{{namespace}}/{{workload}} busy"),
                Query(signal("sm_active_ratio"), "{{namespace}}/{{workload}} SMs active"),
            ),
            width=8,
            nothing="No GPU is read",
            maximum=1.0,
            steps=(
                Step(None, "blue"),
                Step(_LOAD.gpu_busy_low_ratio, "green"),
                Step(_LOAD.gpu_busy_high_ratio, "orange"),
            ),
            needs="dcgm",
        ),
        Panel(
            "Verdict on each objective",
            "state-timeline",
            "short",
            "What P95 of the window says of each bound. Undecided: too few requests, or the bound lies inside the "
            "histogram's bucket.",
            (Query(verdict(), "{{namespace}}/{{workload}} {{objective}} {{bound}}"),),
            width=8,
            words=VERDICTS,
            minimum=None,
        ),
        Panel(
            "P95, by model",
            "timeseries",
            "s",
            "Of every model, from the engines' histograms where Prometheus has them, else loadtide's own.",
            (Query(chosen_model(LATENCY_P95), "{{namespace}}/{{workload}} {{objective}} {{model_name}}"),),
            width=8,
            needs="rules",
            needs_traffic=True,
        ),
    )


def _signals() -> tuple[Panel, ...]:
    labels = "namespace, workload, signal"
    return (
        Panel(
            "Status of the signals that can lower something",
            "state-timeline",
            "short",
            "Known, not applicable (there is nothing to measure: that satisfies), stale or unknown (those hold). "
            "Three minutes of doubt in one that is needed: SignalStale.",
            (Query(status(_NEEDED), "{{namespace}}/{{workload}} {{signal}}"),),
            nothing="No workload",
            height=10,
            words=STATUSES,
            minimum=None,
        ),
        Panel(
            "Age of the signals",
            "timeseries",
            "s",
            "Age of each signal's oldest contributing sample. From 45 s (or three scrapes) on it is stale.",
            (
                Query(
                    each("signal_age_seconds", labels=labels),
                    "{{namespace}}/{{workload}} {{signal}}",
                ),
            ),
            nothing="Nothing is measured",
            height=10,
            steps=(Step(None, "green"), Step(STALE_AFTER_SECONDS, "orange")),
        ),
        Panel(
            "Sources that cannot be read",
            "table",
            "short",
            "Endpoints and queries whose last read failed. Three minutes: SourceDown.",
            (
                Query(
                    f"(min by (namespace, workload, source, endpoint) (loadtide_source_up{{{CHOSEN}}})) == 0",
                    title="Read",
                ),
            ),
            nothing="All sources are read",
            height=6,
            labels={"namespace": "Namespace", "workload": "Workload", "source": "Source", "endpoint": "Endpoint"},
            empty_when_well=True,
        ),
        Panel(
            "Time a read takes",
            "timeseries",
            "s",
            "How long the last read of the slowest endpoint took.",
            (Query(each("source_read_seconds")),),
            nothing="Nothing is read",
            height=6,
        ),
    )
