"""The fold: latencies and lengths over the window, and what it means that there is no sample."""

from __future__ import annotations

from math import inf

import pytest

from scaler.signals.model import Interval, Known, NotApplicable, Stale, Unknown
from tests.signals.timeline import Timeline, buckets, down, pod


def test_a_latency_is_what_the_window_saw_over_all_pods() -> None:
    line = Timeline(interval_seconds=5)
    line.at(0, a=pod(e2e=[100.0] * 50), b=pod(e2e=[]))
    signals = line.at(5, a=pod(e2e=[100.0] * 50 + [0.5] * 19), b=pod(e2e=[5.0] * 2))

    assert isinstance(signals.e2e_seconds, Known)
    latency = signals.e2e_seconds.value
    assert (latency.samples, latency.p50, latency.p95) == (21, Interval(0.1, 1.0), Interval(1.0, 10.0))
    assert latency.mean_seconds == pytest.approx((9.5 + 10) / 21)


def test_a_latency_leaves_the_window_with_its_samples() -> None:
    line = Timeline(interval_seconds=5)
    quiet = {"running": 0, "waiting": 0, "finished": 1}
    line.at(0, a=pod(**{**quiet, "finished": 0}, ttft=[]))
    for seconds in range(5, 65, 5):
        assert isinstance(line.at(seconds, a=pod(**quiet, ttft=[0.2])).ttft_seconds, Known)

    assert line.at(65, a=pod(**quiet, ttft=[0.2])).ttft_seconds == NotApplicable("no request finished in the window")


def test_no_sample_without_known_quiet_is_unknown() -> None:
    line = Timeline()
    line.at(0, a=pod(running=1, waiting=0, finished=0, ttft=[]))
    assert isinstance(line.at(15, a=pod(running=1, waiting=0, finished=0, ttft=[])).ttft_seconds, Unknown)

    turned_away = {"running": 0, "waiting": 0, "finished": 0, "ttft": []}
    line = Timeline()
    line.at(0, a=pod(**turned_away, admission_rejections=0))
    assert isinstance(line.at(15, a=pod(**turned_away, admission_rejections=9)).ttft_seconds, Unknown)

    line = Timeline()
    line.at(0, a=pod(running=0, waiting=0, ttft=[]), b=down())
    assert isinstance(line.at(15, a=pod(running=0, waiting=0, finished=0, ttft=[]), b=down()).ttft_seconds, Unknown)


def test_a_latency_without_one_of_its_endpoints_is_stale() -> None:
    line = Timeline()
    line.at(0, a=pod(ttft=[]), b=down())

    assert isinstance(line.at(15, a=pod(ttft=[0.2]), b=down()).ttft_seconds, Stale)


def test_mean_lengths() -> None:
    line = Timeline()
    line.at(0, a=pod(prompt_length=[9000.0], generation_length=[]))
    signals = line.at(15, a=pod(prompt_length=[9000.0, 100.0, 300.0], generation_length=[50.0]))

    assert signals.prompt_tokens_mean == Known(200.0, 15)
    assert signals.generation_tokens_mean == Known(50.0, 15)


def test_two_layouts_in_a_rollout_still_give_a_latency() -> None:
    line = Timeline()
    line.at(0, a=pod(ttft=buckets([], (0.5, 1.0))), b=pod(ttft=buckets([], (1.0, 2.0))))
    signals = line.at(15, a=pod(ttft=buckets([0.2], (0.5, 1.0))), b=pod(ttft=buckets([9.0], (1.0, 2.0))))

    assert isinstance(signals.ttft_seconds, Known)
    assert signals.ttft_seconds.value.p50 == Interval(0.0, 1.0)
    assert signals.ttft_seconds.value.p99 == Interval(1.0, inf)


def test_the_prompts_share_of_the_computing_time() -> None:
    line = Timeline()
    line.at(0, a=pod(prefill=[], decode=[]))
    signals = line.at(15, a=pod(prefill=[0.5, 1.0], decode=[2.0, 2.5]))
    assert signals.prefill_share_ratio == Known(0.25, 15.0)

    line = Timeline()
    line.at(0, a=pod(prefill=[], decode=[]), b=down())
    stale = line.at(15, a=pod(prefill=[1.0], decode=[3.0]), b=down()).prefill_share_ratio
    assert isinstance(stale, Stale)
    assert stale.value == 0.25

    line = Timeline()
    line.at(0, a=pod(prefill=[]))
    assert isinstance(line.at(15, a=pod(prefill=[1.0])).prefill_share_ratio, Unknown)


def test_a_mean_without_buckets_has_no_spread_which_is_not_zero() -> None:
    """A counter of tokens and one of requests; a backtest that reads no buckets of lengths."""
    line = Timeline()
    for seconds in (0, 15):
        lengths = buckets([100.0] * seconds, bounds=())
        signals = line.at(seconds, a=pod(prompt_length=lengths, generation_length=lengths))
    assert signals.prompt_tokens_mean == Known(100.0, 15.0)
    assert isinstance(signals.prompt_tokens_deviation, Unknown)
    assert isinstance(signals.generation_tokens_deviation, Unknown)


def test_the_spread_of_lengths_comes_with_their_mean() -> None:
    line = Timeline()
    line.at(0, a=pod(prompt_length=[], generation_length=[]))
    signals = line.at(15, a=pod(prompt_length=[0.05] * 10 + [5.0] * 10, generation_length=[0.5] * 20))
    assert isinstance(signals.prompt_tokens_deviation, Known)
    assert isinstance(signals.generation_tokens_deviation, Known)
    prompt, answer = (
        known / mean
        for known, mean in (
            (signals.prompt_tokens_deviation.value, signals.prompt_tokens_mean.value),  # type: ignore[union-attr]
            (signals.generation_tokens_deviation.value, signals.generation_tokens_mean.value),  # type: ignore[union-attr]
        )
    )
    assert prompt > 1.0 > answer
