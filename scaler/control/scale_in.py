"""Scale-in mode: after half an hour of ``low`` load the room for chance is given up, down to the floor.

L* leaves a replica a quarter of what it could just run (L°) for chance, and with few replicas the last one is often
there for nothing else: at 1.1 × L* two stand at half their load. When the load has been low for
``load.scale_in_after_seconds``, a replica counts for :data:`FULL_SHARE` of L°, and no widened dead band holds back what
is left over. The mode lasts while the replicas asked for live by it (they have less than their ordinary room) and ends
at once with a breached bound, a jump, or more load than they serve so: then the ordinary law buys in the same tick.
"""

from __future__ import annotations

from dataclasses import replace

from scaler.control.flow import FlowNeed
from scaler.control.model import Code, Memory
from scaler.policy.model import Policy

#: How far a replica is loaded in this mode, of the concurrency at which the objective just holds.
FULL_SHARE = 0.85


def without_room(alone: FlowNeed, pooled: FlowNeed, load_share: float) -> FlowNeed:
    """The need in this mode: ``alone`` is that of replicas each for itself, ``pooled`` the ordinary one."""
    share = min(1.0, load_share / FULL_SHARE)
    if share * alone.replicas >= pooled.replicas:
        return pooled
    reason, each = alone.reason, alone.reason.threshold
    told = replace(reason, code=Code.SCALE_IN, threshold=None if each is None else each / share)
    return replace(alone, replicas=share * alone.replicas, reason=told)


def may_scale_in(policy: Policy, memory: Memory) -> bool:
    """Whether the mode lasts, or the load has been low for long enough to begin it: a matter of the last tick alone."""
    after, low = policy.load.scale_in_after_seconds, memory.below_low_seconds
    if after is None or memory.targets is None:
        return False
    return memory.scale_in_seconds is not None or (low is not None and low >= after)


def scales_in(policy: Policy, memory: Memory, need: FlowNeed, full: FlowNeed) -> bool:
    """Whether the mode is on, given that it may be and that nothing forbids it: ``need`` is the ordinary one, ``full``
    that of :func:`without_room`.
    """
    after, low, targets = policy.load.scale_in_after_seconds, memory.below_low_seconds, memory.targets
    if after is not None and low is not None and low >= after:
        return True
    return targets is not None and full.replicas <= targets.replicas < need.replicas
