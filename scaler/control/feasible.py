"""Which objectives no replica can keep, however empty it is: they are reported ``infeasible`` and buy nothing.

    infeasible:  objective < 1.2 × P95 of replicas that are nearly empty

A replica is nearly empty while nothing waits and it runs no more than one sequence, or a tenth of L*. The P95s of the
windows in which all of them were, for the whole window and a residence before it, are averaged, each by the requests
behind it. Of few requests a window's P95 is rather too low, and of a bucket its lower end is taken: both only make an
objective look easier. Without enough such requests no objective is called infeasible.

Whatever is infeasible is no objective to any law: no breach of it, no capacity by it. What is learned is of one kind of
replica, and begins anew with another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scaler.policy.model import Policy
from scaler.signals.model import Latency, Signals, is_zero, known_value
from scaler.value import frozen

#: An objective must leave so much more than an empty replica takes.
ROOM_NEEDED = 1.2
#: Nearly empty: so many sequences each, or this share of L*.
FEW_SEQUENCES, FEW_SHARE = 1.0, 0.1
#: Requests that count: of more, the older are forgotten.
REQUESTS_KEPT = 400.0
#: Each latency: its name here, its signal, and its bounds with the keys that declare them.
LATENCIES = tuple(
    (name, f"{name}_seconds", ((name, f"{name}_seconds"), (f"{name}_critical", f"{name}_critical_seconds")))
    for name in ("ttft", "tpot", "e2e")
)
#: Bounds (``ttft``, ``ttft_critical``, ...) with an empty replica's P95 and what is declared, seconds.
Infeasible = Mapping[str, tuple[float, float]]


@frozen
class Unhurried:
    """P95 of one latency in nearly empty replicas, seconds, and by how many requests."""

    p95_seconds: float = 0.0
    requests: float = 0.0


@frozen
class EmptyReplicas:
    """What is known of nearly empty replicas: of which kind, for how long they have been so without a break, and P95 of
    their latencies.
    """

    identity: str = ""
    seconds: float = 0.0
    ttft: Unhurried = Unhurried()
    tpot: Unhurried = Unhurried()
    e2e: Unhurried = Unhurried()


def seen_empty(
    before: EmptyReplicas,
    policy: Policy,
    signals: Signals,
    *,
    sequences: float,
    residence_seconds: float | None,
    elapsed_seconds: float,
) -> EmptyReplicas:
    """One tick more. ``sequences`` is L*, ``residence_seconds`` how long a request stays in a replica."""
    if signals.identity is not None and signals.identity != before.identity:
        before = EmptyReplicas(identity=signals.identity)
    running, ready = known_value(signals.running), known_value(signals.ready_replicas)
    few = max(FEW_SEQUENCES, FEW_SHARE * sequences)
    if running is None or not ready or running > few * ready or not is_zero(signals.waiting):
        return replace(before, seconds=0.0) if before.seconds else before
    seconds = before.seconds + elapsed_seconds
    if seconds < policy.window_seconds + (residence_seconds or 0.0):
        return EmptyReplicas(before.identity, seconds, before.ttft, before.tpot, before.e2e)
    return EmptyReplicas(
        before.identity,
        seconds - policy.window_seconds,
        ttft=_with(before.ttft, known_value(signals.ttft_seconds)),
        tpot=_with(before.tpot, known_value(signals.tpot_seconds)),
        e2e=_with(before.e2e, known_value(signals.e2e_seconds)),
    )


def infeasible_bounds(policy: Policy, empty: EmptyReplicas) -> Infeasible:
    """The declared bounds that are infeasible."""
    found: dict[str, tuple[float, float]] = {}
    objectives, minimum_samples = policy.objectives, policy.objectives.minimum_samples
    for name, _, bounds in LATENCIES:
        p95_seconds = empty_p95_seconds(empty, name, minimum_samples)
        if p95_seconds is None:
            continue
        for bound, key in bounds:
            objective = getattr(objectives, key)
            if objective is not None and objective < ROOM_NEEDED * p95_seconds:
                found[bound] = p95_seconds, objective
    return found


def empty_p95_seconds(empty: EmptyReplicas, name: str, minimum_samples: int) -> float | None:
    """P95 of the latency ``name`` (``ttft``, ``tpot``, ``e2e``) in nearly empty replicas, seconds; None where fewer
    than ``minimum_samples`` requests stand behind it.
    """
    seen: Unhurried = getattr(empty, name)
    return seen.p95_seconds if seen.requests >= minimum_samples else None


def without(policy: Policy, bounds: Infeasible) -> Policy:
    """The policy without these objectives."""
    if not bounds:
        return policy
    objectives = policy.objectives.model_copy(update={f"{bound}_seconds": None for bound in bounds})
    return policy.model_copy(update={"objectives": objectives})


def _with(seen: Unhurried, latency: Latency | None) -> Unhurried:
    if latency is None or latency.samples <= 0:
        return seen
    requests = min(seen.requests, REQUESTS_KEPT) + latency.samples
    moved = latency.samples / requests * (latency.p95.low - seen.p95_seconds)
    return Unhurried(seen.p95_seconds + moved, requests)
