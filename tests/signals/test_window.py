"""The fold: how endpoints, their silence, restarts and removal become known, stale and unknown signals."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import replace

import pytest

from scaler.policy.model import Policy, Scrape
from scaler.signals.model import CATALOG, Applied, Known, NotApplicable, Signals, Stale, Unknown
from scaler.signals.observation import Demand, EngineSample, Observation, ReadFailure, ReplicaCounts
from scaler.signals.window import History, fold
from tests.signals.timeline import UNIX, Timeline, down, pod

EMPTY_MEANS_ZERO = Policy(scrape=Scrape(empty_means="zero"))


# Which endpoints are there, and how lately they were read


def test_everything_is_unknown_before_the_first_read() -> None:
    signals = Timeline().at(0, a=down())

    assert signals.running == Unknown("0 of 1 endpoints read within 120 s; last failure: connection refused")
    assert isinstance(signals.arrivals_per_second, Unknown)
    assert isinstance(signals.ready_replicas, Unknown)
    assert isinstance(signals.e2e_seconds, Unknown)


def test_without_endpoints_nothing_is_known_and_nothing_is_zero() -> None:
    signals = Timeline().at(0)

    assert signals.waiting == Unknown("no endpoint is configured")
    assert signals.ready_replicas == Unknown("no endpoint is configured")


def test_gauges_are_summed_over_pods_and_ratios_are_not() -> None:
    # Each page here is what two data-parallel engines (running 7 and 9, waiting 0 and 4, KV 0.2 and 0.8) come to.
    page = pod(running=16, waiting=4, kv_use=0.8, kv_use_mean=0.5)
    signals = Timeline().at(0, a=page)
    assert (signals.running, signals.waiting) == (Known(16.0, 0), Known(4.0, 0))
    assert (signals.kv_use_ratio, signals.kv_use_mean_ratio) == (Known(0.8, 0), Known(0.5, 0))

    signals = Timeline().at(0, a=page, b=pod(running=1, waiting=0, kv_use=0.1, kv_use_mean=0.1))
    assert (signals.running, signals.waiting) == (Known(17.0, 0), Known(4.0, 0))
    assert (signals.kv_use_ratio, signals.kv_use_mean_ratio) == (Known(0.8, 0), Known(0.3, 0))
    assert signals.ready_replicas == Known(2.0, 0)


def test_replicas_that_say_that_no_engine_of_theirs_is_awake_are_asleep_and_ready_all_the_same() -> None:
    signals = Timeline().at(0, a=pod(running=1, awake_engines=2), b=pod(running=0, awake_engines=0))
    assert (signals.asleep_replicas, signals.ready_replicas) == (Known(1.0, 0), Known(2.0, 0))
    signals = Timeline().at(0, a=pod(running=1), b=down())
    assert signals.asleep_replicas == Unknown("no endpoint reports awake_engines")


def test_one_that_cannot_be_read_is_not_awake_for_that() -> None:
    line = Timeline()
    line.at(0, a=pod(running=0, awake_engines=0), b=pod(running=0, awake_engines=1))
    held = line.at(60, a=down(), b=pod(running=0, awake_engines=1))
    assert held.asleep_replicas == Stale(1.0, 0, 0.0)


def test_where_the_page_does_not_tell_it_the_agents_do() -> None:
    told = (Applied("a", 3.0, None, rung="asleep"), Applied("b", 4.0, None, rung="awake"))
    seen = Observation(100.0, {"a": replace(pod(running=0), at=100.0)}, applied=told)
    _, signals = fold(History(), seen, 100.0, Policy(), interval_seconds=5.0)
    assert signals.asleep_replicas == Known(1.0, 97.0)


def test_what_replicas_report_to_run_with_is_the_least_of_them_and_as_old_as_the_oldest() -> None:
    told = (Applied("a", 3.0, 32, generation=7), Applied("b", 12.0, 64), Applied("c", 1.0, None))
    seen = Observation(100.0, {"a": replace(pod(running=1), at=100.0)}, applied=told)
    _, signals = fold(History(), seen, 100.0, Policy(), interval_seconds=5.0)
    assert signals.applied_batch == Known(32.0, 88.0)
    assert signals.applied == told

    _, signals = fold(History(), replace(seen, applied=told[2:]), 100.0, Policy(), interval_seconds=5.0)
    assert isinstance(signals.applied_batch, Unknown)  # nobody tells a size
    assert signals.applied == told[2:]


def test_what_limits_a_replica_is_that_of_the_smallest() -> None:
    signals = Timeline().at(
        0,
        a=pod(kv_capacity_tokens=400_000, applied_batch=64, gpu_memory_free=0.3, gpu_busy=0.9, sm_active=0.5),
        b=pod(kv_capacity_tokens=200_000, applied_batch=32, gpu_memory_free=0.2, gpu_busy=0.5, sm_active=0.1),
    )

    assert (signals.kv_capacity_tokens, signals.applied_batch) == (Known(200_000.0, 0), Known(32.0, 0))
    assert signals.gpu_memory_free_ratio == Known(0.2, 0)
    assert signals.gpu_busy_ratio == Known(0.7, 0)
    assert signals.sm_active_ratio == Known(0.3, 0)


def test_a_ratio_a_little_over_one_is_full() -> None:
    assert Timeline().at(0, a=pod(kv_use=1.02)).kv_use_ratio == Known(1.0, 0)


def test_a_lost_signal_is_held_then_unknown_and_never_zero() -> None:
    # Lost from 20 s on; fresh until three scrapes (45 s) have passed, held until 120 s, then unknown.
    line = Timeline(Policy(hold_seconds=120))
    line.at(0, a=pod(running=42, waiting=0))

    for seconds in (15, 30, 45):
        assert line.at(seconds, a=down("HTTP 503")).running == Known(42.0, 0)
    for seconds in (60, 90, 120):
        signals = line.at(seconds, a=down("HTTP 503"))
        assert signals.running == Stale(42.0, 0, at_least=0.0)
        assert signals.ready_replicas == Stale(1.0, 0, at_least=0.0)
    signals = line.at(121, a=down("HTTP 503"))
    assert signals.running == Unknown("0 of 1 endpoints read within 120 s; last failure: HTTP 503")
    assert isinstance(signals.ready_replicas, Unknown)

    assert line.at(135, a=pod(running=0, waiting=0)).running == Known(0.0, 135)


def test_part_of_the_endpoints_raises_but_does_not_lower() -> None:
    line = Timeline()
    line.at(0, a=pod(running=30, waiting=3), b=pod(running=12, waiting=1))

    signals = line.at(60, a=pod(running=35, waiting=0), b=down())

    assert signals.running == Stale(47.0, 0, at_least=35.0)
    assert signals.ready_replicas == Stale(2.0, 0, at_least=1.0)


def test_an_endpoint_never_read_makes_the_sum_incomplete() -> None:
    signals = Timeline().at(0, a=pod(running=3, waiting=0, kv_use=0.4), b=down())

    assert signals.running == Stale(3.0, 0, at_least=3.0)
    assert signals.kv_use_ratio == Stale(0.4, 0, at_least=0.4)
    assert signals.ready_replicas == Stale(1.0, 0, at_least=1.0)


def test_an_endpoint_lost_for_good_makes_the_sum_incomplete_for_as_long_as_it_is_an_endpoint() -> None:
    line = Timeline()
    line.at(0, a=pod(running=3), b=pod(running=40))
    for seconds in range(15, 600, 15):
        signals = line.at(seconds, a=pod(running=3), b=down())

    assert signals.running == Stale(3.0, 585, at_least=3.0)
    assert line.at(600, a=pod(running=3)).running == Known(3.0, 600)


def test_the_lower_bound_of_a_mean_or_minimum_supposes_nothing_of_the_others() -> None:
    signals = Timeline().at(0, a=pod(gpu_busy=0.8, kv_capacity_tokens=1000), b=down())

    assert signals.gpu_busy_ratio == Stale(0.8, 0, at_least=0.4)
    assert signals.kv_capacity_tokens == Stale(1000.0, 0, at_least=0.0)


def test_the_ghost_of_a_deleted_pod_is_not_load() -> None:
    line = Timeline()
    line.at(0, aaa=pod(waiting=0), zzz=pod(waiting=40))

    assert line.at(15, aaa=pod(waiting=0)).waiting == Known(0.0, 15)


def test_a_family_nobody_reports_is_unknown_and_one_that_some_report_is_incomplete() -> None:
    signals = Timeline().at(0, a=pod(running=3, waiting=6), b=pod(running=4))

    assert signals.kv_use_ratio == Unknown("no endpoint reports kv_use")
    assert signals.ttft_seconds == Unknown("no endpoint reports ttft")
    assert signals.waiting == Stale(6.0, 0, at_least=6.0)
    assert signals.running == Known(7.0, 0)


def test_a_value_that_is_no_number_is_not_reported() -> None:
    assert Timeline().at(0, a=pod(running=float("nan"))).running == Unknown("no endpoint reports running")


def test_a_sample_ages_without_a_new_observation() -> None:
    line = Timeline(interval_seconds=5)
    line.at(0, a=pod(running=1))

    assert line.judged(15).running == Known(1.0, 0)
    assert line.judged(16).running == Stale(1.0, 0, at_least=0.0)
    assert line.history.last_at == 0


def test_warnings_of_all_samples_are_told_once() -> None:
    line = Timeline()
    line.at(0, a=pod(warnings=("two models", "old name")), b=pod(warnings=("two models",)))

    assert line.at(15, a=down(), b=pod(warnings=("two models",))).warnings == ("old name", "two models")


# What no answer may mean


def test_empty_means_zero_only_where_the_operator_said_so() -> None:
    line = Timeline(EMPTY_MEANS_ZERO)
    line.at(0, a=pod(running=5, waiting=1), b=pod(running=1, waiting=0))

    assert line.at(15, a=pod(running=5, waiting=1), b=down()).running == Known(6.0, 0)
    signals = line.at(30, a=down(), b=down())
    assert signals.running == signals.waiting == signals.arrivals_per_second == Known(0.0, 30)
    assert signals.arrivals_last_per_second == signals.ready_replicas == Known(0.0, 30)
    assert signals.e2e_seconds == NotApplicable("empty means zero")
    assert not signals.counters_moved


def test_empty_means_zero_says_something_of_every_signal() -> None:
    signals = Timeline(EMPTY_MEANS_ZERO).at(0, a=down(), replicas=ReplicaCounts(0, 1, 1, 0, 0))

    assert {name for name, signal in signals.items() if not isinstance(signal, Known | NotApplicable)} == set()


def test_without_endpoints_even_empty_means_zero_says_nothing() -> None:
    assert Timeline(EMPTY_MEANS_ZERO).at(0).running == Unknown("no endpoint is configured")


# Demand at the gateway


def test_without_a_wake_source_there_is_no_demand_to_know() -> None:
    signals = Timeline().at(0, a=pod())

    assert signals.pending == NotApplicable("no wake source is configured")
    assert signals.wake_demand == NotApplicable("no wake source is configured")


def test_a_gateway_that_fell_silent_is_unknown() -> None:
    signals = Timeline().at(0, demand=Demand(at=0, pending=None, wake_requested=True, reason="silent for 40 s"))

    assert signals.pending == Unknown("silent for 40 s")
    assert signals.wake_demand == Known(1.0, 0)


def test_at_zero_replicas_arrivals_are_those_of_the_gateway() -> None:
    told = Demand(at=14, pending=3.0, wake_requested=False, arrivals_per_second=0.5)
    signals = Timeline().at(15, a=down(), demand=told)

    assert signals.pending == Known(3.0, 14)
    assert signals.wake_demand == Known(0.0, 14)
    assert signals.arrivals_recent_per_second == signals.arrivals_last_per_second == Known(0.5, 14)
    assert isinstance(signals.arrivals_per_second, Unknown)


def test_what_engines_count_themselves_comes_before_what_a_gateway_tells() -> None:
    line = Timeline()
    line.at(0, a=pod(arrivals=0))
    told = Demand(at=15, pending=0.0, wake_requested=False, arrivals_per_second=9.0)

    assert line.at(15, a=pod(arrivals=30), demand=told).arrivals_last_per_second == Known(2.0, 15)


# A replica's cap, as it shows


def test_a_replica_that_runs_while_it_queues_at_two_reads_shows_its_cap() -> None:
    line = Timeline()
    line.at(0, a=pod(running=16, waiting=0), b=pod(running=2, waiting=0))
    line.at(15, a=pod(running=16, waiting=4), b=pod(running=3, waiting=0))
    assert line.at(30, a=pod(running=15, waiting=9), b=pod(running=3, waiting=0)).saturated_sequences == Known(16.0, 30)
    assert isinstance(
        line.at(45, a=pod(running=15, waiting=0), b=pod(running=3, waiting=0)).saturated_sequences, NotApplicable
    )


def test_a_queue_with_nothing_running_is_no_cap() -> None:
    line = Timeline()
    line.at(0, a=pod(running=0, waiting=6))
    assert isinstance(line.at(15, a=pod(running=0, waiting=6)).saturated_sequences, NotApplicable)


def test_a_cap_seen_while_another_endpoint_is_lost_is_stale() -> None:
    line = Timeline()
    line.at(0, a=pod(running=8, waiting=2), b=down())
    assert line.at(15, a=pod(running=8, waiting=2), b=down()).saturated_sequences == Stale(8.0, 15, at_least=8.0)


# The fold itself


def busy_line() -> list[Observation]:
    """A minute of a service with a restart, a lost scrape, a young pod, and one that goes away."""
    rng = random.Random(7)
    observations = []
    for step in range(13):
        at = step * 5.0
        reads: dict[str, EngineSample | ReadFailure] = {}
        for name in ("a", "b", "c", "d"):
            started = 31.0 if name == "c" and step > 6 else -100.0
            page = pod(
                started=41.0 if name == "d" else started,
                running=rng.random() * 9,
                waiting=rng.random(),
                kv_use=rng.random(),
                finished={"stop": step + rng.random(), "length": step * 0.3},
                generation_tokens=step * 77.7 + rng.random(),
                ttft=[0.1 * each for each in range(step)],
            )
            reads[name] = replace(page, at=at)
        if step in (4, 5):
            reads["b"] = ReadFailure(at, "timed out")
        if step < 9:
            del reads["d"]
        if step > 10:
            del reads["a"]
        observations.append(Observation(at, reads))
    return observations


def folded(observations: list[Observation]) -> list[Signals]:
    history, all_signals = History(), []
    for each in observations:
        history, signals = fold(history, each, each.at, Policy(), interval_seconds=5, now_unix=UNIX + each.at)
        all_signals.append(signals)
    return all_signals


def test_the_order_of_endpoints_changes_nothing() -> None:
    observations = busy_line()
    shuffled = []
    for each in observations:
        names = list(each.endpoints)
        random.Random(each.at).shuffle(names)
        shuffled.append(replace(each, endpoints={name: each.endpoints[name] for name in names}))

    assert folded(shuffled) == folded(observations)


def test_a_fold_leaves_the_history_it_was_given_as_it_was() -> None:
    history = History()
    for each in busy_line():
        before = deepcopy(history)
        after, _ = fold(history, each, each.at, Policy(), interval_seconds=5, now_unix=UNIX + each.at)
        assert history == before
        history = after


def test_an_observation_given_again_adds_nothing() -> None:
    line = Timeline(interval_seconds=5)
    line.at(0, a=pod(arrivals=0))
    first = line.at(5, a=pod(arrivals=10))
    history = line.history
    again = line.judged(6)

    assert line.history is history
    assert again.arrivals_per_second == first.arrivals_per_second == Known(2.0, 5)
    assert (first.counters_moved, again.counters_moved) == (True, False)


def test_what_is_remembered_does_not_grow_with_time_or_with_pods_that_come_and_go() -> None:
    line = Timeline(interval_seconds=5)
    for step in range(1000):
        line.at(
            step * 5, **{f"pod{step // 3}": pod(finished=step, ttft=[1.0] * (step % 3)), "steady": pod(arrivals=step)}
        )

    assert len(line.history.flow.increments) <= 13
    assert line.history.flow.counts is not None
    assert len(line.history.flow.counts.counts) <= 121
    assert len(line.history.tracked) <= 70
    assert line.history.listed == {"pod333", "steady"}


@pytest.mark.parametrize("name", list(CATALOG))
def test_every_signal_of_the_catalog_is_given_by_the_fold(name: str) -> None:
    everything = {"running": 1, "waiting": 1, "kv_use": 0.1, "kv_use_mean": 0.1, "kv_capacity_tokens": 9}
    everything |= {"awake_engines": 1, "applied_batch": 8, "gpu_busy": 0.1, "sm_active": 0.1, "gpu_memory_free": 0.1}
    counters = ("finished", "preemptions", "prompt_tokens", "generation_tokens")
    latencies = ("ttft", "tpot", "e2e", "queue", "prefill", "decode", "prompt_length", "generation_length")
    line = Timeline()
    line.at(0, a=pod(**everything, **dict.fromkeys(counters, 0), **dict.fromkeys(latencies, ())))
    signals = line.at(
        15,
        a=pod(**everything, **dict.fromkeys(counters, 1), **dict.fromkeys(latencies, (0.5,))),
        demand=Demand(at=15, pending=0.0, wake_requested=False),
        replicas=ReplicaCounts(15, ready=1, asked=1, pending=0, unschedulable=0),
    )

    assert isinstance(getattr(signals, name), Known)
