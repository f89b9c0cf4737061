"""The scheduler that plays an engine in slow motion, without an engine."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Scheduler:
    """What it is told by vLLM's own."""

    unfinished = False

    def has_unfinished_requests(self) -> bool:
        return self.unfinished

    def schedule(self) -> str:
        return "scheduled"

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        return model_runner_output


@pytest.fixture
def slow_motion(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module as an engine core loads it, its clock at ``now`` and moved by sleeping only."""
    for name in ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched", "vllm.v1.core.sched.scheduler"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["vllm.v1.core.sched.scheduler"], "Scheduler", Scheduler, raising=False)
    monkeypatch.setenv("SLOW_MOTION", "10")
    monkeypatch.setenv("SLOW_MOTION_FILE", str(tmp_path / "steps"))
    monkeypatch.delitem(sys.modules, "benchmarks.slow_motion", raising=False)
    module: Any = importlib.import_module("benchmarks.slow_motion")
    module.now = 100.0

    def sleep(seconds: float) -> None:
        module.now += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: module.now, sleep=sleep))
    return module


def step(slow_motion: Any, scheduler: Any, computing_seconds: float, scheduled: dict[str, int]) -> float:
    """One step that takes so long to compute: how long it took."""
    began = slow_motion.now
    assert scheduler.schedule() == "scheduled"
    slow_motion.now += computing_seconds
    assert scheduler.update_from_output(SimpleNamespace(num_scheduled_tokens=scheduled), "output") == "output"
    return float(slow_motion.now - began)


def test_a_step_lasts_as_long_as_its_sequences_and_prompts_say(slow_motion: Any) -> None:
    scheduler = slow_motion.SlowMotionScheduler()
    decoding = {"a": 1, "b": 1}
    assert step(slow_motion, scheduler, 0.01, decoding) == pytest.approx(0.0506 + 2 * 0.00384)
    assert step(slow_motion, scheduler, 0.03, decoding) == pytest.approx(0.0506 + 2 * 0.00384), "whoever else computed"
    assert step(slow_motion, scheduler, 0.01, decoding | {"c": 100}) == pytest.approx(0.0506 + 3 * 0.00384 + 0.2)


def test_a_step_that_comes_late_is_told(slow_motion: Any, tmp_path: Path) -> None:
    scheduler = slow_motion.SlowMotionScheduler()
    assert step(slow_motion, scheduler, 0.25444, {"a": 1}) == pytest.approx(0.25444)
    stepped, late = map(float, (tmp_path / "steps").read_text().split())
    assert (stepped, late) == (pytest.approx(0.05444), pytest.approx(0.2))


def test_while_there_is_work_the_next_steps_make_good_what_came_late(slow_motion: Any) -> None:
    scheduler, law = slow_motion.SlowMotionScheduler(), 0.0506 + 0.00384
    scheduler.unfinished = True
    began = slow_motion.now
    assert step(slow_motion, scheduler, 2.5 * law, {"a": 1}) == pytest.approx(2.5 * law)
    assert step(slow_motion, scheduler, 0.1 * law, {"a": 1}) == pytest.approx(0.1 * law)  # still late
    step(slow_motion, scheduler, 0.1 * law, {"a": 1})
    assert slow_motion.now - began == pytest.approx(3 * law)


def test_after_a_pause_a_step_begins_when_it_begins(slow_motion: Any) -> None:
    scheduler, law = slow_motion.SlowMotionScheduler(), 0.0506 + 0.00384
    assert step(slow_motion, scheduler, 2.5 * law, {"a": 1}) == pytest.approx(2.5 * law)
    slow_motion.now += 10.0
    assert step(slow_motion, scheduler, 0.1 * law, {"a": 1}) == pytest.approx(law)


def test_a_step_without_tokens_is_none(slow_motion: Any, tmp_path: Path) -> None:
    assert step(slow_motion, slow_motion.SlowMotionScheduler(), 0.001, {}) == pytest.approx(0.001)
    assert not (tmp_path / "steps").exists()
