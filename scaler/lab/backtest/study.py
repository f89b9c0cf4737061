"""One backtest from the first question to what it found: read, measure, play, judge."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

from scaler.control.capacity_estimate import CapacityEstimate
from scaler.lab.backtest.asking import Ask
from scaler.lab.backtest.binding import Binding, bind
from scaler.lab.backtest.crowd import Pace, fit_pace
from scaler.lab.backtest.findings import Findings, find_out
from scaler.lab.backtest.past import Measure, PackedTicks
from scaler.lab.backtest.play import Change, Moment, Player
from scaler.lab.backtest.questions import Cluster, Questions, applied_batch
from scaler.lab.backtest.reading import Part, Reader
from scaler.lab.backtest.replay import Replay, scrape_interval_seconds
from scaler.lab.backtest.span import Span, shown_duration, shown_time
from scaler.policy.model import Policy
from scaler.signals.preset import Preset
from scaler.signals.prometheus.plan import presence_names
from scaler.signals.prometheus.replicas import Bound
from scaler.value import frozen

#: The server ticks so often, and reads no more often.
TICK_SECONDS: Final = 5.0
#: Fewer replicas that came up say nothing about how long that takes.
LEAST_LOADS: Final = 3
#: A range that begins so much before the first data is said to be longer than the past.
_LATE_SECONDS: Final = 900.0


class NothingReadError(Exception):
    """There is no data to backtest on; the text says what is missing."""


@frozen
class Setting:
    """What is asked: the workload, its policy and what its operator should know of that, the span, and what it costs.

    ``cold_start_seconds`` None: as the past shows it, else as the policy says. ``gpu_hour_price`` None: as the policy
    says, hour by hour. ``currency``: of what anything costs, "" where that was not told.
    """

    workload: str
    policy: Policy
    preset: Preset
    server: str
    span: Span
    policy_source: str = "the defaults"
    policy_warnings: tuple[str, ...] = ()
    cold_start_seconds: float | None = None
    gpus_per_replica: float = 1.0
    gpu_hour_price: float | None = None
    currency: str = ""

    @property
    def priced(self) -> bool:
        """Whether any price of a GPU is known."""
        return self.gpu_hour_price is not None or self.policy.priced

    def hour_price(self, unix: float) -> float | None:
        """What a GPU costs an hour at ``unix``; None where nothing says."""
        if self.gpu_hour_price is not None:
            return self.gpu_hour_price
        return self.policy.hour_price(datetime.fromtimestamp(unix, UTC))

    @property
    def namespace(self) -> str:
        """The workload's namespace."""
        return self.workload.partition("/")[0]


@frozen
class ColdStart:
    """How long a replica was taken to need, and whose word that is."""

    seconds: float
    source: str


@frozen
class Backtest:
    """The whole result. ``counted``: whether kube-state-metrics told what ran; ``samples`` and ``bytes`` were read."""

    setting: Setting
    binding: Binding
    span: Span
    interval_seconds: float
    tick_seconds: float
    cold_start: ColdStart
    pace: Pace
    counted: bool
    findings: Findings
    moments: Sequence[Moment] = field(repr=False)
    changes: Sequence[Change] = field(repr=False)
    capacity: CapacityEstimate
    partial: str
    samples: int
    bytes: int


async def study(setting: Setting, ask: Ask, done: Callable[[float, str], None]) -> Backtest:
    """Run the backtest. ``done`` is told how far it is (0..1) and with what.

    Raises :class:`NothingReadError`, and what reading and binding raise.
    """
    done(0.0, "looking for the workload")
    binding = await bind(ask, setting.preset, setting.policy, setting.workload, setting.span)
    past = _Past(setting, binding)
    reader = Reader(
        ask,
        Questions(setting.preset, binding, setting.policy.objectives),
        Cluster(binding.match.get("namespace", setting.namespace), binding.match.get("cluster")),
        binding.target,
        setting.policy.prometheus.replica_label,
        setting.span,
        {"applied_batch": applied_batch(setting.workload), **setting.policy.prometheus.queries},
        max(TICK_SECONDS, setting.policy.prometheus.scrape_interval_seconds),
    )
    async for part in reader.parts():
        await asyncio.to_thread(past.take, part)
        share = (part.span.until - setting.span.since) / setting.span.seconds
        done(share, f"read to {shown_time(part.span.until)} UTC")
    done(1.0, "deciding")
    return await asyncio.to_thread(past.played)


class _Past:
    """The past as it is read, and what is played over it."""

    def __init__(self, setting: Setting, binding: Binding) -> None:
        self.setting, self.binding = setting, binding
        self.ticks = PackedTicks()
        self.samples = self.bytes = 0
        self.partial = ""
        self.begin: float | None = None
        self._replay: Replay | None = None
        self._measure: Measure | None = None
        self.tick_seconds = TICK_SECONDS

    def take(self, part: Part) -> None:
        """One more part. Until the first that has engines nothing is known of the scrape interval, nor needed."""
        self.samples, self.bytes = self.samples + part.samples, self.bytes + part.bytes
        self.partial = self.partial or part.partial
        if self._replay is None:
            interval = scrape_interval_seconds(part, presence_names(self.setting.preset))
            if interval is None:
                return
            self._begin(part, interval)
        assert self._replay is not None
        assert self._measure is not None
        for seen in self._replay.ticks(part, self.tick_seconds):
            self.ticks.append(self._measure(seen))

    def _begin(self, part: Part, interval: float) -> None:
        policy = self.setting.policy
        self.begin = part.span.since
        self.tick_seconds = max(TICK_SECONDS, float(math.ceil(round(interval, 3))))
        prometheus = policy.prometheus.model_copy(
            update={"match": self.binding.match, "scrape_interval_seconds": interval}
        )
        bound = Bound(
            self.setting.server, self.setting.preset, prometheus, policy.scrape.model_name, policy.hold_seconds
        )
        namespace = self.binding.match.get("namespace", self.setting.namespace)
        self._replay = Replay(bound, self.binding.target, namespace, interval, part.span.since)
        self._measure = Measure(policy, self.tick_seconds)

    def played(self) -> Backtest:
        """The decisions over what was read. Raises :class:`NothingReadError`."""
        replay, measure, policy = self._replay, self._measure, self.setting.policy
        if replay is None or measure is None:
            raise NothingReadError(
                f"the series are there, but no replica has two samples between {shown_time(self.setting.span.since)} "
                f"and {shown_time(self.setting.span.until)} UTC; take a longer --range"
            )
        cold_start = cold_start_of(
            self.setting.cold_start_seconds, replay.loads, replay.created_told, policy.replicas.cold_start_seconds
        )
        pace = fit_pace(measure.pace, self.tick_seconds)
        player = Player(policy, pace, cold_start.seconds, self.tick_seconds)
        moments = list(player.play(self.ticks))
        if not moments or player.last is None:
            raise NothingReadError(
                "in no tick of the range all replicas were read, so that there is nothing to decide on; "
                "loadtide probe URL shows what is missing"
            )
        loading = 0.0 if measure.counted else sum(replay.loads)
        findings = find_out(moments, self.tick_seconds, player.replicas.changes, loading)
        return Backtest(
            setting=self.setting,
            binding=self.binding,
            span=Span(moments[0].unix - self.tick_seconds, moments[-1].unix),
            interval_seconds=replay.interval_seconds,
            tick_seconds=self.tick_seconds,
            cold_start=cold_start,
            pace=pace,
            counted=measure.counted,
            findings=findings,
            moments=moments,
            changes=player.changes,
            capacity=player.last.capacity,
            partial=self.partial,
            samples=self.samples,
            bytes=self.bytes,
        )


def cold_start_of(given: float | None, loads: Sequence[float], created_told: bool, declared: float) -> ColdStart:
    """What was ``given``; else P95 (nearest rank) of the ``loads`` that were seen, if they are enough; else what the
    policy ``declared``. ``created_told``: the loads count from the pods' creation.
    """
    if given is not None:
        return ColdStart(given, "as given")
    if len(loads) < LEAST_LOADS:
        few = f"{len(loads)} came up in the past, too few to tell" if loads else "none came up in the past"
        return ColdStart(declared, f"the policy's word: {few}")
    since = "a pod's creation" if created_told else "the process' start (without scheduling and image pull)"
    seconds = sorted(loads)[math.ceil(0.95 * len(loads)) - 1]
    return ColdStart(seconds, f"P95 of {len(loads)} replicas that came up, from {since} to the first sample")


def gaps(moments: Sequence[Moment], tick_seconds: float) -> list[Span]:
    """The stretches without data."""
    found = []
    for kind, group in groupby(moments, key=lambda moment: moment.kind):
        if kind == "gap":
            stretch = list(group)
            found.append(Span(stretch[0].unix - tick_seconds, stretch[-1].unix))
    return found


def shorter_than_asked(backtest: Backtest) -> str:
    """What to say where the past begins later than the range; "" where it does not."""
    asked, got = backtest.setting.span, backtest.span
    if got.since - asked.since <= _LATE_SECONDS:
        return ""
    return (
        f"the workload's series begin only {shown_time(got.since)} UTC, {shown_duration(got.since - asked.since)} "
        f"after the range asked for: backtested are {shown_duration(got.seconds)} (the server keeps no more, or the "
        "workload is younger)"
    )
