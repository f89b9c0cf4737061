"""Ten minutes of varied load teach what a replica serves: L*, with nothing declared, beside what a sweep finds.

As ``benchmarks/learned_capacity.py`` does it on a real engine, on modelled ones: several hardware, lengths, objectives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

import pytest

from scaler.control.capacity import loaded
from scaler.control.capacity_estimate import CapacityEstimate
from scaler.lab.enact import Direct
from scaler.lab.engine import Engine
from scaler.lab.hardware import HARDWARE, Hardware
from scaler.lab.ours import Ours
from scaler.lab.scenarios import CHAT, LONG
from scaler.lab.simulate import World, simulate
from scaler.lab.traces import poisson
from scaler.lab.wave import Lengths
from scaler.policy.model import Batch, Capacity, Objectives, Policy, ReplicaRange

SECONDS, BATCH, SHARE = 600.0, 256, Capacity().load_share
#: The wave, as on the real engine: a new rate every so many seconds, as a share of the highest.
STRETCH_SECONDS, PERIOD_SECONDS = 15.0, 210.0
MIDDLE, SWING, NOISE, LEAST, MOST = 0.5, 0.32, 0.07, 0.06, 0.9
KEPT_SHARE, ALLOWED = 0.95, 0.25


@dataclass(frozen=True)
class Mix:
    """What runs where, and the objective on P95 of the time per output token, which binds before the KV cache does."""

    hardware_name: str
    lengths: Lengths
    tpot_seconds: float

    @property
    def hardware(self) -> Hardware:
        return HARDWARE[self.hardware_name]


@dataclass(frozen=True)
class Loop:
    """A closed loop of so many sequences: the share that kept the objective, and how many ended in a second."""

    kept: float
    rate: float


MIXES = {
    "70B, conversations": Mix("llama-3.1-70b-fp8-4xh100", CHAT, 0.05),
    "70B, long answers": Mix("llama-3.1-70b-fp8-4xh100", LONG, 0.04),
    "70B on old cards, conversations": Mix("llama-2-70b-8xa100", CHAT, 0.1),
    "32B, conversations": Mix("qwen3-32b-2xh100", CHAT, 0.05),
    "8B, conversations": Mix("llama-3.1-8b-h100", CHAT, 0.015),
    "8B, long answers": Mix("llama-3.1-8b-h100", LONG, 0.025),
}


def closed_loop(mix: Mix, sequences: int) -> Loop:
    chance, engine = Random(0), Engine(mix.hardware, sequences, coast=True)
    drawn = poisson(lambda _: 10.0, mix.lengths, seed=0, seconds=300.0)
    lengths = [(each.prompt_tokens, each.output_tokens) for each in drawn]
    for _ in range(sequences):  # begun at any point of their answers, or all would end at about the same time
        prompt, output = chance.choice(lengths)
        engine.submit(prompt, max(1, round(output * chance.random())), 0.0)
    ended: list[tuple[float, float]] = []
    count = max(800, 12 * sequences)
    while len(ended) < count:
        step = engine.step()
        assert step is not None  # one is submitted for each that ends
        for sequence in step.finished:
            assert sequence.finished_at is not None
            assert sequence.first_token_at is not None
            writing = sequence.finished_at - sequence.first_token_at
            ended.append((sequence.finished_at, writing / max(1, sequence.output_tokens - 1)))
            engine.submit(*chance.choice(lengths), engine.now)
    judged = ended[2 * sequences :]
    seconds = judged[-1][0] - judged[0][0]
    return Loop(sum(tpot <= mix.tpot_seconds for _, tpot in judged) / len(judged), len(judged) / seconds)


@cache
def swept(name: str) -> tuple[int, float]:
    """(L°, the rate there): the most sequences at once of which 95 % keep the objective."""
    low, high = 1, BATCH
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if closed_loop(MIXES[name], middle).kept >= KEPT_SHARE else (low, middle)
    assert high < BATCH, "the objective does not bind"
    return low, closed_loop(MIXES[name], low).rate


def varied(highest: float, seed: int) -> Sequence[float]:
    """The rates of the wave's stretches."""
    chance, rates = Random(seed), list[float]()
    for stretch in range(math.ceil(SECONDS / STRETCH_SECONDS) + 1):
        phase = math.tau * stretch * STRETCH_SECONDS / PERIOD_SECONDS
        rates.append(highest * min(max(MIDDLE + SWING * math.sin(phase) + chance.gauss(0.0, NOISE), LEAST), MOST))
    return rates


def learned(name: str, seed: int) -> CapacityEstimate:
    """What is believed after the wave, of one replica that nobody declared anything of."""
    mix = MIXES[name]
    rates = varied(swept(name)[1], seed)
    requests = poisson(lambda at: rates[int(at / STRETCH_SECONDS)], mix.lengths, seed=seed, seconds=SECONDS)
    objectives, one = Objectives(tpot_seconds=mix.tpot_seconds), ReplicaRange(min=1, max=1)
    ours = Ours("adaptive", Policy(objectives=objectives, replicas=one, batch=Batch(max=BATCH)))
    simulate(requests, ours, Direct(1, 1), World(mix.hardware, 30.0, BATCH), seconds=SECONDS, seed=seed)
    return ours.decisions[-1].capacity


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", MIXES)
def test_ten_minutes_of_varied_load_find_what_a_sweep_finds(name: str, seed: int) -> None:
    found = learned(name, seed)
    assert found.source == "learned"
    assert found.sequences == pytest.approx(loaded(swept(name)[0], SHARE), rel=ALLOWED)
