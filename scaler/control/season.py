"""What usually comes at this time: levels of the arrivals by slot of the week, learned, and doubted where they fail.

The mean rate of every quarter of an hour of local time is kept for four weeks. What a slot usually brings is the
(lower) median of its past: of the same slot in the last four weeks, or of the same time in the last seven days, two of
them at the least. One holiday or one spike among them moves no median, and neither is bought for again.

Which of the two, and whether any: each slot that ends is held against what either would have said of it, and against
the median of the last day, which knows no hour. Who errs least is believed, and only if it errs much less than that
(``EXPLAINS``): a load without a season, or with one that has moved, is told "no season" and costs nothing. The errors
also say how far days differ: for the quantile q > 0.5, e · ln(1/(2(1-q))) is added, as if they had two exponential
tails, e their mean relative error.

Today is held against the usual too. With what came and what usually would have, both over the last half hour or so,
the level ahead S counts

    S · min(1, (came + S·τ) / (usual + S·τ))

in full at the foot of a rise (before it nothing is due, so nothing is missed), half when τ of it has not come, and not
at all below ``GIVEN_UP``: on a holiday the replicas bought for nine o'clock are given back by half past. A busier day
is the trend's affair. (Lab, office, its holiday and two tenants with silent nights: with τ at 600 s the holiday cost
17 GPU-hours more and the other days were the same; with up to 1.5 times S nothing more was kept.)

Where today goes the usual way, that also says where the load stands: the usual course of the day, a line from the
middle of each slot to that of the next, times came/usual, knows the slope that a trend must guess from noise. How well
that has foretold each slot from its beginning is kept as well, and by its error it is weighed against the trend
(:mod:`scaler.control.arrivals`).

That error is more than the season errs: it has the chance of each slot's own arrivals in it, and a few odd slots weigh
much (a smooth day: 8 % for 3 %; Azure's Thursday 13 % for 7). (Lab, that Thursday, eight seeds, four load targets: with
both left out, and season and trend held against each other by the doubts of both, λ⁺ was 8 instead of 10 % off, for
0.2 % fewer GPU-hours and 322 misses instead of 311. So it stays simple.)
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

from scaler.policy.model import SLOT_SECONDS, SLOTS_A_DAY, Seasonal
from scaler.value import frozen

SLOTS_A_WEEK, WEEKS = 7 * SLOTS_A_DAY, 4
SLOTS_KEPT = WEEKS * SLOTS_A_WEEK
#: A predictor is believed where its mean error is at most this share of the error of one that knows no hour.
EXPLAINS = 0.9
#: And only after so many slots on which it was held against what came; a week ago counts half.
SLOTS_NEEDED, SLOTS_HALF = SLOTS_A_DAY, SLOTS_A_WEEK
#: Past values that make a usual one.
VALUES_NEEDED = 2
#: A slot counts if arrivals were known for at least this share of it.
SHARE_KNOWN = 0.5
#: Over how long today is held against the usual (time constant), and how long a level ahead is believed against it.
TODAY_SECONDS, BELIEF_SECONDS = 1800.0, 300.0
#: With less than this share left of what is usual, today is another kind of day.
GIVEN_UP = 0.25
#: A workload at zero is woken for a level that would keep it from falling idle: so many requests in its idle time.
WAKING_REQUESTS = 5.0

#: How much of the usual came is told where it usually is so many requests in that half hour: of fewer it is chance.
USUAL_REQUESTS = 10.0
#: And a day this many times as busy as usual goes by none of the days before.
LARGEST_SHARE = 8.0
#: The usual course is at hand from one slot ago to so many ahead: for cold starts of up to an hour.
COURSE_SLOTS = 5
#: Root of the mean square of errors that are distributed normally, over their mean.
ROOT_SQUARE = math.sqrt(math.pi / 2.0)

#: What reasons call the rate expected a cold start ahead.
SEASON_SIGNAL = "season_requests_per_second"

#: Levels are written in two characters each: none, zero, or so many whole steps of 0.56 % above the least rate. (Not
#: to the nearest: a replica's exact rate would ask for two.)
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_LEAST, _MOST = 1e-4, 1e6
_CODES = len(_DIGITS) ** 2 - 1
_STEP = math.log(_MOST / _LEAST) / (_CODES - 1)
_NONE = ".."


@frozen
class Skill:
    """How one way to say what is usual has done: the decayed sums of its errors, of those of a guess that knows no
    hour, and of what came (req/s), over ``slots`` slots.
    """

    slots: float = 0.0
    error: float = 0.0
    plain: float = 0.0
    level: float = 0.0

    def judged(self, came: float, said: float, plain: float) -> Skill:
        """With one slot more."""
        kept = 0.5 ** (1.0 / SLOTS_HALF)
        return Skill(
            self.slots + 1.0,
            self.error * kept + abs(came - said),
            self.plain * kept + abs(came - plain),
            self.level * kept + came,
        )

    @property
    def unexplained(self) -> float:
        """Its error over that of the guess that knows no hour; inf while it has not been held against enough slots."""
        return self.error / self.plain if self.slots >= SLOTS_NEEDED and self.plain > 0 else math.inf


@frozen
class Season:
    """What has been learned. ``levels`` are the past slots' rates, packed, by number modulo :data:`SLOTS_KEPT`;
    ``slots_known`` of them are known. ``slot`` is the one being filled, with so many ``requests`` in so many
    ``seconds`` in which arrivals were known.
    ``period`` is the rhythm that is believed, ``weekly`` or ``daily``, None: there is no season; ``course`` what the
    slots from the one before this on usually bring by it, req/s. ``came`` and ``usual`` are the requests of the last
    half hour, as they came and as they usually do. ``slot_foretold`` is what they made one expect of the slot when it
    began, ``today`` how well that has gone, beside the slot before for a guess that knows no hour.
    """

    zone: str = ""
    period: str | None = None
    slot: int | None = None
    requests: float = 0.0
    seconds: float = 0.0
    levels: str = ""
    slots_known: int = 0
    weekly: Skill = Skill()
    daily: Skill = Skill()
    came: float = 0.0
    usual: float = 0.0
    course: tuple[float | None, ...] = ()
    slot_foretold: float | None = None
    today: Skill = Skill()

    @property
    def skill(self) -> Skill:
        """That of the better of the two."""
        return self.daily if self.daily.unexplained < self.weekly.unexplained else self.weekly

    def level(self, slot: int) -> float | None:
        """The mean rate of a past slot, req/s; None where it is not known or longer ago than is kept."""
        at = slot % SLOTS_KEPT * 2
        return _decoded(self.levels[at : at + 2])

    def usually(self, slot: int, period: str) -> float | None:
        """What ``slot`` usually brings by its past in that rhythm, req/s; None while too little of it is known."""
        step, number = (SLOTS_A_WEEK, WEEKS) if period == "weekly" else (SLOTS_A_DAY, 7)
        past = [level for back in range(1, number + 1) if (level := self.level(slot - back * step)) is not None]
        return _lower_median(past) if len(past) >= VALUES_NEEDED else None

    @property
    def slot_usually(self) -> float | None:
        """What this slot usually brings, req/s; None where that is not known or there is no season."""
        return self.course[1] if self.course else None

    @property
    def share(self) -> float | None:
        """How much of what usually comes has come today; None where that is chance, or today is another kind of day."""
        if self.usual < USUAL_REQUESTS or not GIVEN_UP <= self.came / self.usual <= LARGEST_SHARE:
            return None
        return self.came / self.usual

    def usual_of(self, slot: int) -> float | None:
        """What ``slot`` usually brings by the rhythm that is believed, req/s; None where that is not known."""
        at = slot - self.slot + 1 if self.slot is not None else -1
        if 0 <= at < len(self.course):
            return self.course[at]
        return None if self.period is None else self.usually(slot, self.period)

    def along(self, slots: float) -> float | None:
        """The usual rate so many slots (a fraction) after the beginning of this one, by a line from middle to middle;
        None beyond what is known.
        """
        at = slots + 0.5  # the course begins in the middle of the slot before
        first = math.floor(at)
        if not 0 <= first < len(self.course) - 1:
            return None
        before, after = self.course[first], self.course[first + 1]
        return None if before is None or after is None else before + (after - before) * (at - first)

    @property
    def known_ratio(self) -> float:
        """The share of the last four weeks that is known, 0..1."""
        return self.slots_known / SLOTS_KEPT


#: Nothing learned yet.
NO_SEASON = Season()


@frozen
class Expected:
    """What is expected a cold start ahead: ``rate`` (req/s) of the ``usual`` one, by as much of it as came today."""

    rate: float
    usual: float
    period: str

    def wakes(self, idle_seconds: float) -> bool:
        """Whether it keeps a workload from being idle for so long: a lower level wakes nobody, and buys nothing."""
        return self.rate * idle_seconds >= WAKING_REQUESTS


def learn_season(season: Season, law: Seasonal, slot: int, rate: float | None, elapsed_seconds: float) -> Season:
    """One tick more: ``rate`` arrivals per second (None: not known) for ``elapsed_seconds``, in ``slot``."""
    if season.zone != law.zone:
        season = _moved(season, law.zone, slot)
    if season.slot != slot:
        season = _closed(season, slot)
    if rate is None or elapsed_seconds <= 0.0:
        return season
    seconds = min(elapsed_seconds, SLOT_SECONDS)
    kept, usual = math.exp(-seconds / TODAY_SECONDS), season.slot_usually
    return Season(
        season.zone,
        season.period,
        slot,
        season.requests + rate * seconds,
        season.seconds + seconds,
        season.levels,
        season.slots_known,
        season.weekly,
        season.daily,
        season.came * kept + (0.0 if usual is None else rate * seconds),
        season.usual * kept + (usual or 0.0) * seconds,
        season.course,
        season.slot_foretold,
        season.today,
    )


def expected_season(season: Season, law: Seasonal, ahead: datetime) -> Expected | None:
    """What to expect ``ahead``, a cold start from now; None where there is no season."""
    period = season.period if law.enabled else None
    level = None if period is None else season.usual_of(law.slot(ahead))
    if period is None or not level:
        return None
    skill = season.skill
    error = skill.error / skill.level if skill.level > 0 else 0.0
    level *= 1.0 + error * math.log(0.5 / (1.0 - law.quantile))
    believed = level * BELIEF_SECONDS
    today = min(1.0, (season.came + believed) / (season.usual + believed))
    return Expected(level * today, level, period) if today >= GIVEN_UP else None


@frozen
class Foreseen:
    """The rate (req/s) of a day that goes the usual way, by as much of it as came: ``now`` and a cold start ``ahead``.
    ``error`` is its standard deviation as a share of it, noise left out of what ``requests`` it goes by.
    """

    now: float
    ahead: float
    error: float
    requests: float


def foresee(season: Season, law: Seasonal, now: datetime, ahead_seconds: float) -> Foreseen | None:
    """Where the load stands, and will a cold start ahead; None where there is no season, today brought nothing to go
    by, or too few slots have been foretold to know how well that goes.
    """
    today, share = season.today, season.share
    if not law.enabled or season.period is None or season.slot is None or season.zone != law.zone or share is None:
        return None
    if today.slots < SLOTS_NEEDED or today.level <= 0.0:
        return None
    slots = law.slot(now) - season.slot + now.timestamp() % SLOT_SECONDS / SLOT_SECONDS
    here, there = season.along(slots), season.along(slots + ahead_seconds / SLOT_SECONDS)
    if here is None or there is None:
        return None
    return Foreseen(here * share, there * share, ROOT_SQUARE * today.error / today.level, season.came)


def _closed(season: Season, slot: int) -> Season:
    """With the slot that has ended written down, and ``slot`` begun. What lies between the two is not known."""
    if season.slot is None:
        return replace(season, slot=slot)
    ended, levels = season.slot, season.levels or _NONE * SLOTS_KEPT
    weekly, daily, today = season.weekly, season.daily, season.today
    level = season.requests / season.seconds if season.seconds >= SHARE_KNOWN * SLOT_SECONDS else None
    if level is not None:
        day = (season.level(ended - back) for back in range(1, SLOTS_A_DAY + 1))
        plain = _lower_median([past for past in day if past is not None])
        if (said := season.usually(ended, "weekly")) is not None:
            weekly = weekly.judged(level, said, plain)
        if (said := season.usually(ended, "daily")) is not None:
            daily = daily.judged(level, said, plain)
        before = season.level(ended - 1)
        if season.slot_foretold is not None and before is not None:
            today = today.judged(level, season.slot_foretold, before)
    written = {ended: level} | dict.fromkeys(range(max(ended + 1, slot - SLOTS_KEPT), slot))
    for number, value in written.items():
        at = number % SLOTS_KEPT * 2
        levels = levels[:at] + _encoded(value) + levels[at + 2 :]
    known = (len(levels) - levels.count(_NONE[0])) // 2
    begun = replace(season, slot=slot, requests=0.0, seconds=0.0, weekly=weekly, daily=daily, today=today)
    begun = replace(begun, levels=levels, slots_known=known)
    period = "daily" if daily.unexplained < weekly.unexplained else "weekly"
    if begun.skill.unexplained > EXPLAINS:
        return replace(begun, period=None, course=(), slot_foretold=None)
    course = tuple(begun.usually(slot + further, period) for further in range(-1, COURSE_SLOTS + 1))
    usual, share = course[1], season.share
    foretold = None if usual is None or share is None else usual * share
    return replace(begun, period=period, course=course, slot_foretold=foretold)


def _moved(season: Season, zone: str, slot: int) -> Season:
    """With another zone declared: the past moves by as many slots as the present one does."""
    if season.slot is None or not season.levels:
        return Season(zone=zone)
    by = (slot - season.slot) % SLOTS_KEPT * 2
    levels = season.levels[-by:] + season.levels[:-by] if by else season.levels
    return replace(season, zone=zone, slot=slot, levels=levels)


def _lower_median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


def _encoded(rate: float | None) -> str:
    if rate is None:
        return _NONE
    code = 0 if rate < _LEAST else min(_CODES, 1 + int(math.log(rate / _LEAST) / _STEP))
    return _DIGITS[code // len(_DIGITS)] + _DIGITS[code % len(_DIGITS)]


def _decoded(pair: str) -> float | None:
    if len(pair) != 2 or pair[0] not in _VALUES or pair[1] not in _VALUES:
        return None
    code = _VALUES[pair[0]] * len(_DIGITS) + _VALUES[pair[1]]
    return 0.0 if code == 0 else _LEAST * math.exp((code - 1) * _STEP)
