"""Raw samples out of an answer's body, however a server writes it."""

from __future__ import annotations

import json
import math
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.lab.backtest.matrix import Numbers, read_matrix
from scaler.signals.prometheus.answer import AnswerError

UP = {"__name__": "up", "job": "a"}


def body(result: list[dict[str, Any]], **more: Any) -> bytes:
    data = {"resultType": "matrix", "result": result}
    return json.dumps({"status": "success", "data": data, **more}, separators=(",", ":")).encode()


def one(*pairs: tuple[float, str], labels: dict[str, str] = UP) -> dict[str, Any]:
    return {"metric": labels, "values": [list(pair) for pair in pairs]}


def test_a_series_is_two_columns() -> None:
    (series,) = read_matrix(body([one((10.5, "1"), (20.5, "2.5e3"))]), 0.0).series
    assert series.labels == UP
    assert list(series.times) == [10.5, 20.5]
    assert list(series.values) == [1.0, 2500.0]


def test_values_that_are_no_ordinary_number_stay_what_they_are() -> None:
    (series,) = read_matrix(body([one((1, "NaN"), (2, "+Inf"), (3, "-Inf"))]), 0.0).series
    assert math.isnan(series.values[0])
    assert list(series.values[1:]) == [math.inf, -math.inf]


def test_what_lies_at_the_beginning_belongs_to_the_part_before() -> None:
    """Prometheus 2 gives the sample at the range's own beginning, Prometheus 3 does not."""
    (series,) = read_matrix(body([one((10, "1"), (20, "2"), (30, "3"))]), 10.0).series
    assert list(series.times) == [20.0, 30.0]
    assert read_matrix(body([one((10, "1"))]), 10.0).series == []


def test_times_in_common_are_one_object() -> None:
    shared: dict[bytes, Numbers] = {}
    first, second = read_matrix(body([one((1, "1"), (2, "2")), one((1, "5"), (2, "6"))]), 0.0, shared).series
    (third,) = read_matrix(body([one((1, "7"), (2, "8"))]), 0.0, shared).series
    assert first.times is second.times is third.times


def test_labels_may_hold_anything() -> None:
    labels = {"__name__": "x", "a": 'quote " and ]] and {"metric":', "b": "\\", "c": "ü"}
    (series,) = read_matrix(body([one((1, "1"), labels=labels)]), 0.0).series
    assert series.labels == labels


@pytest.mark.parametrize("compact", [True, False])
def test_spaces_and_other_orders_read_the_same(compact: bool) -> None:
    result = [{"values": [[1, "1"]], "metric": UP}, one((1, "2"))]
    document = {"data": {"result": result, "resultType": "matrix"}, "status": "success"}
    text = json.dumps(document, separators=(",", ":") if compact else None)
    assert [list(series.values) for series in read_matrix(text.encode(), 0.0).series] == [[1.0], [2.0]]


def test_native_histograms_are_left_out_and_the_others_read() -> None:
    native = {"metric": UP, "histograms": [[1, {"count": "1", "sum": "1", "buckets": []}]]}
    assert [list(series.values) for series in read_matrix(body([native, one((1, "2"))]), 0.0).series] == [[2.0]]


def test_a_partial_answer_says_why() -> None:
    assert read_matrix(body([one((1, "1"))], warnings=["store 3 is down"]), 0.0).partial == "store 3 is down"
    victoria = b'{"status":"success","isPartial":true,"data":{"resultType":"matrix","result":[]}}'
    assert read_matrix(victoria, 0.0).partial == "some storage nodes did not answer"
    assert read_matrix(body([], infos=["rate of a gauge"]), 0.0).partial == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "the answer is empty"),
        (b"<html>login", "the answer is HTML (a login page?)"),
        (body([one((1, "1"))])[:-20], "the answer is cut, or not JSON"),
        (b'{"hello":1}', "not of a Prometheus API"),
        (b'{"status":"error","errorType":"execution","error":"too many samples"}', "execution: too many samples"),
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', "the answer is no matrix"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":1}]}}', "not of the API's form"),
        (
            b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"x"]]}]}}',
            "not JSON",
        ),
    ],
)
def test_anything_else_is_refused_with_a_reason(text: bytes, said: str) -> None:
    with pytest.raises(AnswerError) as refused:
        read_matrix(text, 0.0)
    assert said in str(refused.value)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=8), max_size=3),
            st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=8),
        ),
        max_size=5,
    )
)
def test_whatever_is_written_comes_back(series: list[tuple[dict[str, str], list[float]]]) -> None:
    entries = [
        one(*((at + 1.0, repr(value)) for at, value in enumerate(values)), labels=labels) for labels, values in series
    ]
    found = read_matrix(body(entries), 0.0).series
    assert [(each.labels, each.values) for each in found] == [(labels, array("d", values)) for labels, values in series]
