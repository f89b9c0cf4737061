"""The light read: what it takes of a real page, and that what was not read says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaler.signals.memory_read import memory_preset, memory_signals, with_memory
from scaler.signals.model import Known, Signals, Unknown
from scaler.signals.observation import EngineSample, ReadFailure
from scaler.signals.preset import known_engines, load_preset
from scaler.signals.reading import read_engine

BODIES = Path(__file__).parent / "bodies"


def sample(
    kv: float | None = None, running: float = 4.0, preempted: float | None = None, at: float = 9.0
) -> EngineSample:
    gauges = {"running": running} | ({} if kv is None else {"kv_use": kv})
    counters = {} if preempted is None else {"preemptions": {"": preempted}}
    return EngineSample(at, gauges=gauges, counters=counters)


def test_of_a_real_page_it_takes_what_tells_of_memory() -> None:
    body, light = (BODIES / "vllm-0.32-load.txt").read_text(), memory_preset(load_preset("vllm"))
    assert light is not None
    whole = read_engine(body, load_preset("vllm"), 1.0, model_name=None, now_unix=1.8e9, seconds=0.1)
    read = read_engine(body, light, 1.0, model_name=None, now_unix=1.8e9, seconds=0.1)
    assert read.counters == {"preemptions": whole.counters["preemptions"]}
    for family in ("running", "kv_use", "kv_use_mean"):
        assert read.gauges[family] == whole.gauges[family]
    assert read.histograms == {}
    assert read.warnings == ()


@pytest.mark.parametrize("engine", known_engines())
def test_an_engine_that_tells_nothing_of_memory_is_not_read(engine: str) -> None:
    tells = load_preset(engine).families.keys() & {"kv_use", "preemptions"}
    assert (memory_preset(load_preset(engine)) is not None) == bool(tells)


def test_the_fullest_endpoint_counts_and_one_that_was_not_read_says_nothing() -> None:
    read = {"a": sample(0.5), "b": sample(0.97, running=9.0, at=8.0), "c": ReadFailure(9.0, "refused")}
    signals = memory_signals({}, read)
    assert signals.kv_use_ratio == Known(0.97, 8.0)
    assert signals.busiest_running == Known(9.0, 8.0)
    assert memory_signals({}, {"c": ReadFailure(9.0, "refused")}) == Signals()
    assert memory_signals({}, {}) == Signals()


def test_preemptions_are_those_since_the_last_read_of_the_same_endpoint() -> None:
    before = {"a": sample(preempted=100.0), "b": sample(preempted=7.0)}
    assert isinstance(memory_signals({}, before).preemptions_recent, Unknown)
    now = {"a": sample(preempted=103.0), "b": sample(preempted=1.0), "new": sample(preempted=50.0)}
    assert memory_signals(before, now).preemptions_recent == Known(4.0, 9.0)  # b was restarted, and counted anew
    lost = {"a": ReadFailure(9.0, "refused"), "b": sample(preempted=7.0)}
    assert memory_signals(before, lost).preemptions_recent == Known(0.0, 9.0)


def test_what_it_found_takes_the_place_of_what_the_tick_saw() -> None:
    tick = Signals(kv_use_ratio=Known(0.5, 1.0), waiting=Known(3.0, 1.0), preemptions_recent=Known(1.0, 1.0))
    seen = with_memory(tick, memory_signals({}, {"a": sample(0.97)}))
    assert seen.kv_use_ratio == Known(0.97, 9.0)
    assert (seen.waiting, seen.preemptions_recent) == (tick.waiting, tick.preemptions_recent)
