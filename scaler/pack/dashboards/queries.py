"""PromQL as the panels need it: chosen by the variables, once for each workload, and never NaN.

Every scaler tells every workload's series, so each of ours is taken ``max by`` its own labels before anything else.
"""

from __future__ import annotations

from scaler.pack.dashboards.model import Annotation, Variable
from scaler.pack.promql import GAUGE_WINDOW, by
from scaler.pack.series import REQUESTS

CHOSEN = 'namespace=~"$namespace",workload=~"$workload"'
#: An engine that names no model cannot be ruled out by one, so it is shown with each.
CHOSEN_MODEL = f'{CHOSEN},model_name=~"$model_name|"'
WORKLOAD = "namespace, workload"

#: ``config_warnings`` is the one metric of ours that every known workload has from its first scrape on.
_KNOWN = "loadtide_config_warnings"
NAMESPACE = Variable("namespace", "namespace", _KNOWN, "Namespace")
WORKLOADS = Variable("workload", "workload", f'{_KNOWN}{{namespace=~"$namespace"}}', "Workload")
MODEL_NAME = Variable("model_name", "model_name", f"{REQUESTS}{{{CHOSEN}}}", "Model")
VARIABLES = (NAMESPACE, WORKLOADS, MODEL_NAME)


def chosen(metric: str, matchers: str = "") -> str:
    """A selector of one of our metrics, or of a recorded series with the labels of a workload."""
    return f"{metric}{{{CHOSEN}{',' if matchers else ''}{matchers}}}"


def chosen_model(metric: str, matchers: str = "") -> str:
    """A selector of a recorded series that may name a model."""
    return f"{metric}{{{CHOSEN_MODEL}{',' if matchers else ''}{matchers}}}"


def each(metric: str, matchers: str = "", *, labels: str = WORKLOAD) -> str:
    """One value for each workload (or each of ``labels``), however many scalers tell it."""
    return by("max", labels, chosen(f"loadtide_{metric}", matchers))


def signal(name: str) -> str:
    """A signal's value; nothing while it is not measured."""
    return each("signal", f'signal="{name}"')


def signal_or_zero(name: str) -> str:
    """A count that is certainly 0 where no replica is ready: not measured there, but not unknown either."""
    return f"{signal(name)}\nor\n{each('ready_replicas')} == 0"


def p95(objective: str, bound: str) -> str:
    """One end of the interval in which P95 lies. Beyond the last bucket it has no upper end, and so no line."""
    value = each("signal_latency_seconds", f'signal="{objective}_seconds",quantile="0.95",bound="{bound}"')
    return f"{value} < +Inf" if bound == "high" else value


def changed(within: str) -> str:
    """The kinds of decision taken in the time ``within``, and how many of each.

    A series is born with its first decision, which no rate or increase sees. The difference to what was needs no two
    samples in a window, so ``within`` may be a graph's own step: each decision is then counted once. What was is read
    over a missed scrape, or every decision ever taken would look new after one.
    """
    labels = f"{WORKLOAD}, target, direction, code"
    now = by("max", labels, chosen("loadtide_decisions_total"))
    before = by("max", labels, f"last_over_time({chosen('loadtide_decisions_total')}[{GAUGE_WINDOW}] offset {within})")
    return f"({now} - {before}) > 0\nor\n{now} unless {before}"


def firing(alerts: tuple[str, ...], matchers: str = "") -> str:
    """Our alerts that fire now. One that names no workload is about the whole of loadtide and always shown."""
    names = "|".join(alerts)
    scope = 'namespace=~"$namespace|",workload=~"$workload|"'
    return f'ALERTS{{alertstate="firing",alertname=~"{names}",{scope}{"," if matchers else ""}{matchers}}}'


def marks(alerts: tuple[str, ...]) -> tuple[Annotation, ...]:
    """What every dashboard marks: each decision, and each alert while it fires."""
    return (
        Annotation(
            "Decisions",
            changed("1m"),
            "{{target}} {{direction}}: {{code}}",
            "{{namespace}}/{{workload}}",
            ("namespace", "workload", "target"),
            "blue",
        ),
        Annotation(
            "Firing alerts",
            firing(alerts),
            "{{alertname}}",
            "{{namespace}}/{{workload}} {{severity}}",
            ("severity", "namespace", "workload"),
            "red",
        ),
    )
