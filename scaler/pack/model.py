"""What a rule is: plain values, in the words of Prometheus' rule files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from scaler.value import frozen

Severity = Literal["critical", "warning", "info"]
Dashboard = Literal["overview", "decisions", "gpu"]


@frozen
class Recording:
    """One recording rule: ``record`` names the new series, ``labels`` are added to it."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)


@frozen
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


@frozen
class Group:
    """Rules that are evaluated one after the other. ``source`` is the switch that leaves the group out; "" stands for
    the groups that nothing leaves out. ``interval`` "" takes Prometheus' own.
    """

    name: str
    rules: tuple[Recording | Alert, ...]
    source: str = ""
    interval: str = ""


_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?)?", re.ASCII | re.IGNORECASE)
_LABEL_NAME = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?", re.ASCII | re.IGNORECASE
)
_URL = re.compile(r"https?://[^\s\"'<>{}]+")


@frozen
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


def checked(options: Options) -> Options:
    """The options, if a cluster and a browser take them. Raises ValueError, saying what to write instead."""
    checked_namespace(options.namespace)
    for url in (options.runbooks, options.grafana):
        if not _URL.fullmatch(url):
            raise ValueError(f"{url!r} is not a URL; write for example https://grafana.example.com")
    for name, value in options.labels.items():
        if not (_LABEL_NAME.fullmatch(name) and _LABEL_VALUE.fullmatch(value)):
            raise ValueError(f"{name}={value} is no label that Kubernetes takes; write for example release=kps")
    return options


def checked_namespace(name: str) -> str:
    """The name, if a cluster takes it for a namespace's. Raises ValueError."""
    if not _NAMESPACE.fullmatch(name):
        raise ValueError(f"{name!r} is no namespace: small letters, digits and - only; write for example monitoring")
    return name
