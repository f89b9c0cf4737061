"""A workload's time line for tests of the fold: ``line.at(15, a=pod(finished=7), b=down())`` gives the signals then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from scaler.policy.model import Policy
from scaler.signals.model import Signals
from scaler.signals.observation import Buckets, Demand, EngineSample, Observation, ReadFailure, ReplicaCounts
from scaler.signals.window import History, fold

#: Unix time of the time line's second 0.
UNIX = 1_760_000_000.0

HISTOGRAMS = ("ttft", "tpot", "e2e", "queue", "prefill", "decode", "prompt_length", "generation_length")


def buckets(observations: Sequence[float], bounds: Sequence[float] = (0.1, 1.0, 10.0)) -> Buckets:
    """A histogram series that has seen ``observations``."""
    with_inf = (*bounds, inf)
    counts = tuple(float(sum(each <= bound for each in observations)) for bound in with_inf)
    return Buckets(with_inf, counts, float(sum(observations)), float(len(observations)))


def pod(*, started: float | None = None, warnings: tuple[str, ...] = (), **families: Any) -> EngineSample:
    """One endpoint's page. ``started`` is the process start in seconds of the time line. Counters: a number, or numbers
    by series; histograms: what they have seen, or :class:`Buckets`; anything else is a gauge.
    """
    gauges: dict[str, float] = {}
    counters: dict[str, Mapping[str, float]] = {}
    histograms: dict[str, Mapping[str, Buckets]] = {}
    for family, value in families.items():
        if family in HISTOGRAMS:
            histograms[family] = {"": value if isinstance(value, Buckets) else buckets(value)}
        elif family in (
            "finished",
            "preemptions",
            "prompt_tokens",
            "generation_tokens",
            "arrivals",
            "admission_rejections",
            "steps",
        ):
            counters[family] = value if isinstance(value, dict) else {"": float(value)}
        else:
            gauges[family] = float(value)
    return EngineSample(
        at=0.0,
        process_start_seconds=None if started is None else UNIX + started,
        gauges=gauges,
        counters=counters,
        histograms=histograms,
        warnings=warnings,
    )


def down(reason: str = "connection refused") -> ReadFailure:
    """An endpoint that cannot be read."""
    return ReadFailure(at=0.0, reason=reason)


class Timeline:
    """Folds one observation after another, and keeps the history."""

    def __init__(self, policy: Policy | None = None, *, interval_seconds: float = 15.0) -> None:
        self.policy = policy or Policy()
        self.interval_seconds = interval_seconds
        self.history = History()
        self.observation = Observation(at=-inf, endpoints={})

    def at(
        self,
        seconds: float,
        *,
        demand: Demand | None = None,
        absent: str | None = None,
        lost: str | None = None,
        replicas: ReplicaCounts | None = None,
        **endpoints: EngineSample | ReadFailure,
    ) -> Signals:
        """Everything read at ``seconds``, and the signals right then."""
        reads = {name: replace(read, at=seconds) for name, read in endpoints.items()}
        self.observation = Observation(seconds, reads, demand, absent=absent, lost=lost, replicas=replicas)
        return self.judged(seconds)

    def judged(self, seconds: float) -> Signals:
        """The signals of the last observation as they are at ``seconds``."""
        self.history, signals = fold(
            self.history,
            self.observation,
            seconds,
            self.policy,
            interval_seconds=self.interval_seconds,
            now_unix=UNIX + seconds,
        )
        return signals
