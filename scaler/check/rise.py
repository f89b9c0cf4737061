"""How fast the HPA lets a count rise: its scaleUp policies, replayed sync by sync.

Each policy allows, within its period, so many pods (or per cent) more than there were when the period began;
``selectPolicy`` takes the most or the least of what they allow (kubernetes, pkg/controller/podautoscaler/horizontal.go,
``calculateScaleUpLimitWithScalingRules``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scaler.value import frozen

#: The HPA looks this often, seconds.
SYNC_SECONDS = 15
#: A rise that takes longer than this is not followed to its end, seconds.
LONGEST_SECONDS = 3600


@frozen
class RisePolicy:
    """One entry of ``behavior.scaleUp.policies``: ``type`` is Pods or Percent."""

    type: str
    value: int
    period_seconds: int


#: What the HPA does without any.
DEFAULT_POLICIES = (RisePolicy("Percent", 100, 15), RisePolicy("Pods", 4, 15))


def rise_seconds(policies: Sequence[RisePolicy], select: str, first: int, goal: int) -> float:
    """Seconds from the first sync that wants ``goal`` replicas, at ``first``, until they are asked for.

    Infinity: never, or not within an hour.
    """
    if goal <= first:
        return 0.0
    if select == "Disabled" or not policies:
        return math.inf
    now, replicas, added = 0, first, [(0, 0)]
    while now <= LONGEST_SECONDS:
        limits = [_limit(policy, replicas, added, now) for policy in policies]
        allowed = min(goal, max(replicas, min(limits) if select == "Min" else max(limits)))
        added.append((now, allowed - replicas))
        replicas = allowed
        if replicas >= goal:
            return float(now)
        now += SYNC_SECONDS
    return math.inf


def _limit(policy: RisePolicy, replicas: int, added: Sequence[tuple[int, int]], now: int) -> int:
    at_start = replicas - sum(pods for at, pods in added if at > now - policy.period_seconds)
    if policy.type == "Percent":
        return math.ceil(at_start * (1 + policy.value / 100))
    return at_start + policy.value
