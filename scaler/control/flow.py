"""The flow law: how many replicas the present load occupies, before any hold, floor or ceiling.

    n = max(λ⁺/μ* + (waiting + pending)/(T_drain·μ*), running/L*)

Demand is a flow, a backlog is a stock (LAWS section 3). λ⁺ is the higher of the window's and the last 15 seconds'
arrivals, so that a rise is answered before it fills the window; the second term buys what drains the backlog within
``drain_seconds`` (a backlog taken for steady demand asks for many times too much); running/L* needs no rates and guards
the rest. Until a residence time gives μ*, what is in flight stands in for the flow: (running + waiting + pending)/L*.
"""

from __future__ import annotations

from dataclasses import dataclass

from scaler.control.model import CapacityEstimate, Code, Reason, Target
from scaler.signals.model import Signals, at_least


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
        rate = max(at_least(signals.arrivals_per_second), at_least(signals.arrivals_recent_per_second))
        drain = backlog / (drain_seconds * mu)
        code, name, value = Code.ARRIVALS, "arrivals_per_second", rate
        if drain > rate / mu:
            code, name, value = Code.BACKLOG, "waiting", backlog
        flow = FlowNeed(rate / mu + drain, Reason(code, Target.REPLICAS, name, value, mu), rates_known=True)
    # On a tie the guard names it: with nothing waiting, what runs is the plainer reason.
    return flow if flow.replicas > guard.replicas else guard
