"""What one replica can serve within its objectives: L* sequences at once, μ* requests per second.

    L* = load share (0.75) × L°,  L° the learned concurrency at which P95 of TPOT just meets its objective
    μ* = L* / residence at L*  (Little)

Until enough has been learned (:mod:`scaler.control.learned`) the prior stands: what the operator declared, else 32. A
declared capacity is only given up for what contradicts it. It is lowered to the best estimate. It is raised to what is
certain (:class:`~scaler.control.learned.Limit`), a fifth under the best estimate at the most, and no farther than a
quarter above what was seen to meet every objective: who declares knows more than TPOT, and a line through few sequences
says little of many. (Lab, declared as it is: raised by the line alone to 1.3 to 2.7 times the truth after five windows,
and one to two points of attainment lost on ``azure-code-2023`` and ``azure-conv-2023``.)
Undeclared, L* is one deviation below the best estimate, so that it is low while little is known; where that is above
what the KV cache holds, the prior stands until more was seen. (Lab: halfway between what ran and the cache instead,
``servegen-tenant-52`` once kept 90 % for 94 GPU-hours instead of 95 for 80.) Less is believed from three windows on,
more from five. Windows that broke the objective without a queue count before there is a fit.

Whatever it comes from, L* is bounded by every cap that is certain: the declared batch range, what the engine reports it
*applies*, what a replica was seen running *while it queued*, which is its cap by definition; undeclared, by the load
share of what the KV cache holds on average (:func:`~scaler.control.kv_bound.lasting_sequences`); and what was inferred
also by 3 × the highest concurrency seen: beyond that a line is a guess. A batch size that was published and that nobody
applies says nothing.

An applied batch that we cut ourselves, to protect memory, is such a cap as well: for as long as it lasts a replica does
serve no more, and more replicas are what takes the load off the full ones. It ends with the cut. This tick's report is
all that counts, nothing is remembered of it (a replica that queues meanwhile is not taken for saturated, see
``Memory.saturated_sequences``), and what is learned are points of load and latency, which hold at any batch.
"""

from __future__ import annotations

import math

from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.kv_bound import FULL_RATIO, lasting_sequences
from scaler.control.learned import Learned, Limit, limit, residence_at
from scaler.control.model import Memory
from scaler.policy.model import Policy
from scaler.signals.model import NotApplicable, Signals, known_value

#: Sequences at once assumed of a replica nobody knows anything about.
PRIOR_SEQUENCES = 32.0
#: A declared capacity stands while it is no more than this share below what was measured.
DECLARED_TOLERANCE = 0.2
#: It is raised to so many times what ran while every objective was met, at the most.
MET_FACTOR = 1.25
#: Of what runs by chance so many deviations above the mean stay within L°: 99 %.
CHANCE_DEVIATIONS, DEFAULT_SHARE = 2.33, 0.75
#: So many at once are taken to be within any replica's means, where others are gone.
SHOWN_LEAST = 8.0
#: Inferred concurrency is at most so many times the highest one seen.
FARTHEST_FACTOR = 3.0
#: Broken windows that count before there is a fit: one may be the odd one.
BREACHES_NEEDED = 2


def estimate_capacity(policy: Policy, memory: Memory, signals: Signals) -> CapacityEstimate:
    """The capacity of one replica. Always gives sequences >= 1; μ* is None until a residence time is known."""
    learned = memory.learned[0] if memory.learned and policy.capacity.learn else Learned()
    room = _kv_room(policy, learned, signals)
    measured = _measured(policy, learned, signals, room)
    sequences, source = _sequences(policy, memory, signals, measured, room)
    rate = _rate(policy, signals, learned, measured, sequences)
    low, high = (measured.low, measured.high) if measured else (None, None)
    return CapacityEstimate(sequences, rate, source, low, high, learned.windows, policy.capacity.load_share)


def shown_sequences(policy: Policy, memory: Memory, signals: Signals, capacity: CapacityEstimate) -> float | None:
    """How many a replica may run once others are gone, while its capacity is a guess that windows are still to test: a
    quarter more than was seen to meet every objective. None: it is no guess, or nothing will ever test it. (Lab,
    undeclared: a guess took half of the replicas away from ``flat-70b`` and ``day-70b``, which kept 95.6 and 98.9 %;
    with this 98.4 and 99.7, for as many GPU-hours.)
    """
    if not capacity.assumed or not policy.capacity.learn or not (memory.learned or signals.identity):
        return None
    if isinstance(signals.tpot_seconds, NotApplicable) or tpot_objective(policy, signals) is None:
        return None
    met = memory.learned[0].met_at if memory.learned else 0.0
    return max(SHOWN_LEAST, MET_FACTOR * met)


def tpot_objective(policy: Policy, signals: Signals) -> float | None:
    """The bound on P95 of TPOT, seconds: the declared one; else what the critical e2e leaves to each token of a mean
    answer after a typical first one. None where neither is declared.
    """
    objectives = policy.objectives
    if objectives.tpot_seconds is not None:
        return objectives.tpot_seconds
    first, answer = known_value(signals.ttft_seconds), known_value(signals.generation_tokens_mean)
    if objectives.e2e_critical_seconds is None or first is None or not answer:
        return None
    left = objectives.e2e_critical_seconds - first.p50.estimate
    return left / answer if left > 0 else None


def _kv_room(policy: Policy, learned: Learned, signals: Signals) -> float:
    """The most that L* may be by the KV cache; inf where that is not known. Who declares L* knows the lengths: no more
    is asked of it than that as many fit.
    """
    share = policy.capacity.load_share
    if policy.capacity.sequences is not None:
        return loaded(FULL_RATIO * (memory_bound(signals) or math.inf), share)
    return share * (lasting_sequences(signals, learned.held_share) or math.inf)


def _measured(policy: Policy, learned: Learned, signals: Signals, room: float) -> Limit | None:
    """L* as learned: best estimate and ends, none above ``room``."""
    objective, share = tpot_objective(policy, signals), policy.capacity.load_share
    found = None if objective is None else limit(learned, objective)
    if found is not None:
        best, low, high = (min(loaded(end, share), room) for end in (found.sequences, found.low, found.high))
        most = MET_FACTOR * learned.met_at if learned.enough else 1.0
        return Limit(best, low, high, min(loaded(found.certain, share), room, most))
    if learned.breached_at is not None and learned.breaches >= BREACHES_NEEDED:
        most = loaded(learned.breached_at, share)
        return Limit(most, 1.0, most, 1.0)
    return None


def loaded(limit: float, share: float) -> float:
    """L* for L°: the share of it, and so few that of what runs by chance (Poisson) 99 % stays within it:
    L* + 2.33·√L* <= L°, the load share aside. In small batches that is less: of 20 not 15 but 12.
    """
    if not math.isfinite(limit):
        return limit
    root = (math.sqrt(CHANCE_DEVIATIONS**2 + 4.0 * limit) - CHANCE_DEVIATIONS) / 2.0
    return max(1.0, min(share * limit, root * root * share / DEFAULT_SHARE))


def _corrected(declared: float, best: float, certain: float) -> float:
    """What is declared, where measurement does not contradict it; above the best estimate nobody's word counts."""
    return min(max(declared, min(certain, (1.0 - DECLARED_TOLERANCE) * best)), best)


def _rate(policy: Policy, signals: Signals, learned: Learned, measured: Limit | None, sequences: float) -> float | None:
    declared = policy.capacity.requests_per_second
    if declared is not None and (measured is None or not math.isfinite(measured.sequences)):
        return declared
    residence = residence_at(learned, sequences) or residence_seconds(signals, policy.objectives.minimum_samples)
    if declared is None:
        return sequences / residence if residence else None
    if measured is None or not residence:
        return declared

    def rate_at(running: float) -> float:
        return running / (residence_at(learned, running) or residence)

    return _corrected(declared, rate_at(measured.sequences), rate_at(measured.certain))


def residence_seconds(signals: Signals, minimum_samples: int) -> float | None:
    """Mean seconds a request occupies a sequence of the batch: e2e less queueing. None with too few samples."""
    e2e, queue = known_value(signals.e2e_seconds), known_value(signals.queue_seconds)
    if e2e is None or e2e.samples < minimum_samples:
        return None
    queued = queue.mean_seconds if queue is not None else 0.0
    residence = e2e.mean_seconds - queued
    return residence if residence > 0 else None


def memory_bound(signals: Signals) -> float | None:
    """Sequences whose tokens fit the KV cache: tokens / (prompt + half the answer).

    Half, because a running sequence has on average written half of its answer. None where a part is unknown.
    """
    tokens = known_value(signals.kv_capacity_tokens)
    prompt = known_value(signals.prompt_tokens_mean)
    answer = known_value(signals.generation_tokens_mean)
    if tokens is None or prompt is None or answer is None:
        return None
    per_sequence = prompt + answer / 2
    return tokens / per_sequence if per_sequence >= 1.0 else None


def _sequences(
    policy: Policy, memory: Memory, signals: Signals, measured: Limit | None, room: float
) -> tuple[float, str]:
    declared = policy.capacity.sequences
    best, source = (declared, "declared") if declared is not None else (PRIOR_SEQUENCES, "prior")
    if measured is not None:
        if declared is not None:
            found = _corrected(declared, measured.sequences, measured.certain)
        elif measured.sequences < room:
            found = (measured.low + measured.sequences) / 2  # one deviation below
        else:  # no latency says less than the cache holds: what few ran says nothing of more
            found = max(best, measured.low if math.isinf(room) else (measured.low + room) / 2)
        if found < best or (found > best and memory.learned[0].enough):
            most = FARTHEST_FACTOR * memory.learned[0].most_running
            best = found if found <= best else max(min(found, most), best)
            source = "learned" if best < room else "kv_cache"
    caps = (
        (room if declared is None else None, "kv_cache"),
        (policy.batch.max, "batch_max"),
        (known_value(signals.applied_batch), "applied_batch"),
        (memory.saturated_sequences, "saturated"),
    )
    for cap, name in caps:
        if cap is not None and cap < best:
            best, source = float(cap), name
    return max(best, 1.0), source
