"""The ScaledObjects of deploy/examples/scaledobjects: three engines, four ways to zero and back, each what it says."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from scaler.check.examine import examine
from scaler.policy.layers import PolicyFile
from scaler.policy.metadata import parse
from scaler.policy.model import Policy
from scaler.signals.preset import load_preset
from tests.deploy.test_examples import EXAMPLES
from tests.deploy.tools import Tools

FOLDER = EXAMPLES / "scaledobjects"
WAYS = ("zero", "keep-warm", "push", "http")
#: Where each serves /metrics, as the whole examples and the engines' own documentation have it.
PORTS = {"vllm": 8000, "sglang": 30000, "triton": 8002}

Manifest = dict[str, Any]


def read(engine: str) -> dict[str, Manifest]:
    """way → ScaledObject."""
    found = list(yaml.safe_load_all((FOLDER / f"{engine}.yaml").read_text(encoding="utf-8")))
    return {each["metadata"]["name"].removeprefix(f"{engine}-"): each for each in found if each}


def ours(scaled: Manifest) -> dict[str, str]:
    """The metadata of loadtide's own trigger, which is the last."""
    return dict(scaled["spec"]["triggers"][-1]["metadata"])


def policy(scaled: Manifest) -> Policy:
    name = f"{scaled['metadata']['namespace']}/{scaled['metadata']['name']}"
    resolved = PolicyFile.empty().resolve(name, ours(scaled))
    assert resolved.warnings == ()
    return resolved.policy


def test_every_engine_has_every_way() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == PORTS.keys()
    assert all(tuple(read(engine)) == WAYS for engine in PORTS)


@pytest.mark.parametrize("engine", PORTS)
class TestAnEngine:
    def test_passes_the_check(self, engine: str) -> None:
        assert examine({engine: (FOLDER / f"{engine}.yaml").read_text(encoding="utf-8")}) == []

    @pytest.mark.parametrize("way", WAYS)
    def test_each_is_meant(self, engine: str, way: str) -> None:
        scaled = read(engine)[way]
        spec, told = scaled["spec"], policy(scaled)
        assert parse(ours(scaled)).warnings == ()
        assert (told.engine, load_preset(told.engine).name) == (engine, engine)
        assert told.scrape.dns == f"{scaled['metadata']['name']}-headless.chat.svc:{PORTS[engine]}"
        assert told.replicas.max == spec["maxReplicaCount"]
        assert (told.replicas.min, spec["minReplicaCount"]) == (0, 0)
        assert told.can_wake, "zero would be for ever"
        assert way == "http" or spec["cooldownPeriod"] <= 60
        assert "fallback" not in spec
        assert {each["metricType"] for each in spec["triggers"]} == {"AverageValue"}
        assert all(isinstance(value, str) for value in ours(scaled).values())

    def test_zero_is_woken_by_what_waits_at_the_door(self, engine: str) -> None:
        scaled = read(engine)["zero"]
        told = policy(scaled)
        (url,) = told.gateway.urls
        assert url.startswith(f"http://{scaled['metadata']['name']}-door.chat.svc:")
        assert not told.push.enabled
        assert not told.warm.windows

    def test_keep_warm_has_a_floor_in_its_hours_alone(self, engine: str) -> None:
        told = policy(read(engine)["keep-warm"])
        (window,) = told.warm.windows
        assert window.replicas == 2
        assert told.warm.floor == 0

    def test_push_needs_nothing_but_a_call(self, engine: str) -> None:
        told = policy(read(engine)["push"])
        assert told.push.enabled
        assert not told.gateway.urls

    def test_the_add_on_has_a_trigger_of_its_own(self, engine: str) -> None:
        scaled = read(engine)["http"]
        theirs, _ = scaled["spec"]["triggers"]
        assert theirs["metadata"]["interceptorRoute"] == scaled["metadata"]["name"]


@pytest.mark.real
def test_keda_knows_every_key(tools: Tools) -> None:
    everything = {engine: list(read(engine).values()) for engine in PORTS}
    assert tools.problems_of(everything) == {engine: {} for engine in PORTS}


def test_language_models_promise_tokens_and_others_whole_answers() -> None:
    assert policy(read("vllm")["zero"]).objectives.ttft_seconds == 1
    assert policy(read("triton")["zero"]).objectives.e2e_seconds == 0.5
