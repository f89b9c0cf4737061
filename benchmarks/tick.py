"""What deciding costs: ``decide`` and ``guard`` on what a day's hard hours look like.

Run it with ``make bench NAME=tick``. benchmarks/README.md says what is measured and what was seen.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from scaler.control.decide import decide
from scaler.control.guard import guard
from scaler.control.model import Memory, Now
from scaler.lab.contest import initial_replicas
from scaler.lab.ours import Ours
from scaler.lab.policies import POLICIES, Case
from scaler.lab.scenarios import SCENARIOS, lengths_of
from scaler.lab.simulate import Wish, World, simulate
from scaler.lab.truth import measure_truth
from scaler.policy.model import Policy
from scaler.signals.model import Known, Signals

#: A ramp over 3 to 8 replicas, bursts, a step from nothing, and hours with hardly a request that may go to zero.
PLAYED = ("ramp-llm-d", "bursts-8b", "step-8b", "trickle-70b")
#: The share of scrapes that get lost: doubt is a part of every day.
LOST_SHARE = 0.01
ROUNDS = 15
WANTED_TICK_US, WANTED_GUARD_US = 100.0, 10.0


@dataclass(frozen=True, slots=True)
class Tick:
    """The arguments of one ``decide``."""

    policy: Policy
    memory: Memory
    signals: Signals
    now: Now


@dataclass(slots=True)
class Recorder:
    """Decides as ``ours`` does, and keeps what it was given."""

    ours: Ours
    ticks: list[Tick] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.ours.name

    @property
    def metric_target(self) -> float:
        return self.ours.metric_target

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
        """One tick of the lab."""
        self.ticks.append(Tick(self.ours.policy, self.ours.memory, signals, now))
        return self.ours.tick(signals, now, asked)


def recorded(name: str) -> list[Tick]:
    """Every tick of a scenario of the lab."""
    scenario = SCENARIOS[name]
    requests = scenario.requests(None, seed=1)
    truth = measure_truth(scenario.hardware, lengths_of(requests), scenario.promise, scenario.batch)
    ours, enactor = POLICIES["adaptive"].build(Case(scenario, truth, 1.0, requests))
    assert isinstance(ours, Ours)
    world = World(
        scenario.hardware,
        scenario.cold_start_seconds,
        scenario.batch,
        initial_replicas=initial_replicas(scenario, requests, truth),
        lost_share=LOST_SHARE,
    )
    recorder = Recorder(ours)
    simulate(requests, recorder, enactor, world, seconds=scenario.seconds, seed=1)
    return recorder.ticks


def cost_us(call: Callable[[Policy, Memory, Signals, Now], object], ticks: Sequence[Tick]) -> float:
    """CPU microseconds of one call: the median of rounds over all ticks in the order in which they happened."""
    found = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for tick in ticks:
            call(tick.policy, tick.memory, tick.signals, tick.now)
        found.append((time.process_time() - begun) / len(ticks) * 1e6)
    return statistics.median(found)


def main() -> None:
    say = partial(print, flush=True)
    ticks, states = [], set()
    for name in PLAYED:
        of_this = recorded(name)
        seen = sorted({decide(tick.policy, tick.memory, tick.signals, tick.now).state.value for tick in of_this})
        ticks += of_this
        states |= set(seen)
        say(f"{name:<12} {len(of_this):>4} ticks, {cost_us(decide, of_this):5.1f} us; states: {', '.join(seen)}")
    tick_us, guard_us = cost_us(decide, ticks), cost_us(guard, ticks)
    full = [replace(tick, signals=replace(tick.signals, kv_use_ratio=Known(0.97, tick.now.mono))) for tick in ticks]
    say(f"with every KV cache full: decide {cost_us(decide, full):.1f} us, guard {cost_us(guard, full):.1f} us")
    met = tick_us <= WANTED_TICK_US and guard_us <= WANTED_GUARD_US
    if not met:
        say(f"wanted: tick_us <= {WANTED_TICK_US:g}, guard_us <= {WANTED_GUARD_US:g}")
    say(f"result: tick_us={tick_us:.1f} guard_us={guard_us:.1f}")
    sys.exit(not met)


if __name__ == "__main__":
    main()
