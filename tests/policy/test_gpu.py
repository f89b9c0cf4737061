"""The ``gpu`` part of a policy."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from scaler.policy.model import Policy


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
    ],
)
def test_what_cannot_be_meant_is_refused(gpu: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Policy.model_validate({"gpu": gpu})
    assert re.search(re.escape(says), str(caught.value))
