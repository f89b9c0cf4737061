"""Prices and budgets: what hours change, what is counted, and what a budget may and may not do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from scaler.control.budget import NO_BILL, charged, floor_hours, room
from scaler.control.decide import decide
from scaler.control.model import Code, Memory, Now
from scaler.control.situate import situate
from scaler.policy.model import Budget, Capacity, Gpu, Objectives, Policy, Price, PriceWindow, Push, ReplicaRange
from scaler.policy.windows import Warm, Window
from tests.control.timeline import Timeline, signals

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)
BERLIN = "Europe/Berlin"
PEAK = {"start": "08:00", "end": "20:00", "zone": BERLIN, "days": "mon-fri"}
BUSY = dict(
    arrivals=4.0, recent=4.0, last=4.0, running=8, waiting=0, ready=4, asked_replicas=4, pending=0, wake_demand=0
)


def policy(**changes: object) -> Policy:
    whole = dict(
        push=Push(enabled=True),
        objectives=Objectives(ttft_seconds=1.0, ttft_critical_seconds=5.0, tpot_seconds=0.05),
        replicas=ReplicaRange(max=20),
        capacity=Capacity(requests_per_second=1.0, sequences=8),
        gpu=Gpu(per_replica=2, hour_price=3.0),
    )
    return Policy.model_validate(whole | changes)


def peak(**what: object) -> Price:
    return Price(windows=(PriceWindow.model_validate(PEAK | what),))


class TestPriceWindows:
    open_utc, closed_utc = MONDAY + timedelta(hours=6), MONDAY + timedelta(hours=5, minutes=59)  # 08:00 is 06:00 UTC

    def test_objectives_are_looser_while_it_is_open(self) -> None:
        priced = policy(price=peak(objective_factor=1.2))
        assert priced.at(self.open_utc).objectives.ttft_seconds == pytest.approx(1.2)
        assert priced.at(self.open_utc).objectives.ttft_critical_seconds == pytest.approx(6.0)
        assert priced.at(self.open_utc).objectives.e2e_seconds is None
        assert priced.at(self.closed_utc) is priced

    def test_what_a_replica_serves_follows_what_is_promised_now_and_not_what_is_learned_of(self) -> None:
        priced = policy(price=peak(objective_factor=1.2))
        situation = situate(priced, Memory(), signals(0.0, **BUSY), Now(self.open_utc, 0.0))
        assert situation.policy.objectives.tpot_seconds == pytest.approx(0.06)
        assert situation.declared.objectives.tpot_seconds == 0.05

    def test_floor_and_ceiling_hold_while_it_is_open(self) -> None:
        priced = policy(price=peak(floor=3, ceiling=6))
        assert (priced.floor(self.open_utc), priced.ceiling(self.open_utc)) == (3, 6)
        assert (priced.floor(self.closed_utc), priced.ceiling(self.closed_utc)) == (0, 20)

    def test_a_floor_above_the_ceiling_of_the_hour_wins(self) -> None:
        warm = Warm(windows=(Window.model_validate(PEAK | {"replicas": 8}),))
        assert policy(price=peak(ceiling=6), warm=warm).ceiling(self.open_utc) == 8

    def test_of_overlapping_windows_the_first_counts(self) -> None:
        both = Price(windows=(*peak(objective_factor=1.2).windows, *peak(objective_factor=2.0, floor=3).windows))
        assert policy(price=both).at(self.open_utc).objectives.ttft_seconds == pytest.approx(1.2)
        assert policy(price=both).floor(self.open_utc) == 0

    @pytest.mark.parametrize(("day", "hours"), [((2026, 3, 29), 7), ((2026, 10, 25), 9), ((2026, 6, 7), 8)])
    def test_g5_08_a_window_through_the_night_has_the_hours_that_the_night_has(
        self, day: tuple[int, int, int], hours: int
    ) -> None:
        night = PriceWindow.model_validate({"start": "22:00", "end": "06:00", "zone": BERLIN, "ceiling": 2})
        begin = datetime(*day, tzinfo=ZoneInfo(BERLIN)).astimezone(UTC) - timedelta(hours=4)
        within = [night.contains(begin + timedelta(minutes=minute)) for minute in range(14 * 60)]
        assert sum(within) == hours * 60


class TestWhatIsCounted:
    def test_replicas_asked_for_times_their_gpus_and_the_price_of_the_hour(self) -> None:
        priced = policy(price=peak(hour_price=7.0))
        bill = charged(NO_BILL, priced, 4, MONDAY, 1800.0)
        assert (bill.gpu_hours, bill.money) == (4.0, 12.0)
        bill = charged(bill, priced, 4, MONDAY + timedelta(hours=7), 1800.0)
        assert (bill.gpu_hours, bill.money) == (8.0, 40.0)

    def test_the_cluster_is_believed_before_what_we_last_told(self) -> None:
        timeline = Timeline(policy(), start=MONDAY)
        timeline.at("0s", **BUSY).at("1h", **BUSY)
        assert timeline.memory.bill.gpu_hours == pytest.approx(8.0)
        assert timeline.memory.bill.money == pytest.approx(24.0)

    def test_a_restart_goes_on_where_it_stopped_and_counts_the_time_away(self) -> None:
        timeline = Timeline(policy(), start=MONDAY).at("0s", **BUSY).at("30m", **BUSY)
        timeline.restarted()
        timeline.tick(3600.0, **BUSY)
        assert timeline.memory.bill.gpu_hours == pytest.approx(8.0)

    def test_a_clock_that_is_set_counts_nothing_while_the_scaler_runs(self) -> None:
        memory = Memory()
        for at, mono in ((MONDAY, 0.0), (MONDAY + timedelta(hours=2), 5.0), (MONDAY, 10.0)):
            memory = decide(policy(), memory, signals(mono, **BUSY), Now(at, mono)).next_memory
        assert memory.bill.gpu_hours == pytest.approx(8 * 10 / 3600)

    def test_it_survives_json(self) -> None:
        bill = charged(NO_BILL, policy(budget=Budget(gpu_hours=10)), 4, MONDAY, 1800.0)
        adapter = TypeAdapter(Memory)
        assert adapter.validate_json(adapter.dump_json(Memory(bill=bill))).bill == bill


class TestPeriods:
    @pytest.mark.parametrize(("day", "hours"), [((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 6, 7), 24)])
    def test_a_day_has_the_hours_it_has(self, day: tuple[int, int, int], hours: int) -> None:
        budget = Budget(gpu_hours=1, per="day", zone=BERLIN)
        midnight = datetime(*day, tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)
        name, ends = budget.period(midnight)
        assert (name, ends - midnight) == ("{}-{:02}-{:02}".format(*day), timedelta(hours=hours))
        assert budget.period(ends - timedelta(seconds=1))[0] == name
        assert budget.period(ends)[0] != name
        one = policy(budget=budget, warm=Warm(floor=1))
        assert floor_hours(one, midnight, ends) == pytest.approx(2 * hours)

    def test_a_month_ends_with_its_last_day(self) -> None:
        budget = Budget(gpu_hours=1, zone=BERLIN)
        name, ends = budget.period(datetime(2028, 2, 15, tzinfo=UTC))
        assert (name, ends) == ("2028-02", datetime(2028, 2, 29, 23, tzinfo=UTC))
        assert budget.period(datetime(2026, 12, 31, 22, 59, tzinfo=UTC))[1] == datetime(2026, 12, 31, 23, tzinfo=UTC)

    def test_the_next_one_begins_with_nothing_spent(self) -> None:
        daily = policy(budget=Budget(gpu_hours=10, per="day"))
        bill = charged(replace(NO_BILL, period="2026-05-31", in_period=9.0), daily, 1, MONDAY, 1800.0)
        assert bill.in_period == 1.0

    def test_what_the_floor_will_take_is_set_aside_with_the_windows_that_are_to_open(self) -> None:
        warm = Warm(windows=(Window.model_validate(PEAK | {"replicas": 3}),))
        daily = policy(budget=Budget(gpu_hours=100, per="day", zone=BERLIN), warm=warm)
        bill = charged(NO_BILL, daily, 0, MONDAY, 0.0)
        assert bill.reserved == pytest.approx(3 * 2 * 12, rel=0.01)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 3), st.floats(1.0, 3.0), st.sampled_from(((3, 29), (10, 25), (6, 7))))
def test_a_cap_is_never_breached_never_goes_below_the_floor_and_lets_the_floor_win(
    seed: int, floor: int, share: float, day: tuple[int, int]
) -> None:
    """Whatever is asked on a day of 23, 24 or 25 hours: all that runs above the floor fits into what is left."""
    chance = Random(seed)
    begin = datetime(2026, *day, tzinfo=ZoneInfo(BERLIN)).astimezone(UTC)
    warm = Warm(floor=floor, windows=(Window.model_validate(PEAK | {"replicas": floor + 1, "days": "mon-sun"}),))
    free = policy(budget=Budget(gpu_hours=1e6, per="day", zone=BERLIN, at_end="cap"), warm=warm)
    _, ends = free.budget.period(begin)
    budget = share * floor_hours(free, begin, ends)
    capped = free.model_copy(update={"budget": Budget(gpu_hours=budget, per="day", zone=BERLIN, at_end="cap")})
    memory, at, replicas, spent = Memory(), begin, 0, 0.0
    while at < ends:
        rate = chance.choice((0.0, 1.0, 5.0, 30.0))
        running = dict(running=rate, waiting=chance.choice((0, 0, 200)), ready=replicas, asked_replicas=replicas)
        told = signals(at.timestamp(), arrivals=rate, recent=rate, last=rate, pending=0, wake_demand=0, **running)
        decision = decide(capped, memory, told, Now(at, at.timestamp()))
        memory, replicas = decision.next_memory, decision.targets.replicas
        assert replicas >= min(capped.floor(at), 20)
        spent += replicas * 2 * 120 / 3600
        at += timedelta(seconds=120)
    assert spent <= budget * 1.0001 + 2 * 120 / 3600 * (floor + 1)
    assert memory.bill.in_period == pytest.approx(spent, abs=2 * 120 / 3600 * 21)


class TestAtItsEnd:
    def spent(self, budget: Budget, **changes: object) -> Timeline:
        """A busy workload whose month is spent."""
        bill = replace(NO_BILL, at=MONDAY, period="2026-06", in_period=100.0)
        timeline = Timeline(policy(budget=budget, **changes), start=MONDAY, memory=Memory(bill=bill))
        return timeline.at("0s", **BUSY).at("5s", **BUSY)

    def test_warn_says_so_and_holds_nobody_back(self) -> None:
        decision = self.spent(Budget(gpu_hours=99)).decision
        assert decision is not None
        assert decision.targets.replicas == 4
        assert Code.BUDGET_SPENT in {reason.code for reason in decision.reasons}

    def test_cap_goes_to_the_floor_and_says_that_the_floor_stands(self) -> None:
        decision = self.spent(Budget(gpu_hours=99, at_end="cap"), warm=Warm(floor=2)).decision
        assert decision is not None
        assert decision.targets.replicas == 2
        assert Code.BUDGET in {held.code for held in decision.suppressed}
        assert Code.BUDGET_FLOOR in {reason.code for reason in decision.reasons}

    def test_without_a_floor_it_goes_to_zero_and_comes_back_with_the_next_period(self) -> None:
        timeline = self.spent(Budget(gpu_hours=99, per="month", at_end="cap"))
        assert timeline.decision is not None
        assert (timeline.decision.targets.active, timeline.decision.targets.replicas) == (False, 0)
        assert [reason.code for reason in timeline.decision.reasons][:1] == [Code.BUDGET]
        july = datetime(2026, 7, 1, tzinfo=UTC)
        back = signals(9e6, **BUSY | dict(asked_replicas=0, ready=0, pending=3.0))
        decision = decide(timeline.policy, timeline.memory, back, Now(july, 9e6))
        assert decision.targets.active

    def test_a_ceiling_that_is_not_the_budgets_is_called_a_ceiling(self) -> None:
        decision = self.spent(Budget(gpu_hours=1e6, at_end="cap"), replicas=ReplicaRange(max=2)).decision
        assert decision is not None
        assert {held.code for held in decision.suppressed} >= {Code.CEILING}

    def test_the_way_down_is_a_glide(self) -> None:
        capped = policy(budget=Budget(gpu_hours=100, per="day", at_end="cap"))
        steps = [room(replace(NO_BILL, in_period=spent), capped, 0) for spent in (90.0, 98.0, 99.0, 99.6, 100.0)]
        assert [each.ceiling for each in steps if each] == [20, 4, 2, 0, 0]
