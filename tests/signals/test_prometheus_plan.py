"""The queries of a round: the same number for one workload as for thousands, and nothing of theirs spliced in."""

from __future__ import annotations

import re

import pytest

from scaler.policy import promql
from scaler.policy.prometheus import QUERY_LENGTH, Prometheus
from scaler.signals.exposition import normalised
from scaler.signals.preset import Preset, known_engines, load_preset
from scaler.signals.prometheus.plan import Plan, Wanted, plan, want

VLLM = load_preset("vllm")


def reading(preset: Preset = VLLM, replica_label: str = "pod", **match: str) -> tuple[Preset, Prometheus]:
    return preset, Prometheus.model_validate({"source": "main", "match": match, "replica_label": replica_label})


def all_queries(queries: Plan) -> list[str]:
    return [queries.ages, queries.failing, *queries.values]


def test_one_workload_and_five_thousand_cost_the_same_queries() -> None:
    one = plan(want([reading(namespace="chat", model_name="m")]))
    many = plan(want([reading(namespace=f"team-{i}", model_name=f"org/m-{i}") for i in range(5000)]))
    assert one.queries == many.queries == len(all_queries(one)) == 12
    assert max(map(len, all_queries(many))) < 1000


def test_all_engines_together_stay_within_the_limits() -> None:
    queries = plan(want([reading(load_preset(name), namespace="chat") for name in known_engines()]))
    assert queries.queries <= 25
    assert max(map(len, all_queries(queries))) < QUERY_LENGTH


def test_every_query_is_promql() -> None:
    for query in all_queries(plan(want([reading(load_preset(name), namespace='a"b') for name in known_engines()]))):
        read = promql.read(query)
        assert all(selector["namespace"] == ("=", 'a"b') for selector in read.selectors), query


@pytest.mark.parametrize("engine", known_engines())
def test_every_wanted_name_is_asked_for_once_in_every_spelling(engine: str) -> None:
    preset = load_preset(engine)
    patterns = [
        re.findall(r'__name__=~?"([^"]*)"', query.partition(" and ")[0])
        for query in plan(want([reading(preset)])).values
    ]
    for name in preset.wanted:
        prefix, _, rest = name.partition("_")
        for spelled in (name, f"{prefix}:{rest}"):
            hits = sum(any(re.fullmatch(pattern, spelled) for pattern in group) for group in patterns)
            assert normalised(spelled) == name
            assert hits == 1 or (hits == 0 and spelled != name and name == "process_start_time_seconds"), spelled


def test_no_label_value_but_namespace_and_cluster_is_in_a_query() -> None:
    wanted = want(
        [
            reading(namespace='a"b', cluster="eu\\1", model_name="secret-1", pod="secret-2"),
            reading(namespace="c.d", cluster="eu\\1", model_name="secret-3"),
        ]
    )
    for query in all_queries(plan(wanted)):
        assert "secret" not in query
        for selector in promql.read(query).selectors:
            assert selector["namespace"] == ("=~", r'a"b|c\.d')
            assert selector["cluster"] == ("=", "eu\\1")


def test_a_query_is_narrowed_only_where_every_workload_allows_it() -> None:
    assert want([reading(namespace="a"), reading(model_name="m")]).narrowing == {}
    assert want([reading(namespace=f"n{i}") for i in range(50)]).narrowing.keys() == {"namespace"}
    assert want([reading(namespace=f"n{i}") for i in range(51)]).narrowing == {}


def test_a_round_serves_whoever_could_have_been_asked_for() -> None:
    wanted = want([reading(namespace="a", model_name="m")])
    assert wanted.covers(*reading(namespace="a", model_name="other"))
    assert not wanted.covers(*reading(namespace="b", model_name="m"))
    assert not wanted.covers(*reading(namespace="a", team="x"))
    assert not wanted.covers(*reading(namespace="a", replica_label="kubernetes_pod_name"))
    assert not wanted.covers(*reading(load_preset("tgi"), namespace="a"))


def test_targets_are_told_apart_by_what_workloads_bind_but_not_by_the_engines_own_labels() -> None:
    wanted: Wanted = want([reading(namespace="a", model_name="m", k8s_cluster="eu", job="vllm")])
    assert "k8s_cluster" in wanted.place
    assert not {"model_name", "engine", "job"} & {*wanted.place}
