"""The ``gpu`` part of a policy."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile
from scaler.policy.model import Policy
from scaler.policy.warnings import warnings_of


def test_exporters_and_labels_are_read() -> None:
    gpu = {"dcgm_urls": ["http://10.0.0.7:9400/metrics"], "match": {"namespace": "chat", "exported_pod": "a=b"}}
    policy = Policy.model_validate({"gpu": gpu})

    assert policy.gpu.dcgm_urls == ("http://10.0.0.7:9400/metrics",)
    assert policy.gpu.match == {"namespace": "chat", "exported_pod": "a=b"}
    assert hash(policy) != hash(Policy())


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        ({"dcgm_urls": ["dcgm:9400"]}, "is not a URL; write for example http://dcgm-exporter:9400/metrics"),
        ({"dcgm_urls": ["http://["]}, "is not a URL"),
        ({"dcgm_urls": ["http://a/m", "http://a/m"]}, "twice"),
        ({"match": {"namespace": ""}}, "namespace is empty"),
        ({"match": {"name-space": "chat"}}, "'name-space' is not a label"),
        ({"urls": []}, "extra_forbidden"),
        (
            {"dcgm_urls": ["http://a/m"], "source": "main"},
            "dcgm_urls and source both say where the exporters' series are; keep one, unset the other",
        ),
        ({"scrape_interval_seconds": 0}, "greater than 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(gpu: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Policy.model_validate({"gpu": gpu})
    assert re.search(re.escape(says), str(caught.value))


def test_a_source_must_be_one_of_the_files_and_labels_need_one() -> None:
    file = "sources: {main: {url: 'http://p:9090'}}\nworkloads:\n  chat/a: {gpu: {source: %s}}\n"
    assert PolicyFile.parse("p.yaml", file % "main").resolve("chat/a").policy.gpu.source == "main"
    with pytest.raises(PolicyError) as refused:
        PolicyFile.parse("p.yaml", file % "mian")
    (said,) = refused.value.problems
    assert said.startswith('p.yaml:3: workloads.chat/a.gpu.source: "mian" is no source of the policy file')
    assert said.endswith("write one of: main")
    with pytest.raises(PolicyError, match="is no source of the policy file's sources"):
        PolicyFile.empty().resolve("chat/a", {"gpuSource": "main"})

    match: dict[str, dict[str, Any]] = {"gpu": {"match": {"namespace": "chat"}}}
    assert any(text.startswith("gpu.match is not used") for text in warnings_of(Policy.model_validate(match)))
    match["gpu"]["source"] = "main"
    assert not any(text.startswith("gpu.match is not used") for text in warnings_of(Policy.model_validate(match)))
