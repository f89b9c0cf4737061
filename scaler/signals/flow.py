"""What was counted when: the increments of the window, and 15 s arrival counts for their dispersion.

One :class:`Increment` per observation, already summed over endpoints: the work per tick does not grow with
window × pods.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import ceil, floor
from operator import add, mul

from scaler.signals import histogram
from scaler.signals.model import ArrivalTrend
from scaler.signals.observation import Buckets
from scaler.signals.packed import PackedLatencies
from scaler.signals.trend import fit_trend
from scaler.value import frozen

#: The flows of an increment, in the order of their numbers. All but arrivals are counter families of the same name.
FLOWS = ("arrivals", "finished", "prompt_tokens", "generation_tokens", "preemptions")
ARRIVALS, FINISHED, PROMPT_TOKENS, GENERATION_TOKENS, PREEMPTIONS = range(5)
NOTHING = (0.0,) * len(FLOWS)

#: "Recent", and the length of one count for the dispersion, seconds.
RECENT_SECONDS = 15.0
#: 15 s counts kept (30 min), and the fewest that say something about dispersion.
COUNTS_KEPT = 120
COUNTS_NEEDED = 8
_EDGE = 1e-6


@frozen
class Increment:
    """What was counted in ``(since, until]`` (monotonic seconds): the flows, and the latencies' bucket increases."""

    since: float
    until: float
    flows: Sequence[float] = NOTHING
    latencies: Mapping[str, Buckets] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.until - self.since


def joined(parts: Sequence[Increment], since: float, until: float) -> Increment:
    """Several increments as one over ``(since, until]``."""
    if not parts:
        return Increment(since, until)
    flows = tuple(map(sum, zip(*[part.flows for part in parts], strict=True)))
    by_family: dict[str, list[Buckets]] = {}
    for part in parts:
        for family, buckets in part.latencies.items():
            by_family.setdefault(family, []).append(buckets)
    return Increment(since, until, flows, {family: histogram.total(found) for family, found in by_family.items()})


def spread(increments: Sequence[Increment], late: Increment) -> list[Increment]:
    """``increments`` with ``late`` shared out over them by time; what lies before the first is left out.

    An endpoint that missed reads counts the whole gap at once. Taken as the last interval's it would look like a jump,
    so it is laid into the intervals it belongs to, evenly, for want of better knowledge.
    """
    shared = list(increments)
    for index, each in enumerate(shared):
        overlap = min(each.until, late.until) - max(each.since, late.since)
        if overlap <= 0:
            continue
        fraction = overlap / late.seconds
        latencies = dict(each.latencies)
        for family, buckets in late.latencies.items():
            part = histogram.scaled(buckets, fraction)
            latencies[family] = histogram.total([latencies[family], part]) if family in latencies else part
        flows = tuple(map(add, each.flows, [amount * fraction for amount in late.flows]))
        shared[index] = Increment(each.since, each.until, flows, latencies)
    return shared


def covering(increments: tuple[Increment, ...], seconds: float) -> tuple[Increment, ...]:
    """The newest increments that make up ``seconds``: always the newest, and each that lies in it by more than half.

    By half, so that a tick that came some milliseconds late does not drop a whole interval out of the window.
    """
    if not increments:
        return ()
    begin = increments[-1].until - seconds
    first = len(increments) - 1
    while first > 0 and (increments[first - 1].since + increments[first - 1].until) / 2 >= begin:
        first -= 1
    return increments[first:] if first else increments


@frozen
class ArrivalCounts:
    """Arrivals in consecutive slots of 15 s from ``origin`` (monotonic seconds) to ``until``, oldest first."""

    origin: float
    until: float
    counts: Sequence[float] = ()

    def counted(self, amount: float, since: float, until: float) -> ArrivalCounts:
        """With ``amount`` more arrivals, spread over ``(since, until]``; what lies before ``origin`` is left out."""
        last = max(ceil((until - self.origin) / RECENT_SECONDS - _EDGE), len(self.counts), 1)
        counts = [*self.counts, *[0.0] * (last - len(self.counts))]
        if amount:
            for slot in range(max(0, floor((since - self.origin) / RECENT_SECONDS)), last):
                begin = self.origin + slot * RECENT_SECONDS
                overlap = min(begin + RECENT_SECONDS, until) - max(begin, since)
                if overlap > 0:
                    counts[slot] += amount * overlap / (until - since)
        surplus = max(0, last - COUNTS_KEPT - 1)
        origin = self.origin + surplus * RECENT_SECONDS
        return ArrivalCounts(origin, max(until, self.until), array("d", counts[surplus:]))

    def trend(self, read_until: float) -> ArrivalTrend | None:
        """Where arrivals stand and go, by the slots that are over and, as of ``read_until``, wholly read: what some
        endpoint has not told yet is missing from the later ones, and would look like a fall.
        """
        number = max(0, floor((min(read_until, self.until) - self.origin) / RECENT_SECONDS + _EDGE))
        return fit_trend(
            tuple(self.counts[:number]), RECENT_SECONDS, self.until - self.origin - number * RECENT_SECONDS
        )

    @property
    def dispersion(self) -> float | None:
        """φ = variance / mean of the complete slots: 1 for Poisson arrivals, more for bursty ones.

        None with fewer than 8 slots, or without any arrival in them: then there is nothing to compare.
        """
        complete = self.counts[: floor((self.until - self.origin) / RECENT_SECONDS + _EDGE)]
        number, arrivals = len(complete), sum(complete)
        if number < COUNTS_NEEDED or arrivals <= 0:
            return None
        mean = arrivals / number
        squares: float = sum(map(mul, complete, complete))
        return max(0.0, (squares - number * mean * mean) / (number - 1)) / mean


@frozen
class Flow:
    """All that was counted lately. Empty until some endpoint has been read: unread time is not counted as quiet."""

    increments: tuple[Increment, ...] = ()
    counts: ArrivalCounts | None = None

    def extended(
        self, parts: Iterable[Increment], since: float, until: float, keep_seconds: float, held_change: float = 0.0
    ) -> Flow:
        """With one more observation, whose endpoints counted ``parts``; older than ``keep_seconds`` is dropped.

        A part that began before ``since`` (its endpoint missed reads) is spread over the intervals it belongs to.
        ``held_change`` is by how much the requests held at the gateway changed: who is held has arrived, though no
        engine counts it yet, and who is let go arrives at an engine, though not at the workload.
        """
        by_begin: dict[float, list[Increment]] = {since: []}
        for part in parts:
            by_begin.setdefault(part.since, []).append(part)
        newest = joined(by_begin.pop(since), since, until)
        if held_change:
            newest = replace(newest, flows=(max(0.0, newest.flows[ARRIVALS] + held_change), *newest.flows[1:]))
        increments: list[Increment] = [*self.increments, newest]
        counts = (self.counts or ArrivalCounts(since, since)).counted(newest.flows[ARRIVALS], since, until)
        for begin, together in by_begin.items():
            late = joined(together, begin, until)
            increments = spread(increments, late)
            counts = counts.counted(late.flows[ARRIVALS], begin, until)
        return Flow(covering(tuple(map(_compact, increments)), keep_seconds), counts)


def _compact(increment: Increment) -> Increment:
    """The same in less memory: it will be kept for the length of the window."""
    if isinstance(increment.latencies, PackedLatencies) or not increment.latencies:
        return increment
    latencies = PackedLatencies(increment.latencies)
    return Increment(increment.since, increment.until, array("d", increment.flows), latencies)
