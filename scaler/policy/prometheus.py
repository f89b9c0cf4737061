"""Reading signals from a Prometheus: what a workload says (which series are its own) and what the operator declares
once (which server, with which credentials).

A workload only *names* a server of the policy file's ``sources:``, so that whoever writes ScaledObjects can neither
choose an address nor see a credential.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from scaler.policy import promql
from scaler.policy.addresses import is_http_url
from scaler.policy.group import Group
from scaler.policy.texts import Texts
from scaler.policy.tls import Tls

#: The signals that a query of the operator's own may give. Latencies are not among them: a quantile that comes as one
#: number has lost how many samples stand behind it.
QUERYABLE: Final = (
    "arrivals_per_second",
    "finished_per_second",
    "running",
    "waiting",
    "pending",
    "ready_replicas",
    "kv_use_ratio",
    "gpu_busy_ratio",
    "sm_active_ratio",
    "gpu_memory_free_ratio",
    "applied_batch",
)
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
#: A VictoriaMetrics refuses longer queries (-search.maxQueryLen).
QUERY_LENGTH: Final = 16 * 1024


class Prometheus(Group):
    """Reading the engines' metrics out of a Prometheus instead of from the engines themselves. A few queries fetch all
    workloads of one source together, however many they are."""

    source: str | None = None
    """The server, by its name under ``sources:`` of the policy file. Unset: none is asked."""
    match: Texts = Texts()
    """Labels that make a series this workload's own: all of them, exactly. For example namespace and model_name; with
    Thanos or Mimir also cluster."""
    replica_label: str = "pod"
    """The label that tells replicas apart. Where a series lacks it, exported_pod is taken, then instance."""
    scrape_interval_seconds: Annotated[float, Field(gt=0.0, le=600.0)] = 15.0
    """How often that Prometheus scrapes the engines. A sample older than three of these is not fresh."""
    empty_means: Literal["unknown", "zero"] = "unknown"
    """What an answer without any series of this workload means. ``zero`` lets a renamed label scale it to zero: choose
    it knowingly. A server that fails is unknown whatever is said here."""
    queries: Texts = Texts()
    """Signal to PromQL, where ``match`` does not reach: each replaces that signal, and costs one query per workload.
    The result must be one number: the whole workload's, not a mean over replicas."""
    aggregation: Literal["sum", "max"] | None = None
    """What to do with several series in the result of one of ``queries``. Unset: they are refused."""

    @field_validator("match")
    @classmethod
    def _labels(cls, match: Texts) -> Texts:
        for name, value in match.items():
            if not _LABEL_NAME.fullmatch(name) or name == "__name__":
                raise ValueError(f"{name!r} is not a label; write for example namespace: chat")
            if not value:
                raise ValueError(f"{name} is empty, which would match series that lack the label; write its value")
        return match

    @field_validator("replica_label")
    @classmethod
    def _one_label(cls, name: str) -> str:
        if not _LABEL_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a label; write for example pod")
        return name

    @field_validator("queries")
    @classmethod
    def _readable(cls, queries: Texts) -> Texts:
        for signal, query in queries.items():
            if signal not in QUERYABLE:
                raise ValueError(f"{signal!r} is no signal that a query can give; write one of {', '.join(QUERYABLE)}")
            if len(query) > QUERY_LENGTH:
                raise ValueError(f"{signal}: the query is longer than {QUERY_LENGTH} characters; write a shorter one")
            try:
                promql.read(query)
            except promql.PromqlError as error:
                raise ValueError(f"{signal}: {error}; write PromQL that gives one number") from error
        return queries


class Basic(Group):
    """HTTP basic authentication."""

    username: str
    """The user's name."""
    password_file: str
    """File that holds the password; read again when it changes."""


class PrometheusServer(Group):
    """One entry of ``sources:``: a Prometheus, Thanos, Mimir, VictoriaMetrics or anything else with their query API."""

    url: str
    """Where the API is, without ``/api/v1/query``: http://prometheus.monitoring.svc:9090. Mimir:
    http://mimir/prometheus. VictoriaMetrics cluster: http://vmselect:8481/select/0/prometheus."""
    headers: Texts = Texts()
    """Sent with every request, for example ``X-Scope-OrgID: chat``."""
    bearer_token: str | None = None
    """Token for the Authorization header. Better in a file: policy files are read by many."""
    bearer_token_file: str | None = None
    """File that holds the token; read again when it changes."""
    basic: Basic | None = None
    tls: Tls = Tls()
    timeout_seconds: Annotated[float, Field(gt=0.0, le=60.0)] = 3.0
    """Limit for one query: connecting, waiting and reading together."""

    @field_validator("url")
    @classmethod
    def _address_of_an_api(cls, url: str) -> str:
        if not is_http_url(url):
            raise ValueError("is not a URL; write for example http://prometheus.monitoring.svc:9090")
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise ValueError("has credentials in it; write them under basic: with a password_file")
        if parts.query or parts.fragment:
            raise ValueError("has a ? or # part; write the address alone, and headers under headers:")
        if "/api/v1" in parts.path:
            raise ValueError("leads into the API; write it without /api/v1 and what follows")
        return url.rstrip("/")

    @field_validator("headers")
    @classmethod
    def _sendable(cls, headers: Texts) -> Texts:
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name) or not value.isprintable():
                raise ValueError(f"{name!r} and its value cannot be sent as a header; write for example X-Scope-OrgID")
        return headers

    @model_validator(mode="after")
    def _one_credential(self) -> Self:
        header = any(name.lower() == "authorization" for name in self.headers)
        said = {
            "headers: Authorization": header,
            "bearer_token": self.bearer_token is not None,
            "bearer_token_file": self.bearer_token_file is not None,
            "basic": self.basic is not None,
        }
        several = [name for name, there in said.items() if there]
        if len(several) > 1:
            raise ValueError(f"{' and '.join(several)} both make the Authorization header; keep one")
        return self
