"""The proof over a restart: the same processes with the same counters, or no proof."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scaler.signals.watermark import activity_watermark, unchanged_since
from scaler.signals.window import History
from tests.signals.timeline import Timeline, down, pod

PAGE: dict[str, Any] = {
    "started": -50,
    "finished": {"stop": 3.0, "length": 2.0},
    "prompt_tokens": 70,
    "ttft": [0.1] * 5,
}


def read(**endpoints: Any) -> History:
    line = Timeline()
    line.at(0, **endpoints)
    return line.history


def stored(**endpoints: Any) -> dict[str, list[object]]:
    """A watermark as the store gives it back."""
    watermark: dict[str, list[object]] = json.loads(json.dumps(activity_watermark(read(**endpoints))))
    return watermark


def test_the_same_processes_with_the_same_counters_did_nothing() -> None:
    assert unchanged_since(stored(a=pod(**PAGE), b=pod(**PAGE)), read(b=pod(**PAGE), a=pod(**PAGE))) is True


@pytest.mark.parametrize(
    "changed",
    [
        {"started": -40},
        {"started": None},
        {"finished": {"stop": 4.0, "length": 2.0}},
        {"prompt_tokens": 71},
        {"generation_tokens": 1},
        {"ttft": [0.1] * 6},
    ],
)
def test_another_process_or_any_counter_that_differs_is_a_change(changed: dict[str, Any]) -> None:
    assert unchanged_since(stored(a=pod(**PAGE)), read(a=pod(**{**PAGE, **changed}))) is False


def test_a_process_whose_start_is_not_told_is_never_the_same() -> None:
    anonymous = {**PAGE, "started": None}
    assert unchanged_since(stored(a=pod(**anonymous)), read(a=pod(**anonymous))) is False


def test_other_endpoints_are_a_change() -> None:
    watermark = stored(a=pod(**PAGE), b=pod(**PAGE))

    assert unchanged_since(watermark, read(a=pod(**PAGE))) is False
    assert unchanged_since(watermark, read(a=pod(**PAGE), b=pod(**PAGE), c=pod(**PAGE))) is False
    assert unchanged_since(watermark, read(a=pod(**PAGE), b=pod(**PAGE), c=down())) is False


def test_the_question_stays_open_until_every_endpoint_has_been_read() -> None:
    watermark = stored(a=pod(**PAGE), b=pod(**PAGE))

    assert unchanged_since(watermark, History()) is None
    assert unchanged_since(watermark, read(a=pod(**PAGE), b=down())) is None
    assert unchanged_since(watermark, read(a=down(), b=down())) is None
    assert unchanged_since(watermark, read(a=pod(**{**PAGE, "prompt_tokens": 71}), b=down())) is False


def test_of_no_endpoint_nothing_is_proven() -> None:
    assert activity_watermark(read(a=down())) == {}
    assert unchanged_since({}, read(a=down())) is False
    assert unchanged_since({}, read()) is False
