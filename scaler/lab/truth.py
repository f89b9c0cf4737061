"""What one replica really serves, measured in the model: the capacity knowledge every policy of a contest is given.

    λ95 = the highest Poisson rate at which one replica keeps every objective for 95 % of the requests
    L*  = 0.75 × the sequences it runs on average at λ95
    μ*  = the rate at which it runs L* on average (Little: L* / residence time at L*)

A formula from mean lengths alone, L = (TPOT - a) / (b + c·context + d·prompt/output), gives the same within 15 % for
conversations, but twice too much for code: with short answers a single foreign prompt decides a request's TPOT, so
that the spread counts and not the mean. Hence the measurement; it takes about a second.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from random import Random

from scaler.lab.fleet import Fleet, Request
from scaler.lab.hardware import Hardware
from scaler.lab.promise import Promise, kept
from scaler.lab.simulate import Moment
from scaler.value import frozen

#: L* is this share of the concurrency at which P95 meets its objective: a quarter is kept as room.
SHARE = 0.75
ATTAINED = 0.95
#: One measurement: so many seconds, at most so many requests, of which the first share is not judged.
SECONDS, REQUESTS, WARM_UP = 20_000.0, 4000, 0.2
HALVINGS = 8
#: Over how long arrivals are averaged where a need is judged.
RATE_SECONDS = 15.0


@frozen
class Truth:
    """Capacity of one replica within the objectives: L* (sequences at once) and μ* (requests per second)."""

    sequences: float
    requests_per_second: float

    @property
    def residence_seconds(self) -> float:
        """How long a request occupies a sequence at that load (Little)."""
        return self.sequences / self.requests_per_second


def most_needed(truth: Truth, timeline: Sequence[Moment], drain_seconds: float = 60.0) -> float:
    """The most replicas that λ/μ* + waiting/(T_drain·μ*) came to: what a policy asks for beyond is overshoot.

    λ is the mean over 15 s; waiting is what really waits, at the gateway and in every engine.
    """
    ticks = max(1, round(RATE_SECONDS / timeline[0].at)) if timeline else 1
    needs = []
    for index in range(len(timeline)):
        recent = timeline[max(0, index + 1 - ticks) : index + 1]
        rate = sum(moment.arrivals for moment in recent) / len(recent)
        needs.append((rate + recent[-1].waiting / drain_seconds) / truth.requests_per_second)
    return max(needs, default=0.0)


@frozen
class _Measured:
    rate: float
    attainment: float
    running: float


def measure_truth(
    hardware: Hardware,
    lengths: Sequence[tuple[int, int]],
    promise: Promise,
    batch: int,
    *,
    seed: int = 0,
    fill_seconds: float | None = None,
) -> Truth:
    """The truth for requests with ``lengths`` (prompt, output tokens; drawn from them by ``seed``). ``fill_seconds``:
    how long a static batch waits to fill; None: batching is continuous.

    Raises ``ValueError`` where even one request after the other breaks the promise: there is no capacity then.
    """
    prompt = sum(each for each, _ in lengths) / len(lengths)
    output = sum(each for _, each in lengths) / len(lengths)
    cost = hardware.cost
    # Above the one prefill alone takes all the time, below the other hardly two requests ever meet.
    high = 1000.0 / (cost.per_prefill_token_ms * prompt)
    low = 0.02 / (output * cost.base_ms / 1000.0 + 1.0 / high)

    def measured(rate: float) -> _Measured:
        return _measured(hardware, lengths, promise, batch, rate, seed, fill_seconds)

    seen = [measured(low)]
    if seen[0].attainment < ATTAINED:
        raise ValueError(
            f"even unhurried, {1 - seen[0].attainment:.0%} of the requests break the promise "
            f"({promise.ttft_seconds:g} s to the first token, {promise.tpot_seconds:g} s per output token); "
            "no replica count can keep it"
        )
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        seen.append(measured(middle))
        low, high = (middle, high) if seen[-1].attainment >= ATTAINED else (low, middle)
    best = max((each for each in seen if each.attainment >= ATTAINED), key=lambda each: each.rate)
    sequences = SHARE * best.running
    seen += [measured(share * best.rate) for share in (0.7, 0.9)]
    return Truth(max(1.0, sequences), _rate_at(sequences, seen))


def _rate_at(running: float, seen: Sequence[_Measured]) -> float:
    """The rate at which so many run, linear between the measurements."""
    ordered = sorted(seen, key=lambda each: each.rate)
    for lower, upper in itertools.pairwise(ordered):
        if lower.running <= running <= upper.running:
            share = (running - lower.running) / max(upper.running - lower.running, 1e-9)
            return lower.rate + share * (upper.rate - lower.rate)
    return ordered[0].rate


def _measured(
    hardware: Hardware,
    lengths: Sequence[tuple[int, int]],
    promise: Promise,
    batch: int,
    rate: float,
    seed: int,
    fill_seconds: float | None,
) -> _Measured:
    """One replica under a Poisson stream at ``rate``."""
    chance = Random(seed)
    fleet = Fleet(hardware, batch, 0.0, 1, Random(seed), fill_seconds, read=frozenset())
    fleet.start(1)
    engine = fleet.ready[0].engine
    seconds = min(SECONDS, REQUESTS / rate)
    at, looked, busy = chance.expovariate(rate), 0, 0.0
    while at < seconds:
        fleet.submit(Request(at, *lengths[int(chance.random() * len(lengths))]))
        if at > WARM_UP * seconds:
            looked, busy = looked + 1, busy + engine.running  # arrivals of a Poisson stream see the mean
        at += chance.expovariate(rate)
    fleet.move(seconds + promise.patience_seconds)
    fleet.settle()
    judged = [pair for pair in fleet.served if pair[0].at > WARM_UP * seconds]
    good = sum(kept(promise, request, sequence) for request, sequence in judged)
    return _Measured(rate, good / len(judged) if judged else 1.0, busy / looked if looked else 0.0)
