"""The past at each tick: what a scaler would have read then, and never what came later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scaler.signals.model import Known, Stale, Unknown, known_value
from scaler.signals.observation import EngineSample, ReadFailure
from tests.lab.backtest.remembered import BEGIN, Remembered
from tests.lab.backtest.replaying import policy_of, replayed

A, B = "llama-7d9f8c5b6d-aaaaa", "llama-7d9f8c5b6d-bbbbb"


def steady(
    seconds: int, *pods: str, every: int = 15, when: Callable[[str, int], bool] = lambda pod, at: True
) -> Remembered:
    """Each pod finishes two requests a second and runs six, scraped while ``when`` says so."""
    server = Remembered()
    for at in range(every, seconds + 1, every):
        server.pulse(float(at))
        for pod in pods:
            if when(pod, at):
                server.scrape(float(at), pod, running=6.0, finished=2.0 * at)
    return server


async def test_rates_and_gauges_are_those_of_the_window_fold() -> None:
    found = await replayed(steady(600, A, B), 600)
    _, tick = found.at(300)
    assert tick.kind == "measured"
    assert tick.ready == 2.0
    assert known_value(tick.signals.running) == 12.0
    assert known_value(tick.signals.finished_per_second) == pytest.approx(4.0)
    assert known_value(tick.signals.arrivals_per_second) == pytest.approx(4.0)
    ttft = known_value(tick.signals.ttft_seconds)
    assert ttft is not None
    assert (ttft.p95.low, ttft.p95.high, ttft.mean_seconds) == (0.05, 0.2, pytest.approx(0.1))


async def test_the_batch_that_replicas_ran_with_is_what_a_scaler_of_ours_recorded_of_them() -> None:
    """From five minutes on there is a scaler; B is lowered, and gone after a minute without a word."""
    server = steady(900, A, B)
    for at in range(300, 601, 15):
        for pod, batch in ((A, 256.0), (B, 48.0)):
            told = {"namespace": "chat", "workload": "llama", "replica": pod}
            if pod == A or at <= 450:
                server.add("loadtide_applied_batch_size", told, float(at), batch)
            server.add("loadtide_applied_batch_size", {**told, "workload": "other"}, float(at), 1.0)
    found = await replayed(server, 900)
    batches = {at: known_value(found.at(at)[1].signals.applied_batch) for at in (285, 300, 450, 540, 900)}
    assert batches == {285: None, 300: 48.0, 450: 48.0, 540: 256.0, 900: None}


async def test_nothing_later_than_the_tick_is_seen() -> None:
    """The same past, cut off after five minutes, is the same until then."""
    whole, cut = await replayed(steady(600, A, B), 600), await replayed(steady(300, A, B), 300)
    assert [tick for tick in whole.ticks if tick.unix <= BEGIN + 300] == cut.ticks


async def test_parts_leave_no_seam() -> None:
    """Two hours and a bit: the second part goes on where the first ended."""
    found = await replayed(steady(7500, A), 7500)
    assert [tick.unix for tick in found.ticks] == [BEGIN + at for at in range(15, 7501, 15)]
    rates = [known_value(tick.signals.finished_per_second) for tick in found.ticks[10:]]
    assert rates == pytest.approx([2.0] * len(rates))


async def test_a_replica_that_fails_its_scrapes_is_waited_for_and_not_gone() -> None:
    server = steady(600, A, B, when=lambda pod, at: pod == A or at <= 300)
    for at in range(315, 601, 15):
        server.scrape(float(at), B, up=False)
    found = await replayed(server, 600)
    seen, tick = found.at(480)
    failure = seen.observation.endpoints[B]
    assert isinstance(failure, ReadFailure)
    assert "up is 0" in failure.reason
    assert isinstance(tick.signals.running, Stale), "the sum lacks a replica: it may raise, and never lowers"
    assert tick.signals.running.at_least == 6.0
    assert tick.paid == 2.0


async def test_one_lost_scrape_changes_nothing() -> None:
    server = steady(600, A, B, when=lambda pod, at: (pod, at) != (B, 300))
    server.scrape(300.0, B, up=False)
    found = await replayed(server, 600)
    _, tick = found.at(300)
    assert known_value(tick.signals.running) == 12.0, "its last sample is fresh enough"


async def test_a_replica_that_is_gone_is_gone_at_the_second_tick() -> None:
    found = await replayed(steady(600, A, B, when=lambda pod, at: pod == A or at <= 300), 600)
    assert [found.at(at)[1].ready for at in (300, 315, 330)] == [2.0, 2.0, 1.0]
    assert known_value(found.at(330)[1].signals.running) == 6.0


async def test_while_the_server_was_away_nothing_is_known() -> None:
    """Not even its own targets: that is no zero."""
    dark = range(301, 900)
    server = Remembered()
    for at in range(15, 1201, 15):
        if at not in dark:
            server.pulse(float(at))
            server.scrape(float(at), A, running=6.0, finished=2.0 * at)
    found = await replayed(server, 1200)
    seen, tick = found.at(600)
    assert not seen.recorded
    assert tick.kind == "gap"
    assert isinstance(tick.signals.running, Unknown)
    assert "the server recorded nothing of anybody" in tick.signals.running.reason
    assert found.at(1200)[1].kind == "measured"


async def test_no_target_while_the_server_was_there_is_no_replica() -> None:
    found = await replayed(steady(900, A, when=lambda pod, at: at <= 300), 900)
    kinds = [found.at(at)[1].kind for at in (300, 600, 900)]
    assert kinds == ["measured", "none ready", "none ready"]
    assert found.at(900)[1].paid == 0.0


async def test_kube_state_metrics_tell_zero_at_once_and_what_is_paid() -> None:
    server = steady(900, A, when=lambda pod, at: at <= 300)
    where = {"namespace": "chat", "deployment": "llama"}
    for at in range(15, 901, 15):
        asked = 1.0 if at <= 300 else 0.0 if at <= 600 else 2.0
        server.add("kube_deployment_spec_replicas", where, float(at), asked)
        server.add("kube_deployment_status_replicas_ready", where, float(at), 1.0 if at <= 300 else 0.0)
        if at > 600:
            stuck = {"namespace": "chat", "pod": "llama-7d9f8c5b6d-ccccc"}
            server.add("kube_pod_status_unschedulable", stuck, float(at), 1.0)
    found = await replayed(server, 900)
    assert found.measure.counted
    assert (found.at(345)[1].kind, found.at(345)[1].paid) == ("none ready", 0.0)
    # Asked for again: one of the two loads, the other has no node and so no GPU.
    assert (found.at(900)[1].kind, found.at(900)[1].ready, found.at(900)[1].paid) == ("none ready", 0.0, 1.0)


async def test_the_same_replica_scraped_by_two_jobs_counts_once() -> None:
    server = steady(600, A)
    for at in range(15, 601, 15):
        server.scrape(float(at), A, job="podmonitor", running=6.0, finished=2.0 * at)
    _, tick = (await replayed(server, 600)).at(300)
    assert (tick.ready, known_value(tick.signals.running)) == (1.0, 6.0)
    assert known_value(tick.signals.finished_per_second) == pytest.approx(2.0)


async def test_a_restart_counts_from_zero() -> None:
    server = Remembered()
    for at in range(15, 601, 15):
        server.pulse(float(at))
        since = 300.0 if at > 300 else -86_400.0
        server.scrape(float(at), A, finished=2.0 * (at if at <= 300 else at - 300), started=since)
    _, tick = (await replayed(server, 600)).at(360)
    assert known_value(tick.signals.finished_per_second) == pytest.approx(2.0)


async def test_how_long_replicas_take_is_learned_from_those_that_come_up() -> None:
    server = steady(1200, A, B, when=lambda pod, at: pod == A or at >= 600)
    server.add("kube_pod_created", {"namespace": "chat", "pod": B}, 600.0, BEGIN + 420)
    server.add("kube_pod_created", {"namespace": "chat", "pod": A}, 600.0, BEGIN - 9000)
    found = await replayed(server, 1200)
    assert found.replay.loads == [180.0]
    assert found.replay.created_told


async def test_of_a_replica_that_came_up_while_nobody_looked_nothing_is_learned() -> None:
    server = Remembered()
    for at in (*range(15, 301, 15), *range(900, 1201, 15)):
        server.pulse(float(at))
        server.scrape(float(at), A)
        if at >= 900:
            server.scrape(float(at), B, started=400.0)
    assert (await replayed(server, 1200)).replay.loads == []


async def test_without_kube_state_metrics_from_the_start_of_the_process() -> None:
    server = Remembered()
    for at in range(15, 901, 15):
        server.pulse(float(at))
        server.scrape(float(at), A)
        if at >= 600:
            server.scrape(float(at), B, started=510.0)
    found = await replayed(server, 900)
    assert found.replay.loads == [90.0]
    assert not found.replay.created_told


@pytest.mark.parametrize("every", [5, 15, 30])
async def test_the_scrape_interval_is_found_out(every: int) -> None:
    found = await replayed(steady(600, A, every=every), 600, tick_seconds=float(max(5, every)))
    assert found.replay.interval_seconds == every
    assert {tick.kind for tick in found.ticks[2:]} == {"measured"}


async def test_a_query_of_the_operator_s_own_stands_in_for_its_signal() -> None:
    server = steady(600, A)
    for at in range(15, 601, 15):
        server.add("gateway_pending", {"namespace": "chat"}, float(at), 7.0)
    policy = policy_of()
    group = policy.prometheus.model_copy(update={"queries": {"pending": 'sum(gateway_pending{namespace="chat"})'}})
    found = await replayed(server, 600, policy.model_copy(update={"prometheus": group}))
    _, tick = found.at(300)
    assert tick.signals.pending == Known(7.0, BEGIN + 300)


async def test_samples_are_engines_own() -> None:
    """What the tick reads is an engine sample of the scrape's time, not of the tick's."""
    server = Remembered()
    for at in range(7, 601, 15):
        server.pulse(float(at))
        server.scrape(float(at), A, running=float(at), finished=float(at))
    seen, tick = (await replayed(server, 600)).at(300)
    sample = seen.observation.endpoints[A]
    assert isinstance(sample, EngineSample)
    assert sample.at == BEGIN + 292
    assert known_value(tick.signals.running) == 292.0
