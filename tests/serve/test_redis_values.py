"""What is read back from Redis: a value that cannot be meant counts for nothing, is told once, and costs no other."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from scaler.serve import redis_values
from scaler.serve.redis_values import UNWRITTEN, Position

KEY = "loadtide:{prod/m}"


@pytest.mark.parametrize("token", ["", "many", "-1", "1e9", "nan", "inf", "1_000", "\u0661", "9" * 400, "17.5"])
def test_a_token_that_is_none_is_below_all_others_and_told_once(token: str) -> None:
    with capture_logs() as lines:
        for _ in range(3):
            found = redis_values.position(f"{KEY}{token}", "red#1", token, "7.2")
    assert found == Position("red#1", 0, (7, 2))
    assert [(line["key"], line["field"]) for line in lines] == [(f"{KEY}{token}", "token")]


@pytest.mark.parametrize("version", ["7", "7.", ".2", "7.2.1", "a.b", "nan.nan"])
def test_a_version_that_is_none_is_no_write(version: str) -> None:
    with capture_logs() as lines:
        assert redis_values.position(f"{KEY}{version}", "red#1", "7", version) == Position("red#1", 7, UNWRITTEN)
    assert [line["field"] for line in lines] == ["version"]


def test_what_is_there_and_what_is_not_is_told_without_a_word() -> None:
    with capture_logs() as lines:
        assert redis_values.position(KEY, None, None, None) is None
        assert redis_values.position(KEY, "red#1", "8", None) == Position("red#1", 8, UNWRITTEN)
        assert redis_values.position(KEY, None, "8", "7.2") == Position(None, 8, (7, 2))
    assert not lines


def test_a_write_without_a_readable_time_is_older_than_any() -> None:
    found = redis_values.written(KEY, ["red#1", "7", "7.1", "{}", "yesterday"])
    assert found is not None
    assert found.at_ms == 0.0


def test_metadata_that_are_none_and_times_that_are_none_cost_themselves() -> None:
    entries = {"a/a": '{"x": "1"}', "a/b": "[1]", "a/c": "{", "a/d": '{"x": 1}', "a/e": "null", "a/f": "[" * 10_000}
    with capture_logs() as lines:
        assert redis_values.registered("loadtide:workloads", entries) == {"a/a": {"x": "1"}}
    assert [line["field"] for line in lines] == ["a/b", "a/c", "a/d", "a/e", "a/f"]
    assert lines[0]["then"] == "HDEL loadtide:workloads a/b; KEDA's next call tells it again"
    assert redis_values.asked("loadtide:asked", {"a/a": "5", "a/b": "nan", "a/c": "soon"}) == {"a/a": 5.0}


def test_reports_that_are_none_cost_themselves() -> None:
    demand = redis_values.demand(
        {
            "wake": "now ",
            "from:a": "5 3.0 -",
            "from:b": "5 nan -",
            "from:c": "5 -1 -",
            "from:d": "5 3.0 inf",
            "from:e": "nan 3.0 -",
            "from:f": "5 3.0",
            "from:g": "6 0.0 2.5",
        }
    )
    assert [(report.source, report.pending, report.arrivals_per_second, at) for report, at in demand.reports] == [
        ("a", 3.0, None, 5.0),
        ("g", 0.0, 2.5, 6.0),
    ]
    assert demand.wake_at_ms is None
    body = '{"replica": "r", "batch_size": 4}'
    kept = redis_values.applied({"from:r": f"5 {body}", "from:s": f"nan {body}", "from:t": "5 {}", "from:u": ""})
    assert [(report.replica, at) for report, at in kept] == [("r", 5.0)]
