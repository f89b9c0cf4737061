"""A span read in parts: every sample once, less at a time where that is too much, and why it stops."""

from __future__ import annotations

from collections import Counter

import pytest

from scaler.lab.backtest.asking import AskError
from scaler.lab.backtest.binding import Binding
from scaler.lab.backtest.questions import Cluster, Questions
from scaler.lab.backtest.reading import Part, Reader, ReadError
from scaler.lab.backtest.span import Span
from scaler.policy.layers import PolicyFile
from scaler.policy.model import ScaleTarget
from scaler.signals.preset import load_preset
from tests.lab.backtest.remembered import BEGIN, Remembered

HOUR = 3600.0
TARGET = ScaleTarget(kind="deployment", name="llama")


def reader(server: Remembered, seconds: float = 6 * HOUR, **more: object) -> Reader:
    policy = PolicyFile.empty().resolve("chat/llama").policy
    binding = Binding({"namespace": "chat", "model_name": "llama"}, None, TARGET, "")
    questions = Questions(load_preset("vllm"), binding, policy.objectives)
    span = Span(BEGIN, BEGIN + seconds)
    return Reader(server, questions, Cluster("chat", None), TARGET, "pod", span, **more)  # type: ignore[arg-type]


async def read(server: Remembered, seconds: float = 6 * HOUR, **more: object) -> list[Part]:
    return [part async for part in reader(server, seconds, **more).parts()]


def six_hours() -> Remembered:
    server = Remembered()
    for seconds in range(60, 21_601, 60):
        server.scrape(float(seconds), "llama-a", finished=float(seconds))
        server.pulse(float(seconds))
    return server


def samples(parts: list[Part], name: str) -> list[float]:
    return [at for part in parts for each in part.engines if each.labels["__name__"] == name for at in each.times]


async def test_every_sample_is_read_once_also_those_at_the_parts_ends() -> None:
    parts = await read(six_hours())
    assert [part.span.seconds for part in parts] == [7200.0] * 3
    times = samples(parts, "vllm:num_requests_running")
    assert times == [BEGIN + seconds for seconds in range(60, 21_601, 60)]


async def test_only_what_the_decision_needs_is_asked_for() -> None:
    """Whole histograms where there is an objective, sum and count and the +Inf bucket of the others."""
    names = Counter(each.labels["__name__"] for each in (await read(six_hours(), HOUR))[0].engines)
    assert names["vllm:time_to_first_token_seconds_bucket"] == 6
    assert names["vllm:e2e_request_latency_seconds_bucket"] == 1
    assert names["vllm:e2e_request_latency_seconds_sum"] == 1
    assert names["process_start_time_seconds"] == 1  # it has no model_name, and is the workload's all the same


async def test_what_is_too_much_at_once_is_asked_for_in_shorter_parts() -> None:
    server = six_hours()

    def no_more_than_half_an_hour(query: str, _unix: float) -> Exception | None:
        seconds = int(query.rpartition("[")[2].removesuffix("ms]")) / 1000 if query.endswith("ms]") else 0
        return AskError("HTTP 422: too many samples", too_much=True) if seconds > 1800 else None

    server.refuse = no_more_than_half_an_hour
    parts = await read(server)
    assert samples(parts, "vllm:num_requests_running") == [BEGIN + seconds for seconds in range(60, 21_601, 60)]
    assert parts[0].cut
    assert max(part.span.seconds for part in parts) == 1800.0
    refused = [query for query, _ in server.asked if "[7200000ms]" in query]
    assert len(refused) == 1, "what was refused once is not tried again at every part"


async def test_a_server_that_refuses_even_the_shortest_part_ends_it_with_its_words_and_the_time() -> None:
    server = six_hours()
    late = BEGIN + 2 * HOUR
    server.refuse = lambda query, unix: (
        AskError("HTTP 422: no", too_much=True) if unix > late and query.endswith("ms]") else None
    )
    with pytest.raises(ReadError, match="2026-06-01 14:00 UTC: HTTP 422: no") as error:
        await read(server)
    assert error.value.at == late


async def test_trouble_that_less_does_not_cure_ends_it_at_once() -> None:
    server = six_hours()
    server.refuse = lambda query, unix: AskError("HTTP 401") if "requests_running" in query else None
    with pytest.raises(ReadError, match="HTTP 401"):
        await read(server)
    assert sum("requests_running" in query for query, _ in server.asked) == 1


async def test_a_replica_that_cannot_be_scraped_any_more_is_still_asked_about() -> None:
    server = six_hours()
    for seconds in range(60, 21_601, 60):
        server.scrape(float(seconds), "llama-b", up=seconds <= 60)
    parts = await read(server)
    told = [{each.labels["pod"] for each in part.up} for part in parts]
    assert told == [{"llama-a", "llama-b"}] * 3


async def test_the_target_s_counts_and_the_pods_creation_come_along() -> None:
    server = six_hours()
    where = {"namespace": "chat", "deployment": "llama"}
    server.add("kube_deployment_spec_replicas", where, 60.0, 3.0)
    server.add("kube_deployment_spec_replicas", {**where, "deployment": "other"}, 60.0, 9.0)
    server.add("kube_pod_created", {"namespace": "chat", "pod": "llama-a"}, 60.0, BEGIN)
    part = (await read(server, HOUR))[0]
    assert [list(each.values) for each in part.counts] == [[3.0]]
    assert part.created == {"llama-a": BEGIN}


async def test_kube_state_metrics_whose_labels_the_server_does_not_honour_are_found_too() -> None:
    server = six_hours()
    own = {"namespace": "monitoring", "pod": "kube-state-metrics-0", "exported_namespace": "chat"}
    server.add("kube_deployment_spec_replicas", {**own, "deployment": "llama"}, 60.0, 3.0)
    server.add("kube_pod_created", {**own, "exported_pod": "llama-a"}, 60.0, BEGIN)
    server.add("kube_pod_status_unschedulable", {**own, "exported_pod": "llama-b"}, 60.0, 1.0)
    part = (await read(server, HOUR))[0]
    assert [each.labels["namespace"] for each in part.counts] == ["chat", "chat"]
    assert part.counts[1].labels["pod"] == "llama-b"
    assert part.created == {"llama-a": BEGIN}


async def test_queries_of_the_operator_s_own_are_evaluated_along_the_way() -> None:
    server = six_hours()
    for seconds in range(60, 3601, 60):
        server.add("envoy_pending", {"namespace": "chat"}, float(seconds), float(seconds))
    part = (await read(server, HOUR, queries={"pending": "sum(envoy_pending)"}, query_seconds=60.0))[0]
    (pending,) = part.queried["pending"]
    assert list(pending.times)[:2] == [BEGIN + 60, BEGIN + 120]
    assert list(pending.values)[:2] == [60.0, 120.0]


async def test_partial_answers_are_remembered() -> None:
    server = six_hours()
    server.partial = "store 2 is away"
    assert (await read(server, HOUR))[0].partial == "store 2 is away"
