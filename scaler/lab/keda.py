"""KEDA's half of a ScaledObject, replayed: zero and back, cooldown, fallback. Between 1 and the maximum the HPA acts.

Read in kedacore/keda (8b4f083 and 2.20): ``RequestScale`` and ``scaleToZeroOrIdle`` in
pkg/scaling/executor/scale_scaledobjects.go, the poll in pkg/scaling/scale_handler.go, failures in
pkg/fallback/fallback.go. For a ScaledObject with one trigger, ours, whose value is the desired replica count:

- active: from zero (or idle) to max(min, 1) at once; above, only the moment is remembered;
- inactive: to zero (or idle) from any count, once the last active poll is longer ago than ``cooldown_seconds``;
- error: nothing changes, unless there is a fallback: above its threshold the workload counts as active with the
  fallback's replicas as value, and a fallback of 0 replicas does not protect at all.

Pure: the clock is an argument.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from scaler.lab.hpa import Behaviour, Hpa
from scaler.value import frozen


@frozen
class Fallback:
    """After more than ``failure_threshold`` failures in a row, ``replicas`` (behaviour ``static``)."""

    failure_threshold: int
    replicas: int


@frozen
class ScaledObject:
    """The fields of its ``spec`` that decide, with KEDA's defaults; seconds."""

    max_replicas: int = 100
    min_replicas: int = 0
    idle_replicas: int | None = None
    polling_seconds: float = 30.0
    cooldown_seconds: float = 300.0
    initial_cooldown_seconds: float = 0.0
    fallback: Fallback | None = None
    behaviour: Behaviour | None = None

    def hpa(self) -> Hpa:
        """The HPA that KEDA makes of it: it never asks for 0, that is KEDA's own part."""
        return Hpa(self.max_replicas, max(self.min_replicas, 1), self.behaviour)


@frozen
class Answer:
    """What GetMetrics and IsActive told; None in its place where either of them failed."""

    value: float
    active: bool


@frozen
class KedaStatus:
    """What KEDA keeps in the ScaledObject's status. Times in seconds of the same clock as ``now``."""

    created_at: float
    last_active_at: float | None = None
    failures: int = 0


class Act(StrEnum):
    """What a poll or a push did to the target."""

    NOTHING = "nothing"
    FROM_ZERO = "from zero"
    TO_ZERO = "to zero"
    TO_MIN = "to min"
    COOLING_DOWN = "cooling down"


@frozen
class Checked:
    """The target's spec.replicas afterwards, why, and the status to go on with."""

    replicas: int
    act: Act
    status: KedaStatus


def poll(what: ScaledObject, status: KedaStatus, now: float, replicas: int, answer: Answer | None) -> Checked:
    """One check of the scale loop, every ``polling_seconds``."""
    told, status = _with_fallback(what, status, answer)
    if told is not None and told.active:
        return _active(what, status, now, replicas)
    failed = told is None
    if failed and (what.fallback is None or what.fallback.replicas != 0):
        return Checked(replicas, Act.NOTHING, status)
    floor = what.min_replicas if what.idle_replicas is None else what.idle_replicas
    if (what.idle_replicas is not None and replicas > what.idle_replicas) or (replicas > 0 and what.min_replicas == 0):
        if _cooled_down(what, status, now):
            return Checked(floor, Act.TO_ZERO, status)
        return Checked(replicas, Act.COOLING_DOWN, status)
    if what.idle_replicas is None and replicas < what.min_replicas:
        return Checked(what.min_replicas, Act.TO_MIN, status)
    return Checked(replicas, Act.NOTHING, status)


def pushed(what: ScaledObject, status: KedaStatus, now: float, replicas: int, active: bool) -> Checked:
    """A message of StreamIsActive: ``true`` acts at once, ``false`` is ignored (from KEDA 2.18 on)."""
    return _active(what, status, now, replicas) if active else Checked(replicas, Act.NOTHING, status)


def metric_for_hpa(what: ScaledObject, status: KedaStatus, answer: Answer | None) -> tuple[float | None, KedaStatus]:
    """What the HPA gets in its own sync: the value whatever the activity; failures are counted here as well."""
    told, status = _with_fallback(what, status, answer)
    return (None if told is None else told.value), status


def _with_fallback(what: ScaledObject, status: KedaStatus, answer: Answer | None) -> tuple[Answer | None, KedaStatus]:
    if answer is not None or what.fallback is None:
        return answer, replace(status, failures=0) if answer is not None else status
    status = replace(status, failures=status.failures + 1)
    if status.failures <= what.fallback.failure_threshold:
        return None, status
    return Answer(float(what.fallback.replicas), active=True), status


def _active(what: ScaledObject, status: KedaStatus, now: float, replicas: int) -> Checked:
    status = replace(status, last_active_at=now)
    below_min = what.idle_replicas is not None and replicas < what.min_replicas
    if below_min or replicas == 0:
        return Checked(max(what.min_replicas, 1), Act.FROM_ZERO, status)
    return Checked(replicas, Act.NOTHING, status)


def _cooled_down(what: ScaledObject, status: KedaStatus, now: float) -> bool:
    if status.last_active_at is None:  # never active under KEDA: its own start counts
        return status.created_at + what.initial_cooldown_seconds < now
    return status.last_active_at + what.cooldown_seconds < now
