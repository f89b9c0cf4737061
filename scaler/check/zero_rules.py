"""Rules about zero replicas: how a workload gets there, how it is woken, and what an outage of ours does to it."""

from __future__ import annotations

from collections.abc import Iterator

from scaler.check.edit import Insert, Remove, Write
from scaler.check.rule import Hit, Rule, Severity
from scaler.check.subjects import DEFAULT_COOLDOWN_SECONDS, DEFAULT_POLLING_SECONDS, ScaledObject
from scaler.policy.keys import Path

#: KEDA looks this often at the least where only a poll finds that somebody waits at zero, seconds.
SLOW_POLLING_SECONDS = 15
#: The cooldown that examples have, and one that is only added to our idle time, seconds.
SHORT_COOLDOWN_SECONDS, LONG_COOLDOWN_SECONDS = 30, 60

_SPEC: Path = ("spec",)


def slow_polling(scaled: ScaledObject) -> Iterator[Hit]:
    said = scaled.manifest.whole("spec", "pollingInterval")
    seconds = DEFAULT_POLLING_SECONDS if said is None else said
    # With a stream the poll is only the second way to a wake, and KEDA's default will do.
    if not scaled.reaches_zero or seconds <= (DEFAULT_POLLING_SECONDS if scaled.has_push else SLOW_POLLING_SECONDS):
        return
    path = (*_SPEC, "pollingInterval")
    fix = f"pollingInterval: {SLOW_POLLING_SECONDS}"
    yield Hit(
        path,
        f"at zero replicas KEDA finds only at a poll that somebody waits, and it polls every {seconds} s"
        + (" (its default)" if said is None else ""),
        fix,
        (Insert(_SPEC, fix, after="scaleTargetRef") if said is None else Write(path, str(SLOW_POLLING_SECONDS)),),
    )


def idle_replicas(scaled: ScaledObject) -> Iterator[Hit]:
    path = (*_SPEC, "idleReplicaCount")
    idle = scaled.manifest.whole(*path)
    if idle:
        yield Hit(
            path,
            f"idleReplicaCount {idle}: KEDA supports 0 only, and flips between idle and minimum at other numbers",
            "idleReplicaCount: 0",
            (Write(path, "0"),),
        )


def idle_not_below_minimum(scaled: ScaledObject) -> Iterator[Hit]:
    path = (*_SPEC, "idleReplicaCount")
    if scaled.manifest.whole(*path) == 0 and scaled.minimum == 0:
        yield Hit(
            path,
            "KEDA refuses an idleReplicaCount that is not below minReplicaCount, and both are 0",
            "# no idleReplicaCount: with minReplicaCount 0 it is zero when inactive",
            (Remove(path),),
        )


def never_woken(scaled: ScaledObject) -> Iterator[Hit]:
    if scaled.reaches_zero and scaled.policy is not None and not scaled.policy.can_wake:
        yield Hit(
            (*_SPEC, "minReplicaCount"),
            "nothing can tell loadtide of a request at zero replicas, so it keeps one for ever: zero is never reached",
            'pushEnabled: "true"   # and a gateway that calls /wake or /demand; or minReplicaCount: 1',
        )


def cooldown(scaled: ScaledObject) -> Iterator[Hit]:
    said = scaled.manifest.whole("spec", "cooldownPeriod")
    seconds = DEFAULT_COOLDOWN_SECONDS if said is None else said
    if not scaled.reaches_zero or seconds <= LONG_COOLDOWN_SECONDS:
        return
    path, fix = (*_SPEC, "cooldownPeriod"), f"cooldownPeriod: {SHORT_COOLDOWN_SECONDS}"
    idle = "its idle time" if scaled.policy is None else f"{scaled.policy.idle.timeout_seconds:g} s of proven idleness"
    yield Hit(
        path,
        f"loadtide says inactive only after {idle}, and KEDA then waits another {seconds} s"
        + (" (its default)" if said is None else ""),
        fix,
        (Insert(_SPEC, fix, after="scaleTargetRef") if said is None else Write(path, str(SHORT_COOLDOWN_SECONDS)),),
    )


def fallback_zero(scaled: ScaledObject) -> Iterator[Hit]:
    path = (*_SPEC, "fallback", "replicas")
    if scaled.manifest.whole(*path) == 0:
        yield Hit(
            path,
            "fallback.replicas 0 takes every replica down to the minimum when loadtide cannot be reached",
            "fallback: {failureThreshold: 3, replicas: 1, behavior: currentReplicasIfHigher}",
            (Write(path, str(max(scaled.minimum, 1))),),
        )


def fallback_wakes(scaled: ScaledObject) -> Iterator[Hit]:
    path = (*_SPEC, "fallback")
    replicas = scaled.manifest.whole(*path, "replicas")
    if scaled.reaches_zero and replicas:
        yield Hit(
            path,
            f"with a fallback an error at zero wakes {replicas} replicas (KEDA 2.19 and newer), at night as well; "
            "without one KEDA keeps the count it has",
            "# no fallback: loadtide holds its answer for 120 s, then KEDA keeps the count",
            (Remove(path),),
        )


ZERO_RULES = (
    Rule(
        "slow-polling",
        Severity.WARNING,
        "KEDA polls slowly while a wake or a jump waits for it",
        "From zero the first replica is asked for at the next poll, up to pollingInterval later (default 30 s).",
        "pollingInterval: 15",
        slow_polling,
    ),
    Rule(
        "idle-replicas",
        Severity.WARNING,
        "idleReplicaCount other than 0",
        "KEDA supports 0 only.",
        "idleReplicaCount: 0",
        idle_replicas,
    ),
    Rule(
        "idle-not-below-minimum",
        Severity.ERROR,
        "idleReplicaCount is not below minReplicaCount",
        "KEDA refuses the ScaledObject.",
        "minReplicaCount: 0   # without idleReplicaCount",
        idle_not_below_minimum,
    ),
    Rule(
        "never-woken",
        Severity.WARNING,
        "scale to zero, and nothing that can wake it",
        "An engine that does not run has no metrics. Without a gateway that reports demand zero would be for ever, so "
        "the floor is 1.",
        'pushEnabled: "true"',
        never_woken,
    ),
    Rule(
        "cooldown-twice",
        Severity.WARNING,
        "a long cooldownPeriod beside our idle time",
        "loadtide says inactive only after proven idleness; cooldownPeriod (default 300 s) is waited after that.",
        "cooldownPeriod: 30",
        cooldown,
    ),
    Rule(
        "fallback-zero",
        Severity.ERROR,
        "fallback.replicas is 0",
        "When loadtide cannot be reached, that takes a working service down.",
        "fallback: {failureThreshold: 3, replicas: 1, behavior: currentReplicasIfHigher}",
        fallback_zero,
    ),
    Rule(
        "fallback-wakes",
        Severity.WARNING,
        "a fallback, although it scales to zero",
        "KEDA 2.19 and newer apply it at zero too: lost signals at night buy GPUs. Without it KEDA keeps the count.",
        "# no fallback",
        fallback_wakes,
    ),
)
