"""The ``prometheus`` group of a workload, the ``sources:`` of the file, and what is warned of."""

from __future__ import annotations

import pytest

from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile
from scaler.policy.model import Policy, Prometheus
from scaler.policy.warnings import warnings_of

SOURCES = "sources: {main: {url: 'http://prometheus:9090'}}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as refused:
        PolicyFile.parse("p.yaml", text)
    return list(refused.value.problems)


def warned(**prometheus: object) -> str:
    policy = Policy.model_validate({"prometheus": {"source": "main", **prometheus}})
    return "\n".join(text for text in warnings_of(policy) if "prometheus" in text)


def test_a_source_is_declared_once_and_named_by_workloads() -> None:
    file = PolicyFile.parse(
        "p.yaml",
        """
sources:
  main:
    url: http://mimir/prometheus/
    headers: {X-Scope-OrgID: chat}
    basic: {username: loadtide, password_file: /run/secrets/password}
    tls: {ca_file: /run/ca.pem, server_name: mimir}
    timeout_seconds: 2
defaults:
  prometheus: {source: main}
workloads:
  chat/llama: {prometheus: {match: {namespace: chat, model_name: org/llama}}}
""",
    )
    server = file.sources["main"]
    assert server.url == "http://mimir/prometheus"
    assert dict(server.headers) == {"X-Scope-OrgID": "chat"}
    prometheus = file.resolve("chat/llama").policy.prometheus
    assert (prometheus.source, dict(prometheus.match)) == ("main", {"namespace": "chat", "model_name": "org/llama"})


def test_metadata_binds_a_workload_with_any_label_value() -> None:
    file = PolicyFile.parse("p.yaml", SOURCES)
    metadata = {"prometheusSource": "main", "prometheusMatch": r'{namespace: chat, model_name: "a\"b\\c"}'}
    assert dict(file.resolve("chat/m", metadata).policy.prometheus.match) == {
        "namespace": "chat",
        "model_name": 'a"b\\c',
    }


def test_a_source_that_is_not_declared_is_refused_where_it_is_named() -> None:
    named = "workloads:\n  chat/m:\n    prometheus: {source: mian}\n"
    assert problems(SOURCES + named) == [
        'p.yaml:4: workloads.chat/m.prometheus.source: "mian" is no source of the policy file\'s sources:; '
        "write one of: main"
    ]
    assert problems("defaults: {prometheus: {source: main}}") == [
        'p.yaml:1: defaults.prometheus.source: "main" is no source of the policy file\'s sources:; '
        "declare it there (none is)"
    ]
    with pytest.raises(PolicyError, match='metadata "prometheusSource": "other" is no source'):
        PolicyFile.parse("p.yaml", SOURCES).resolve("chat/m", {"prometheusSource": "other"})
    # A higher layer's name counts, and null unsets it.
    PolicyFile.parse("p.yaml", SOURCES + "workloads: {chat/m: {prometheus: {source: null}}}").resolve("chat/m")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{}", "sources.main.url: is missing"),
        ("{url: prometheus:9090}", "is not a URL; write for example http://prometheus.monitoring.svc:9090"),
        ("{url: 'http://a:b@c'}", "has credentials in it; write them under basic:"),
        ("{url: 'http://a/api/v1/query'}", "write it without /api/v1"),
        ("{url: 'http://a?b=c'}", "has a ? or # part"),
        ("{url: 'http://a', bearer_token: x, basic: {username: a, password_file: b}}", "both make the Authorization"),
        ("{url: 'http://a', headers: {authorization: x}, bearer_token_file: b}", "both make the Authorization"),
        ("{url: 'http://a', headers: {'a b': c}}", "cannot be sent as a header"),
        ("{url: 'http://a', tls: {cert_file: a}}", "sources.main.tls: cert_file and key_file belong together"),
        (
            "{url: 'http://a', timeout_seconds: 0}",
            "timeout_seconds: 0 is not allowed; write a number of seconds above 0",
        ),
        ("{url: 'http://a', basic: {user: a}}", 'sources.main.basic.user: no such key; did you mean "username"?'),
        ("3", "3 is not allowed; write a mapping with the keys url, headers"),
    ],
)
def test_a_source_that_cannot_be_meant_is_refused(body: str, says: str) -> None:
    found = problems(f"sources:\n  main: {body}\nworkloads: {{a/b: {{prometheus: {{source: main}}}}}}")
    assert all(problem.startswith("p.yaml:2: sources.main") for problem in found)
    assert any(says in problem for problem in found), found


def test_a_token_is_in_no_error() -> None:
    (problem,) = problems("sources: {main: {url: 'http://a', bearer_token: 1234567}}")
    assert "1234567" not in problem
    (problem,) = problems("sources: {main: {url: 'http://a:hunter2@b'}}")
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("group", "says"),
    [
        ({"match": {"a b": "c"}}, "'a b' is not a label"),
        ({"match": {"__name__": "c"}}, "is not a label"),
        ({"match": {"a": ""}}, "would match series that lack the label"),
        ({"replica_label": "a-b"}, "'a-b' is not a label"),
        ({"queries": {"ttft_seconds": "x"}}, "no signal that a query can give; write one of arrivals_per_second"),
        ({"queries": {"waiting": "sum(x"}}, "waiting: the query lacks a )"),
        ({"queries": {"waiting": "x" * 20_000}}, "longer than 16384 characters"),
    ],
)
def test_a_group_that_cannot_be_meant_is_refused(group: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(").replace(")", r"\)")):
        Prometheus.model_validate(group)


def test_a_group_is_an_immutable_hashable_value() -> None:
    group = Prometheus.model_validate({"match": {"a": "b"}})
    assert group == Prometheus.model_validate({"match": {"a": "b"}})
    assert hash(group) == hash(Prometheus.model_validate({"match": {"a": "b"}}))
    assert group.model_dump()["match"] == {"a": "b"}
    with pytest.raises(TypeError):
        group.match["c"] = "d"  # type: ignore[index]


def test_labels_that_came_from_the_environment_are_in_no_warning() -> None:
    metadata = {
        "prometheusSource": "main",
        "prometheusMatchFromEnv": "{tenant: hush}",
        "prometheusQueries": "waiting: sum(x)",
    }
    allowing = PolicyFile.parse("p.yaml", SOURCES + "tenancy: {metadata_queries: allow}")
    warnings = allowing.resolve("chat/m", metadata).warnings
    assert any("a selector in it does not match on tenant;" in text for text in warnings)
    assert not any("hush" in text for text in warnings)


MATCH = {"namespace": "chat", "model_name": "m"}
FILTERED = '{namespace="chat",model_name="m"}'


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (f"avg(x{FILTERED})", "its outermost aggregation is avg"),
        (f"sum(x{FILTERED}) or vector(0)", "vector(0) turns missing data into no load"),
        ("sum(x)", 'does not match on namespace="chat", model_name="m"'),
        ('sum(x{namespace="chat"})', 'does not match on namespace="chat", model_name="m"'),
        (f"x{FILTERED}", "it aggregates nothing"),
    ],
)
def test_queries_that_read_as_less_load_are_warned_of(query: str, says: str) -> None:
    assert says in warned(match=MATCH, queries={"waiting": query})


def test_a_good_query_is_warned_of_for_its_cost_alone() -> None:
    text = warned(match=MATCH, queries={"waiting": f"sum(x{FILTERED})"})
    assert text.startswith("prometheus.queries costs 1 more every tick, for this workload alone")
    assert "\n" not in text
    # A mean of ratios is what a ratio is.
    assert "\n" not in warned(match=MATCH, queries={"gpu_busy_ratio": f"avg(x{FILTERED})"})


def test_without_match_a_query_should_tell_whose_load_it_reads() -> None:
    assert "does not match on the model or the namespace" in warned(queries={"waiting": "sum(x)"})
    assert "does not match" not in warned(queries={"waiting": 'sum(x{namespace="chat"})'})


def test_groups_that_do_nothing_are_warned_of() -> None:
    assert "prometheus.source is not named" in warned(source=None, match=MATCH)
    assert "prometheus.match is empty" in warned()
    policy = Policy.model_validate(
        {"prometheus": {"source": "main", "match": MATCH}, "scrape": {"urls": ["http://a:1/metrics"]}}
    )
    assert any("prometheus.match is not used" in text for text in warnings_of(policy))
    assert not policy.read_from_prometheus
