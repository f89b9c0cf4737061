"""Whose series they are; and where there are none, what there is instead."""

from __future__ import annotations

import pytest

from scaler.lab.backtest.binding import Binding, NoSuchWorkloadError, bind, owner_of
from scaler.lab.backtest.span import Span
from scaler.policy.layers import PolicyFile
from scaler.policy.model import ScaleTarget
from scaler.signals.preset import load_preset
from tests.lab.backtest.remembered import BEGIN, Remembered

SPAN = Span(BEGIN, BEGIN + 7200)


def server(*pods: str, namespace: str = "chat") -> Remembered:
    found = Remembered()
    for pod in pods:
        found.scrape(3600.0, pod, namespace=namespace)
    found.pulse(7000.0)
    return found


async def bound(found: Remembered, workload: str = "chat/llama", **match: str) -> Binding:
    policy = PolicyFile.empty().resolve(workload).policy
    if match:
        group = policy.prometheus.model_validate({"match": match})
        policy = policy.model_copy(update={"prometheus": group})
    return await bind(found, load_preset("vllm"), policy, workload, SPAN)


async def missing(found: Remembered, workload: str = "chat/llama", **match: str) -> str:
    with pytest.raises(NoSuchWorkloadError) as error:
        await bound(found, workload, **match)
    return str(error.value)


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        ("llama-7d9f8c5b6d-x2kqz", ScaleTarget(kind="deployment", name="llama")),
        ("llama-8b-7d9f8c5b6d-x2kqz", ScaleTarget(kind="deployment", name="llama-8b")),
        ("llama-0", ScaleTarget(kind="statefulset", name="llama")),
        ("llama", None),
        ("", None),
    ],
)
def test_a_pod_s_name_tells_its_owner(pod: str, owner: ScaleTarget | None) -> None:
    assert owner_of(pod) == owner


async def test_pods_named_after_the_workload_are_its_own() -> None:
    """Another Deployment whose name only begins like it is not."""
    found = await bound(server("llama-7d9f8c5b6d-x2kqz", "llama-large-7d9f8c5b6d-x2kqz"))
    assert found.target == ScaleTarget(kind="deployment", name="llama")
    assert found.match == {"namespace": "chat"}
    assert found.said == "bound by its pods' names, llama-..."
    mine = server("llama-7d9f8c5b6d-x2kqz", "llama-large-7d9f8c5b6d-x2kqz")
    chosen = mine._select(f'{{__name__="vllm:num_requests_running"{found.narrow}}}')
    assert [dict(labels)["pod"] for labels, _ in chosen] == ["llama-7d9f8c5b6d-x2kqz"]


async def test_a_statefulset_s_pods_are_numbered() -> None:
    found = await bound(server("llama-0", "llama-1"))
    assert found.target == ScaleTarget(kind="statefulset", name="llama")


async def test_labels_that_are_declared_win_and_the_target_follows_from_the_pods() -> None:
    found = await bound(server("vllm-7d9f8c5b6d-x2kqz"), "chat/anything", namespace="chat", model_name="llama")
    assert found.match == {"namespace": "chat", "model_name": "llama"}
    assert found.pods is None
    assert found.target == ScaleTarget(kind="deployment", name="vllm")


async def test_any_label_with_the_name_binds() -> None:
    found = await bound(server("vllm-7d9f8c5b6d-x2kqz", "other-7d9f8c5b6d-x2kqz"))
    assert found.match == {"namespace": "chat", "model_name": "llama"}
    assert found.said == 'bound by model_name="llama" in namespace chat'


async def test_the_namespace_s_only_workload_is_taken_and_that_is_said() -> None:
    found = await bound(server("vllm-7d9f8c5b6d-x2kqz", "vllm-7d9f8c5b6d-b2kqz"), "chat/mistral")
    assert found.target == ScaleTarget(kind="deployment", name="vllm")
    assert found.said.startswith("no pod is named mistral-...; taken is the only vllm workload of chat, pods vllm-...")


async def test_one_workload_of_two_models_is_still_one() -> None:
    found = server("vllm-7d9f8c5b6d-x2kqz")
    found.add(
        "vllm:num_requests_running",
        {"namespace": "chat", "pod": "vllm-7d9f8c5b6d-x2kqz", "model_name": "b"},
        3600.0,
        1.0,
    )
    assert (await bound(found, "chat/mistral")).target == ScaleTarget(kind="deployment", name="vllm")


async def test_of_several_none_is_guessed_but_each_is_named() -> None:
    said = await missing(server("vllm-7d9f8c5b6d-x2kqz", "other-7d9f8c5b6d-x2kqz"), "chat/mistral")
    assert "no vllm workload of namespace chat is called mistral" in said
    assert '--match namespace=chat and --match model_name="llama" (2 replicas, other-7d9f8c5b6d-x2kqz)' in said


async def test_a_namespace_that_is_not_there_is_told_with_those_that_are() -> None:
    found = server("llama-7d9f8c5b6d-x2kqz", namespace="chatty")
    for seconds in range(0, 7300, 300):
        found.scrape(float(seconds), "llama-7d9f8c5b6d-b2kqz", namespace="prod")
    said = await missing(found, "chat/llama")
    assert 'no series of engine vllm with namespace="chat" between 2026-06-01 12:00 and 2026-06-01 14:00 UTC' in said
    assert 'values of namespace that are there: "chatty", "prod"' in said


async def test_labels_that_are_there_but_not_together() -> None:
    found = server("llama-7d9f8c5b6d-x2kqz")
    found.scrape(3600.0, "x-7d9f8c5b6d-x2kqz", namespace="prod", job="other")
    said = await missing(found, "chat/llama", namespace="chat", job="other")
    assert "each of these values is there, but not together" in said


async def test_a_server_without_anything_in_the_range() -> None:
    said = await missing(Remembered())
    assert "the server holds nothing at all between 2026-06-01 12:00 and 2026-06-01 14:00 UTC" in said
    assert "within its retention" in said


async def test_another_engine_is_named() -> None:
    found = server()
    for seconds in range(0, 7300, 300):
        found.pulse(float(seconds))
        found.add("sglang:max_total_num_tokens", {"namespace": "chat", "pod": "llama-0"}, float(seconds), 1.0)
    assert "it has sglang: name it with --engine" in await missing(found)


async def test_no_engine_at_all() -> None:
    found = server()
    assert "nor of any engine that is known; loadtide probe URL says what a server holds" in await missing(found)
