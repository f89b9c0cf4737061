"""How many requests would have been in flight with other replicas: a fluid model beside what was measured.

A replica of a continuous-batching engine works at n sequences at once, each of which slows the others, for the step
time is linear in what is in it::

    seconds in flight  w(n) = w0 · (1 + n/κ)        requests finished per second  φ(n) = n / w(n)

w0 is what a request takes on an empty replica, κ the sequences at which it takes twice as long. Both are the past's
own: the time per token is fitted as a + b·n (then κ = a/b), and w0 is the measured time, without queueing, divided by
the slowdown at the measured n. More than ``cap`` sequences do not run: the rest waits.

The requests in flight then follow the arrivals λ, which are the same for everybody::

    dM/dt = λ - R · φ(min(M/R, cap))

The model is run twice, with the replicas that ran and with those in their place. While both runs agree the answer is
what was measured. Where they differ it is the second run, corrected by what the first one got wrong about the load, up
to a quarter: beyond that it was not the load but what had happened to those replicas (a queue sticks to the replica
that was alone when it grew, however many are added).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import mul
from statistics import fmean, linear_regression, quantiles

from scaler.signals.model import Signals, known_value
from scaler.value import frozen

#: The pace is fitted to means of so many seconds, at least so many of them.
BLOCK_SECONDS, LEAST_BLOCKS = 120.0, 8
#: A replica is hardly loaded at the time per token that so many of a hundred ticks were below.
EMPTY_PERCENT = 5
#: Runs that differ by less than this many requests, or this share of them, agree.
AGREED_REQUESTS, AGREED_SHARE = 0.5, 0.01
#: The model's error is carried over up to this share of what it says.
CARRIED_SHARE = 0.25
#: The equation is stepped along by so many seconds.
STEP_SECONDS = 1.0


@frozen
class Pace:
    """How a replica slows down: its seconds per token when empty, and by each sequence more. ``ticks`` say how many
    measurements stand behind it.
    """

    token_seconds: float
    each_more_seconds: float
    ticks: int

    @property
    def doubled_at(self) -> float:
        """κ: the sequences at which everything takes twice as long; inf where they do not matter."""
        return self.token_seconds / self.each_more_seconds if self.each_more_seconds > 0 else math.inf

    def slowdown(self, sequences: float) -> float:
        """By how much everything takes longer with so many in a replica than with none."""
        return 1.0 + sequences / self.doubled_at


#: Of an engine that shows no pace: nobody slows anybody.
UNHURRIED = Pace(1.0, 0.0, 0)


def fit_pace(measured: Sequence[tuple[float, float]], tick_seconds: float) -> Pace:
    """The pace from (sequences per replica, mean seconds per token) tick by tick; :data:`UNHURRIED` from too few.

    A line by least squares through means of two minutes: a request's pace is that of the minutes it took, not of the
    tick it ended in, and from single ticks the slope comes out half of what it is. Where that line begins above what
    was seen (a past in turmoil, whose requests ended minutes after the load that slowed them) it is the line from the
    time per token that :data:`EMPTY_PERCENT` of the ticks were below.
    """
    size = max(1, round(BLOCK_SECONDS / tick_seconds))
    blocks = [measured[start : start + size] for start in range(0, len(measured) - size + 1, size)]
    if len(blocks) < LEAST_BLOCKS:
        return UNHURRIED
    counts = [fmean(count for count, _ in block) for block in blocks]
    tokens = [fmean(seconds for _, seconds in block) for block in blocks]
    seen = quantiles((seconds for _, seconds in measured), n=100)[EMPTY_PERCENT - 1]
    slope, empty = linear_regression(counts, tokens) if max(counts) > min(counts) else (0.0, math.inf)
    if not 0 < empty <= seen:
        squares = sum(count * count for count in counts)
        slope, empty = sum(map(mul, counts, (each - seen for each in tokens))) / squares if squares else 0.0, seen
    return Pace(empty, max(0.0, slope), len(measured))


def pace_point(signals: Signals, ran: float | None, minimum_samples: int) -> tuple[float, float] | None:
    """What one tick says of the pace; None where it says nothing."""
    tpot, running = known_value(signals.tpot_seconds), known_value(signals.running)
    if tpot is None or running is None or not ran or tpot.samples < minimum_samples or tpot.mean_seconds <= 0:
        return None
    return running / ran, tpot.mean_seconds


@frozen
class Crowd:
    """The model's requests in flight, with the replicas that ran and with those in their place. ``empty_seconds`` is
    w0 as last measured, None until it was; ``explained_seconds`` for how long the load has explained what was measured.
    """

    ran: float = 0.0
    instead: float = 0.0
    empty_seconds: float | None = None
    explained_seconds: float = math.inf

    def in_flight(self, measured: float) -> float:
        """How many would be in flight where so many were ``measured``."""
        if abs(self.instead - self.ran) <= max(AGREED_REQUESTS, AGREED_SHARE * self.ran):
            return measured
        carried = CARRIED_SHARE * self.instead
        return max(0.0, self.instead + min(max(measured - self.ran, -carried), carried))

    def after(self, past: Signals, ran: float, instead: int, pace: Pace, cap: float, seconds: float) -> Crowd:
        """A tick of ``seconds`` later, at whose end the past was measured as ``past``; ``ran`` replicas were ready and
        ``instead`` would be. Where its flow is not known nothing changes.
        """
        arrivals = known_value(past.arrivals_last_per_second)
        arrivals = known_value(past.arrivals_per_second) if arrivals is None else arrivals
        empty_seconds = _empty_seconds(past, ran, pace) or self.empty_seconds
        if arrivals is None or empty_seconds is None:
            return replace(self, empty_seconds=empty_seconds)
        serve = _Serves(empty_seconds, pace.doubled_at, cap)
        steps = max(1, round(seconds / STEP_SECONDS))
        before, after = self.ran, self.instead
        for _ in range(steps):
            before += (arrivals - serve(before, ran)) * seconds / steps
            after += (arrivals - serve(after, instead)) * seconds / steps
        # Without any replica nothing was in flight: what nobody recorded is not held against those in their place.
        before = max(0.0, before) if ran else 0.0
        measured = (known_value(past.running) or 0.0) + (known_value(past.waiting) or 0.0)
        explained = measured <= (1.0 + CARRIED_SHARE) * before + ran
        return Crowd(before, max(0.0, after), empty_seconds, self.explained_seconds + seconds if explained else 0.0)


@frozen
class _Serves:
    empty_seconds: float
    doubled_at: float
    cap: float

    def __call__(self, in_flight: float, replicas: float) -> float:
        """Requests finished per second, by all; never more than there are in one step."""
        if in_flight <= 0 or replicas <= 0:
            return 0.0
        each = min(in_flight / replicas, self.cap)
        finished = replicas * each / (self.empty_seconds * (1.0 + each / self.doubled_at))
        return min(finished, in_flight / STEP_SECONDS)


def _empty_seconds(past: Signals, ran: float, pace: Pace) -> float | None:
    """w0 by what was measured: the mean time in the engine without its queue, or by Little's law where that is not
    told.
    """
    running, finished = known_value(past.running), known_value(past.finished_per_second)
    if running is None or not ran:
        return None
    e2e, queue = known_value(past.e2e_seconds), known_value(past.queue_seconds)
    if e2e is not None:
        busy = e2e.mean_seconds - (queue.mean_seconds if queue is not None else 0.0)
    elif finished and running:
        busy = running / finished
    else:
        return None
    tpot = known_value(past.tpot_seconds)
    slowed = tpot.mean_seconds / pace.token_seconds if tpot is not None and pace.ticks else pace.slowdown(running / ran)
    return busy / max(1.0, slowed) if busy > 0 else None
