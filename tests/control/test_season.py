"""The season: what it learns, what it is not fooled by, and what it buys."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from scaler.control.model import Code, Memory, Target
from scaler.control.season import NO_SEASON, SLOTS_KEPT, Season, expected_season, foresee, learn_season
from scaler.policy.model import SLOT_SECONDS, Capacity, Idle, Policy, Push, ReplicaRange, Seasonal
from tests.control.timeline import Timeline, quiet

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)
SLOT = timedelta(seconds=SLOT_SECONDS)
Rate = Callable[[datetime], float | None]


def office(at: datetime) -> float:
    """2 req/s from nine to five on working days."""
    return 2.0 if at.weekday() < 5 and 9 <= at.hour < 17 else 0.0


def day(at: datetime) -> float:
    """A smooth day, 2 req/s on average."""
    return 2.0 + 1.6 * math.sin((at.hour * 60 + at.minute) / 1440 * 2 * math.pi - 2.2)


def learned(rate: Rate, *, days: float = 28, law: Seasonal | None = None, until: datetime = MONDAY) -> Season:
    """What is known at ``until`` after so many days."""
    season, at, law = NO_SEASON, until - timedelta(days=days), law or Seasonal()
    while at < until:
        season = learn_season(season, law, law.slot(at), rate(at), SLOT_SECONDS)
        at += SLOT
    return season


def expected(season: Season, at: datetime, law: Seasonal | None = None) -> float | None:
    law = law or Seasonal()
    found = expected_season(season, law, at)
    return None if found is None else found.rate


class TestWhatIsLearned:
    def test_after_three_weeks_a_monday_is_a_monday_and_a_saturday_is_none(self) -> None:
        season = learned(office, days=24)
        assert season.period == "weekly"
        assert expected(season, MONDAY + timedelta(hours=9)) == pytest.approx(2.0, rel=0.012)
        assert expected(season, MONDAY + timedelta(hours=8.99)) is None
        assert expected(season, MONDAY + timedelta(days=5, hours=9)) is None

    def test_after_four_days_it_goes_by_the_day(self) -> None:
        daily = learned(lambda at: 2.0 if 9 <= at.hour < 17 else 0.0, days=4)
        assert daily.period == "daily"
        assert expected(daily, MONDAY + timedelta(hours=9)) == pytest.approx(2.0, rel=0.012)

    def test_two_days_are_no_season(self) -> None:
        assert learned(office, days=2).period is None

    @pytest.mark.parametrize("seed", range(3))
    def test_an_even_load_has_none_however_long_it_is_watched(self, seed: int) -> None:
        chance = Random(seed)
        noisy = learned(lambda at: max(0.0, chance.gauss(2.0, math.sqrt(2.0 / SLOT_SECONDS))))
        assert noisy.period is None
        assert expected(noisy, MONDAY + timedelta(hours=9)) is None

    @pytest.mark.parametrize("seed", range(3))
    def test_a_load_that_wanders_by_no_hour_has_none(self, seed: int) -> None:
        chance, level = Random(seed), 1.0

        def walk(at: datetime) -> float:
            nonlocal level
            level = min(4.0, max(0.25, level * math.exp(chance.gauss(0.0, 0.1))))
            return level

        assert learned(walk).period is None

    def test_a_season_that_has_ended_is_given_up(self) -> None:
        season = learned(office)
        chance, law = Random(1), Seasonal()
        for slot in range(7 * 96):
            rate = chance.uniform(0.9, 1.1)
            season = learn_season(season, law, law.slot(MONDAY + slot * SLOT), rate, SLOT_SECONDS)
        believed = expected(season, MONDAY + timedelta(days=7, hours=9))
        assert believed is None or believed < 1.2

    def test_a_holiday_and_a_spike_a_week_ago_are_not_bought_for(self) -> None:
        holiday = learned(lambda at: 0.0 if at.date() == (MONDAY - timedelta(days=7)).date() else office(at))
        assert expected(holiday, MONDAY + timedelta(hours=9)) == pytest.approx(2.0, rel=0.012)
        eight = MONDAY - timedelta(days=7) + timedelta(hours=6)
        spike = learned(lambda at: 50.0 if eight <= at < eight + timedelta(hours=1) else office(at))
        assert expected(spike, MONDAY + timedelta(hours=6.5)) is None

    def test_slots_in_which_arrivals_were_not_known_are_not_taken_for_silence(self) -> None:
        away = MONDAY - timedelta(days=7)
        season = learned(lambda at: None if away <= at < away + timedelta(days=1) else office(at))
        law = Seasonal()
        assert season.level(law.slot(away + timedelta(hours=10))) is None
        assert expected(season, MONDAY + timedelta(hours=9)) == pytest.approx(2.0, rel=0.012)

    def test_a_scaler_that_was_away_leaves_a_gap(self) -> None:
        law, season = Seasonal(), learned(office)
        back = MONDAY + timedelta(days=1, hours=12)
        season = learn_season(season, law, law.slot(back), 2.0, SLOT_SECONDS)
        assert season.level(law.slot(MONDAY + timedelta(hours=10))) is None
        assert season.slots_known == SLOTS_KEPT - 36 * 4

    def test_a_higher_quantile_buys_for_days_that_differ(self) -> None:
        chance = Random(4)
        factors = [math.exp(chance.gauss(0, 0.3)) for _ in range(60)]
        season = learned(lambda at: factors[at.toordinal() % 60] * office(at))
        nine = MONDAY + timedelta(hours=9)
        middle, high = (expected(season, nine, Seasonal(quantile=q)) for q in (0.5, 0.9))
        assert middle is not None
        assert high is not None
        assert 1.1 * middle < high < 2.0 * middle

    @given(st.lists(st.floats(0.0, 1e5), min_size=1, max_size=40))
    def test_levels_are_kept_to_half_a_percent_and_never_above(self, rates: list[float]) -> None:
        law, season = Seasonal(), NO_SEASON
        for index, rate in enumerate(rates):
            season = learn_season(season, law, law.slot(MONDAY + index * SLOT), rate, SLOT_SECONDS)
        for index, rate in enumerate(rates[:-1]):
            level = season.level(law.slot(MONDAY + index * SLOT))
            assert level is not None
            assert level == pytest.approx(rate, rel=0.006, abs=2e-4)
            assert level <= rate * (1 + 1e-9)


class TestToday:
    nine = MONDAY + timedelta(hours=9)

    def on(self, minutes: int, share: float) -> float:
        """What is expected so many minutes after nine, when such a share of the usual has come."""
        law, season, at = Seasonal(), learned(office, until=self.nine), self.nine
        for _ in range(minutes * 12):
            season = learn_season(season, law, law.slot(at), 2.0 * share, 5.0)
            at += timedelta(seconds=5)
        return expected(season, at) or 0.0

    def test_at_the_foot_of_the_rise_all_of_it_is_believed(self) -> None:
        assert self.on(0, 0.0) == pytest.approx(2.0, rel=0.012)

    def test_when_nobody_comes_it_is_given_up(self) -> None:
        assert self.on(5, 0.0) == pytest.approx(1.0, rel=0.1)
        assert self.on(15, 0.0) < 0.7
        assert self.on(25, 0.0) == 0.0

    def test_a_day_like_the_others_is_believed_to_the_end(self) -> None:
        assert self.on(30, 1.0) == pytest.approx(2.0, rel=0.012)

    def test_a_busier_day_is_the_trends_affair(self) -> None:
        assert self.on(30, 3.0) == pytest.approx(2.0, rel=0.012)


class TestAUsualDay:
    """The load follows a smooth day whose height nobody knows beforehand."""

    def on(self, factor: float, *, hours: float = 9.0, days: float = 14, seed: int | None = None) -> Season:
        """What is known so many hours after that Monday began, when ``factor`` times as much comes as usual."""
        chance = Random(seed)

        def noisy(at: datetime) -> float:
            rate = day(at + SLOT / 2) * (factor if at >= MONDAY else 1.0)
            return rate if seed is None else max(0.0, chance.gauss(rate, math.sqrt(rate / SLOT_SECONDS)))

        return learned(noisy, days=days + hours / 24, until=MONDAY + timedelta(hours=hours))

    @pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
    def test_where_it_stands_and_where_it_goes_is_the_usual_times_as_much_of_it_as_came(self, factor: float) -> None:
        season, now = self.on(factor), MONDAY + timedelta(hours=9, minutes=5)
        season = learn_season(season, Seasonal(), Seasonal().slot(now), factor * day(now), 5.0)
        found = foresee(season, Seasonal(), now, 600.0)
        assert found is not None
        assert found.now == pytest.approx(factor * day(now), rel=0.02)
        assert found.ahead == pytest.approx(factor * day(now + timedelta(seconds=600)), rel=0.02)
        assert found.error < 0.02

    def test_how_well_it_foretells_is_learned(self) -> None:
        error = {}
        for seed in (None, 1):
            found = foresee(self.on(1.0, seed=seed), Seasonal(), MONDAY + timedelta(hours=9), 120.0)
            assert found is not None
            error[seed] = found.error
        assert error[None] < 0.01
        assert 0.01 < error[1] < 0.06  # 2 req/s for a quarter of an hour: 2.4 %

    def test_early_birds_where_hardly_anybody_usually_comes_foretell_nothing(self) -> None:
        """A share of next to nothing would promise thousands, and be held against the season for weeks."""
        early = MONDAY + timedelta(hours=8)

        def rate(at: datetime) -> float:
            return 1.0 if early <= at < early + timedelta(hours=1) else office(at)

        season = learned(rate, days=28, until=MONDAY + timedelta(hours=9))
        assert season.slot_foretold is None
        season = learn_season(season, Seasonal(), Seasonal().slot(MONDAY + timedelta(hours=9)), 2.0, 5.0)
        assert foresee(season, Seasonal(), MONDAY + timedelta(hours=9), 120.0) is None
        error = learned(rate, days=29, until=MONDAY + timedelta(days=1)).today
        assert error.error / error.level < 0.05

    def test_a_cold_start_beyond_the_course_is_not_foreseen(self) -> None:
        season, now = self.on(1.0), MONDAY + timedelta(hours=9)
        assert foresee(season, Seasonal(), now, 3600.0) is not None
        assert foresee(season, Seasonal(), now, 7200.0) is None

    def test_nothing_is_foreseen_without_a_season_or_today_or_when_switched_off(self) -> None:
        now = MONDAY + timedelta(hours=9)
        assert foresee(NO_SEASON, Seasonal(), now, 120.0) is None
        assert foresee(self.on(1.0, days=3.5, hours=0), Seasonal(), MONDAY, 120.0) is None  # not judged for a day yet
        assert foresee(replace(self.on(1.0), came=0.0), Seasonal(), now, 120.0) is None
        assert foresee(self.on(1.0), Seasonal(enabled=False), now, 120.0) is None
        assert foresee(self.on(1.0), Seasonal(zone="Asia/Tokyo"), now, 120.0) is None

    def test_after_a_long_absence_nothing_is_foreseen_until_today_is_known_again(self) -> None:
        assert foresee(self.on(1.0), Seasonal(), MONDAY + timedelta(hours=15), 120.0) is None


class TestDaysOf23And25Hours:
    """Berlin, G5-08: 29 March 2026 lacks the hour from two, 25 October 2026 has it twice."""

    law, zone = Seasonal(zone="Europe/Berlin"), ZoneInfo("Europe/Berlin")

    def nine(self, at: datetime) -> float:
        local = at.astimezone(self.zone)
        return 2.0 if 9 <= local.hour < 17 else 0.0

    @pytest.mark.parametrize(("change", "nine_utc"), [((2026, 3, 29), 7), ((2026, 10, 25), 8)])
    def test_nine_stays_nine_for_who_lives_by_it(self, change: tuple[int, int, int], nine_utc: int) -> None:
        midnight = datetime(*change, tzinfo=UTC)
        season = learned(self.nine, law=self.law, until=midnight)
        for second, known in ((-1, False), (0, True)):
            at = midnight + timedelta(hours=nine_utc, seconds=second)
            assert (expected(season, at, self.law) is not None) is known

    def test_the_hour_that_is_there_twice_is_kept_once_and_nothing_else_moves(self) -> None:
        midnight = datetime(2026, 10, 25, tzinfo=self.zone)
        season = learned(self.nine, days=29, law=self.law, until=midnight.astimezone(UTC) + timedelta(hours=25))
        assert season.slots_known == SLOTS_KEPT
        assert season.level(self.law.slot(datetime(2026, 10, 25, 9, tzinfo=self.zone))) == pytest.approx(2.0, rel=0.012)

    def test_the_hour_that_is_not_there_is_not_known(self) -> None:
        midnight = datetime(2026, 3, 29, tzinfo=self.zone).astimezone(UTC)
        season = learned(self.nine, days=29, law=self.law, until=midnight + timedelta(hours=23))
        number = self.law.slot(midnight)
        assert [season.level(number + quarter) is None for quarter in range(7, 13)] == [False, *[True] * 4, False]

    @given(st.integers(1_577_836_800, 1_893_456_000), st.sampled_from(("Europe/Berlin", "Asia/Kolkata")))
    def test_a_slot_is_the_local_clocks(self, unix: int, zone: str) -> None:
        utc = datetime.fromtimestamp(unix, UTC)
        local = utc.astimezone(ZoneInfo(zone))
        slot = Seasonal(zone=zone).slot(utc)
        assert slot % 96 == local.hour * 4 + local.minute // 15
        assert slot // 96 % 7 == local.weekday()

    def test_another_zone_declared_moves_the_past_with_it(self) -> None:
        season, utc = learned(office), Seasonal()
        season = learn_season(season, utc, utc.slot(MONDAY), 0.0, 5.0)
        kolkata = Seasonal(zone="Asia/Kolkata")
        season = learn_season(season, kolkata, kolkata.slot(MONDAY), 0.0, 5.0)
        for hour, known in ((8.75, False), (9.0, True)):
            assert (expected(season, MONDAY + timedelta(hours=hour), kolkata) is not None) is known


def test_what_was_learned_survives_json_and_a_damaged_past_is_an_unknown_one() -> None:
    season, law = learned(office), Seasonal()
    adapter = TypeAdapter(Season)
    assert adapter.validate_json(adapter.dump_json(season)) == season
    broken = replace(season, levels="\u20ac" * 100 + season.levels[100:3000])
    assert broken.level(0) is None
    at = MONDAY
    for _ in range(200):
        broken = learn_season(broken, law, law.slot(at), 1.0, SLOT_SECONDS)
        expected_season(broken, law, at)
        at += SLOT


POLICY = Policy(
    push=Push(enabled=True),
    idle=Idle(timeout_seconds=600),
    replicas=ReplicaRange(max=10, cold_start_seconds=120),
    capacity=Capacity(requests_per_second=0.5, sequences=8),
)
AWAY = dict(
    arrivals=0.0, recent=0.0, last=0.0, running=0, waiting=0, ready=0, asked_replicas=0, pending=0, wake_demand=0
)


class TestWhatItBuys:
    def morning(self, policy: Policy = POLICY) -> Timeline:
        """A workload at zero, at ten to nine on a Monday."""
        start = MONDAY + timedelta(hours=8, minutes=50)
        memory = Memory(season=learned(office, until=start - timedelta(minutes=5)))
        return Timeline(policy, start=start, memory=memory).at("0s", **AWAY)

    def test_a_workload_at_zero_is_woken_a_cold_start_before_the_rise(self) -> None:
        timeline = self.morning()
        timeline.at("7m55s", **AWAY)
        assert timeline.decision is not None
        assert not timeline.decision.targets.active
        timeline.at("8m", **AWAY)
        assert timeline.decision.targets.active
        assert timeline.decision.targets.replicas == 4
        codes = {(reason.target, reason.code) for reason in timeline.decision.reasons}
        assert {(Target.ACTIVE, Code.SEASON), (Target.REPLICAS, Code.SEASON)} <= codes

    def test_the_replicas_are_given_back_when_nobody_comes(self) -> None:
        timeline = self.morning()
        timeline.at("8m", **AWAY).at("10m", **quiet(4) | dict(asked_replicas=4, pending=0, wake_demand=0, last=0.0))
        timeline.at("40m")
        assert timeline.decision is not None
        assert timeline.decision.targets.replicas <= 2
        timeline.at("50m")
        assert not timeline.decision.targets.active

    def test_a_warm_workload_is_not_taken_to_zero_before_it(self) -> None:
        start = MONDAY + timedelta(hours=8, minutes=40)
        memory = Memory(season=learned(office, until=start))
        awake = quiet(1) | dict(asked_replicas=1, pending=0, wake_demand=0, last=0.0)
        slow = POLICY.model_copy(
            update={"replicas": ReplicaRange(max=10, cold_start_seconds=900), "idle": Idle(timeout_seconds=300)}
        )
        timeline = Timeline(slow, start=start, memory=memory).at("0s", **awake).at("6m")
        assert timeline.decision is not None
        assert timeline.decision.targets.active
        assert Code.SEASON in {held.code for held in timeline.decision.suppressed}

    def test_switched_off_it_buys_nothing_and_goes_on_learning(self) -> None:
        timeline = self.morning(POLICY.model_copy(update={"season": Seasonal(enabled=False)}))
        before = timeline.memory.season
        timeline.at("9m30s", **AWAY)
        assert timeline.decision is not None
        assert not timeline.decision.targets.active
        assert timeline.memory.season.slot == (before.slot or 0)
        timeline.at("11m", **AWAY)
        assert timeline.memory.season.slot == (before.slot or 0) + 1

    def test_the_ceiling_stands(self) -> None:
        low = POLICY.model_copy(update={"replicas": ReplicaRange(max=2, cold_start_seconds=120)})
        timeline = self.morning(low).at("9m", **AWAY)
        assert timeline.decision is not None
        assert timeline.decision.targets.replicas == 2
        assert Code.CEILING in {held.code for held in timeline.decision.suppressed}

    def test_a_level_that_would_let_it_fall_idle_wakes_nobody(self) -> None:
        start = MONDAY + timedelta(hours=8, minutes=50)
        faint = learned(lambda at: 0.002 * office(at), until=start - timedelta(minutes=5))
        timeline = Timeline(POLICY, start=start, memory=Memory(season=faint)).at("0s", **AWAY).at("15m", **AWAY)
        assert timeline.decision is not None
        assert not timeline.decision.targets.active
