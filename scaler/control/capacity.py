"""What one replica can serve within its objectives: L* sequences at once, μ* requests per second.

Declared where the operator knows it. Otherwise a prior, min(KV bound, 32) sequences (LAWS section 3), bounded by every
cap that is certain: the declared batch range, what the engine reports it applies, and what a replica was seen running
*while it queued*, which is its cap by definition, whatever it is called. μ* follows by Little's law, L* over the mean
time a request spends being computed (mean e2e less mean queueing).
"""

from __future__ import annotations

from scaler.control.model import CapacityEstimate, Memory
from scaler.policy.model import Policy
from scaler.signals.model import Signals, known_value

#: Sequences at once assumed of a replica nobody knows anything about (LAWS section 3).
PRIOR_SEQUENCES = 32.0


def estimate_capacity(policy: Policy, memory: Memory, signals: Signals) -> CapacityEstimate:
    """The capacity of one replica. Always gives sequences >= 1; μ* is None until a residence time is known."""
    sequences, source = _sequences(policy, memory, signals)
    if policy.capacity.requests_per_second is not None:
        return CapacityEstimate(sequences, policy.capacity.requests_per_second, "declared")
    residence = residence_seconds(signals, policy.objectives.minimum_samples)
    return CapacityEstimate(sequences, sequences / residence if residence else None, source)


def residence_seconds(signals: Signals, minimum_samples: int) -> float | None:
    """Mean seconds a request occupies a sequence of the batch: e2e less queueing. None with too few samples."""
    e2e, queue = known_value(signals.e2e_seconds), known_value(signals.queue_seconds)
    if e2e is None or e2e.samples < minimum_samples:
        return None
    queued = queue.mean_seconds if queue is not None else 0.0
    residence = e2e.mean_seconds - queued
    return residence if residence > 0 else None


def memory_bound(signals: Signals) -> float | None:
    """Sequences whose tokens fit the KV cache: tokens / (prompt + half the answer), LAWS "memory bound".

    Half, because a running sequence has on average written half of its answer. None where a part is unknown.
    """
    tokens = known_value(signals.kv_capacity_tokens)
    prompt = known_value(signals.prompt_tokens_mean)
    answer = known_value(signals.generation_tokens_mean)
    if tokens is None or prompt is None or answer is None:
        return None
    per_sequence = prompt + answer / 2
    return tokens / per_sequence if per_sequence >= 1.0 else None


def _sequences(policy: Policy, memory: Memory, signals: Signals) -> tuple[float, str]:
    if policy.capacity.sequences is not None:
        best, source = policy.capacity.sequences, "declared"
    else:
        best, source = PRIOR_SEQUENCES, "prior"
        kv = memory_bound(signals)
        if kv is not None and kv < best:
            best, source = kv, "kv_cache"
    caps = (
        (policy.batch.max, "batch_max"),
        (known_value(signals.applied_batch), "applied_batch"),
        (memory.saturated_sequences, "saturated"),
    )
    for cap, name in caps:
        if cap is not None and cap < best:
            best, source = float(cap), name
    return max(best, 1.0), source
