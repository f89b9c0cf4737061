"""Every policy of the lab by name, ready to run: our strategies, the rivals, and the bound.

All get the same capacity knowledge (:class:`~scaler.lab.truth.Truth`), floor, ceiling and cold start. Each has one
knob, the load target: ``knob`` > 1 loads a replica more than the policy's own default does.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import get_args

from scaler.control.model import Memory
from scaler.control.season import NO_SEASON, Season
from scaler.lab.baselines.clairvoyant import Clairvoyant
from scaler.lab.baselines.doubling import Doubling
from scaler.lab.baselines.in_flight import InFlight, Static, Waiting
from scaler.lab.baselines.knative import Knative
from scaler.lab.baselines.llmd import LlmD
from scaler.lab.baselines.ray_serve import RayServe
from scaler.lab.enact import (
    HPA_BEHAVIOUR,
    LLMD_BEHAVIOUR,
    OUR_BEHAVIOUR,
    OUR_COOLDOWN_SECONDS,
    OUR_POLLING_SECONDS,
    Direct,
    ThroughKeda,
)
from scaler.lab.fleet import Request
from scaler.lab.keda import ScaledObject
from scaler.lab.looking import LOAD
from scaler.lab.meters import FOLDED
from scaler.lab.ours import Ours
from scaler.lab.scenarios import Scenario
from scaler.lab.simulate import Enactor, LabPolicy
from scaler.lab.truth import Truth
from scaler.policy.model import Batch, Capacity, Gpu, Objectives, Policy, Price, Push, ReplicaRange, Seasonal, Strategy
from scaler.value import frozen

#: Ours without its season, and without its price windows.
NO_SEASON_NAME, NO_PRICE_NAME = "adaptive-no-season", "adaptive-no-price"
#: Waiting requests per replica that KEDA's scaler aims at: our own queue target.
WAITING_TARGET = 10.0
#: A policy cannot say that a replica needs no time at all to load.
LEAST_COLD_START_SECONDS = 1.0
#: Ours by default: how far a replica is loaded; and the most the policy takes.
LOAD_SHARE, SETTLED_SHARE, LARGEST_SHARE = Capacity().load_share, Capacity().settled_load_share, 1.5
#: The busiest so many seconds of the trace are what a static fleet is sized for.
PEAK_SECONDS = 60.0


@frozen
class Case:
    """What a policy is built for: the scenario, what a replica serves, the knob, the trace, which only the bound and
    the static fleet may look at, and what was learned of the season before it.
    """

    scenario: Scenario
    truth: Truth
    knob: float
    requests: Sequence[Request]
    season: Season = NO_SEASON


@frozen
class Entry:
    """A policy of the lab. ``reads``: the families of the engines' metrics that it looks at. ``foresight``: it knows
    what the trace will bring, or its peak; the bar is not set by it. ``bound``: it is no rival at all. ``scored`` is
    False for what is there to be shown only.
    """

    summary: str
    build: Callable[[Case], tuple[LabPolicy, Enactor]]
    reads: frozenset[str] = FOLDED
    ours: bool = False
    foresight: bool = False
    bound: bool = False
    scored: bool = True


def our_policy(case: Case, strategy: Strategy, *, seasonal: bool = True, priced: bool = True) -> Policy:
    """The policy file an operator would write for the scenario, with the capacity declared (times the knob)."""
    scenario, promise = case.scenario, case.scenario.promise
    return Policy(
        strategy=strategy,
        objectives=Objectives(
            ttft_seconds=promise.ttft_seconds,
            ttft_critical_seconds=5 * promise.ttft_seconds,
            tpot_seconds=promise.tpot_seconds,
            tpot_critical_seconds=2 * promise.tpot_seconds,
        ),
        replicas=ReplicaRange(
            min=scenario.floor,
            max=scenario.ceiling,
            cold_start_seconds=max(scenario.cold_start_seconds, LEAST_COLD_START_SECONDS),
        ),
        capacity=Capacity(
            requests_per_second=case.truth.requests_per_second * case.knob,
            sequences=case.truth.sequences * case.knob,
            load_share=min(LARGEST_SHARE, LOAD_SHARE * case.knob),
            settled_load_share=min(LARGEST_SHARE, SETTLED_SHARE * case.knob),
        ),
        batch=Batch(max=scenario.batch),
        push=Push(enabled=True),
        season=Seasonal(enabled=seasonal),
        price=scenario.price if priced else _prices_alone(scenario.price),
        gpu=Gpu(per_replica=scenario.hardware.gpus, hour_price=scenario.hour_price),
    )


def _prices_alone(price: Price) -> Price:
    """The same prices, and nothing done about them."""
    plain = {"objective_factor": 1.0, "floor": 0, "ceiling": None}
    return Price(windows=tuple(window.model_copy(update=plain) for window in price.windows))


def _ours(
    strategy: Strategy, *, seasonal: bool = True, priced: bool = True
) -> Callable[[Case], tuple[LabPolicy, Enactor]]:
    def build(case: Case) -> tuple[LabPolicy, Enactor]:
        what = ScaledObject(
            max_replicas=case.scenario.ceiling,
            min_replicas=case.scenario.floor,
            polling_seconds=OUR_POLLING_SECONDS,
            cooldown_seconds=OUR_COOLDOWN_SECONDS,
            behaviour=OUR_BEHAVIOUR,
        )
        policy = our_policy(case, strategy, seasonal=seasonal, priced=priced)
        name = strategy if seasonal and priced else NO_SEASON_NAME if priced else NO_PRICE_NAME
        ours = Ours(name, policy, Memory(season=case.season))
        return ours, ThroughKeda(what, 1.0, pushes=True)

    return build


def _in_flight(case: Case) -> tuple[LabPolicy, Enactor]:
    policy = InFlight(case.truth.sequences * case.knob)
    return policy, _keda(case, policy.metric_target)


def _waiting(case: Case) -> tuple[LabPolicy, Enactor]:
    policy = Waiting(WAITING_TARGET * case.knob)
    return policy, _keda(case, policy.metric_target)


def _llmd(case: Case) -> tuple[LabPolicy, Enactor]:
    promise, scenario = case.scenario.promise, case.scenario
    what = ScaledObject(scenario.ceiling, max(scenario.floor, 1), behaviour=LLMD_BEHAVIOUR)
    return LlmD(promise.ttft_seconds, promise.tpot_seconds, case.knob), ThroughKeda(what, 1.0)


def _keda(case: Case, metric_target: float) -> Enactor:
    what = ScaledObject(case.scenario.ceiling, case.scenario.floor, behaviour=HPA_BEHAVIOUR)
    return ThroughKeda(what, metric_target)


def _knative(case: Case) -> tuple[LabPolicy, Enactor]:
    return Knative(case.truth.sequences * case.knob), _direct(case)


def _ray_serve(case: Case) -> tuple[LabPolicy, Enactor]:
    return RayServe(case.truth.sequences * case.knob), _direct(case)


def _doubling(case: Case) -> tuple[LabPolicy, Enactor]:
    return Doubling(case.truth.sequences * case.knob), _direct(case)


def _static(case: Case) -> tuple[LabPolicy, Enactor]:
    needed = peak_rate(case.requests) / (case.truth.requests_per_second * case.knob)
    return Static(max(1, math.ceil(needed))), _direct(case)


def _clairvoyant(case: Case) -> tuple[LabPolicy, Enactor]:
    rate, cold_start = case.truth.requests_per_second * case.knob, case.scenario.cold_start_seconds
    return Clairvoyant(case.requests, rate, cold_start, case.truth.residence_seconds), _direct(case)


def _direct(case: Case) -> Enactor:
    return Direct(case.scenario.floor, case.scenario.ceiling)


def peak_rate(requests: Sequence[Request]) -> float:
    """Requests per second in the busiest minute that begins with a request."""
    times = [request.at for request in requests]
    counts = (bisect_left(times, at + PEAK_SECONDS) - index for index, at in enumerate(times))
    return max(counts, default=0) / PEAK_SECONDS


#: What rivals look at, beside how many replicas there are and what waits at the gateway.
_NOTHING: frozenset[str] = frozenset()
_LATENCIES = frozenset(("ttft", "tpot"))
_OURS = {
    "adaptive": "ours: attribute first, buy for the expected flow and the backlog's drain",
    "stepwise": "ours, the reference: thresholds, ×2 and ×0.5 on the batch",
    "queue": "ours: batch in proportion to the queue",
    "latency": "ours: batch by the latency's gradient",
}
POLICIES: dict[str, Entry] = {
    **{name: Entry(_OURS.get(name, "ours"), _ours(name), ours=True) for name in get_args(Strategy)},
    NO_SEASON_NAME: Entry(
        "adaptive, but the season it has learned buys nothing",
        _ours("adaptive", seasonal=False),
        ours=True,
        scored=False,
    ),
    NO_PRICE_NAME: Entry(
        "adaptive, but price windows change nothing", _ours("adaptive", priced=False), ours=True, scored=False
    ),
    "hpa-in-flight": Entry("HPA on running + waiting, its default behaviour", _in_flight, reads=LOAD),
    "keda-waiting": Entry("KEDA's Prometheus scaler on waiting, 10 per replica", _waiting, reads=LOAD),
    "knative-kpa": Entry("Knative's KPA: 60 s and 6 s windows, panic at 2 ×, 70 %", _knative, reads=LOAD),
    "llm-d-slo": Entry("llm-d's SLO-aware law: P90 TTFT and TPOT against 0.55 and 0.40", _llmd, reads=_LATENCIES),
    "ray-serve": Entry("Ray Serve: ongoing requests, 30 s up, 600 s down", _ray_serve, reads=LOAD),
    "doubling": Entry(
        "the practice without a jump table: twice the replicas, a step a minute", _doubling, reads=LOAD, scored=False
    ),
    "static": Entry("as many as the trace's busiest minute needs", _static, reads=_NOTHING, foresight=True),
    "clairvoyant": Entry("the bound: knows every arrival", _clairvoyant, reads=_NOTHING, foresight=True, bound=True),
}
