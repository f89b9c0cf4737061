"""What a rule is: plain values, in the words of Prometheus' rule files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["critical", "warning", "info"]
Dashboard = Literal["overview", "decisions", "gpu"]


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording rule: ``record`` names the new series, ``labels`` are added to it."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert rule. ``hold`` is Prometheus' ``for``, ``keep`` its ``keep_firing_for`` ("" for none): durations as
    PromQL writes them. ``dashboard`` is the one that shows what the alert is about. ``scope`` is ``workload`` where
    the alert is about one (its labels then name it), ``scaler`` where it is about loadtide itself.
    """

    name: str
    expr: str
    severity: Severity
    hold: str
    summary: str
    description: str
    keep: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    dashboard: Dashboard = "overview"
    scope: Literal["workload", "scaler"] = "workload"


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after the other. ``source`` is the switch that leaves the group out; "" stands for
    the groups that nothing leaves out. ``interval`` "" takes Prometheus' own.
    """

    name: str
    rules: tuple[Recording | Alert, ...]
    source: str = ""
    interval: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """What differs from one installation to the next.

    ``namespace`` is where loadtide runs: its own alerts carry it, and a PrometheusRule is made for it. ``labels`` are
    a PrometheusRule's: the operator selects by them (kube-prometheus-stack: ``release``). ``without`` names the
    sources that are not scraped here. ``runbooks`` and ``grafana`` are URLs without a slash at the end.
    """

    namespace: str = "loadtide"
    labels: Mapping[str, str] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    runbooks: str = "https://runbooks.example.com/loadtide"
    grafana: str = "https://grafana.example.com"
