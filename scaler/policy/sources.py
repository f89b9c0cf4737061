"""Where a workload's signals are read: its engines' addresses, and the target whose replicas are counted."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from scaler.policy.addresses import is_http_url, no_url
from scaler.policy.group import Group
from scaler.policy.tls import Tls

_HOST = r"(?=.{1,253}:)[a-z0-9_][-a-z0-9_]*(\.[a-z0-9_][-a-z0-9_]*)*\.?"
_HOST_PORT = re.compile(rf"{_HOST}:\d{{1,5}}", re.ASCII | re.IGNORECASE)
_SERVICE_PORT = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?:([1-9]\d{0,4}|[a-z0-9-]{1,15})", re.ASCII)
_OBJECT_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)


class Scrape(Group):
    """Reading the engines' own ``/metrics``, the embedded source."""

    urls: tuple[str, ...] = ()
    """The ``/metrics`` URL of every replica."""
    dns: str | None = None
    """Instead of ``urls``: a name and port that resolve to every replica, for example ``vllm-headless.chat.svc:8000``
    (a headless Service). A LeaderWorkerSet's own Service names workers too: use ``endpoint_slice`` for it."""
    endpoint_slice: str | None = None
    """Instead of ``urls``: a Service in the workload's namespace and its port, by number or name, for example
    ``vllm:8000``; its ready endpoints are asked of the cluster (needs the ``kubernetes`` extra)."""
    scheme: Literal["http", "https"] = "http"
    """How the addresses of ``dns`` or ``endpoint_slice`` are read."""
    path: str = "/metrics"
    """Where an address of ``dns`` or ``endpoint_slice`` has its metrics."""
    tls_server_name: str | None = None
    """The name that an https page's certificate must have, and that is asked for (SNI): of a pod's address no
    certificate has it. For example vllm.chat.svc. Unset: the URL's host."""
    tls_ca_file: str | None = None
    """Certificates (PEM) to trust for https pages instead of the system's; read again when the file changes."""
    tls_cert_file: str | None = None
    """Our certificate (PEM), for engines that ask for one."""
    tls_key_file: str | None = None
    """Our private key (PEM), of ``tls_cert_file``."""
    tls_insecure_skip_verify: bool = False
    """Accept any certificate. Whoever is in between can then make up every signal."""
    timeout_seconds: Annotated[float, Field(gt=0.0, le=60.0)] = 3.0
    """Limit for connecting, waiting and reading one endpoint, all together."""
    model_name: str | None = None
    """Read only series of this served model; needed where one endpoint serves several."""
    empty_means: Literal["unknown", "zero"] = "unknown"
    """What no answer at all means. ``zero`` lets silence scale this workload down: choose it knowingly."""

    @field_validator("urls")
    @classmethod
    def _http_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not is_http_url(url):
                raise ValueError(no_url(url, "http://vllm:8000/metrics"))
        if len(set(urls)) != len(urls):
            raise ValueError("the same URL stands here twice; each replica's URL is wanted once")
        return urls

    @field_validator("dns")
    @classmethod
    def _host_and_port(cls, dns: str | None) -> str | None:
        if dns is not None and not (_HOST_PORT.fullmatch(dns) and 1 <= int(dns.rpartition(":")[2]) <= 65535):
            raise ValueError(f"{dns!r} is not a name and a port; write for example vllm-headless.chat.svc:8000")
        return dns

    @field_validator("endpoint_slice")
    @classmethod
    def _service_and_port(cls, service: str | None) -> str | None:
        if service is not None and not _SERVICE_PORT.fullmatch(service):
            raise ValueError(f"{service!r} is not a Service and its port; write for example vllm:8000 or vllm:http")
        return service

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str) -> str:
        if not path.startswith("/") or any(map(str.isspace, path)):
            raise ValueError(f"{path!r} is not a path; write for example /metrics")
        return path

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [name for name in ("urls", "dns", "endpoint_slice") if getattr(self, name)]
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} both say where the replicas are; keep one and unset the other")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file belong together; write both")
        return self

    @property
    def declared(self) -> bool:
        """Whether it is said where the replicas are, in any of the ways."""
        return bool(self.urls or self.dns or self.endpoint_slice)

    @property
    def https(self) -> bool:
        """Whether any page is read by https."""
        if self.urls:
            return any(url[:6].lower() == "https:" for url in self.urls)
        return self.scheme == "https"

    @property
    def tls(self) -> Tls:
        """How https pages are verified, and what their servers are shown."""
        return Tls(
            ca_file=self.tls_ca_file,
            cert_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            server_name=self.tls_server_name,
            insecure_skip_verify=self.tls_insecure_skip_verify,
        )


class ScaleTarget(Group):
    """What KEDA scales, as the ScaledObject's ``scaleTargetRef`` names it: whose replicas the cluster is asked for."""

    kind: Literal["deployment", "statefulset", "leaderworkerset"] = "deployment"
    """The target's kind, in any case. Of a LeaderWorkerSet only leaders are replicas."""
    name: str | None = None
    """The target's name, in the workload's namespace. Unset: replica counts are not asked of the cluster."""

    @field_validator("kind", mode="before")
    @classmethod
    def _any_case(cls, kind: object) -> object:
        return kind.lower() if isinstance(kind, str) else kind

    @field_validator("name")
    @classmethod
    def _object_name(cls, name: str | None) -> str | None:
        if name is not None and not _OBJECT_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of an object in a cluster; write for example vllm-llama")
        return name
