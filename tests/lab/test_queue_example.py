"""The worked example of the queue-proportional practice, on an engine that batches statically.

Default 8, target 10, dead zone 6 to 15: the tide takes the backlog from 5 to 30; 30/10 is clamped at twice, so batch
16; the GPU goes from 35 to 70 % busy, the backlog falls to about 12 and stays in the dead zone; when the tide has gone
and the queue is empty, back to 8. The engine takes 0.7 s for a batch, whatever its size: 4 requests/s keep it busy for
35 % of the time in eights, the tide's 16/s for 140 % in eights and for 70 % in sixteens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import pytest

from scaler.control.model import Now
from scaler.lab.baselines.in_flight import Static
from scaler.lab.enact import Direct
from scaler.lab.fleet import Request
from scaler.lab.hardware import Hardware, StepCost
from scaler.lab.ours import Ours
from scaler.lab.simulate import LabPolicy, Run, Wish, World, simulate
from scaler.lab.static_batching import StaticEngine
from scaler.policy.model import Batch, Policy, ReplicaRange, Strategy
from scaler.signals.model import Signals, known_value

BATCH_SECONDS = 0.7
ENGINE = Hardware(StepCost(1000 * BATCH_SECONDS, 0.0, 0.0, 0.0), 10_000)
CALM, TIDE = 4.0, 16.0
FIRST, TIDE_BEGINS, TIDE_ENDS, END = 0.75, 119.25, 240.0, 360.0


@dataclass
class QueueProportional:
    """The practice by its formula: batch × clamp(queue/10, 0.5, 2) outside the dead zone, once a minute, 8 at least."""

    batch: int = 8
    changed_at: float = -60.0
    name: str = "by the formula"
    metric_target: float = 1.0

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
        queue = known_value(signals.waiting)
        if queue is not None and not 6 <= queue <= 15 and now.mono - self.changed_at >= 60.0:
            wanted = max(8, round(self.batch * min(max(queue / 10, 0.5), 2.0)))
            if wanted != self.batch:
                self.batch, self.changed_at = wanted, now.mono
        return Wish(1.0, batch=self.batch)


def by_strategy() -> LabPolicy:
    document = {"strategy": "queue", "replicas": ReplicaRange(min=1, max=1), "batch": Batch(max=64, start=8)}
    return Ours("queue", Policy.model_validate(document))


#: As soon as the policy knows the strategy, it has to play the example as the formula does.
LAWS: list[Callable[[], LabPolicy]] = [QueueProportional, *([by_strategy] if "queue" in get_args(Strategy) else [])]


def tide() -> list[Request]:
    """Even arrivals, so that the numbers are the example's and not a seed's."""
    requests, at = [], FIRST
    while at < TIDE_ENDS:
        requests.append(Request(at, 10, 1))
        at += 1 / (TIDE if at >= TIDE_BEGINS else CALM)
    return requests


def played(make: Callable[[], LabPolicy], until: float) -> Run:
    world = World(ENGINE, 60.0, 8, fill_seconds=10.0)
    return simulate(tide(), make(), Direct(1, 1), world, seconds=until, seed=1)


def busy_share(make: Callable[[], LabPolicy], begin: float, end: float) -> float:
    """How much of that time the engine computed."""
    seconds = []
    for until in (begin, end):
        engine = played(make, until).fleet.ready[0].engine
        assert isinstance(engine, StaticEngine)
        seconds.append(engine.busy_seconds)
    return (seconds[1] - seconds[0]) / (end - begin)


@pytest.mark.parametrize("make", LAWS)
def test_the_tide_of_the_worked_example(make: Callable[[], LabPolicy]) -> None:
    at = {moment.at: moment for moment in played(make, END).timeline}
    assert max(moment.waiting for moment in at.values() if 60 <= moment.at <= 115) == 5
    assert {moment.batch for moment in at.values() if moment.at <= 120} == {8}
    assert busy_share(make, 60, 115) == pytest.approx(0.35, abs=0.02)

    assert (at[125].waiting, at[125].batch) == (30, 16)
    # A queue that fills sixteens goes to and fro between 0 and 15; every fifth second, when it is looked at, it is 14.
    assert {moment.waiting for moment in at.values() if 135 <= moment.at <= 240} <= set(range(10, 15))
    assert {moment.batch for moment in at.values() if 125 <= moment.at <= 240} == {16}
    assert busy_share(make, 135, 235) == pytest.approx(0.70, abs=0.02)

    assert (at[END].waiting, at[END].batch) == (0, 8)


def test_without_the_law_the_same_tide_drowns_it() -> None:
    fixed = played(lambda: Static(1, batch=8), 240).timeline[-1]
    assert fixed.waiting > 400
