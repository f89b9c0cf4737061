"""What a valid ``prometheus:`` group still leaves unsaid, or says in a way that reads as less load than there is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from scaler.policy import promql
from scaler.policy.keys import Path
from scaler.policy.model import Policy

#: A query without ``match`` to go by should name at least one of these, or it adds up everybody's load.
_TELLING_LABELS = ("namespace", "model_name", "pod", "job", "service", "instance")


def prometheus_warnings(policy: Policy, hidden: Collection[Path] = ()) -> Iterator[str]:
    """Every warning about the workload's ``prometheus`` group. Values at ``hidden`` paths are not shown."""
    prometheus = policy.prometheus
    named = "(withheld)" if ("prometheus", "source") in hidden else prometheus.source
    if prometheus.source is None:
        if prometheus.match or prometheus.queries:
            yield "prometheus.source is not named, so prometheus.match and prometheus.queries are not used; name it"
        return
    if policy.scrape.declared and prometheus.match:
        yield (
            "the replicas are scraped and prometheus.match is not used, or they would count twice; unset the scrape "
            "group's addresses to read them from Prometheus"
        )
    if not prometheus.match and not prometheus.queries:
        yield (
            f"prometheus.match is empty, so no series of source {named} are this workload's; write the "
            "labels they have, for example {namespace: chat, model_name: org/model}"
        )
    if prometheus.queries:
        yield (
            f"prometheus.queries costs {len(prometheus.queries)} more every tick, for this workload alone; what match "
            "finds costs none, however many workloads there are"
        )
    for signal, query in prometheus.queries.items():
        told = _of_query(policy, signal, promql.read(query), ("prometheus", "match") in hidden)
        yield from (f"prometheus.queries.{signal}: {text}" for text in told)


def _of_query(policy: Policy, signal: str, query: promql.Reading, match_hidden: bool) -> Iterator[str]:
    if "avg" in query.outermost and not signal.endswith("_ratio"):
        yield (
            "its outermost aggregation is avg, but the value must be the whole workload's (loadtide divides by the "
            "replicas itself, and an average hides a growing load); use sum"
        )
    if query.absent_is_zero:
        yield "vector(0) turns missing data into no load, and a failed scrape into idleness; leave it out"
    unfiltered = _unfiltered(query, policy.prometheus.match, match_hidden)
    if unfiltered:
        yield f"a selector in it does not match on {unfiltered}; other workloads' load counts too"
    if not query.outermost and policy.prometheus.aggregation is None and query.selectors:
        yield (
            "it aggregates nothing, so with two replicas it gives two series and is refused; write sum(...) around it, "
            "or set prometheus.aggregation"
        )


def _unfiltered(query: promql.Reading, match: Mapping[str, str], hidden: bool) -> str:
    """The labels that some selector should match on and does not ("" if none)."""
    for selector in query.selectors:
        if match and any(selector.get(label) != ("=", value) for label, value in match.items()):
            return ", ".join(label if hidden else f"{label}={promql.quoted(value)}" for label, value in match.items())
        if not match and not any(label in selector for label in _TELLING_LABELS):
            return "the model or the namespace"
    return ""
