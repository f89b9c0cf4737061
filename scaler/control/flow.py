"""The flow law: how many replicas the present load occupies, before any hold, floor or ceiling.

    n = max(λ⁺/μ* + min(waiting/(T_drain·μ*), replicas with a queue) + pending/(T_drain·μ*), running/L*)

Demand is a flow, a backlog is a stock (LAWS section 3). λ⁺ is the higher of the window's and the last 15 seconds'
arrivals, so that a rise is answered before it fills the window. That buys noise where a replica serves few requests;
averaging it away over a request's residence saved a quarter of the GPU-hours of a slow day in the lab, and broke a
tenth of the promises on ramps. The second term buys what drains the backlog within ``drain_seconds`` (a backlog taken
for steady demand asks for many times too much). Requests that wait *in* an engine stay with it, however many replicas
are added: a replica with a queue is at most wholly taken up by it, so the drain of those counts no more than one
replica each. running/L* needs no rates and guards the rest. Until a residence time gives μ*, what is in flight stands
in for the flow: (running + waiting + pending)/L*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter

from scaler.control.model import CapacityEstimate, Code, Reason, Target
from scaler.signals.model import Signals, at_least, known_value


@dataclass(frozen=True, slots=True)
class FlowNeed:
    """The load in replicas (a fraction, >= 0) and the term of the law that asked loudest.

    ``rates_known`` False: no μ* yet, the in-flight stand-in was used.
    """

    replicas: float
    reason: Reason
    rates_known: bool


def flow_need(signals: Signals, capacity: CapacityEstimate, drain_seconds: float) -> FlowNeed:
    """The flow law on what is certainly there: of a signal that is not known, only what it is at least."""
    running = at_least(signals.running)
    backlog = at_least(signals.waiting) + at_least(signals.pending)
    mu = capacity.requests_per_second
    guard = FlowNeed(
        running / capacity.sequences,
        Reason(Code.RUNNING, Target.REPLICAS, "running", running, capacity.sequences),
        mu is not None,
    )
    if mu is None:
        in_flight = running + backlog
        reason = Reason(Code.IN_FLIGHT, Target.REPLICAS, "waiting", in_flight, capacity.sequences)
        flow = FlowNeed(in_flight / capacity.sequences, reason, rates_known=False)
    else:
        windowed, recent = at_least(signals.arrivals_per_second), at_least(signals.arrivals_recent_per_second)
        name, rate = max(("arrivals_per_second", windowed), ("arrivals_recent_per_second", recent), key=itemgetter(1))
        drain = _drain(signals, drain_seconds * mu)
        code, value = Code.ARRIVALS, rate
        if math.ceil(rate / mu) < math.ceil(rate / mu + drain):
            # The queue is what asks for the last replica: then it is the reason to give.
            code, name, value = Code.BACKLOG, "waiting", backlog
        flow = FlowNeed(rate / mu + drain, Reason(code, Target.REPLICAS, name, value, mu), rates_known=True)
    # On a tie the guard names it: with nothing waiting, what runs is the plainer reason.
    return flow if flow.replicas > guard.replicas else guard


def _drain(signals: Signals, drained_by_one: float) -> float:
    """The replicas that work off the queues in time, ``drained_by_one`` being what one works off."""
    in_engines = at_least(signals.waiting) / drained_by_one
    queueing = known_value(signals.queueing_replicas)
    if queueing is not None:
        in_engines = min(in_engines, queueing)
    return in_engines + at_least(signals.pending) / drained_by_one
