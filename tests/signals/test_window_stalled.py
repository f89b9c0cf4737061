"""The fold: a replica with work and no progress is stalled; its frozen numbers are neither demand nor capacity."""

from __future__ import annotations

from typing import Any

import pytest

from scaler.signals.model import Known, Signals, Stale, Unknown
from tests.signals.timeline import Timeline, down, pod

#: Ten minutes of scrapes, every 15 s; ``stalled_after_seconds`` is 120.
SCRAPES = range(0, 615, 15)
FROZEN = {"running": 106, "waiting": 15, "kv_use": 0.904, "finished": 50, "generation_tokens": 9000}


def ten_minutes(line: Timeline, **page: Any) -> list[Signals]:
    return [line.at(seconds, a=pod(**page)) for seconds in SCRAPES]


def test_gauges_frozen_at_a_high_value_are_a_stalled_replica_and_not_demand() -> None:
    line = Timeline()
    signals = ten_minutes(line, **FROZEN)

    before, after = signals[:8], signals[8:]  # 120 s are the ninth scrape
    assert all(each.running == Known(106.0, at) for each, at in zip(before, SCRAPES, strict=False))
    assert all(each.stalled_replicas == Known(0.0, at) for each, at in zip(before, SCRAPES, strict=False))
    for each in after:
        assert isinstance(each.running, Known)
        assert isinstance(each.waiting, Known)
        assert isinstance(each.stalled_replicas, Known)
        assert isinstance(each.ready_replicas, Known)
        counts = (each.running.value, each.waiting.value, each.ready_replicas.value, each.stalled_replicas.value)
        assert counts == (0.0, 0.0, 0.0, 1.0)
        assert not each.counters_moved
    assert line.history.progress_seconds("a") == 600.0


@pytest.mark.parametrize("moving", ["generation_tokens", "prompt_tokens", "finished"])
def test_the_same_gauges_with_anything_moving_are_real_load(moving: str) -> None:
    line = Timeline()
    for seconds in SCRAPES:
        signals = line.at(seconds, a=pod(**{**FROZEN, moving: 10_000 + seconds}))

    assert (signals.running, signals.waiting) == (Known(106.0, 600), Known(15.0, 600))
    assert (signals.ready_replicas, signals.stalled_replicas) == (Known(1.0, 600), Known(0.0, 600))
    assert line.history.progress_seconds("a") == 0.0


@pytest.mark.parametrize("moving", ["ttft", "tpot"])
def test_tokens_seen_by_a_histogram_alone_are_progress(moving: str) -> None:
    # SGLang counts tokens when a request ends; in a long answer only its inter-token times move.
    line = Timeline()
    for seconds in SCRAPES:
        signals = line.at(seconds, a=pod(**FROZEN, **{moving: [0.1] * (seconds // 15)}))

    assert signals.stalled_replicas == Known(0.0, 600)


def test_waiting_without_running_is_stalled_as_well() -> None:
    signals = ten_minutes(Timeline(), running=0, waiting=6, kv_use=0.0, finished=50, generation_tokens=9000)

    assert signals[-1].stalled_replicas == Known(1.0, 600)
    assert signals[-1].waiting == Known(0.0, 600)


def test_a_replica_without_work_is_idle_and_not_stalled() -> None:
    line = Timeline()
    signals = ten_minutes(line, running=0, waiting=0, finished=50, generation_tokens=9000)

    assert signals[-1].stalled_replicas == Known(0.0, 600)
    assert line.history.progress_seconds("a") == 0.0


def test_the_time_without_progress_begins_with_the_work() -> None:
    line = Timeline()
    line.at(0, a=pod(running=0, waiting=0, finished=50))
    line.at(110, a=pod(running=1, waiting=0, finished=50))
    assert line.history.progress_seconds("a") == 0.0

    assert line.at(125, a=pod(running=1, waiting=0, finished=50)).stalled_replicas == Known(0.0, 125)
    assert line.at(230, a=pod(running=1, waiting=0, finished=50)).stalled_replicas == Known(1.0, 230)


def test_one_stalled_replica_among_others_gives_neither_load_nor_memory_pressure() -> None:
    line = Timeline()
    for seconds in SCRAPES:
        signals = line.at(
            seconds,
            a=pod(**{**FROZEN, "kv_use": 0.99}, kv_use_mean=0.99),
            b=pod(running=4, waiting=1, kv_use=0.2, kv_use_mean=0.2, finished=seconds),
        )

    assert (signals.running, signals.waiting) == (Known(4.0, 600), Known(1.0, 600))
    assert (signals.kv_use_ratio, signals.kv_use_mean_ratio) == (Known(0.2, 600), Known(0.2, 600))
    assert (signals.ready_replicas, signals.stalled_replicas) == (Known(1.0, 600), Known(1.0, 600))


def test_where_all_are_stalled_their_cache_use_is_not_known() -> None:
    signals = ten_minutes(Timeline(), **FROZEN)

    assert signals[-1].kv_use_ratio == Unknown("every replica that reports kv_use is stalled")


@pytest.mark.parametrize("page", [{**FROZEN, "generation_tokens": 9001}, {**FROZEN, "started": 600}])
def test_progress_or_a_restart_ends_the_stall(page: dict[str, Any]) -> None:
    line = Timeline()
    ten_minutes(line, **FROZEN, **({"started": -60} if "started" in page else {}))

    assert line.at(615, a=pod(**page)).stalled_replicas == Known(0.0, 615)
    assert line.history.progress_seconds("a") == 0.0


def test_an_engine_without_any_activity_counter_cannot_be_called_stalled() -> None:
    signals = ten_minutes(Timeline(), running=106, waiting=15)

    assert signals[-1].stalled_replicas == Known(0.0, 600)


def test_silence_is_not_lack_of_progress() -> None:
    line = Timeline()
    line.at(0, a=pod(**FROZEN))
    line.at(15, a=pod(**FROZEN))
    for seconds in range(30, 150, 15):
        signals = line.at(seconds, a=down())

    assert signals.stalled_replicas == Stale(0.0, 15, at_least=0.0)
    assert line.history.progress_seconds("a") == 15.0


def test_progress_is_told_of_endpoints_that_are_there_and_were_read() -> None:
    line = Timeline()
    line.at(0, a=pod(running=1, finished=0), b=down())
    assert line.history.progress_seconds("a") == 0.0
    assert line.history.progress_seconds("b") is None

    line.at(15, b=down())
    assert line.history.progress_seconds("a") is None
