"""The adjustment log: nothing is lost by packing, the oldest goes first, and a full one is small."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import islice

import pytest

from scaler.control.model import Code, Reason, Target
from scaler.serve.adjustment_log import KEPT, AdjustmentLog
from scaler.serve.adjustments import adjustment_between
from scaler.serve.snapshot import Adjustment
from scaler.signals.model import Known
from tests.serve.tide import START, snapshot


def made(number: int) -> Adjustment:
    """An adjustment unlike any other."""
    at = snapshot()
    reason = Reason(Code.ARRIVALS, Target.REPLICAS, "arrivals_per_second", number / 7, float("nan"))
    decision = replace(at.decision, reasons=(reason, *at.decision.reasons))
    signals = replace(at.signals, running=Known(number / 3, 98.0), waiting=Known(number * 0.37, 98.0))
    adjustment = adjustment_between(None, None, replace(at, decision=decision, signals=signals))
    assert adjustment is not None
    return replace(adjustment, at=START + timedelta(minutes=number))


@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_what_was_appended_is_what_is_read_in_any_order(count: int) -> None:
    log, wanted = AdjustmentLog(), [made(number) for number in range(count)]
    for each in wanted:
        log.append(each)
    assert len(log) == count
    told = [repr(each) for each in wanted]  # NaN equals nothing
    assert [repr(each) for each in log] == told
    assert [repr(each) for each in islice(reversed(log), 3)] == told[::-1][:3]
    assert [repr(log[place]) for place in range(-count, 0)] == told
    assert [repr(each) for each in log[1:7:2]] == told[1:7:2]
    with pytest.raises(IndexError):
        log[count]


def test_the_oldest_goes_first() -> None:
    log = AdjustmentLog(kept=10)
    for number in range(25):
        log.append(made(number))
    assert [each.at for each in log] == [START + timedelta(minutes=number) for number in range(15, 25)]


def test_what_became_of_one_can_be_told_later() -> None:
    log = AdjustmentLog()
    for number in range(10):
        log.append(made(number))
    for place in (0, 5, -1):
        log[place] = replace(log[place], workload="known now")
    assert [place for place, each in enumerate(log) if each.workload == "known now"] == [0, 5, 9]
    with pytest.raises(IndexError):
        log[10] = made(10)


def test_effects_are_told_of_each_before_and_after_they_are_known() -> None:
    log = AdjustmentLog()
    for number in range(3):
        log.append(made(number))
    for place in (2, 1, 2):
        effect = log[place].effect
        assert effect is not None
        log[place] = replace(log[place], effect=replace(effect, after_seconds=60.0 + place))
    known = [log.effect(place) for place in range(3)]
    assert [at for at, _ in known] == [START + timedelta(minutes=number) for number in range(3)]
    assert [effect and effect.after_seconds for _, effect in known] == [None, 61.0, 62.0]
    log.append(made(3))
    assert [effect and effect.after_seconds for _, effect in map(log.effect, range(4))] == [None, 61.0, 62.0, None]


def test_a_full_one_is_small() -> None:
    log = AdjustmentLog()
    for number in range(KEPT):
        log.append(made(number))
    assert log.size_bytes() < KEPT * 656
