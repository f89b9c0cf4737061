"""What of a shared card an engine cannot lend, by what its preset says of its memory."""

from __future__ import annotations

from scaler.policy.model import Policy
from scaler.signals.preset import Preset


def unlent(policy: Policy, preset: Preset) -> tuple[str, ...]:
    """What stays where it is, and what would free it; empty where the workload shares no card, or can lend all."""
    if not policy.gpu_group.declared or not preset.preallocates_gpu_memory:
        return ()
    freed = (
        "while its replicas sleep, or there are none"
        if policy.idle.sleep_after_seconds is not None
        else "while there is no replica; idle.sleep_after_seconds would free it earlier, where the engine can sleep"
    )
    return (
        f"gpu_group.name: engine {preset.name} takes its GPU memory when it starts, so its KV cache is neither lent "
        f"nor borrowed, only its part of the card's time; its memory is lent {freed}",
    )
