"""What the authors of ScaledObjects may choose: they are not trusted with the addresses we read.

Who can write a ScaledObject chooses its metadata, and loadtide sends requests to the addresses it finds there, from
its own place in the cluster network. Left open, that reaches what the author cannot: another team's services, a cloud's
credential endpoint, the admin port beside us.

The default, ``own_namespace``, takes an address only if its host is ``NAME.NAMESPACE.svc`` (or that with the cluster's
domain behind it) of the ScaledObject's own namespace. That is where its target's pods are anyway. ``NAME.NAMESPACE``
is not taken, although cluster DNS resolves it: many a namespace (``chat``, ``prod``, ``dev``, ``ai``) is a top-level
domain of the internet too, where anybody can make such a name point anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from scaler.policy.group import Group
from scaler.policy.keys import KEYS, Path, shown

#: Policy keys that hold addresses.
ADDRESS_KEYS: tuple[Path, ...] = (("scrape", "urls"), ("scrape", "dns"), ("gpu", "dcgm_urls"), ("gateway", "urls"))
#: Policy keys that hold queries for a database of everybody's metrics.
QUERY_KEYS: tuple[Path, ...] = (("prometheus", "queries"), ("season", "query"))
#: Key names that look like an address, and those that look like a credential, a file of ours or a lock left open. Every
#: policy key that does must stand in the tuple above, or is refused in metadata whatever the operator allows.
_ADDRESS = re.compile(r"(^|_)(urls?|dns|hosts?|address(es)?)$")
_CREDENTIAL = re.compile(
    r"(^|_)(tokens?|passwords?|secrets?|credentials?|headers?|bearer|certs?|ca|file|files|insecure_skip_verify)$"
)
#: Replicas of one workload that metadata may list one by one. Each is read every tick, at once.
URLS_LIMIT = 256
#: A longer URL is no address of a metrics page, and would become a label value and a log field of that length.
URL_LENGTH = 1_024


class Tenancy(Group):
    """The ``tenancy:`` section of the policy file: what metadata may say, and how much of it."""

    metadata_urls: Literal["own_namespace", "allow", "deny"] = "own_namespace"
    """Which addresses metadata may name. ``own_namespace``: Services of its own namespace, as NAME.NAMESPACE.svc.
    ``allow``: any (one tenant, or a try-out outside a cluster). ``deny``: none; the policy file names them all."""
    metadata_queries: Literal["deny", "allow"] = "deny"
    """Whether metadata may bring PromQL of its own (prometheus.queries, season.query): with it an author reads any
    series of that server and can ask for all of them at every tick. The labels of prometheus.match are always theirs to
    choose."""
    cluster_domain: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] = "cluster.local"
    """What the cluster's DNS puts behind ``.svc``."""
    workloads_per_namespace: Annotated[int, Field(ge=1, le=100_000)] = 200
    """Workloads that calls may make known in one namespace; those the policy file declares do not count."""


def refused(tenancy: Tenancy, namespace: str, metadata: Mapping[Path, object]) -> Iterator[tuple[Path, str]]:
    """The (policy path, reason) of everything in metadata's values that its author may not choose."""
    for path, value in metadata.items():
        if path in ADDRESS_KEYS:
            yield from ((path, reason) for reason in _addresses(tenancy, namespace, value))
        elif path in QUERY_KEYS and tenancy.metadata_queries == "deny":
            yield (
                path,
                "metadata may bring no queries of its own; declare them in the policy file, or have the operator set "
                "tenancy.metadata_queries: allow there",
            )
        elif path in OPERATOR_KEYS:
            yield path, "only the policy file may say this; take it out of the metadata"


def operator_keys(paths: Iterable[Path]) -> frozenset[Path]:
    """Those of ``paths`` that metadata never may set: credentials, files, and addresses no rule above judges."""
    leaves = {path: str(path[-1]) for path in paths if path not in ADDRESS_KEYS}
    return frozenset(path for path, leaf in leaves.items() if _ADDRESS.search(leaf) or _CREDENTIAL.search(leaf))


OPERATOR_KEYS = operator_keys(KEYS)


def _addresses(tenancy: Tenancy, namespace: str, value: object) -> Iterator[str]:
    if value is None or value == []:
        return
    if tenancy.metadata_urls == "deny":
        yield (
            "the operator lets metadata name no addresses (tenancy.metadata_urls: deny); choose a policy of the policy "
            "file with the key policy, or have the address declared there"
        )
        return
    addresses = [str(each) for each in value] if isinstance(value, list) else [str(value)]
    if len(addresses) > URLS_LIMIT:
        yield f"{len(addresses)} addresses; name at most {URLS_LIMIT}, or use one DNS name for all (scrapeDns)"
        return
    for address in addresses:
        if len(address) > URL_LENGTH:
            yield f"an address of {len(address)} characters; write at most {URL_LENGTH}"
        elif tenancy.metadata_urls == "own_namespace" and not _is_own(address, namespace, tenancy.cluster_domain):
            yield (
                f"{_host_shown(address)} is not an address of this ScaledObject's namespace; write "
                f"NAME.{namespace}.svc:PORT, or have the operator set tenancy.metadata_urls: allow in the policy file"
            )


def _is_own(address: str, namespace: str, cluster_domain: str) -> bool:
    host = _host(address)
    if host is None:
        return False
    bare = host.removesuffix(".").removesuffix(f".{cluster_domain}")
    return re.fullmatch(rf"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.{re.escape(namespace)}\.svc", bare) is not None


def _host(address: str) -> str | None:
    """The host of a URL or of ``name:port``, in lower case; None where there is none to be sure of: a backslash or a
    character outside ASCII may mean one host here and another to the client that connects.
    """
    if "\\" in address or not all("!" <= character <= "~" for character in address):
        return None
    try:
        return urlsplit(address if "://" in address else f"//{address}").hostname
    except ValueError:
        return None


def _host_shown(address: str) -> str:
    """The address for an error text: its host alone, for the rest may hold a secret."""
    return shown(_host(address) or "this")
