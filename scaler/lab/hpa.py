"""The HPA's arithmetic for one external metric, replayed: what it makes of a desired count, sync by sync.

Read in kubernetes/kubernetes, pkg/controller/podautoscaler: ``replica_calculator.go`` (the proposal and its tolerance)
and ``horizontal.go`` (bounds, stabilisation, policies, events); defaults in pkg/apis/autoscaling/v2/defaults.go. In
this order, every ``sync_seconds``:

1. nothing at zero replicas; outside min..max, straight to the bound;
2. the proposal: ceil(total / target), or the current count while total / (target × current) is within the tolerance;
3. stabilisation: no higher than the lowest proposal of the up window, no lower than the highest of the down window;
4. the policies: how far from the count at the beginning of their period; of several the one that allows the most
   (``Max``) or the least (``Min``);
5. what changed is an event that the policies of later syncs count.

Pure: the clock is an argument, what is remembered between syncs is :class:`Remembered`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from scaler.value import frozen

LARGEST = 2**31 - 1
#: Without a ``behavior`` block: at most twice as many, or this many if that is more, in one sync.
FREE_STEP_FACTOR, FREE_STEP = 2.0, 4


@frozen
class ScalingPolicy:
    """How much may change within a period: so many pods, or so many percent of the count at its beginning."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_seconds: float


@frozen
class ScalingRules:
    """One direction. ``stabilisation_seconds`` None: the controller's default (downwards only). ``tolerance`` None: the
    controller's own.
    """

    policies: tuple[ScalingPolicy, ...]
    select: Literal["Max", "Min", "Disabled"] = "Max"
    stabilisation_seconds: float | None = None
    tolerance: float | None = None


DEFAULT_UP = ScalingRules((ScalingPolicy("Pods", 4, 15.0), ScalingPolicy("Percent", 100, 15.0)), "Max", 0.0)
DEFAULT_DOWN = ScalingRules((ScalingPolicy("Percent", 100, 15.0),), "Max", None)


@frozen
class Behaviour:
    """The ``behavior`` block, as the API server completes it."""

    up: ScalingRules = DEFAULT_UP
    down: ScalingRules = DEFAULT_DOWN


@frozen
class Hpa:
    """One HPA and its controller's settings. KEDA makes ``min_replicas`` 1 where the ScaledObject's is 0."""

    max_replicas: int
    min_replicas: int = 1
    behaviour: Behaviour | None = None
    target: float = 1.0
    metric_type: Literal["AverageValue", "Value"] = "AverageValue"
    tolerance: float = 0.1
    sync_seconds: float = 15.0
    down_stabilisation_seconds: float = 300.0

    @property
    def up_tolerance(self) -> float:
        """The share above target that is overlooked."""
        own = self.behaviour.up.tolerance if self.behaviour else None
        return self.tolerance if own is None else own

    @property
    def down_tolerance(self) -> float:
        """The share below target that is overlooked."""
        own = self.behaviour.down.tolerance if self.behaviour else None
        return self.tolerance if own is None else own


@frozen
class Stamped:
    """A number at a time (seconds): a proposal, or by how much the count was changed."""

    at: float
    number: int


@frozen
class Remembered:
    """What the controller remembers of one HPA between syncs; it is lost when the controller restarts."""

    proposals: tuple[Stamped, ...] = ()
    ups: tuple[Stamped, ...] = ()
    downs: tuple[Stamped, ...] = ()


@frozen
class Enacted:
    """One sync: the count written to ``/scale``, the metric's proposal (None: not asked for or failed), and the
    controller's own word for what decided.
    """

    replicas: int
    proposal: int | None
    reason: str
    remembered: Remembered = field(repr=False)


def sync(
    hpa: Hpa, remembered: Remembered, now: float, *, asked: int, existing: int | None = None, total: float | None
) -> Enacted:
    """One sync at ``now`` seconds.

    ``asked``: the target's spec.replicas; ``existing``: its status.replicas (default: the same), which the proposal is
    compared with. ``total``: the metric, None where it could not be had, which changes nothing.
    """
    if not remembered.proposals:
        remembered = replace(remembered, proposals=(Stamped(now, asked),))
    if asked == 0 and hpa.min_replicas != 0:
        return Enacted(0, None, "ScalingDisabled", remembered)
    if asked > hpa.max_replicas:
        return _changed(hpa, remembered, now, asked, hpa.max_replicas, None, "TooManyReplicas")
    if asked < hpa.min_replicas:
        return _changed(hpa, remembered, now, asked, hpa.min_replicas, None, "TooFewReplicas")
    if total is None:
        return Enacted(asked, None, "FailedGetExternalMetric", remembered)
    proposal = propose(hpa, total, asked=asked, existing=asked if existing is None else existing)
    if hpa.behaviour is None:
        stable, remembered = _stabilise_down(remembered, now, proposal, hpa.down_stabilisation_seconds)
        bounded, reason = _bounded(hpa, stable, max(int(FREE_STEP_FACTOR * asked), FREE_STEP), 0)
    else:
        stable, remembered = _stabilise(hpa, hpa.behaviour, remembered, now, asked, proposal)
        bounded, reason = _within_policies(hpa, hpa.behaviour, remembered, now, asked, stable)
    if bounded == stable != proposal:
        reason = "ScaleUpStabilized" if proposal >= asked else "ScaleDownStabilized"
    return _changed(hpa, remembered, now, asked, bounded, proposal, reason)


def propose(hpa: Hpa, total: float, *, asked: int, existing: int) -> int:
    """The count the metric asks for, before anything limits it. Amounts count in whole thousandths, rounded up."""
    usage, target = math.ceil(round(total * 1000, 6)), math.ceil(hpa.target * 1000)
    if hpa.metric_type == "Value":  # a ratio that the count is multiplied with: ours would run away
        ratio = usage / target
        return asked if _overlooked(hpa, ratio) else min(math.ceil(ratio * existing), LARGEST)
    ratio = usage / (target * existing) if existing else math.inf if usage else math.nan
    return existing if _overlooked(hpa, ratio) else min(math.ceil(usage / target), LARGEST)


def _overlooked(hpa: Hpa, ratio: float) -> bool:
    """Up to Kubernetes 1.32 it was ``abs(1 - ratio) <= tolerance``, which for exactly 1.1 is not within 0.1."""
    return (1.0 - hpa.down_tolerance) <= ratio <= (1.0 + hpa.up_tolerance)


def _stabilise_down(remembered: Remembered, now: float, proposal: int, window: float) -> tuple[int, Remembered]:
    """Without a behaviour block: the highest proposal of the window."""
    recent = [past.number for past in remembered.proposals if past.at >= now - window]
    kept = _put(remembered.proposals, Stamped(now, proposal), now - window)
    return max([proposal, *recent]), replace(remembered, proposals=kept)


def _stabilise(
    hpa: Hpa, behaviour: Behaviour, remembered: Remembered, now: float, asked: int, proposal: int
) -> tuple[int, Remembered]:
    up_from = now - (behaviour.up.stabilisation_seconds or 0.0)
    down_window = behaviour.down.stabilisation_seconds
    down_from = now - (hpa.down_stabilisation_seconds if down_window is None else down_window)
    lowest = min([proposal, *(past.number for past in remembered.proposals if past.at > up_from)])
    highest = max([proposal, *(past.number for past in remembered.proposals if past.at > down_from)])
    kept = _put(remembered.proposals, Stamped(now, proposal), min(up_from, down_from))
    return min(max(asked, lowest), highest), replace(remembered, proposals=kept)


def _within_policies(
    hpa: Hpa, behaviour: Behaviour, remembered: Remembered, now: float, asked: int, wanted: int
) -> tuple[int, str]:
    if wanted > asked:
        limit = _limit(behaviour.up, remembered, now, asked, up=True)
        return _bounded(hpa, wanted, max(limit, asked), 0)
    if wanted < asked:
        limit = _limit(behaviour.down, remembered, now, asked, up=False)
        return _bounded(hpa, wanted, LARGEST, min(limit, asked))
    return wanted, "DesiredWithinRange"


def _limit(rules: ScalingRules, remembered: Remembered, now: float, asked: int, *, up: bool) -> int:
    """The farthest count the policies allow in one direction."""
    if rules.select == "Disabled" or not rules.policies:
        return asked
    reached = []
    for policy in rules.policies:
        since = now - policy.period_seconds
        added = sum(event.number for event in remembered.ups if event.at > since)
        removed = sum(event.number for event in remembered.downs if event.at > since)
        at_begin = asked - added + removed
        if policy.kind == "Pods":
            reached.append(at_begin + policy.value if up else at_begin - policy.value)
        elif up:
            reached.append(math.ceil(at_begin * (1 + policy.value / 100)))
        else:
            reached.append(int(at_begin * (1 - policy.value / 100)))
    farthest = (rules.select == "Max") is up
    return max(reached) if farthest else min(reached)


def _bounded(hpa: Hpa, wanted: int, up_limit: int, down_limit: int) -> tuple[int, str]:
    most, least = min(hpa.max_replicas, up_limit), max(hpa.min_replicas, down_limit)
    if wanted > most:
        return most, "ScaleUpLimit" if up_limit < hpa.max_replicas else "TooManyReplicas"
    if wanted < least:
        return least, "ScaleDownLimit" if down_limit > hpa.min_replicas else "TooFewReplicas"
    return wanted, "DesiredWithinRange"


def _changed(
    hpa: Hpa, remembered: Remembered, now: float, asked: int, replicas: int, proposal: int | None, reason: str
) -> Enacted:
    if hpa.behaviour is not None and replicas > asked:
        since = now - _longest(hpa.behaviour.up)
        remembered = replace(remembered, ups=_put(remembered.ups, Stamped(now, replicas - asked), since))
    elif hpa.behaviour is not None and replicas < asked:
        since = now - _longest(hpa.behaviour.down)
        remembered = replace(remembered, downs=_put(remembered.downs, Stamped(now, asked - replicas), since))
    return Enacted(replicas, proposal, reason, remembered)


def _longest(rules: ScalingRules) -> float:
    return max((policy.period_seconds for policy in rules.policies), default=0.0)


def _put(entries: tuple[Stamped, ...], new: Stamped, since: float) -> tuple[Stamped, ...]:
    """``entries`` with the new one in the place of the last that is older than ``since``, or at the end: the
    controller re-uses places and never clears, so that an old entry may outlive its window without being counted.
    """
    old = [index for index, entry in enumerate(entries) if entry.at < since]
    if not old:
        return (*entries, new)
    return (*entries[: old[-1]], new, *entries[old[-1] + 1 :])


def behaviour_from(block: Mapping[str, Any]) -> Behaviour:
    """The ``behavior`` block of a manifest, with the API server's defaults for what it leaves out."""
    return Behaviour(_rules(block.get("scaleUp"), DEFAULT_UP), _rules(block.get("scaleDown"), DEFAULT_DOWN))


def _rules(block: Mapping[str, Any] | None, default: ScalingRules) -> ScalingRules:
    if block is None:
        return default
    listed: Sequence[Mapping[str, Any]] | None = block.get("policies")
    policies = default.policies
    if listed is not None:
        policies = tuple(
            ScalingPolicy(each["type"], int(each["value"]), float(each["periodSeconds"])) for each in listed
        )
    window, tolerance = block.get("stabilizationWindowSeconds"), block.get("tolerance")
    return ScalingRules(
        policies,
        block.get("selectPolicy", default.select),
        default.stabilisation_seconds if window is None else float(window),
        None if tolerance is None else float(tolerance),
    )
