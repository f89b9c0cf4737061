"""Control tests as timelines: ``at("5m", running=3).expect(replicas=2)``; between two marks it ticks every 5 s."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from scaler.control.decide import decide
from scaler.control.model import Code, Decision, Memory, Now
from scaler.policy.model import Policy
from scaler.signals.model import CATALOG, Interval, Known, Latency, NotApplicable, Signal, Signals

MIDNIGHT = datetime(2026, 6, 3, tzinfo=UTC)  # a Wednesday
TICK_SECONDS = 5.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """``"29m59s"`` as seconds."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m|h)", text))


def latency(p95: float, *, p50: float | None = None, samples: float = 100, mean: float | None = None) -> Latency:
    """A latency whose quantiles are known to a hair."""

    def point(value: float) -> Interval:
        return Interval(value * 0.999, value * 1.001)

    middle = p50 if p50 is not None else p95 / 2
    return Latency(point(middle), point(p95), point(p95 * 1.2), mean if mean is not None else middle, samples)


def quiet(ready: float = 1) -> dict[str, Any]:
    """Signals of a workload nobody uses."""
    return dict(arrivals=0, running=0, waiting=0, ready=ready)


_SHORT = {
    "arrivals": "arrivals_per_second",
    "recent": "arrivals_recent_per_second",
    "last": "arrivals_last_per_second",
    "ready": "ready_replicas",
    "stalled": "stalled_replicas",
    "kv": "kv_use_ratio",
    "preempted": "preemptions_recent",
    "ttft": "ttft_seconds",
    "tpot": "tpot_seconds",
    "e2e": "e2e_seconds",
    "queue": "queue_seconds",
    "gpu_busy": "gpu_busy_ratio",
}


def signals(now_mono: float, **values: Any) -> Signals:
    """Signals at a time: bare numbers and latencies become ``Known``; everything not named stays unknown.

    No wake source unless given, as a workload without one has it.
    """
    given: dict[str, Any] = {
        "pending": NotApplicable("no wake source"),
        "wake_demand": NotApplicable("no wake source"),
        "stalled_replicas": Known(0.0, now_mono),
    }
    for name, value in values.items():
        full = _SHORT.get(name, name)
        plain = full in CATALOG and isinstance(value, int | float | Latency)
        given[full] = Known(value if isinstance(value, Latency) else float(value), now_mono) if plain else value
    return Signals(**given)


@dataclass
class Timeline:
    """One workload over time. ``memory`` and ``decision`` are those of the last tick."""

    policy: Policy
    start: datetime = MIDNIGHT
    memory: Memory = field(default_factory=Memory)
    decision: Decision | None = None
    mono: float = 1000.0
    _elapsed: float = 0.0
    _values: dict[str, Any] = field(default_factory=dict)
    history: list[Decision] = field(default_factory=list)

    def tick(self, at: float, **values: Any) -> Decision:
        """One tick at ``at`` seconds."""
        self._elapsed = at
        now = Now(self.start + timedelta(seconds=at), self.mono + at)
        self.decision = decide(self.policy, self.memory, signals(now.mono, **values), now)
        self.memory = self.decision.next_memory
        self.history.append(self.decision)
        return self.decision

    def at(self, mark: str, **values: Any) -> Timeline:
        """Tick every 5 s with the signals given last until just before ``mark``, then once at ``mark`` with these.

        Without new signals the old ones go on.
        """
        end = seconds(mark)
        if self.decision is not None:
            upcoming = self._elapsed + TICK_SECONDS
            while upcoming < end - 1e-9:
                self.tick(upcoming, **self._values)
                upcoming += TICK_SECONDS
        self._values = values or self._values
        self.tick(end, **self._values)
        return self

    def once(self, mark: str, **values: Any) -> Timeline:
        """Like :meth:`at`, but for one tick only: what was given before goes on after it."""
        before = self._values
        self.at(mark, **values)
        self._values = before
        return self

    def restarted(self) -> Timeline:
        """As after a kill and a restart: the memory is what the store kept, the clocks are others."""
        self.memory = replace(self.memory, tick_mono=None)
        self.mono += 77_777.0
        return self

    def expect(self, **wanted: Any) -> Timeline:
        """Check targets and judgement of the last tick: any field of Targets or Decision by name."""
        decision = self.decision
        assert decision is not None
        for name, value in wanted.items():
            holder = decision.targets if hasattr(decision.targets, name) else decision
            got = getattr(holder, name)
            assert got == value, f"at {self._elapsed:g} s: {name} is {got!r}, expected {value!r}; {decision}"
        return self

    def because(self, *codes: Code) -> Timeline:
        """Check that each of these is among the reasons of the last tick."""
        assert self.decision is not None
        got = {reason.code for reason in self.decision.reasons}
        assert set(codes) <= got, f"at {self._elapsed:g} s: reasons {got}, expected {set(codes)}"
        return self

    def held_back(self, *codes: Code) -> Timeline:
        """Check that each of these is among what was suppressed in the last tick."""
        assert self.decision is not None
        got = {held.code for held in self.decision.suppressed}
        assert set(codes) <= got, f"at {self._elapsed:g} s: suppressed {got}, expected {set(codes)}"
        return self


def gone(reason: str = "connection refused") -> dict[str, Signal[float]]:
    """Engine signals of a workload whose every endpoint is out of reach: all unknown."""
    from scaler.signals.model import Unknown

    return {name: Unknown(reason) for name in ("arrivals", "running", "waiting", "ready")}
