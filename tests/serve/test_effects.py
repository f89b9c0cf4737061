"""What an adjustment did: a window before, the first whole window after, and nothing that was not measured."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from scaler.control.model import Now, Targets
from scaler.serve.adjustment_log import AdjustmentLog
from scaler.serve.adjustments import adjustment_between
from scaler.serve.decision_document import adjustment
from scaler.serve.effects import effect_sentence, measure_effects
from scaler.serve.render import workload_detail
from scaler.serve.snapshot import Effect, Snapshot
from scaler.signals.model import Known, Unknown
from tests.serve.tide import SIGNALS, START, FakeWorkloads, latency, snapshot


def at(seconds: float, batch: int = 32, ttft: float | None = 2.0, rate: float = 3.0) -> Snapshot:
    """A tick so many seconds after the first, with its window's P95 and throughput."""
    signals = replace(
        SIGNALS,
        ttft_seconds=Unknown("too few") if ttft is None else Known(latency(ttft, ttft), 98.0),
        finished_per_second=Known(rate, 98.0),
    )
    moment = Now(START + timedelta(seconds=seconds), 100.0 + seconds)
    return snapshot(signals=signals, decided_at=moment, targets=Targets(2, True, batch))


class Log:
    """The log of one workload, told a snapshot per tick as the loop tells it."""

    def __init__(self) -> None:
        self.entries = AdjustmentLog()
        self.last: Snapshot | None = None

    def tick(self, snap: Snapshot) -> None:
        measure_effects(self.entries, snap)
        before = self.last.decision.targets if self.last else None
        made = adjustment_between(before, self.last, snap)
        if made is not None:
            self.entries.append(made)
        self.last = snap

    def effect(self, place: int = -1) -> dict[str, Any]:
        told = adjustment(self.entries[place])["effect"]
        assert isinstance(told, dict)
        return told


def test_the_window_before_and_the_first_whole_one_after() -> None:
    log = Log()
    log.tick(at(0, ttft=2.0, rate=3.0))
    log.tick(at(5, batch=16, ttft=2.4, rate=3.2))
    log.tick(at(60, batch=16, ttft=9.0, rate=9.0))
    assert log.effect()["after"] is None
    assert "not measured yet: that takes 1 min" in log.effect()["sentence"]
    log.tick(at(65, batch=16, ttft=0.8, rate=4.0))
    log.tick(at(70, batch=16, ttft=0.1, rate=1.0))
    effect = log.effect()
    assert (effect["before"]["ttft_p95"]["estimate"], effect["after"]["ttft_p95"]["estimate"]) == (2.4, 0.8)
    assert (effect["before"]["requests_per_second"], effect["after"]["requests_per_second"]) == (3.2, 4.0)
    assert (effect["after_seconds"], effect["overlapped"]) == (60, False)
    assert effect["sentence"].startswith("TTFT P95 2.4 s before, 0.8 s after; ")
    assert "3.2 req/s before, 4 after" in effect["sentence"]


def test_another_move_in_between_is_said() -> None:
    log = Log()
    log.tick(at(0))
    log.tick(at(5, batch=16))
    log.tick(at(30, batch=8))
    log.tick(at(66, batch=8))
    assert log.effect(1)["overlapped"] is True
    assert "(another target moved meanwhile)" in log.effect(1)["sentence"]
    assert log.effect(2)["after"] is None
    log.tick(at(95, batch=8))
    assert log.effect(2)["overlapped"] is False


def test_what_was_not_measured_on_both_sides_is_not_compared() -> None:
    log = Log()
    log.tick(at(0))
    log.tick(at(5, batch=16, ttft=None))
    log.tick(at(70, batch=16))
    assert log.effect()["before"]["ttft_p95"] is None
    assert "TTFT" not in log.effect()["sentence"]


def test_a_change_of_state_alone_has_no_effect_to_measure() -> None:
    quiet = snapshot()
    before = replace(quiet, decision=replace(quiet.decision, state="normal"))
    made = adjustment_between(quiet.decision.targets, before, quiet)
    assert made is not None
    assert made.effect is None
    assert adjustment(made)["effect"] is None


def test_looking_for_effects_ends_at_what_is_measured() -> None:
    """200 entries of an hour cost no more than those of the last window."""

    class Counted(AdjustmentLog):
        looks = 0

        def effect(self, place: int) -> tuple[datetime, Effect | None]:
            self.looks += 1
            return super().effect(place)

    log = Log()
    log.entries = Counted()
    for tick in range(150):
        log.tick(at(5.0 * tick, batch=16 + tick % 2))
    log.entries.looks = 0
    log.tick(at(1000.0))
    log.entries.looks = 0
    log.tick(at(1005.0))
    assert log.entries.looks <= 2


def test_it_stands_in_the_workloads_document() -> None:
    log = Log()
    log.tick(at(0))
    log.tick(at(5, batch=16))
    log.tick(at(66, batch=16))
    workload = FakeWorkloads().add("team-a/chat", at(66, batch=16))
    workload.adjustments = log.entries
    [newest, *_] = workload_detail(workload, 170.0, current=True)["last_adjustments"]
    assert newest["changes"] == [{"what": "batch", "from": 32, "to": 16}]
    assert newest["effect"]["sentence"] == effect_sentence(log.entries[-1].effect)  # type: ignore[arg-type]
