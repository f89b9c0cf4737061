"""Which windows teach what a replica can serve: the point a window gives :mod:`scaler.control.learned`, or none."""

from __future__ import annotations

from scaler.control.capacity import residence_seconds, tpot_objective
from scaler.control.kv_bound import held_tokens
from scaler.control.learned import (
    SAMPLES_FOR_MEAN,
    SAMPLES_FOR_P95,
    Learned,
    Point,
    accumulated,
    begun_anew,
    disturbed,
    same,
    steady,
    with_point,
)
from scaler.control.model import Memory
from scaler.policy.model import Policy
from scaler.signals.model import Latency, NotApplicable, Signals, Verdict, is_zero, known_value

#: A batch binds when this share of it is in use.
BINDING_SHARE = 0.8
#: What is learned is kept for so many kinds of replica: the present one, and the one before a rollout.
KINDS_KEPT = 2


def learn(policy: Policy, memory: Memory, signals: Signals, elapsed_seconds: float) -> tuple[Learned, ...]:
    """What is learned after this tick, the present kind of replica first. O(1); a window is one point.

    Nothing is learned while replicas of two kinds serve (a rollout), or of a window in which something was not known.
    """
    kinds, identity = memory.learned, signals.identity
    if identity is None:
        return (disturbed(kinds[0]), *kinds[1:]) if kinds else ()
    kv_tokens = known_value(signals.kv_capacity_tokens)
    present = next((kind for kind in kinds if same(kind, identity, kv_tokens)), None)
    others = tuple(kind for kind in kinds if kind is not present)[: KINDS_KEPT - 1]
    if present is None:
        present = Learned(identity=identity, kv_tokens=kv_tokens)
    running, ready = known_value(signals.running), known_value(signals.ready_replicas)
    if _held_down(memory, signals) or not is_zero(signals.stalled_replicas):
        return (disturbed(present), *others)
    if running is None or ready is None or ready < 1:
        return (present, *others)  # not known now: the window takes that much longer
    residence = residence_seconds(signals, SAMPLES_FOR_MEAN)
    present = accumulated(present, running, int(ready), residence or policy.window_seconds, elapsed_seconds)
    if present.window.seconds >= policy.window_seconds:
        point = None if residence is None else _point(policy, present, signals, residence)
        present = begun_anew(present) if point is None else with_point(present, point)
    return (present, *others)


def _held_down(memory: Memory, signals: Signals) -> bool:
    """Whether requests are slow for something that is not the load: preemptions, or a batch that we hold down, that the
    engine says it applies, and that binds. (A real engine that follows nobody ran more than the batch published to it
    for ten minutes, and taught nothing.)
    """
    if known_value(signals.preemptions_recent):
        return True
    if memory.targets is None or memory.batch_before_protection is None or known_value(signals.applied_batch) is None:
        return False
    batch, busiest = memory.targets.batch, known_value(signals.busiest_running)
    return batch is not None and (busiest is None or busiest >= BINDING_SHARE * batch)


def _point(policy: Policy, learned: Learned, signals: Signals, residence: float) -> Point | None:
    tpot, running = known_value(signals.tpot_seconds), learned.window.met_on_average
    if tpot is None or tpot.samples < SAMPLES_FOR_MEAN or running <= 0 or not steady(learned, residence):
        return None
    verdicts = [_verdict(tpot, tpot_objective(policy, signals))]
    # An engine that measures no TTFT (TGI) is judged by the rest: else nothing it does would ever meet its objectives.
    if policy.objectives.ttft_seconds is not None and not isinstance(signals.ttft_seconds, NotApplicable):
        verdicts.append(_verdict(known_value(signals.ttft_seconds), policy.objectives.ttft_seconds))
    met = all(verdict == "met" for verdict in verdicts)
    breached = "breached" in verdicts and known_value(signals.waiting) == 0
    return Point(running, learned.window.met_by_few, tpot, residence, met, breached, *_kv_tokens(signals))


def _kv_tokens(signals: Signals) -> tuple[float, float]:
    """Tokens in a replica's KV cache now, and those that what runs would hold by its lengths; zeros: not known."""
    use, tokens = known_value(signals.kv_use_mean_ratio), known_value(signals.kv_capacity_tokens)
    running, ready, held = known_value(signals.running), known_value(signals.ready_replicas), held_tokens(signals)
    if not use or tokens is None or not running or not ready or held is None:  # what runs cannot hold nothing
        return 0.0, 0.0
    return use * tokens, running / ready * held.mean


def _verdict(latency: Latency | None, objective_seconds: float | None) -> Verdict:
    if latency is None or objective_seconds is None:
        return "undecided"
    return latency.against(objective_seconds, SAMPLES_FOR_P95)
