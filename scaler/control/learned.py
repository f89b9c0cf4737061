"""What is learned of one replica's capacity: latencies and time in the engine, as lines over what runs in it.

Every ``window_seconds`` gives one point: sequences running per replica, as the requests that finished met them
(:mod:`scaler.control.learned_window`), and these requests' mean TPOT and residence (e2e less queueing). A window says
nothing in which what ran differs much from what had run over a residence, or before which, within half a residence,
replicas came or went, sequences were preempted or a batch was held down. (Lab: without this the last requests of a
surge, which finish in emptied replicas, taught that L* is 1.) Through the points, older ones counting ever less, go
least-squares lines:

    mean(n) = α + β·n          P95 = ρ·mean(n)

The mean is fitted because it is exact; a P95 from buckets is only known to lie in one, and a fit to bucket bounds is a
staircase. Their ratio ρ is pushed into what each window's bucket allows, at whatever load, until it satisfies them all.
It is the ratio while the same number runs: a window's P95 is put beside the mean where one request in twenty met more
(beside the window's own mean, traffic that varies within a minute made 1.1 into 1.45, and L* half of what it is).
Solved for the objective, (objective/ρ - α)/β is L°, the concurrency at which P95 just meets it, with the uncertainty
of the fit. What was seen for certain goes before it: two windows that met the objectives at n put L° at n or above (one
may be the odd one: of a replica that fills up those end first who met few); and before there are points enough for a
line, windows that broke an objective, and did not queue, put L° below what one request in twenty met.

How much of L° is *certain* is another question than what it is at best. ρ is then the largest the buckets leave room
for, pushed down from a ratio that is met hardly anywhere. (Lab, code completions: ρ is 1.8 near the objective; low
buckets left it at 1.15, and L° of 7 sequences was found where 1 had run.)

TTFT has no line: it is flat until prompts queue and steep from there, and a line through both says nothing (tried in
the lab: one minute of overload, and L* was 1).

Everything is a plain number and the work per tick is the same however long it runs.
"""

from __future__ import annotations

import math
from dataclasses import replace

from scaler.control.learned_window import BEGUN, Window
from scaler.signals.model import Latency
from scaler.value import frozen

#: An hour ago counts half.
HALF_LIFE_SECONDS = 3600.0
#: Requests that make a mean worth a point, and a P95 worth believing.
SAMPLES_FOR_MEAN, SAMPLES_FOR_P95 = 5, 20
#: ρ before anything is known of it, at best and at the most, and how far each window moves it towards what its bucket
#: allows.
TAIL, TAIL_MOST, TAIL_STEP = 1.15, 2.0, 0.3
#: Windows needed before a fit is believed in all that it says, and how far their concurrencies must spread: standard
#: deviation over mean.
WINDOWS_NEEDED, SPREAD_NEEDED = 5, 0.1
#: And before its slope is, and that a replica serves less than was thought: two points always lie on a line.
WINDOWS_FOR_SLOPE = 3
#: A window counts if nothing disturbed the replicas for so many residences before it. (Lab, requests of one to two
#: minutes: with two a fleet that follows its morning had five windows after an hour; undeclared, `servegen-tenant-52`
#: kept 81 % instead of 94. What is still counted of those who met other replicas made L* nowhere higher than with two.)
RESIDENCES_AFTER = 0.5
#: What sequences hold of the KV cache is taken to be within these factors of what their lengths say.
HELD_LEAST, HELD_MOST = 0.05, 2.0
#: Replicas whose KV caches differ by more than this share are not the same.
SAME_KV_SHARE = 0.1


@frozen
class Line:
    """The points of one measure, seconds, summed up with their weights: its sum, its squares' and its products' with
    what ran; ``tail``, ρ, and ``tail_most``, what it is at the most.
    """

    total: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    tail: float = TAIL
    tail_most: float = TAIL_MOST

    def with_point(self, running: float, mean_seconds: float, kept: float) -> Line:
        """With one point more, the others counting ``kept`` of what they did."""
        return Line(
            self.total * kept + mean_seconds,
            self.squares * kept + mean_seconds * mean_seconds,
            self.products * kept + running * mean_seconds,
            self.tail,
            self.tail_most,
        )

    def with_tail(self, mean_seconds: float, latency: Latency) -> Line:
        """With ρ pushed into what P95 allows beside the mean of requests that met as much as the slowest of these."""
        if latency.samples < SAMPLES_FOR_P95 or mean_seconds <= 0:
            return self
        low, high = latency.p95.low / mean_seconds, latency.p95.high / mean_seconds

        def pushed(tail: float) -> float:
            return tail + TAIL_STEP * (min(max(tail, low), high) - tail)

        return replace(self, tail=pushed(self.tail), tail_most=pushed(self.tail_most))


@frozen
class Learned:
    """The points seen so far and the window that is being filled.

    ``identity`` and ``kv_tokens`` say of what: model and engine as they tell it, and what the accelerator holds.
    ``weight`` is the points' number, less what is forgotten, ``running`` and ``squares`` the weighted sums of what ran.
    ``most_running`` is the highest concurrency of a window; ``met_once`` the highest that certainly met every
    objective, ``met_at`` the second highest; ``breached_at`` the lowest of the ``breaches`` that certainly broke one
    without a queue. ``undisturbed_seconds``: since when only the load has changed; ``lasting_running``: what runs in a
    replica, averaged over a residence. ``kv_held`` is the weighted sum of the tokens in a replica's KV cache at the
    points, ``kv_expected`` of those that by the lengths of what ran would be in it.
    """

    identity: str = ""
    kv_tokens: float | None = None
    windows: int = 0
    weight: float = 0.0
    running: float = 0.0
    squares: float = 0.0
    tpot: Line = Line()
    residence: Line = Line()
    most_running: float = 0.0
    met_once: float = 0.0
    met_at: float = 0.0
    breached_at: float | None = None
    breaches: int = 0
    undisturbed_seconds: float = 0.0
    window: Window = BEGUN
    window_ready: int = 0
    lasting_running: float = 0.0
    kv_held: float = 0.0
    kv_expected: float = 0.0

    @property
    def held_share(self) -> float:
        """What a running sequence holds of the KV cache, over what its lengths say: 1 while little is known, less where
        prompts begin alike and the engine keeps such beginnings once.
        """
        if self.windows < WINDOWS_FOR_SLOPE or self.kv_expected <= 0:
            return 1.0
        return min(max(self.kv_held / self.kv_expected, HELD_LEAST), HELD_MOST)

    @property
    def mean_running(self) -> float:
        """The mean of the points' concurrencies."""
        return self.running / self.weight

    @property
    def spread(self) -> float:
        """The weighted sum of the squares of their distances from it."""
        return self.squares - self.running * self.mean_running

    @property
    def enough(self) -> bool:
        """Whether there are windows enough, at concurrencies different enough, to believe all that the lines say."""
        return self.windows >= WINDOWS_NEEDED and self.spread_enough

    @property
    def spread_enough(self) -> bool:
        """Whether the concurrencies differ enough."""
        # In full: it is asked five times a tick.
        if self.weight <= 0:
            return False
        mean = self.running / self.weight
        return self.squares - self.running * mean >= self.weight * (SPREAD_NEEDED * mean) ** 2


@frozen
class Point:
    """One window: sequences running per replica as its requests met them, on average and by one request in twenty,
    their latencies, and whether it met every objective for certain, or broke one for certain and without a queue.
    ``kv_held`` and ``kv_expected``: tokens of KV cache as in :class:`Learned`, zeros where they are not known.
    """

    running: float
    met_by_few: float
    tpot: Latency
    residence_seconds: float
    met: bool
    breached: bool
    kv_held: float = 0.0
    kv_expected: float = 0.0


@frozen
class Limit:
    """Sequences at once at which P95 just meets its objective: the best estimate, and between what it lies with two
    standard deviations. inf: as far as was seen it does not depend on what runs. ``certain``: ``low``, if P95 is as far
    above the mean as the buckets leave room for.
    """

    sequences: float
    low: float
    high: float
    certain: float


def same(learned: Learned, identity: str, kv_tokens: float | None) -> bool:
    """Whether what was learned is of this model, engine and accelerator."""
    if learned.identity != identity:
        return False
    if kv_tokens is None or learned.kv_tokens is None:
        return True
    return abs(kv_tokens - learned.kv_tokens) <= SAME_KV_SHARE * learned.kv_tokens


def accumulated(
    learned: Learned, running: float, ready: int, residence_seconds: float, elapsed_seconds: float
) -> Learned:
    """One tick more of the window being filled. ``running`` is that of all replicas, ``residence_seconds`` how long a
    request stays at present. Other replicas than before disturb it.
    """
    each = running / ready
    if ready != learned.window_ready:
        return replace(disturbed(learned), window_ready=ready, lasting_running=each)
    weight = -math.expm1(-elapsed_seconds / max(residence_seconds, elapsed_seconds, 1e-9))
    lasting = learned.lasting_running + (each - learned.lasting_running) * weight
    residence = residence_at(learned, lasting) or residence_seconds
    return Learned(  # in full: nearly every tick comes by here, and ``replace`` takes three times as long
        learned.identity,
        learned.kv_tokens,
        learned.windows,
        learned.weight,
        learned.running,
        learned.squares,
        learned.tpot,
        learned.residence,
        learned.most_running,
        learned.met_once,
        learned.met_at,
        learned.breached_at,
        learned.breaches,
        learned.undisturbed_seconds + elapsed_seconds,
        learned.window.with_tick(each, lasting, residence, elapsed_seconds),
        ready,
        lasting,
        learned.kv_held,
        learned.kv_expected,
    )


def steady(learned: Learned, residence_seconds: float) -> bool:
    """Whether what finished in the full window ran, all of it, in replicas as they are and about as full as in it."""
    undisturbed = learned.undisturbed_seconds >= learned.window.seconds + RESIDENCES_AFTER * residence_seconds
    return undisturbed and learned.window.even


def disturbed(learned: Learned) -> Learned:
    """The same after something that slows requests and is not the load: none of their window counts."""
    if learned.undisturbed_seconds == 0.0:
        return learned
    return replace(learned, undisturbed_seconds=0.0, window=BEGUN)


def begun_anew(learned: Learned) -> Learned:
    """With the next window begun, and no point for the full one."""
    return replace(learned, window=BEGUN)


def with_point(learned: Learned, point: Point) -> Learned:
    """With one window more, and the next one begun."""
    n, mean, kept = point.running, point.tpot.mean_seconds, 0.5 ** (learned.window.seconds / HALF_LIFE_SECONDS)
    breached_at = None if learned.breached_at is None else learned.breached_at / kept
    if point.breached:
        breached_at = point.met_by_few if breached_at is None else min(breached_at, point.met_by_few)
    met_once, met_at = learned.met_once * kept, learned.met_at * kept
    if point.met:
        met_once, met_at = max(met_once, n), max(met_at, min(met_once, n))
    line, slope = learned.tpot.with_point(n, mean, kept), _slope(learned)
    if slope is not None:
        line = line.with_tail(mean + max(0.0, slope) * (point.met_by_few - n), point.tpot)
    return replace(
        learned,
        windows=learned.windows + 1,
        weight=learned.weight * kept + 1.0,
        running=learned.running * kept + n,
        squares=learned.squares * kept + n * n,
        tpot=line,
        residence=learned.residence.with_point(n, point.residence_seconds, kept),
        most_running=max(learned.most_running * kept, n),
        met_once=met_once,
        met_at=met_at,
        breached_at=breached_at,
        breaches=learned.breaches + point.breached,
        kv_held=learned.kv_held * kept + point.kv_held,
        kv_expected=learned.kv_expected * kept + point.kv_expected,
        window=BEGUN,
    )


def _slope(learned: Learned) -> float | None:
    """By how much longer a token takes on average for each sequence more, seconds; None: not known yet."""
    if learned.windows < WINDOWS_FOR_SLOPE or not learned.spread_enough:
        return None
    line = learned.tpot
    return (line.products - learned.running * line.total / learned.weight) / learned.spread


def limit(learned: Learned, objective_seconds: float) -> Limit | None:
    """L° for the objective on P95 of TPOT; None while too little has been learned."""
    slope = _slope(learned)
    if slope is None:
        return None
    line, weight, spread, middle = learned.tpot, learned.weight, learned.spread, learned.mean_running
    mean = line.total / weight
    unexplained = max(0.0, line.squares - line.total * mean - slope * slope * spread) / max(weight - 2.0, 1.0)
    slope_deviation = math.sqrt(unexplained / spread)
    if slope <= 2.0 * slope_deviation:
        low = max(middle, learned.met_at)
        return Limit(math.inf, low, math.inf, low)
    best = middle + (objective_seconds / line.tail - mean) / slope
    deviations = 2.0 * math.hypot(math.sqrt(unexplained / weight), slope_deviation * (best - middle)) / slope
    certain = middle + (objective_seconds / line.tail_most - mean) / slope - deviations
    least = max(1.0, learned.met_at)
    return Limit(max(best, least), max(best - deviations, least), max(best + deviations, least), max(certain, least))


def residence_at(learned: Learned, sequences: float) -> float | None:
    """How long a request stays in a replica that runs so many, seconds; None where nothing is known."""
    if learned.weight <= 0:
        return None
    mean = learned.residence.total / learned.weight
    slope = 0.0
    if learned.enough:
        slope = max(0.0, (learned.residence.products - learned.running * mean) / learned.spread)
    found = mean + slope * (sequences - learned.mean_running)
    return found if found > 0 else None
