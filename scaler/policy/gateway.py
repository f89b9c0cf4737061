"""Gateways whose metrics tell of demand: what keeps requests, or refuses them, while there is no replica."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from scaler.policy.addresses import is_http_url, no_url
from scaler.policy.group import Group
from scaler.policy.texts import Texts

GatewayName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]


class Gateway(Group):
    """Demand read from a gateway's own metrics: requests that wait there, or were refused, for want of a replica."""

    preset: GatewayName | None = None
    """Which gateway it is (``scaler/signals/gateways``): envoy, envoy-door, istio, ingress-nginx, keda-http,
    vllm-router, llm-d, litellm."""
    urls: tuple[str, ...] = ()
    """The ``/metrics`` URL of every instance of the gateway; their numbers add up."""
    match: Texts = Texts()
    """Labels that make a series of the gateway this workload's: all of them, exactly. Unset: every series is."""
    exclude: Texts = Texts()
    """Labels of series that are no demand, a health checker's for example; several values with ``|`` between them."""
    timeout_seconds: Annotated[float, Field(gt=0.0, le=60.0)] = 3.0
    """Limit for connecting, waiting and reading one gateway, all together."""

    @field_validator("urls")
    @classmethod
    def _http_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not is_http_url(url):
                raise ValueError(no_url(url, "http://envoy:9901/stats/prometheus"))
        if len(set(urls)) != len(urls):
            raise ValueError("the same URL stands here twice, and would be counted twice")
        return urls

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.urls and self.preset is None:
            raise ValueError("urls without preset: say which gateway it is, for example preset: envoy")
        return self
