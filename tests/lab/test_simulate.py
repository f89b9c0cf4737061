"""The simulation: a seed gives one run, policies see signals and nothing else, and what was paid is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import get_args

import pytest

from scaler.control.model import Now
from scaler.lab.contest import play
from scaler.lab.enact import HPA_BEHAVIOUR, OUR_BEHAVIOUR, Direct, ThroughKeda
from scaler.lab.fleet import Fleet, Request
from scaler.lab.hardware import HARDWARE
from scaler.lab.keda import ScaledObject
from scaler.lab.looking import LOAD
from scaler.lab.meters import FOLDED
from scaler.lab.ours import Ours
from scaler.lab.policies import POLICIES, Case, peak_rate
from scaler.lab.promise import Promise
from scaler.lab.scenarios import LONG, PATIENT, SCENARIOS, Scenario, drawn, lengths_of, sawtooth
from scaler.lab.simulate import Run, Wish, World, simulate
from scaler.lab.static_batching import StaticEngine
from scaler.lab.traces import poisson
from scaler.lab.truth import Truth, measure_truth
from scaler.lab.wave import Lengths
from scaler.policy.model import Strategy
from scaler.signals.model import Known, Signals, Stale, Unknown, known_value
from scaler.signals.observation import EngineSample

SMALL = HARDWARE["llama-3.1-8b-h100"]
TRUTH = Truth(50.0, 2.2)
SHORT = Scenario(
    "short", "two minutes up and at once down", "tune", "llama-3.1-8b-h100", 30.0, 600.0,
    drawn(sawtooth(1, 8, 300), LONG, 600), PATIENT,
)  # fmt: skip


@dataclass
class Watching:
    """Wishes what it is told to and keeps what it was shown."""

    wished: float = 1.0
    name: str = "watching"
    metric_target: float = 1.0
    shown: list[tuple[Signals, Now, int]] = field(default_factory=list)

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
        self.shown.append((signals, now, asked))
        return Wish(self.wished)


def watched(requests: Sequence[Request], wished: float = 1.0, *, seconds: float = 300.0, **world: object) -> tuple[
    Run, Watching
]:  # fmt: skip
    policy = Watching(wished)
    around = World(SMALL, 60.0, 256, **world)  # type: ignore[arg-type]
    return simulate(requests, policy, Direct(0, 20), around, seconds=seconds, seed=1), policy


def essence(run: Run) -> object:
    times = [(served.first_token_at, served.finished_at) for _, served in run.fleet.served]
    return run.gpu_hours, run.replica_changes, run.timeline, run.unserved, times


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_run(policy: str) -> None:
    def once() -> object:
        return essence(play(SHORT, policy, SHORT.requests(None, 3), TRUTH, 1.0, 3, lost_share=0.1).run)

    assert once() == once()


def test_another_seed_gives_another_run() -> None:
    one, two = (essence(play(SHORT, "adaptive", SHORT.requests(None, seed), TRUTH, 1.0, seed).run) for seed in (1, 2))
    assert one != two


@pytest.mark.parametrize("policy", [name for name, entry in POLICIES.items() if not entry.foresight])
def test_no_rival_is_shown_the_trace(policy: str) -> None:
    """Whoever reads signals decides the same whatever the future holds: the trace after the middle does not matter."""
    requests = SHORT.requests(None, 1)
    middle = SHORT.seconds / 2
    past = [request for request in requests if request.at < middle]
    timelines = [
        [moment for moment in play(SHORT, policy, trace, TRUTH, 1.0, 1).run.timeline if moment.at < middle]
        for trace in (requests, past)
    ]
    assert timelines[0] == timelines[1]


def test_a_policy_is_built_from_what_an_operator_knows() -> None:
    """Without a single request to look at, every policy but those that say so is built the same."""
    for name, entry in POLICIES.items():
        with_trace, without = (Case(SHORT, TRUTH, 1.0, trace) for trace in (SHORT.requests(None, 1), ()))
        assert entry.foresight or repr(entry.build(with_trace)) == repr(entry.build(without)), name


@pytest.mark.parametrize("lost_share", [0.1, 0.9])
@pytest.mark.parametrize("policy", [name for name, entry in POLICIES.items() if entry.reads != FOLDED])
def test_what_a_policy_does_not_read_changes_nothing_for_it(
    policy: str, lost_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whole() -> object:
        return essence(play(SHORT, policy, SHORT.requests(None, 3), TRUTH, 1.0, 3, lost_share=lost_share).run)

    spared = whole()
    monkeypatch.setitem(POLICIES, policy, replace(POLICIES[policy], reads=FOLDED))
    assert whole() == spared


def test_only_what_a_policy_reads_is_measured_for_it() -> None:
    policy = Watching()
    simulate(
        poisson(lambda _: 4.0, Lengths(), seed=1, seconds=60.0), policy, Direct(0, 20), World(SMALL, 60.0, 256),
        seconds=60, seed=1, reads=LOAD,
    )  # fmt: skip
    told = {name for name, signal in policy.shown[-1][0].items() if isinstance(signal, Known)}
    assert {"running", "waiting", "pending", "ready_replicas"} <= told
    assert told.isdisjoint({"arrivals_per_second", "finished_per_second", "ttft_seconds", "kv_use_ratio"})


def test_a_page_changes_no_sample() -> None:
    def sampled(read: frozenset[str] | None) -> dict[str, EngineSample]:
        fleet = Fleet(SMALL, 256, 60.0, 1000, Random(1), read=read)
        fleet.start(1)
        for request in SHORT.requests(None, 1):
            fleet.submit(request)
        fleet.settle()
        return fleet.scrape()

    assert sampled(FOLDED) == sampled(None)


def test_signals_are_what_the_engines_counted() -> None:
    requests = poisson(lambda _: 4.0, Lengths(), seed=1, seconds=300.0)
    _, policy = watched(requests)
    rates = [known_value(signals.arrivals_per_second) for signals, _, _ in policy.shown[20:]]
    assert None not in rates
    assert sum(rate or 0.0 for rate in rates) / len(rates) == pytest.approx(4.0, rel=0.15)


def test_engines_report_what_they_really_run_with() -> None:
    @dataclass
    class Lowering(Watching):
        def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
            super().tick(signals, now, asked)
            return Wish(2.0, batch=32 if len(self.shown) > 5 else 64, hold=len(self.shown) > 8)

    policy = Lowering()
    simulate([], policy, Direct(0, 20), World(SMALL, 60.0, 256, initial_replicas=2), seconds=60, seed=1)
    batches = [known_value(signals.applied_batch) for signals, _, _ in policy.shown]
    assert batches == [256, 64, 64, 64, 64, 64, 32, 32, 32, 32, 32, 32]
    assert [each.admission for each in policy.shown[-1][0].applied] == ["hold", "hold"]


def test_lost_scrapes_leave_signals_stale_or_unknown_but_never_lower() -> None:
    requests = poisson(lambda _: 4.0, Lengths(), seed=1, seconds=300.0)
    _, all_read = watched(requests, 2.0, initial_replicas=2)
    _, half_lost = watched(requests, 2.0, initial_replicas=2, lost_share=0.5)
    _, none_read = watched(requests, 2.0, initial_replicas=2, lost_share=1.0)
    assert all(isinstance(signals.running, Known) for signals, _, _ in all_read.shown)
    assert any(isinstance(signals.running, Stale | Unknown) for signals, _, _ in half_lost.shown)
    assert all(isinstance(signals.running, Unknown) for signals, _, _ in none_read.shown)


@pytest.mark.parametrize("lost_share", [0.1, 0.5])
def test_ours_holds_its_promise_through_lost_scrapes(lost_share: float) -> None:
    requests = SHORT.requests(None, 1)
    whole = play(SHORT, "adaptive", requests, TRUTH, 1.0, 1).outcome
    lossy = play(SHORT, "adaptive", requests, TRUTH, 1.0, 1, lost_share=lost_share).outcome
    assert lossy.attainment >= whole.attainment - 0.02


def test_all_scrapes_lost_never_takes_a_replica_away() -> None:
    requests = poisson(lambda _: 4.0, Lengths(), seed=1, seconds=600.0)
    run = play(SHORT, "adaptive", requests, TRUTH, 1.0, 1, lost_share=1.0).run
    assert [moment.asked for moment in run.timeline] == [run.timeline[0].asked] * len(run.timeline)


def test_a_replica_is_paid_from_the_moment_it_is_asked_for() -> None:
    run, _ = watched([], 3.0, initial_replicas=1)
    # One for all 300 s; two more are wished at the first tick (5 s) and asked for in the second after it.
    assert run.gpu_hours * 3600 == pytest.approx(300 + 2 * 294)
    assert [moment.ready for moment in run.timeline if moment.at in (65, 70)] == [1, 3]


def test_gpu_hours_are_replica_hours_times_the_gpus_of_a_replica() -> None:
    eight = World(HARDWARE["llama-2-70b-8xa100"], 60.0, 256)
    run = simulate([], Watching(), Direct(1, 20), eight, seconds=3600, seed=1)
    assert run.gpu_hours == pytest.approx(8.0)


def test_a_drain_is_charged_until_the_last_answer() -> None:
    fleet = Fleet(SMALL, 256, 60.0, 1000, Random(1))
    fleet.start(1)
    fleet.submit(Request(10.0, 1000, 1000))
    fleet.scale(0)
    fleet.move(100.0)
    fleet.close()
    finished = fleet.served[0][1].finished_at
    assert finished is not None
    assert finished > 15.0
    assert fleet.gpu_seconds == pytest.approx(finished)


def test_requests_wait_at_the_gateway_for_the_first_replica() -> None:
    policy = Watching(1.0)
    run = simulate(
        [Request(7.0, 100, 10)], policy, Direct(0, 20), World(SMALL, 60.0, 256, initial_replicas=0), seconds=120, seed=1
    )
    (_, served), waited = run.fleet.served[0], 5.0 + 1.0 + 60.0
    assert served.arrived_at == pytest.approx(waited)
    assert {known_value(signals.pending) for signals, _, _ in policy.shown[2:10]} == {1.0}


def test_replicas_that_become_ready_together_share_what_the_gateway_holds() -> None:
    requests = [Request(10.0 + index / 100, 1000, 200) for index in range(100)]
    around = World(SMALL, 60.0, 256, initial_replicas=0)
    run = simulate(requests, Watching(4.0), Direct(0, 20), around, seconds=120, seed=1)
    loads = [len(replica.meters.distributions["request_prompt_tokens"].counts) and replica.meters.finished["length"]
             for replica in run.fleet.ready]  # fmt: skip
    assert len(loads) == 4
    assert sum(loads) == 100
    assert min(loads) >= 15


class TestStaticBatching:
    """The same simulation on engines that batch statically."""

    @pytest.mark.parametrize("policy", ["adaptive", "stepwise", "hpa-in-flight"])
    def test_every_policy_can_play_it_and_sees_no_more_than_it_measures(self, policy: str) -> None:
        static = replace(SHORT, fill_seconds=1.0, batch=64)
        requests = static.requests(None, 1)
        middle = static.seconds / 2
        past = [request for request in requests if request.at < middle]
        whole, half = (play(static, policy, trace, TRUTH, 1.0, 1, lost_share=0.1).run for trace in (requests, past))
        assert [each for each in whole.timeline if each.at < middle] == [
            each for each in half.timeline if each.at < middle
        ]
        assert essence(whole) == essence(play(static, policy, requests, TRUTH, 1.0, 1, lost_share=0.1).run)
        assert isinstance(whole.fleet.ready[0].engine, StaticEngine)

    def test_a_drain_ends_with_the_batch_and_with_what_had_queued(self) -> None:
        fleet = Fleet(SMALL, 2, 60.0, 1000, Random(1), fill_seconds=5.0)
        fleet.start(1)
        for _ in range(3):
            fleet.submit(Request(10.0, 1000, 500))
        fleet.scale(0)
        fleet.move(100.0)
        fleet.close()
        finished = [served.finished_at for _, served in fleet.served]
        assert None not in finished
        assert fleet.gpu_seconds == pytest.approx(max(at for at in finished if at is not None))

    def test_one_replica_serves_less_of_it_than_with_continuous_batching(self) -> None:
        """Whoever comes while a batch runs waits for its end: the promise on first tokens allows far less."""
        lengths = lengths_of(SHORT.requests(None, 1))
        continuous = measure_truth(SMALL, lengths, PATIENT, 64)
        static = measure_truth(SMALL, lengths, Promise(30.0, 0.2), 64, fill_seconds=1.0)
        assert static.requests_per_second < continuous.requests_per_second


class TestEnacting:
    def test_direct_stays_within_floor_and_ceiling_and_keeps_on_doubt(self) -> None:
        direct = Direct(2, 5)
        wishes = (Wish(1.0), Wish(3.2), Wish(9.0), Wish(None))
        assert [direct.enact(wish, 1.0, 4, 10.0) for wish in wishes] == [2, 4, 5, 4]
        assert Direct(0, 5).enact(Wish(3.0, active=False), 1.0, 4, 10.0) == 0

    def test_ours_goes_up_in_one_sync_and_overlooks_nothing(self) -> None:
        keda = ThroughKeda(ScaledObject(max_replicas=40, behaviour=OUR_BEHAVIOUR), 1.0)
        assert keda.enact(Wish(20.0), 1.0, 1, 15.0) == 20
        assert keda.enact(Wish(21.0), 1.0, 20, 30.0) == 21
        assert keda.enact(Wish(20.0), 1.0, 21, 31.0) == 21  # no sync is due
        assert keda.enact(Wish(20.0), 1.0, 21, 45.0) == 20

    def test_the_hpa_doubles_overlooks_a_tenth_and_waits_with_the_way_down(self) -> None:
        keda = ThroughKeda(ScaledObject(max_replicas=40, behaviour=HPA_BEHAVIOUR), 10.0)
        assert keda.enact(Wish(400.0), 10.0, 6, 15.0) == 12
        assert keda.enact(Wish(130.0), 10.0, 12, 30.0) == 12
        assert keda.enact(Wish(50.0), 10.0, 12, 45.0) == 12
        counts = [keda.enact(Wish(50.0), 10.0, 12, 45.0 + 15 * index) for index in range(1, 22)]
        assert counts[-1] == 5

    def test_a_pushed_wake_acts_at_once_and_a_poll_only_when_it_is_due(self) -> None:
        what = ScaledObject(max_replicas=5, polling_seconds=30.0)
        assert ThroughKeda(what, 1.0, pushes=True).enact(Wish(1.0), 1.0, 0, 1.0) == 1
        polled = ThroughKeda(what, 1.0)
        assert [polled.enact(Wish(1.0), 1.0, 0, at) for at in (1.0, 29.0, 30.0)] == [0, 0, 1]

    def test_doubt_changes_nothing(self) -> None:
        keda = ThroughKeda(ScaledObject(max_replicas=5), 1.0)
        assert [keda.enact(Wish(None), 1.0, 3, float(at)) for at in range(1, 400)] == [3] * 399


def test_the_static_fleet_is_sized_for_the_busiest_minute() -> None:
    requests = [Request(float(at), 1, 1) for at in range(600)] + [Request(700 + at / 4, 1, 1) for at in range(400)]
    assert peak_rate(requests) == pytest.approx(4.0)
    assert peak_rate([]) == 0.0


def test_every_strategy_of_the_policy_file_can_be_played() -> None:
    """Whatever the policy model knows is a policy of the lab by that name, under just that strategy, and is scored."""
    for strategy in get_args(Strategy):
        entry = POLICIES[strategy]
        assert entry.ours
        assert entry.scored
        policy, _ = entry.build(Case(SHORT, TRUTH, 1.0, ()))
        assert isinstance(policy, Ours)
        assert (policy.name, policy.policy.strategy) == (strategy, strategy)
    assert {"adaptive", "stepwise"} <= set(get_args(Strategy))


def test_every_scenario_says_within_what_bounds_everybody_plays() -> None:
    assert all(0 <= each.floor <= each.ceiling for each in SCENARIOS.values())
