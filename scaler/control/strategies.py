"""Which law moves the batch: the strategy declared, and for ``adaptive`` how the engine forms its batches.

A static batch waits to fill and is computed whole, so that there the batch *is* latency: at a low load a smaller one
helps, and a slow one with no queue is too large. Continuous batching knows neither.
"""

from __future__ import annotations

from scaler.control.batch import BatchMove, adaptive_batch
from scaler.control.latency_batch import latency_batch
from scaler.control.model import Cause, LoadState
from scaler.control.queue_batch import queue_batch, waiting_per_replica
from scaler.control.situation import Situation
from scaler.control.stepwise import stepwise_batch


def strategy_batch(situation: Situation, state: LoadState, cause: Cause | None) -> BatchMove:
    """The move of the declared strategy, memory pressure aside."""
    match situation.policy.strategy:
        case "stepwise":
            return stepwise_batch(situation, state)
        case "queue":
            return queue_batch(situation, state, cause)
        case "latency":
            return latency_batch(situation, state, cause)
    if situation.policy.batch.batching != "static":
        return adaptive_batch(situation, state, cause)
    shrunk = situation.batch is not None and situation.batch < (situation.start_batch or 0)
    # What latency took it gives back; only a long queue may be faster.
    if cause is Cause.STEP or (shrunk and (waiting_per_replica(situation) or 0.0) <= situation.policy.queue.high):
        return latency_batch(situation, state, cause)
    return queue_batch(situation, state, cause)


def static_cause(situation: Situation, cause: Cause | None) -> Cause | None:
    """``cause``, but of a static batch that can still be smaller: what looks inherent to requests is its step."""
    if cause is None or cause is not Cause.INHERENT or situation.policy.batch.batching != "static":
        return cause
    return Cause.STEP if (situation.batch or 0) > situation.policy.batch.min else cause
