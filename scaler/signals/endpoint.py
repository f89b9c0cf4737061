"""One endpoint over time: its last good sample, what it counted since the one before, and whether it makes progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from scaler.signals import counters, histogram
from scaler.signals.arrivals import arrived
from scaler.signals.flow import FLOWS, Increment
from scaler.signals.observation import SECONDS_SPENT, Buckets, EngineSample
from scaler.value import frozen

#: What moves when an engine does its work. Inter-token times belong here because SGLang counts tokens only at the end
#: of a request: during one long answer nothing else moves.
ACTIVITY_COUNTERS = ("finished", "prompt_tokens", "generation_tokens")
ACTIVITY_HISTOGRAMS = ("ttft", "tpot")
#: What shows progress beside them, and yet proves no request: some engines count steps while they have no work.
STEPS = "steps"

_NO_LOAD: Mapping[str, float] = {"running": 0.0, "waiting": 0.0}
_NO_SERIES: Mapping[str, Mapping[str, float]] = {}
_NO_BUCKET_SERIES: Mapping[str, Buckets] = {}
_NO_BUCKETS: Mapping[str, Mapping[str, Buckets]] = {}


#: A start that differs by no more is the same process: exporters that work it out anew at each read, from the machine's
#: boot time, are off by a second when its clock is set (prometheus/client_golang#289). A process that really lived no
#: longer counted nothing that a fallen counter would not show.
START_MOVES_SECONDS = 2.0

#: A queue shows a cap when it is at least this share of what runs, and what runs moved by at most that share.
QUEUED_SHARE, FLAT_SHARE = 0.25, 0.1


@frozen
class Tracked:
    """What is remembered of one endpoint.

    ``boundary`` is the time of the observation that brought ``sample``. ``counters`` and ``histograms`` are what the
    next sample is counted from (the sample's own, and series it lacked). ``progress_at``: when work last moved or there
    was none. ``rates``: its flows per second over its last interval, in the order of ``FLOWS``; None before it has one.
    ``unanswered``: see :mod:`scaler.signals.arrivals`. ``saturated``: what it ran while it queued, at both of its last
    two reads; None where it did not. ``counted_from``: since when its counters are accounted for; -inf where nothing of
    it was missed.
    """

    sample: EngineSample
    boundary: float
    counters: Mapping[str, Mapping[str, float]]
    histograms: Mapping[str, Mapping[str, Buckets]]
    progress_at: float
    rates: tuple[float, ...] | None = None
    unanswered: float = 0.0
    saturated: float | None = None
    counted_from: float = -inf

    @property
    def progress_seconds(self) -> float:
        """For how long, as of the last sample, there was work and nothing moved."""
        return self.sample.at - self.progress_at


@frozen
class Advance:
    """One more sample of an endpoint: what is remembered now, what it counted, whether any activity counter moved."""

    tracked: Tracked
    increment: Increment
    moved: bool


def first_sight(sample: EngineSample, boundary: float, *, missed: bool) -> Tracked:
    """An endpoint that ran before we looked: its totals say nothing about now, so they only are what to count from.

    ``missed``: it was there before and could not be read, so that a window reaching further back lacks its part.
    """
    return Tracked(
        sample=sample,
        boundary=boundary,
        counters=sample.counters,
        histograms=sample.histograms,
        progress_at=sample.at,
        # Anyone running may still be in prefill: their first tokens must not be taken for new arrivals.
        unanswered=sample.gauges.get("running", 0.0),
        counted_from=boundary if missed else -inf,
    )


def newborn(sample: EngineSample, since: float) -> Tracked:
    """The state of an endpoint before it served anything, at ``since``: so that all it has counted counts."""
    unborn = EngineSample(at=sample.at, process_start_seconds=sample.process_start_seconds, gauges=_NO_LOAD)
    return Tracked(unborn, since, _NO_SERIES, _NO_BUCKETS, progress_at=sample.at)


def advance(before: Tracked, sample: EngineSample, boundary: float) -> Advance:
    """``before`` and one newer sample of the same endpoint, in the observation at ``boundary``."""
    began, begins = before.sample.process_start_seconds, sample.process_start_seconds
    moved = None if began is None or begins is None else abs(begins - began)
    restarted = moved is not None and moved > START_MOVES_SECONDS
    counted, reset = _counted(_NO_SERIES if restarted else before.counters, sample.counters)
    latencies = _observed(_NO_BUCKETS if restarted else before.histograms, sample.histograms)
    # Without a process start time a counter that fell is the only sign of a restart; with one, that the start is the
    # same means that only one of several engines in the endpoint began anew, and the others still hold their load.
    anew = restarted or (reset and moved is None)

    unanswered = 0.0
    if "arrivals" not in sample.counters:
        counted["arrivals"], unanswered = arrived(
            _NO_LOAD if anew else before.sample.gauges,
            sample.gauges,
            counted.get("finished"),
            _samples(latencies, "ttft") if "ttft" in sample.histograms else None,
            0.0 if anew else before.unanswered,
        )
        # Turned away at the engine's door (HTTP 503): demand that neither balance sees.
        counted["arrivals"] += counted.get("admission_rejections", 0.0)
    flows = tuple([counted.get(flow, 0.0) for flow in FLOWS])
    increment = Increment(before.boundary, boundary, flows, latencies)
    # From here on only: in a balance of arrivals an average over the interval is no state at its end.
    sample = _with_estimates(sample, counted, increment.seconds)
    did = [counted.get(family, 0.0) for family in ACTIVITY_COUNTERS]
    active = max(did) > 0 or max([_samples(latencies, family) for family in ACTIVITY_HISTOGRAMS]) > 0
    progressed = active or counted.get(STEPS, 0.0) > 0
    tracked = Tracked(
        sample=sample,
        boundary=boundary,
        counters=sample.counters if anew else counters.carried(before.counters, sample.counters),
        histograms=sample.histograms if anew else counters.carried(before.histograms, sample.histograms),
        progress_at=sample.at if progressed or anew or _cannot_stall(before.sample, sample) else before.progress_at,
        rates=tuple([amount / increment.seconds for amount in flows]),
        unanswered=unanswered,
        saturated=None if anew else _saturated(before.sample, sample),
        counted_from=before.counted_from,
    )
    asked = counted.get("admission_rejections", 0.0) + (counted["arrivals"] if "arrivals" in sample.counters else 0.0)
    return Advance(tracked, increment, active or asked > 0)


def reports_flow(sample: EngineSample, flow: str) -> bool:
    """Whether the endpoint can tell this flow. A family without any series yet is told: it has counted nothing."""
    if flow in sample.counters:
        return True
    return flow == "arrivals" and ("finished" in sample.counters or "ttft" in sample.histograms)


def _counted(
    before: Mapping[str, Mapping[str, float]], now: Mapping[str, Mapping[str, float]]
) -> tuple[dict[str, float], bool]:
    counted, reset = {}, False
    for family, series in now.items():
        counted[family], fell = counters.increase(before.get(family, {}), series)
        reset = reset or fell
    return counted, reset


def _observed(
    before: Mapping[str, Mapping[str, Buckets]], now: Mapping[str, Mapping[str, Buckets]]
) -> dict[str, Buckets]:
    observed: dict[str, Buckets] = {}
    if now is before:
        return observed
    for family, series in now.items():
        known, grown = before.get(family, _NO_BUCKET_SERIES), []
        for key, each in series.items():
            found = histogram.increase(known.get(key), each)
            if found is not None:
                grown.append(found)
        if grown:
            observed[family] = histogram.total(grown)
    return observed


def _with_estimates(sample: EngineSample, counted: Mapping[str, float], seconds: float) -> EngineSample:
    """``sample`` with the gauges the engine lacks, estimated over the interval of ``seconds`` by Little's law: seconds
    spent waiting, per second, are how many waited on average.
    """
    estimates = {
        family: counted[spent] / seconds
        for family, spent in SECONDS_SPENT.items()
        if spent in counted and family not in sample.gauges
    }
    return replace(sample, gauges={**sample.gauges, **estimates}) if estimates else sample


def _samples(latencies: Mapping[str, Buckets], family: str) -> float:
    found = latencies.get(family)
    return found.count if found else 0.0


def _saturated(before: EngineSample, now: EngineSample) -> float | None:
    """The engine's cap as it shows: a queue that stays while what runs does not grow. A few requests that wait for
    their prompt's turn in the next steps are no such queue: in the lab, taking them for one put a replica's capacity at
    a ninth of what it was. Requests may just have ended at one of the reads, so the larger counts. Running nothing with
    a queue is no cap but trouble.
    """
    earlier, later = (gauges.get("running", 0.0) for gauges in (before.gauges, now.gauges))
    cap = max(earlier, later)
    queue = min(before.gauges.get("waiting", 0.0), now.gauges.get("waiting", 0.0))
    if min(earlier, later) <= 0 or queue < max(1.0, QUEUED_SHARE * cap):
        return None
    return cap if abs(later - earlier) <= max(1.0, FLAT_SHARE * cap) else None


def _cannot_stall(before: EngineSample, now: EngineSample) -> bool:
    """Without work (the time counts from the first sample that shows work), or without any counter that would tell."""
    idle = any(sample.gauges.get("running", 0.0) + sample.gauges.get("waiting", 0.0) <= 0 for sample in (before, now))
    tells = any(family in now.counters for family in (*ACTIVITY_COUNTERS, STEPS)) or any(
        family in now.histograms for family in ACTIVITY_HISTOGRAMS
    )
    return idle or not tells
