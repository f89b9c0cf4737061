"""PromQL as text: what is read of an operator's query, and values that cannot break out of one of ours."""

from __future__ import annotations

import pytest

from scaler.policy.promql import PromqlError, any_of, quoted, read


@pytest.mark.parametrize(
    ("query", "outermost"),
    [
        ("sum(vllm:num_requests_waiting)", ("sum",)),
        ("avg(vllm:num_requests_waiting)", ("avg",)),
        ("AVG by (pod) (x)", ("avg",)),
        ("avg (x) by (pod)", ("avg",)),
        ("avg without(pod)(x) > 3", ("avg",)),
        ("sum(avg by (pod) (x))", ("sum",)),
        ("avg(sum by (pod) (x))", ("avg",)),
        ("ceil(avg(x)) * 2", ("avg",)),
        ("(((sum(a)))) / count(b)", ("sum", "count")),
        ("sum(a) or vector(0)", ("sum",)),
        ("avg_over_time(x[5m])", ()),
        ("max(avg_over_time(x[5m]))", ("max",)),
        ("vllm:num_requests_waiting", ()),
        ('sum{job="avg(x)"}', ()),  # a metric may be called sum, and a text may hold anything
        ("sum", ()),
        ("topk(3, avg by (pod) (x))", ("topk",)),
        ("histogram_quantile(0.9, sum by (le) (rate(x_bucket[1m])))", ("sum",)),
        ("x # avg(x)\n", ()),
        ("scalar(avg(x)) + sum(y)", ("avg", "sum")),
    ],
)
def test_the_outermost_aggregation_is_read(query: str, outermost: tuple[str, ...]) -> None:
    assert read(query).outermost == outermost


def test_the_matchers_of_every_selector_are_read() -> None:
    query = r"""
        sum by (pod, model) (rate(x{namespace="a\"b", model=~'m.*'}[5m:1m] offset 1h))
        / on (pod) group_left (node) y{} + {__name__="z", "job"!=`c\d`} - bare @ end()
    """
    assert read(query).selectors == (
        {"namespace": ("=", 'a"b'), "model": ("=~", "m.*")},
        {},
        {"job": ("!=", r"c\d")},
        {},
    )


@pytest.mark.parametrize(
    ("query", "zero"),
    [
        ("sum(a) or vector(0)", True),
        ("sum(a) or on() vector( 0.0 )", True),
        ("vector(1)", False),
        ("vector(a)", False),
        ('a{b="vector(0)"}', False),
    ],
)
def test_absent_turned_into_zero_is_seen(query: str, zero: bool) -> None:
    assert read(query).absent_is_zero is zero


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "empty"),
        ("  # only a comment", "empty"),
        ("sum(a", "lacks a )"),
        ("sum(a))", "a ) that closes nothing"),
        ("a{b='c}", "character 5 of the query is a quote that does not end"),
        ("a ; b", "character 3 of the query is ';'"),
        ("a[5m)", "closes nothing"),
    ],
)
def test_what_no_server_would_accept_is_refused(query: str, says: str) -> None:
    with pytest.raises(PromqlError, match=says.replace("(", r"\(").replace(")", r"\)")):
        read(query)


@pytest.mark.parametrize("value", ["plain", 'a"b', "a\\b", "a\nb", '"} or vector(1) #', "org/m+x", "`'"])
def test_a_quoted_value_is_one_text_whatever_is_in_it(value: str) -> None:
    assert read(f"x{{label={quoted(value)}}}").selectors == ({"label": ("=", value)},)


def test_several_values_are_exact_alternatives() -> None:
    assert any_of(["a.b"]) == '="a.b"'
    assert any_of(["a.b", 'c"d', "e-f g"]) == r'=~"a\\.b|c\"d|e-f g"'
