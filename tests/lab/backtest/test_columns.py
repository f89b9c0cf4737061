"""A part's samples put together again by target and scrape."""

from __future__ import annotations

from array import array

import pytest

from scaler.lab.backtest.columns import Columns, aligned, columns_of
from scaler.lab.backtest.matrix import Numbers, RawSeries
from scaler.signals.exposition import Sample
from scaler.signals.preset import load_preset
from scaler.signals.prometheus.plan import presence_names, want
from scaler.signals.prometheus.targets import Places
from tests.lab.backtest.replaying import policy_of

TIMES = array("d", [10.0, 25.0, 40.0])
WHERE = {"namespace": "chat", "pod": "a", "instance": "a:8000", "job": "vllm"}


def series(name: str, *values: float, times: Numbers = TIMES, **labels: str) -> RawSeries:
    return RawSeries({"__name__": name, **WHERE, **labels}, times, array("d", values))


def columns(*found: RawSeries) -> list[Columns]:
    preset = load_preset("vllm")
    places = Places(want([(preset, policy_of().prometheus)]))
    return list(columns_of(found, places, presence_names(preset)).values())


def values(one: Columns, index: int) -> dict[str, list[float]]:
    return {name: [sample.value for sample in samples] for name, samples in one.target(index).samples.items()}


RUNNING = series("vllm:num_requests_running", 1, 2, 3, engine="0")


def test_what_was_scraped_at_one_time_is_one_sample_of_the_target() -> None:
    (one,) = columns(RUNNING, series("vllm:num_requests_waiting", 7, 8, 9, engine="0"))
    assert values(one, 1) == {"vllm_num_requests_running": [2.0], "vllm_num_requests_waiting": [8.0]}
    assert (one.target(1).unix, one.target(1).at) == (25.0, 25.0)


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([25.0, 40.0], [None, 1.0, 2.0]),  # born with the second scrape
        ([10.0, 40.0], [1.0, None, 2.0]),  # the second lacked it
        ([10.2, 25.2, 40.2], [1.0, 2.0, 3.0]),  # a collector moved them a little
        ([9.8, 24.8, 39.8], [1.0, 2.0, 3.0]),
        ([12.0, 27.0], [None, 1.0, 2.0]),  # scraped after the first, seen with the second
        ([50.0], [None, None, None]),  # after the last: nobody saw it yet
    ],
)
def test_a_series_with_times_of_its_own_is_seen_at_the_next_scrape_and_never_before(
    times: list[float], found: list[float | None]
) -> None:
    one = series("x", *range(1, len(times) + 1), times=array("d", times))
    assert list(aligned(one, TIMES)) == found


def test_a_series_that_a_scrape_lacks_is_not_in_it() -> None:
    late = series("vllm:request_success_total", 5, 6, times=array("d", [25.0, 40.0]), finished_reason="stop")
    (one,) = columns(RUNNING, late)
    assert "vllm_request_success_total" not in values(one, 0)
    assert values(one, 1)["vllm_request_success_total"] == [5.0]


def test_targets_are_told_apart_and_what_has_no_presence_is_none() -> None:
    other = RawSeries({**RUNNING.labels, "pod": "b"}, TIMES, array("d", [4, 5, 6]))
    sidecar = RawSeries({"__name__": "process_start_time_seconds", **WHERE, "instance": "a:9400"}, TIMES, TIMES)
    found = columns(RUNNING, other, sidecar)
    assert [values(each, 0)["vllm_num_requests_running"] for each in found] == [[1.0], [4.0]]


def test_two_engines_of_one_target_with_scrapes_of_their_own_are_both_seen() -> None:
    second = series("vllm:num_requests_running", 5, 6, times=array("d", [25.0, 55.0]), engine="1")
    (one,) = columns(RUNNING, second)
    assert list(one.times) == [10.0, 25.0, 40.0, 55.0]
    assert values(one, 1) == {"vllm_num_requests_running": [2.0, 5.0]}
    assert values(one, 3) == {"vllm_num_requests_running": [6.0]}


def test_of_two_spellings_the_first_counts_and_buckets_keep_their_bounds() -> None:
    other = series("vllm_num_requests_running", 9, 9, 9, engine="0")
    bucket = series("vllm:time_to_first_token_seconds_bucket", 1, 2, 3, engine="0", le="0.5")
    (one,) = columns(other, RUNNING, bucket)
    assert values(one, 0)["vllm_num_requests_running"] == [1.0]
    (sample,) = one.target(2).samples["vllm_time_to_first_token_seconds_bucket"]
    assert sample == Sample(sample.labels, 3.0, None)
    assert (sample.labels.bound, sample.labels.series) == (0.5, 'engine="0",instance="a:8000"')
