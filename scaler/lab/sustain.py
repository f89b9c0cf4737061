"""The highest rate that a fixed fleet sustains under one way of setting the batch: what a batch law is worth.

Below its knee a fleet's throughput equals the arrivals, whatever the batch; so what is compared is not throughput at
one rate but the rate up to which the P95 of whole requests stays within a limit, which a growing queue soon leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scaler.lab.enact import Direct
from scaler.lab.hardware import Hardware
from scaler.lab.simulate import LabPolicy, World, simulate
from scaler.lab.traces import Draws, poisson
from scaler.value import frozen

#: The first so much of the time is not judged: batches need a while to find their size.
WARM_UP = 0.25
#: Nor are requests that came later than this before the end; of the others, who has not ended has missed.
PATIENCE_SECONDS = 30.0


@frozen
class Bench:
    """A fixed fleet and its requests: Poisson arrivals with ``lengths`` for ``seconds``, on ``replicas`` of
    ``hardware``, which begin with ``batch``.
    """

    hardware: Hardware
    replicas: int
    lengths: Draws
    batch: int
    seconds: float = 600.0


@frozen
class Held:
    """At one rate: P95 of whole requests (seconds; inf where more than 5 % never ended), requests completed per second,
    and the last batch.
    """

    e2e_p95_seconds: float
    requests_per_second: float
    batch: int


def held(bench: Bench, policy: LabPolicy, rate: float, seed: int) -> Held:
    """Play ``rate`` requests per second against ``policy``, which moves the batch alone."""
    requests = poisson(lambda _: rate, bench.lengths, seed=seed, seconds=bench.seconds)
    world = World(bench.hardware, 60.0, bench.batch, initial_replicas=bench.replicas)
    enactor = Direct(bench.replicas, bench.replicas)
    run = simulate(requests, policy, enactor, world, seconds=bench.seconds, seed=seed)
    begin, end = WARM_UP * bench.seconds, bench.seconds - PATIENCE_SECONDS
    ended = [math.inf if served.finished_at is None else served.finished_at for _, served in run.fleet.served]
    taken = sorted(
        at - request.at for at, (request, _) in zip(ended, run.fleet.served, strict=True) if begin <= request.at < end
    )
    completed = sum(1 for at in ended if begin <= at < end) / (end - begin)
    p95 = taken[math.ceil(0.95 * len(taken)) - 1] if taken else math.inf
    return Held(p95, completed, run.timeline[-1].batch)


def highest_rate(
    bench: Bench,
    make: Callable[[], LabPolicy],
    limit_seconds: float,
    seeds: Sequence[int],
    *,
    low: float,
    high: float,
    halvings: int = 6,
) -> float:
    """The highest rate between ``low`` and ``high`` at which P95 is within ``limit_seconds`` with most of the
    ``seeds``; ``low`` where even that is too high.
    """
    for _ in range(halvings):
        middle = math.sqrt(low * high)
        within = sum(held(bench, make(), middle, seed).e2e_p95_seconds <= limit_seconds for seed in seeds)
        low, high = (middle, high) if 2 * within > len(seeds) else (low, middle)
    return low
