"""The flow law: how many replicas the load occupies, before any hold, floor or ceiling.

    n = max(pooled(λ⁺/μ*) + drain + pending/(T_drain·μ*), pooled(running⁻/L*), running/L°)
    drain = queued + growth/(T_drain·μ*), of that no more than ready replicas
    queued = min(waiting/(T_drain·μ*), replicas with a queue)

Demand is a flow, a backlog is a stock: a backlog taken for steady demand asks for many times too much. λ⁺ is what
:mod:`scaler.control.arrivals` expects. The second term buys what drains the backlog within ``drain_seconds``, also the
part of it that is certain to come: while arrivals exceed what is ready, the queue grows by the difference until what
is asked for now can serve (``growth``; lab, 0 to 200 req/s at once, 60 s cold start: without it the last third of the
replicas is asked for when the queue is there, a cold start too late). Requests that wait *in* an engine stay with it,
however many replicas are added: a replica with a queue is at most wholly taken up by it, so the drain of those counts
no more than one replica each, also once more of them are ready (lab, the same jump: else a second time as many are
asked for as the first ones come, a quarter of the GPU-hours for nothing). What will queue will do so in those that are
ready now: its drain takes up no more than these. Whoever waits at the gateway can go to any.

Several replicas need less room for chance than each alone (:mod:`scaler.control.evenness`): that is ``pooled``.

The guard needs no rates. L* leaves a quarter of the concurrency at which the objective just holds (L°) for chance:
what runs on average (running⁻) may not use it, what runs at this moment may; of that, where requests stay long, as much
as is certain: one deviation less. (Lab, slow 70B days: with the moment's held against L*, noise bought a tenth of the
GPU-hours.) Until a residence time gives μ*, what is in flight stands in for the flow:
(running + waiting + pending)/L*.
"""

from __future__ import annotations

import math

from scaler.control.arrivals import Arrivals, outlasts_counts
from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.evenness import pooled
from scaler.control.model import Code, Reason, Target
from scaler.signals.model import Signals, at_least, known_value
from scaler.value import frozen

#: What runs is averaged over about so many seconds.
RUNNING_MEAN_SECONDS = 120.0
#: What runs at a moment is by chance up to so many (Poisson's) deviations more than what goes on running.
RUNNING_DEVIATIONS = 1.0


@frozen
class FlowNeed:
    """The load in replicas (a fraction, >= 0) and the term of the law that asked loudest.

    ``rates_known`` False: no μ* yet, the in-flight stand-in was used. ``drain`` is what the backlog asks for,
    whichever term is the loudest.
    """

    replicas: float
    reason: Reason
    rates_known: bool
    drain: float = 0.0


@frozen
class Overload:
    """``growing_seconds``: for how long arrivals have exceeded what is ready (None: they do not); ``growth``: by how
    many requests the queue will have grown when what is asked for now can serve.
    """

    growing_seconds: float | None
    growth: float


_NO_OVERLOAD = Overload(None, 0.0)


def overload(
    arrivals: Arrivals,
    capacity: CapacityEstimate,
    ready: int | None,
    before_seconds: float | None,
    *,
    elapsed_seconds: float,
    cold_start_seconds: float,
) -> Overload:
    """Whether the queue must grow, and by how much until a cold start begun when that began is over."""
    mu = capacity.requests_per_second
    begins = before_seconds is not None or arrivals.steep
    if mu is None or ready is None or not begins or arrivals.rate <= ready * mu:
        return _NO_OVERLOAD
    growing = 0.0 if before_seconds is None else before_seconds + elapsed_seconds
    return Overload(growing, (arrivals.rate - ready * mu) * max(0.0, cold_start_seconds - growing))


def flow_need(
    signals: Signals,
    arrivals: Arrivals,
    capacity: CapacityEstimate,
    *,
    ready: int | None,
    growth: float,
    running_mean: float | None,
    uneven: float | None,
    drain_seconds: float,
) -> FlowNeed:
    """The flow law on what is certainly there: of a signal that is not known, only what it is at least."""
    running = at_least(signals.running)
    mu = capacity.requests_per_second
    occupied, value, each = _occupied(running, running_mean, capacity, uneven)
    waiting, pending, drain = at_least(signals.waiting), at_least(signals.pending), 0.0
    # On a tie the guard names it: with nothing waiting, what runs is the plainer reason.
    if mu is None:
        in_flight = running + waiting + pending
        if in_flight / capacity.sequences > occupied:
            reason = Reason(Code.IN_FLIGHT, Target.REPLICAS, "waiting", in_flight, capacity.sequences)
            return FlowNeed(in_flight / capacity.sequences, reason, rates_known=False)
    else:
        queueing = known_value(signals.queueing_replicas)
        drain = waiting / (drain_seconds * mu)
        drain = drain if queueing is None else min(drain, queueing)
        drain = max(drain, min(drain + growth / (drain_seconds * mu), float(ready or 0)))
        drain += pending / (drain_seconds * mu)
        alone = arrivals.rate / mu
        served = pooled(alone, uneven, capacity.load_share)
        if served + drain > occupied:
            each = mu * (alone / served) if served else mu
            name, code, value = arrivals.signal, Code.ARRIVALS, arrivals.rate
            if math.ceil(served) < math.ceil(served + drain):
                # The queue is what asks for the last replica: then it is the reason to give.
                name, code, value = "waiting", Code.BACKLOG, waiting + pending
            return FlowNeed(served + drain, Reason(code, Target.REPLICAS, name, value, each), True, drain)
    return FlowNeed(occupied, Reason(Code.RUNNING, Target.REPLICAS, "running", value, each), mu is not None, drain)


def _occupied(
    running: float, running_mean: float | None, capacity: CapacityEstimate, uneven: float | None
) -> tuple[float, float, float]:
    """(replicas, sequences, sequences a replica) of what runs: on average as far as the replicas' common room allows,
    at this moment up to all of it, and no more of that than is certain.
    """
    mean, share = running if running_mean is None else running_mean, min(capacity.load_share, 1.0)
    if outlasts_counts(capacity):
        running = max(0.0, running - RUNNING_DEVIATIONS * math.sqrt(running))
    alone, moment = mean / capacity.sequences, share * running / capacity.sequences
    lasting = pooled(alone, uneven, capacity.load_share)
    if moment > lasting:
        return moment, share * running, capacity.sequences
    if not lasting:
        return 0.0, 0.0, capacity.sequences
    return lasting, mean, capacity.sequences * (alone / lasting)


def mean_running(before: float | None, signals: Signals, elapsed_seconds: float) -> float | None:
    """What runs, averaged; held while it is not known, None until it is."""
    running = known_value(signals.running)
    if running is None or before is None:
        return before if running is None else running
    return before + (running - before) * -math.expm1(-elapsed_seconds / RUNNING_MEAN_SECONDS)
