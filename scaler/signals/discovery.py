"""Where a workload's replicas are now: as declared, as its name resolves, or as the cluster lists them.

Whoever is asked may answer with addresses, with none, or not at all, and the last two must never be taken for each
other: none means that there is no load, no answer means that the load is not known. They are told apart in one place,
:func:`judge`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Protocol, TypeAlias

from scaler.policy.model import ScaleTarget, Scrape
from scaler.value import frozen

#: So many empty answers in a row mean that there is no replica. One alone may come from a name server that has just
#: begun, or from one of several that lags behind.
EMPTY_ANSWERS = 2


@frozen
class Address:
    """One replica: an IP address and the port its metrics are at. ``pod`` is the name of the pod that has the address,
    where whoever told the address knows it; it makes no other address of it.
    """

    host: str
    port: int
    pod: str | None = field(default=None, compare=False)


@frozen
class Resolved:
    """An answer: every replica's address, in a fixed order. ``empty`` says in words what it means that there is none.

    ``certain``: an empty answer needs no confirmation, for who gave it knows that what was asked about exists.
    """

    addresses: tuple[Address, ...]
    empty: str = "the name resolves to nothing"
    certain: bool = False


@frozen
class ResolveFailure:
    """No answer; ``reason`` is for a person."""

    reason: str


Answer: TypeAlias = Resolved | ResolveFailure


@frozen
class Trail:
    """What is remembered of one workload's answers: a value, empty at the start, replaced at each answer.

    ``source`` is what was asked about, ``urls`` the last addresses and ``pods`` whose they are, ``found`` whether there
    ever were any, and ``empty_answers`` how many empty answers came in a row.
    """

    source: str = ""
    urls: tuple[str, ...] = ()
    pods: Mapping[str, str] = field(default_factory=dict)
    found: bool = False
    empty_answers: int = 0


@frozen
class Urls:
    """The ``/metrics`` URLs to read now, and how far that list can be trusted: ``absent``, ``lost`` and ``pods`` as in
    :class:`~scaler.signals.observation.Observation`.
    """

    urls: tuple[str, ...]
    absent: str | None = None
    lost: str | None = None
    pods: Mapping[str, str] = field(default_factory=dict)


class NameLookup(Protocol):
    """Resolves a name to the addresses behind it (:class:`~scaler.signals.dns.Resolver`)."""

    async def resolve_dns(self, name: str, port: int, *, timeout: float) -> Answer:
        """Every address of ``name`` within ``timeout`` seconds. Never raises for a bad name or name server."""


class EndpointLists(Protocol):
    """Knows the ready endpoints of Services (:class:`~scaler.signals.kubernetes.Cluster`)."""

    async def endpoints(
        self, namespace: str, service: str, port: str, target: ScaleTarget, *, timeout: float
    ) -> Answer:
        """The ready endpoints of a Service within ``timeout`` seconds. Never raises for a bad Service or cluster."""


async def resolve_urls(
    config: Scrape, target: ScaleTarget, namespace: str, trail: Trail, *, names: NameLookup, cluster: EndpointLists
) -> tuple[Trail, Urls]:
    """Where to scrape now. ``trail`` is what the last call for this workload gave back (at first: empty).

    Takes no longer than the scrape's own time limit. Never raises for anything the network answers.
    """
    timeout = config.timeout_seconds
    if config.dns is not None:
        name, _, port = config.dns.rpartition(":")
        source, answer = config.dns, await names.resolve_dns(name, int(port), timeout=timeout)
    elif config.endpoint_slice is not None:
        service, _, port = config.endpoint_slice.rpartition(":")
        source = f"{namespace}/{config.endpoint_slice}"
        answer = await cluster.endpoints(namespace, service, port, target, timeout=timeout)
    else:
        return Trail(), Urls(config.urls)
    if trail.source != source:
        trail = Trail(source)  # another name: what the old one resolved to says nothing
    return judge(trail, without_link_local(answer), config)


def judge(trail: Trail, answer: Answer, config: Scrape) -> tuple[Trail, Urls]:
    """What an answer means, after those of ``trail``.

    Empty means no replica only of a name that had addresses before (one that never had any may be misspelt), and only
    once it is confirmed. Until then, and without an answer, the addresses known last are still read: what they say may
    raise, but as others may exist it lowers nothing.
    """
    if isinstance(answer, ResolveFailure):
        return replace(trail, empty_answers=0), Urls(trail.urls, lost=answer.reason, pods=trail.pods)
    if answer.addresses:
        urls = tuple(url(address, config) for address in answer.addresses)
        pods = {url(address, config): address.pod for address in answer.addresses if address.pod is not None}
        return Trail(trail.source, urls, pods, found=True), Urls(urls, pods=pods)
    empty_answers = trail.empty_answers + 1
    if not (trail.found or answer.certain):
        never = f"{answer.empty}, and never did otherwise: there may be no such name, or no replica yet"
        return replace(trail, empty_answers=empty_answers), Urls((), lost=never)
    if empty_answers < EMPTY_ANSWERS and not answer.certain:
        unconfirmed = f"{answer.empty}; not confirmed yet"
        return replace(trail, empty_answers=empty_answers), Urls(trail.urls, lost=unconfirmed, pods=trail.pods)
    return replace(trail, urls=(), pods={}, empty_answers=empty_answers), Urls((), absent=f"no replica: {answer.empty}")


def without_link_local(answer: Answer) -> Answer:
    """The answer without addresses that no engine has. Who may name a Service may point its name anywhere, and in the
    link-local network a cloud hands out its nodes' credentials.
    """
    if isinstance(answer, ResolveFailure):
        return answer
    allowed = tuple(address for address in answer.addresses if not _is_link_local(address.host))
    if answer.addresses and not allowed:
        return ResolveFailure("the name leads to a link-local address, where no engine is")
    return replace(answer, addresses=allowed)


def _is_link_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return True  # no IP address at all: nothing that may be trusted to be elsewhere
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_link_local


def url(address: Address, config: Scrape) -> str:
    """The metrics page at an address."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{config.scheme}://{host}:{address.port}{config.path}"


def one_family(addresses: set[Address]) -> tuple[Address, ...]:
    """The addresses of one IP family, IPv4 where there is any, in a fixed order: a replica of a dual-stack Service has
    one in each, and must not count twice.
    """
    four = {address for address in addresses if ":" not in address.host}
    return tuple(sorted(four or addresses, key=lambda address: (address.host, address.port)))
