"""Our own /metrics: one consistent picture per scrape, nothing stale, nothing that Prometheus would refuse (G6-09)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, exposition, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from scaler.control.budget import Bill
from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.card_part import CardPart
from scaler.control.cold_start import ColdStarts
from scaler.control.feasible import EmptyReplicas, Unhurried
from scaler.control.model import (
    Code,
    LoadState,
    Memory,
    Mode,
    Override,
    Rung,
    Suppressed,
    Target,
    Targets,
)
from scaler.control.season import Expected, Season, Skill
from scaler.policy.model import Budget, Gpu, GpuGroup, Objectives, Price, PriceWindow
from scaler.serve.exporter import WorkloadCollector
from scaler.serve.gauges import GAUGES, LABELS
from scaler.serve.snapshot import SourceHealth
from scaler.signals.model import CATALOG, Applied, Known, Signals
from tests.serve.tide import POLICY, SIGNALS, START, FakeWorkloads, snapshot

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraped:
    """One scrape, parsed by the library's own parser."""

    def __init__(self, workloads: FakeWorkloads) -> None:
        registry = CollectorRegistry()
        registry.register(WorkloadCollector(workloads))
        self.text = generate_latest(registry).decode()
        samples = [sample for family in parse_text(self.text) for sample in family.samples]
        keys = Counter((sample.name, frozenset(sample.labels.items())) for sample in samples)
        assert not [key for key, count in keys.items() if count > 1], "two samples with equal labels"
        self.series: Series = {(s.name, frozenset(s.labels.items())): s.value for s in samples}

    def value(self, name: str, **labels: str) -> float | None:
        """The one series of that name with at least these labels; None where there is none."""
        found = self.all(name, **labels)
        assert len(found) <= 1, found
        return next(iter(found.values()), None)

    def all(self, name: str, **labels: str) -> Series:
        wanted = set(labels.items())
        return {key: value for key, value in self.series.items() if key[0] == f"loadtide_{name}" and wanted <= key[1]}


@pytest.fixture
def workloads() -> FakeWorkloads:
    known = FakeWorkloads()
    workload = known.add("team-a/chat", snapshot())
    workload.decisions_total = {("batch", "down", "memory_pressure"): 3}
    workload.dropped_series_total = 7
    return known


def test_a_scrape_tells_what_was_decided(workloads: FakeWorkloads) -> None:
    scraped = Scraped(workloads)
    expected = {
        "target_batch_size": 32,
        "desired_replicas": 2,
        "needed_replicas": 2,
        "replicas_floor": 0,
        "replicas_ceiling": 4,
        "ready_replicas": 1,
        "active": 1,
        "available": 1,
        "load_state_seconds": 12,
        "utilisation_ratio": 1.875,
        "capacity_requests_per_second": 1.6,
        "load_share_ratio": 0.75,
        "generation": 7,
        "seconds_since_tick": 1,
        "tick_duration_seconds": 0.006,
        "idle_seconds": 0,
        "config_warnings": 0,
    }
    for name, value in expected.items():
        assert scraped.value(name, namespace="team-a", workload="chat") == value, name
    assert scraped.value("capacity_sequences", source="prior") == 32
    assert scraped.value("decisions_total", target="batch", direction="down", code="memory_pressure") == 3
    assert scraped.value("dropped_series_total", namespace="team-a", workload="chat") == 7
    assert scraped.value("last_activity_seconds", signal="finished", endpoint="http://vllm:8000/metrics") == 4
    assert scraped.value("no_progress_seconds", source="scrape", endpoint="http://vllm:8000/metrics") == 30
    assert scraped.value("suppressed", target="replicas", code="ceiling") == 1
    assert scraped.value("workloads") == 1
    assert scraped.all("build_info")


def test_what_each_replica_applied_is_told_until_its_report_is_over(workloads: FakeWorkloads) -> None:
    scraped = Scraped(workloads)
    assert scraped.value("applied_batch_size", workload="chat", replica="chat-0") == 32
    assert scraped.value("applied_token_budget", replica="chat-0") == 2048
    assert scraped.value("applied_generation", replica="chat-0") == 7
    assert scraped.value("applied_batch_size", replica="chat-1") == 64
    assert scraped.value("applied_generation", replica="chat-1") is None  # it runs its own setting
    workload = workloads.get("team-a/chat")
    assert workload is not None
    workload.snapshot = snapshot(signals=Signals(applied=(Applied("chat-1", 0.0, None),)))
    assert Scraped(workloads).all("applied_batch_size") == {}


def test_what_capacity_was_learned_and_how_certain_it_is(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    workload.snapshot = snapshot(capacity=CapacityEstimate(32.0, None, "prior"))
    assert not Scraped(workloads).all("capacity_measured_sequences")
    workload.snapshot = snapshot(capacity=CapacityEstimate(28.5, 2.2, "learned", 27.0, float("inf"), 56))
    scraped = Scraped(workloads)
    assert scraped.value("capacity_sequences", source="learned") == 28.5
    assert scraped.value("capacity_measured_sequences", bound="low") == 27
    assert scraped.value("capacity_measured_sequences", bound="high") == float("inf")
    assert scraped.value("capacity_windows") == 56


def test_how_long_replicas_take(workloads: FakeWorkloads) -> None:
    scraped = Scraped(workloads)
    assert scraped.value("expected_cold_start_seconds") == 60
    assert scraped.value("cold_start_seconds", node="warm", quantile="0.5") == 60
    assert scraped.value("cold_start_seconds", node="warm", quantile="0.95") == 60
    assert not scraped.all("cold_start_seconds", node="new")


def test_objectives_and_what_p95_says_of_them(workloads: FakeWorkloads) -> None:
    scraped = Scraped(workloads)
    assert scraped.value("objective_seconds", objective="ttft", bound="warning") == 1
    assert scraped.value("objective_seconds", objective="ttft", bound="critical") == 5
    assert not scraped.all("objective_seconds", objective="e2e")
    assert scraped.value("objective_verdict", objective="ttft", bound="warning", verdict="breached") == 1
    assert scraped.value("objective_verdict", objective="ttft", bound="critical", verdict="met") == 1
    assert scraped.value("objective_verdict", objective="tpot", bound="warning", verdict="undecided") == 1


def test_what_an_empty_replica_takes_once_enough_requests_were_seen_in_one(workloads: FakeWorkloads) -> None:
    """LatencyP95Critical compares with it where no replica can keep the bound."""
    workload = workloads.get("team-a/chat")
    assert workload is not None
    empty = EmptyReplicas(ttft=Unhurried(0.4, 20), tpot=Unhurried(0.05, 19))
    workload.snapshot = snapshot(next_memory=Memory(empty=empty))
    scraped = Scraped(workloads)
    assert scraped.value("empty_replica_seconds", objective="ttft") == 0.4
    assert not scraped.all("empty_replica_seconds", objective="tpot")


def test_a_signal_has_a_value_only_while_known_or_stale(workloads: FakeWorkloads) -> None:
    scraped = Scraped(workloads)
    assert scraped.value("signal", signal="arrivals_per_second") == 3
    assert scraped.value("signal", signal="waiting") == 7
    assert scraped.value("signal_status", signal="waiting", status="stale") == 1
    assert scraped.value("signal_age_seconds", signal="waiting") == 41
    for absent in ("gpu_busy_ratio", "e2e_seconds"):
        assert not scraped.all("signal", signal=absent)
        assert not scraped.all("signal_age_seconds", signal=absent)
    assert scraped.value("signal_status", signal="gpu_busy_ratio", status="unknown") == 1
    assert {dict(labels)["signal"] for _, labels in scraped.all("signal_status")} == set(CATALOG)


def test_a_latency_is_told_as_its_bounds(workloads: FakeWorkloads) -> None:
    scraped = Scraped(workloads)
    assert scraped.value("signal_latency_seconds", signal="ttft_seconds", quantile="0.95", bound="low") == 2.5
    assert scraped.value("signal_latency_seconds", signal="ttft_seconds", quantile="0.95", bound="high") == 5
    assert scraped.value("signal_latency_seconds", signal="tpot_seconds", quantile="0.95", bound="high") == math.inf
    assert scraped.value("signal_latency_samples", signal="ttft_seconds") == 120
    assert not scraped.all("signal", signal="ttft_seconds")


def test_one_hot_is_never_two_and_never_none(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    for state in LoadState:
        workload.snapshot = snapshot(state=state)
        scraped = Scraped(workloads)
        states = scraped.all("load_state")
        assert len(states) == len(LoadState)
        assert sum(states.values()) == 1
        assert scraped.value("load_state", state=state.value) == 1
        for signal in CATALOG:
            assert sum(scraped.all("signal_status", signal=signal).values()) == 1
        assert sum(scraped.all("admission").values()) == 1


def test_a_deleted_workload_has_no_series(workloads: FakeWorkloads) -> None:
    workloads.add("team-b/search", snapshot("team-b/search"))
    assert Scraped(workloads).all("desired_replicas", workload="search")
    workloads.remove("team-b/search")
    after = Scraped(workloads)
    assert not [key for key in after.series if ("workload", "search") in key[1]]
    assert after.value("workloads") == 1


def test_an_objective_no_longer_declared_and_a_hold_that_ended_have_no_series(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    workload.snapshot = snapshot(
        policy=POLICY.model_copy(update={"objectives": Objectives()}), verdicts={}, suppressed=()
    )
    scraped = Scraped(workloads)
    assert not scraped.all("objective_seconds")
    assert not scraped.all("objective_verdict")
    assert not scraped.all("suppressed")


def test_what_is_not_known_is_absent_and_nothing_is_nan(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    workload.snapshot = snapshot(
        targets=Targets(1, True, None),
        ceiling=None,
        need=None,
        ready=None,
        utilisation=float("nan"),
        capacity=CapacityEstimate(32.0, None, "prior"),
        signals=Signals(running=Known(float("nan"), 98.0)),
    )
    scraped = Scraped(workloads)
    for name in (
        "target_batch_size",
        "target_token_budget",
        "replicas_ceiling",
        "needed_replicas",
        "ready_replicas",
        "utilisation_ratio",
        "capacity_requests_per_second",
        "signal",
    ):
        assert not scraped.all(name), name
    assert "NaN" not in scraped.text


def test_a_workload_without_a_tick_is_counted_and_told_nothing_else(workloads: FakeWorkloads) -> None:
    workloads.add("team-b/new")
    scraped = Scraped(workloads)
    assert scraped.value("workloads") == 2
    told = {key[0] for key in scraped.series if ("workload", "new") in key[1]}
    assert told == {"loadtide_config_warnings", "loadtide_dropped_series_total"}
    assert scraped.value("dropped_series_total", workload="new") == 0  # a counter begins at 0, not at its first count


ODD = 'quo"te\\back\nline-größe'


def test_odd_label_values_survive_both_formats() -> None:
    workloads = FakeWorkloads()
    health = (SourceHealth("scrape", f"http://vllm/{ODD}", True, "", 0.1),)
    workloads.add(f"ns/{ODD}", snapshot(f"ns/{ODD}", health=health))
    registry = CollectorRegistry()
    registry.register(WorkloadCollector(workloads))
    plain = generate_latest(registry).decode()
    open_text = openmetrics.generate_latest(registry).decode()
    assert open_text.endswith("# EOF\n")
    for families in (parse_text(plain), parse_openmetrics(open_text)):
        names = {s.labels["workload"] for family in families for s in family.samples if "workload" in s.labels}
        assert names == {ODD}


def test_both_formats_carry_the_same_series(workloads: FakeWorkloads) -> None:
    registry = CollectorRegistry()
    registry.register(WorkloadCollector(workloads))
    encode, content_type = exposition.choose_encoder("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    opened = {
        (s.name, frozenset(s.labels.items()), s.value)
        for family in parse_openmetrics(encode(registry).decode())
        for s in family.samples
    }
    plain = {
        (s.name, frozenset(s.labels.items()), s.value)
        for family in parse_text(generate_latest(registry).decode())
        for s in family.samples
    }
    assert opened == plain


def test_secrets_in_a_url_are_no_label_and_urls_that_then_look_alike_tell_the_worse(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    workload.snapshot = snapshot(
        health=(
            SourceHealth("scrape", "http://user:secret@vllm:8000/metrics?key=secret", True, "", 0.2),
            SourceHealth("scrape", "http://vllm:8000/metrics", False, "timed out after 3 s", 0.1),
        )
    )
    scraped = Scraped(workloads)
    assert scraped.value("source_up", endpoint="http://vllm:8000/metrics") == 0
    assert scraped.value("source_read_seconds") == 0.2
    assert "secret" not in scraped.text
    assert "timed out" not in scraped.text


def test_the_same_thing_held_back_twice_is_one_series(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    held = Suppressed(Code.COOLDOWN, Target.BATCH, 64, 32)
    workload.snapshot = snapshot(suppressed=(held, held))
    assert Scraped(workloads).value("suppressed", target="batch", code="cooldown") == 1


def test_every_gauge_has_help_and_is_told_by_a_full_workload_with_the_labels_listed(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    # An engine that takes device memory as it needs it: of one that preallocates its share no threshold is told.
    card = GpuGroup(name="node-7/gpu-0", share_ratio=0.5, batch=32)
    grows = POLICY.model_copy(
        update={
            "engine": "triton",
            "gpu": Gpu(hour_price=2.5),
            "budget": Budget(gpu_hours=100.0),
            "gpu_group": card,
        }
    )
    override, seen = Override(3, None, START + timedelta(minutes=5), "ana"), ColdStarts(warm=(60.0,) * 5)
    season = Season(period="weekly", slots_known=672, weekly=Skill(96.0, 1.0, 10.0, 50.0))
    memory = Memory(
        override=override,
        shrunk_seconds=40.0,
        cold_starts=seen,
        empty=EmptyReplicas(ttft=Unhurried(0.4, 20)),
        season=season,
        woken_seconds=3.5,
        card=CardPart(0.97, 0.5, 0.5, 62),
    )
    applied = (Applied("chat-0", 1.0, 16, 2048, generation=7, rung="awake", wake_seconds=2.5),)
    workload.snapshot = snapshot(
        targets=Targets(2, True, 32, 1024, queue_limit=8, workers=32),
        policy=grows,
        next_memory=memory,
        season=Expected(2.5, 3.0, "weekly"),
        signals=replace(SIGNALS, applied=applied),
    )
    workload.guarded_mono = 100.5
    scraped = Scraped(workloads)
    assert scraped.value("seconds_since_guard") == 0.5
    for name, text in GAUGES.items():
        labels = {frozenset(label for label, _ in each) for _, each in scraped.all(name)}
        assert labels == {frozenset(("namespace", "workload", *LABELS.get(name, ())))}, name
        assert text.endswith(".")
        assert f"# HELP loadtide_{name} " in scraped.text
    assert LABELS.keys() <= GAUGES.keys()


def test_what_it_has_taken_and_cost_are_counters_that_outlive_the_scaler(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    bill = Bill(START, 321.0, 802.5, "2025-03", 61.0, 0, 36.0)
    workload.snapshot = snapshot(next_memory=Memory(bill=bill))
    assert Scraped(workloads).value("gpu_seconds_total") == 321.0 * 3600
    assert Scraped(workloads).all("cost_total") == {}
    priced = POLICY.model_copy(update={"gpu": Gpu(hour_price=2.5, currency="EUR")})
    workload.snapshot = snapshot(next_memory=Memory(bill=bill), policy=priced)
    assert Scraped(workloads).value("cost_total", currency="EUR") == 802.5


def test_the_objectives_told_are_those_of_the_hour(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    window = PriceWindow.model_validate({"start": "08:00", "end": "20:00", "zone": "UTC", "objective_factor": 2.0})
    workload.snapshot = snapshot(policy=POLICY.model_copy(update={"price": Price(windows=(window,))}))
    scraped = Scraped(workloads)
    assert scraped.value("objective_seconds", objective="ttft", bound="warning") == 2.0
    assert scraped.value("objective_factor_ratio") == 2.0


def test_of_a_season_that_is_not_believed_no_arrivals_are_told(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    workload.snapshot = snapshot(next_memory=Memory(season=Season(slots_known=96, daily=Skill(96.0, 9.8, 10.0, 50.0))))
    scraped = Scraped(workloads)
    assert scraped.all("season_requests_per_second") == {}
    assert scraped.value("season_believed") == 0
    assert scraped.value("season_unexplained_ratio", period="daily") == pytest.approx(0.98)
    assert scraped.value("season_known_ratio") == pytest.approx(1 / 28)


def test_what_sleeps_is_ready_and_a_wake_stands_beside_a_cold_start(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    memory = Memory(woken_seconds=3.5, loaded_seconds=140.0)
    workload.snapshot = snapshot(
        targets=Targets(2, True, None, rung=Rung.ASLEEP), ready=0, asleep=2, next_memory=memory
    )
    scraped = Scraped(workloads)
    assert (scraped.value("ready_replicas"), scraped.value("asleep_replicas")) == (2, 2)
    assert (scraped.value("rung", rung="asleep"), scraped.value("rung", rung="awake")) == (1, 0)
    assert scraped.value("wake_seconds", **{"from": "asleep"}) == 3.5
    assert scraped.value("wake_seconds", **{"from": "zero"}) == 140.0


def test_the_part_of_a_shared_card_is_told(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    policy = POLICY.model_copy(update={"gpu_group": GpuGroup(name="node-7/gpu-0", share_ratio=0.5, batch=32)})
    workload.snapshot = snapshot(policy=policy, next_memory=Memory(card=CardPart(0.97, 0.5, 0.5, 62)))
    scraped, card = Scraped(workloads), "node-7/gpu-0"
    parts = [scraped.value("card_ratio", card=card, kind=kind) for kind in ("time", "memory", "own")]
    assert parts == [0.97, 0.5, 0.5]
    assert scraped.value("card_batch_size", card=card) == 62


def test_who_rules_and_what_the_laws_would_tell(workloads: FakeWorkloads) -> None:
    workload = workloads.get("team-a/chat")
    assert workload is not None
    active = Scraped(workloads)
    assert (active.value("advised_replicas"), active.value("advised_batch_size")) == (2, 32)
    assert not active.all("override_seconds")
    memory = Memory(override=Override(3, None, START + timedelta(minutes=5), "ana"))
    for mode in Mode:
        workload.snapshot = snapshot(mode=mode, advised=Targets(1, True, None), next_memory=memory)
        scraped = Scraped(workloads)
        held = {dict(labels)["mode"]: value for (_, labels), value in scraped.all("mode").items()}
        assert held == {each.value: each is mode for each in Mode}
        assert (scraped.value("desired_replicas"), scraped.value("advised_replicas")) == (2, 1)
        assert not scraped.all("advised_batch_size")
        assert scraped.value("override_seconds") == 300


def test_what_the_rules_need_to_know_of_the_engine(workloads: FakeWorkloads) -> None:
    """G4-01: free memory has a threshold only where it says something."""
    vllm = Scraped(workloads)
    assert vllm.value("engine_info", engine="vllm", preallocates_gpu_memory="true") == 1
    assert not vllm.all("gpu_free_emergency_ratio")
    workload = workloads.get("team-a/chat")
    assert workload is not None
    workload.snapshot = snapshot(
        policy=POLICY.model_copy(update={"engine": "triton"}), next_memory=Memory(failed_loads=2)
    )
    triton = Scraped(workloads)
    assert triton.value("engine_info", engine="triton", preallocates_gpu_memory="false") == 1
    assert triton.value("gpu_free_emergency_ratio") == 0.10
    assert triton.value("failed_loads") == 2
