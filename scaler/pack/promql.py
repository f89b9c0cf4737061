"""PromQL in pieces: what every rule needs done to raw series before they can be compared, and in which order.

Raw series differ in ways that mean nothing: who scraped them (``exported_pod`` beside ``pod``), how a hop on the way
spells ``:``, which rank of a tensor-parallel engine exported the copy. Each function here removes one such difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import indent

#: Gauges are read over this long: with scrapes every minute or faster one missed scrape then changes nothing (a failed
#: scrape marks every series stale at once, whatever the lookback).
GAUGE_WINDOW = "2m"

#: Labels that say who scraped or relayed a series, not what it measures: two that differ only here are copies.
SCRAPE_LABELS = (
    "instance",
    "job",
    "endpoint",
    "service",
    "container",
    "prometheus",
    "prometheus_replica",
    "exported_pod",
    "exported_namespace",
    "exported_workload",
    "address",
    "owner",
)

#: How Kubernetes ends the names of a Deployment's pods (its ReplicaSet's hash, five random letters: k8s.io/apimachinery
#: ``util/rand``) and of a StatefulSet's or a LeaderWorkerSet's leaders (a number).
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
POD_OF_WORKLOAD = f"(.+?)(?:-{_LETTERS}{{1,10}}-{_LETTERS}{{5}}|-[0-9]+)"

#: Engines that write ``:`` after their prefix; collectors on the way turn it into ``_``.
_COLON_PREFIXES = ("vllm", "sglang")


def spellings(name: str) -> tuple[str, ...]:
    """The ways one metric's (normalised) name is spelt in the field, the engine's own first."""
    prefix, _, rest = name.partition("_")
    return (f"{prefix}:{rest}", name) if prefix in _COLON_PREFIXES else (name,)


def call(function: str, vector: str, *rest: str) -> str:
    """``function(vector, rest)``, on one line where it fits."""
    line = f"{function}({', '.join((vector, *rest))})"
    if "\n" not in line and len(line) <= 100:
        return line
    more = f",\n  {', '.join(rest)}" if rest else ""
    return f"{function}(\n{indent(vector, '  ')}{more}\n)"


def replaced(vector: str, label: str, value: str, source: str, pattern: str) -> str:
    """``label_replace``: where ``source`` matches the whole ``pattern``, ``label`` becomes ``value``."""
    return call("label_replace", vector, *map(_quoted, (label, value, source, pattern)))


def joined(vector: str, label: str, *sources: str) -> str:
    """``label_join`` with ``/``, which stands in no Kubernetes name."""
    return call("label_join", vector, *map(_quoted, (label, "/", *sources)))


def placed(vector: str) -> str:
    """Series of an engine or an exporter with the labels ``namespace``, ``pod`` and ``workload`` that they are about.

    The pod is ``exported_pod`` (what the page itself said, where Prometheus did not honour it), ``pod``, or for want
    of both the address. The workload is the label ``workload`` where the scrape configuration adds one, else what
    the pod's name says: the ScaledObject is then expected to be named as its Deployment.
    """
    vector = replaced(vector, "namespace", "$1", "exported_namespace", "(.+)")
    vector = joined(vector, "address", "exported_pod", "pod", "instance")
    vector = replaced(vector, "pod", "$1", "address", "/{0,2}([^/]+).*")
    vector = joined(vector, "owner", "workload", "pod")
    return replaced(vector, "workload", "$1$2", "owner", f"(?:([^/]+)/.*|/{POD_OF_WORKLOAD})")


def own(vector: str) -> str:
    """Series of loadtide, which name namespace and workload themselves: honoured by Prometheus or not."""
    vector = replaced(vector, "namespace", "$1", "exported_namespace", "(.+)")
    return replaced(vector, "workload", "$1", "exported_workload", "(.+)")


def once(vector: str, copies: Iterable[str] = ()) -> str:
    """One series for each quantity of each pod: of those that differ only in who scraped them, or in the labels
    ``copies`` (ranks of one engine), the greatest.
    """
    return call(f"max without ({', '.join(dict.fromkeys((*sorted(copies), *SCRAPE_LABELS)))}) ", vector)


def first_of(alternatives: Sequence[str]) -> str:
    """Of each scraped target, the first alternative that it has: a new name before an old one, never both."""
    return "\nor on (namespace, exported_pod, pod, instance)\n".join(alternatives)


def by(operator: str, labels: str, vector: str) -> str:
    """An aggregation that keeps ``labels``."""
    return call(f"{operator} by ({labels}) ", vector)


def last(metric: str, window: str = GAUGE_WINDOW) -> str:
    """A gauge's newest value, bridging a missed scrape."""
    return f"last_over_time({metric}[{window}])"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
