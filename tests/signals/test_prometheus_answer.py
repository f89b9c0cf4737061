"""Answers of a query API as bytes: what is read, and in which words everything else is refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.signals.prometheus.answer import Answer, AnswerError, Row, read_answer, told_error
from tests.signals.fake_prometheus import UNIX, vector

ROWS = [({"__name__": "a", "x": 'q"\\}\n,"value":['}, 3.0), ({}, math.inf)]


def compact(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def answer(result: object, kind: str = "vector", **more: object) -> bytes:
    return compact({"status": "success", "data": {"resultType": kind, "result": result}, **more})


@pytest.mark.parametrize("indent", [None, 2])
def test_a_vector_is_read_however_it_is_laid_out(indent: int | None) -> None:
    document = vector(*ROWS)
    body = compact(document) if indent is None else json.dumps(document, indent=indent).encode()
    assert read_answer(body) == Answer([Row(*row) for row in ROWS], UNIX, "")


def test_rows_can_be_taken_as_they_come() -> None:
    taken: list[Row] = []
    assert read_answer(compact(vector(*ROWS)), taken.append) == Answer([], UNIX, "")
    assert taken == [Row(*row) for row in ROWS]


def test_a_scalar_is_one_row() -> None:
    assert read_answer(answer([UNIX, "2"], "scalar")) == Answer([Row({}, 2.0)], UNIX, "")


def test_an_empty_vector_is_empty_and_no_error() -> None:
    assert read_answer(answer([])) == Answer([], None, "")


def test_nan_is_read_as_what_it_is() -> None:
    (row,) = read_answer(compact(vector(({}, "NaN")))).rows
    assert math.isnan(row.value)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (compact(vector(*ROWS, warnings=("store a: down", "store b: down"))), "store a: down; store b: down"),
        (b'{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}', "some storage nodes"),
        (answer([], isPartial=True), "some storage nodes"),
        (b'{"status":"success","isPartial":false,"data":{"resultType":"vector","result":[]}}', ""),
        (answer([UNIX, "2"], "scalar", warnings=["half"]), "half"),
        (answer([], infos=["metric might not be a counter"]), ""),
        (answer([], warnings=[]), ""),
    ],
)
def test_partial_data_is_told(body: bytes, why: str) -> None:
    found = read_answer(body).partial
    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><title>Sign in</title>", "HTML (a login page?)"),
        (b"up 1\n", "cut, or not JSON"),
        (compact(vector(*ROWS))[:-40], "cut, or not JSON"),
        (compact(vector(*ROWS))[:-2], "cut, or not JSON"),
        (b'{"status":"success","data":{"resultType":"vector","result":[', "cut, or not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[]", "not of a Prometheus API"),
        (b'{"message":"hello"}', "not of a Prometheus API"),
        (b'{"status":"error","errorType":"timeout","error":"query timed out"}', "timeout: query timed out"),
        (b'{"status":"error"}', "reports an error: without saying which"),
        (answer([], "matrix"), "a matrix; a query must give a vector or a number"),
        (answer([UNIX, "x"], "string"), "a string"),
        (b'{"status":"success"}', "a None"),
        (answer([{"metric": {}, "value": [UNIX, "many"]}]), "no number: many"),
        (answer([{"metric": {}, "value": [UNIX]}]), "has no value"),
        (answer([{"metric": {}}]), "has no value"),
        (answer([{"value": [UNIX, "1"]}]), "not of the API's form"),
        (answer(["x"]), "not of the API's form"),
        (b"[" * 100_000, "cut, or not JSON"),
    ],
)
def test_anything_else_is_refused_with_its_reason(body: bytes, says: str) -> None:
    with pytest.raises(AnswerError) as refused:
        read_answer(body)
    assert says in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("huge", [10**400, -(10**400)])
def test_a_number_too_large_for_any_clock_or_quantity_is_no_fault_of_ours(huge: int) -> None:
    with pytest.raises(AnswerError, match="no number"):
        read_answer(answer([{"metric": {"a": "b"}, "value": [UNIX, huge]}]))
    assert read_answer(answer([{"metric": {"a": "b"}, "value": [huge, "1"]}])) == Answer([Row({"a": "b"}, 1.0)], None)


@pytest.mark.parametrize("value", [["b"], {"b": "c"}, 1, None, True])
def test_a_label_that_is_no_text_is_refused(value: object) -> None:
    """What tells replicas apart by it could not: it would fail there, and every workload of the source with it."""
    for indent in (None, 1):
        body = json.dumps(json.loads(answer([{"metric": {"a": value}, "value": [UNIX, "1"]}])), indent=indent)
        with pytest.raises(AnswerError, match="label"):
            read_answer(body.encode())


def test_a_native_histogram_is_no_value_and_left_out() -> None:
    body = answer(
        [{"metric": {"__name__": "h"}, "histogram": [UNIX, {"count": "1"}]}, *json.loads(answer([]))["data"]["result"]]
    )
    assert read_answer(body).rows == []


def test_what_a_server_says_went_wrong_is_found_if_it_says_so() -> None:
    assert told_error(b'{"status":"error","errorType":"execution","error":"too many\\nsamples"}') == (
        "execution: too many samples"
    )
    assert told_error(b'{"error":"no org id"}') == "no org id"
    for body in (b"", b"<html>", b"[]", b"{}"):
        assert told_error(body) == ""


LABELS = st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=4)


@given(st.lists(st.tuples(LABELS, st.floats(allow_nan=False)), max_size=6), st.booleans())
def test_reading_row_by_row_is_reading(rows: list[tuple[dict[str, str], float]], escaped: bool) -> None:
    result = [{"metric": labels, "value": [UNIX, repr(value)]} for labels, value in rows]
    document = {"status": "success", "data": {"resultType": "vector", "result": result}, "warnings": ["w"]}
    body = json.dumps(document, separators=(",", ":"), ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    assert read_answer(body) == Answer([Row(*row) for row in rows], UNIX if rows else None, "w")


@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_body_makes_the_reader_fail_otherwise(noise: bytes, at: int) -> None:
    body = compact(vector(*ROWS))
    for damaged in (noise, body[:at] + noise, body[:at] + noise + body[at + len(noise) :]):
        try:
            read_answer(damaged)
        except AnswerError:
            continue
