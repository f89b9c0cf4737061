"""Where GPU telemetry of a workload comes from, and what a GPU costs: the ``gpu`` part of the policy."""

from __future__ import annotations

import re
from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator

from scaler.policy.addresses import is_http_url, no_url
from scaler.policy.group import Group
from scaler.policy.texts import Texts

_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)


class Gpu(Group):
    """GPU telemetry from DCGM exporters. Never required: without it the GPU signals are unknown, and nothing waits."""

    dcgm_urls: tuple[str, ...] = ()
    """The ``/metrics`` URL of each DCGM exporter on whose node the workload may run."""
    source: str | None = None
    """Instead of ``dcgm_urls``: the server that scrapes the exporters, by its name under ``sources:`` of the policy
    file. One query fetches the GPUs of all its workloads together."""
    scrape_interval_seconds: Annotated[float, Field(gt=0.0, le=600.0)] = 15.0
    """How often that server scrapes the exporters. A sample older than three of these is not fresh."""
    match: Texts = Texts()
    """Labels that make a series of the exporters this workload's GPU: all of them, exactly. For example namespace and
    container. Unset: a replica's GPUs are those that its pod holds."""
    per_replica: Annotated[int, Field(ge=1, le=1024)] = 1
    """How many GPUs one replica takes: what GPU-hours are counted by."""
    hour_price: Annotated[float, Field(ge=0.0)] | None = None
    """What one GPU costs an hour. With it explain, dashboards and reports speak of money too."""
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    """The currency of all prices, by its ISO 4217 code."""
    timeout_seconds: Annotated[float, Field(gt=0.0, le=60.0)] = 3.0
    """Limit for connecting, waiting and reading one exporter, all together."""

    @field_validator("dcgm_urls")
    @classmethod
    def _http_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not is_http_url(url):
                raise ValueError(no_url(url, "http://dcgm-exporter:9400/metrics"))
        if len(set(urls)) != len(urls):
            raise ValueError("the same URL stands here twice; each exporter's URL is wanted once")
        return urls

    @field_validator("match")
    @classmethod
    def _labels(cls, match: Texts) -> Texts:
        for name, value in match.items():
            if not _LABEL_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a label; write for example namespace: chat")
            if not value:
                raise ValueError(f"{name} is empty, which no series has; write its value")
        return match

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.dcgm_urls and self.source is not None:
            raise ValueError("dcgm_urls and source both say where the exporters' series are; keep one, unset the other")
        return self

    @property
    def declared(self) -> bool:
        """Whether it is said where GPU telemetry comes from."""
        return bool(self.dcgm_urls) or self.source is not None

    @property
    def by_pod(self) -> bool:
        """Whether a replica's GPUs are looked for by the pod that it is."""
        return self.declared and not self.match
