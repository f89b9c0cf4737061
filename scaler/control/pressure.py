"""Whether memory is short now: what the memory guard acts on, and a cause of slow requests by itself."""

from __future__ import annotations

from typing import TypeAlias

from scaler.policy.model import Policy
from scaler.signals.model import Signals, at_least, known_value

#: The signal that shows a memory emergency, its value and the threshold it is beyond.
Pressure: TypeAlias = tuple[str, float, float]


def memory_pressure(policy: Policy, signals: Signals) -> Pressure | None:
    """The memory emergency, of what is certain only; None when there is none. It is looked at every second.

    KV use is the fullest replica's, and preemptions are a sum: what the replicas that were read show is certain, and
    one that is not read must not take the protection from the others. Of free memory only the whole tells the least.
    """
    memory = policy.memory
    kv = at_least(signals.kv_use_ratio)
    if kv >= memory.kv_emergency_ratio:
        return ("kv_use_ratio", kv, memory.kv_emergency_ratio)
    preempted = at_least(signals.preemptions_recent)
    if preempted > 0:
        return ("preemptions_recent", preempted, 0.0)
    free = known_value(signals.gpu_memory_free_ratio)
    if free is not None and free < memory.gpu_free_emergency_ratio:
        return ("gpu_memory_free_ratio", free, memory.gpu_free_emergency_ratio)
    return None
