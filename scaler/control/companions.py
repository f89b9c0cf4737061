"""The limits that go with the batch: how long a replica's queue may be, and how many workers keep its batch filled.

A queue is of use as far as it is served within the critical bound: ``μ* × critical`` requests (as many as run, where
either is not known). Workers (connections, threads, a gateway's concurrency towards one replica) are
``batch × workers_per_sequence``. Both are published with the target and follow it; a queue limit that would differ by
less than :data:`BAND_SHARE` stays, because the capacity behind it is measured and never quite still.
"""

from __future__ import annotations

import math

from scaler.control.admission import critical_wait_seconds
from scaler.control.situation import Situation
from scaler.policy.model import Policy
from scaler.signals.model import known_value

#: A change of the queue limit by less than this share is none.
BAND_SHARE = 0.25
#: No queue is longer; a rate measured on a request that took no time would say so.
MOST_QUEUED = 1_000_000


def companions(situation: Situation, batch: int | None) -> tuple[int | None, int | None]:
    """(queue limit, workers) of a batch of this size; None, None where it is the engine's own and not known."""
    size = known_value(situation.signals.applied_batch) if batch is None else batch
    if size is None:
        return None, None
    queue = _queue_limit(situation, size)
    before = situation.memory.targets
    if before is not None and before.queue_limit is not None and before.batch == batch:
        still = abs(queue - before.queue_limit) <= BAND_SHARE * before.queue_limit
        queue = before.queue_limit if still else queue
    return queue, workers_of(situation.policy, size)


def workers_of(policy: Policy, batch: float) -> int:
    """Workers that keep a batch of this size filled."""
    return max(1, math.ceil(batch * policy.batch.workers_per_sequence))


def _queue_limit(situation: Situation, size: float) -> int:
    rate, bound = situation.capacity.requests_per_second, critical_wait_seconds(situation)
    return max(1, math.floor(size if rate is None or bound is None else min(rate * bound, MOST_QUEUED)))
