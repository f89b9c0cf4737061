"""Where the replicas are: what a name resolves to, and what it means where that is nothing or no answer."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterable

import pytest

from scaler.policy.model import Policy, ScaleTarget, Scrape
from scaler.signals.discovery import Address, Answer, Resolved, ResolveFailure, Trail, Urls, judge, resolve_urls
from scaler.signals.dns import LOOKUPS_AT_ONCE, Resolver
from scaler.signals.model import Known, NotApplicable, Stale, Unknown
from scaler.signals.observation import EngineSample, Observation, ReadFailure
from scaler.signals.window import History, fold
from tests.signals.timeline import UNIX, pod

NAME = "vllm-headless.chat.svc"
DNS = Scrape(dns=f"{NAME}:8000")
EMPTY = Resolved(())
FAILED = ResolveFailure("no name server could answer (temporary failure)")


def at(*hosts: str) -> Resolved:
    return Resolved(tuple(Address(host, 8000) for host in hosts))


def answers(lookup: Callable[[str], Iterable[str]]) -> Answer:
    """What a resolver with this lookup makes of it."""
    return asyncio.run(Resolver(lookup).resolve_dns(NAME, 8000, timeout=60))


def judged(*given: Answer, config: Scrape = DNS) -> Urls:
    """What the last of these answers means after the others."""
    trail = Trail(config.dns or "")
    for answer in given:
        trail, urls = judge(trail, answer, config)
    return urls


# Names


async def test_a_real_name_resolves() -> None:
    answer = await Resolver().resolve_dns("localhost", 8000, timeout=10)

    assert isinstance(answer, Resolved)
    assert answer.addresses in ((Address("127.0.0.1", 8000),), (Address("::1", 8000),))


def test_every_address_of_a_name_is_a_replica_in_a_fixed_order() -> None:
    assert answers(lambda _: ["10.0.0.9", "10.0.0.7", "10.0.0.8"]) == at("10.0.0.7", "10.0.0.8", "10.0.0.9")


def test_a_replica_with_an_address_of_both_families_counts_once() -> None:
    assert answers(lambda _: ["fd00::7", "10.0.0.7", "fd00::8", "10.0.0.8"]) == at("10.0.0.7", "10.0.0.8")
    assert answers(lambda _: ["fd00::8", "fd00::7"]) == at("fd00::7", "fd00::8")


@pytest.mark.parametrize("code", ["EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY"])
def test_a_name_without_an_address_is_an_answer(code: str) -> None:
    def lookup(_: str) -> list[str]:
        raise socket.gaierror(getattr(socket, code), "nothing there")

    assert answers(lookup) == EMPTY


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "?"), "no name server could answer (temporary failure)"),
        (socket.gaierror(socket.EAI_FAIL, "name server failed"), "the name could not be resolved: name server failed"),
        (OSError(24, "Too many open files"), "the name could not be resolved: [Errno 24] Too many open files"),
    ],
)
def test_a_name_server_in_trouble_is_no_answer(error: OSError, reason: str) -> None:
    def lookup(_: str) -> list[str]:
        raise error

    assert answers(lookup) == ResolveFailure(reason)


def test_a_name_that_cannot_be_one_is_no_answer() -> None:
    answer = asyncio.run(Resolver().resolve_dns("a" * 70 + ".svc", 8000, timeout=60))

    assert isinstance(answer, ResolveFailure)


class Stuck:
    """A name server that says nothing until it is released."""

    def __init__(self) -> None:
        self.asked = 0
        self.released = threading.Event()

    def __call__(self, name: str) -> list[str]:
        self.asked += 1
        self.released.wait(30)
        return ["10.0.0.7"]


async def test_a_silent_name_server_holds_up_neither_the_loop_nor_its_threads() -> None:
    stuck = Stuck()
    resolver = Resolver(stuck)
    began = time.monotonic()
    waiting = asyncio.gather(*(resolver.resolve_dns(f"name-{n}", 8000, timeout=1.0) for n in range(40)))
    # The pool that the store writes through has fewer threads than that.
    assert await asyncio.to_thread(lambda: "free") == "free"
    failures = await waiting

    assert set(failures) == {ResolveFailure("no name server answered within 1 s")}
    assert time.monotonic() - began < 20  # one after the other they would take 40
    stuck.released.set()


async def test_a_lookup_under_way_is_waited_for_and_not_started_twice() -> None:
    stuck = Stuck()
    resolver = Resolver(stuck)
    for _ in range(3):
        assert isinstance(await resolver.resolve_dns(NAME, 8000, timeout=0.05), ResolveFailure)
    stuck.released.set()

    assert await resolver.resolve_dns(NAME, 8000, timeout=60) == at("10.0.0.7")
    assert stuck.asked == 1


async def test_lookups_do_not_gather_without_end() -> None:
    stuck = Stuck()
    resolver = Resolver(stuck)
    names = [f"name-{n}" for n in range(LOOKUPS_AT_ONCE + 5)]
    found = await asyncio.gather(*(resolver.resolve_dns(name, 8000, timeout=0.1) for name in names))

    assert len({answer.reason for answer in found if isinstance(answer, ResolveFailure)}) == 2
    assert stuck.asked == LOOKUPS_AT_ONCE
    stuck.released.set()


def test_a_process_can_end_while_a_name_server_is_silent() -> None:
    stuck = Stuck()
    began = time.monotonic()
    asyncio.run(Resolver(stuck).resolve_dns(NAME, 8000, timeout=0.05))
    assert time.monotonic() - began < 20  # it is silent for 30

    stuck.released.set()  # and an answer that comes after the loop has ended is no error
    for thread in threading.enumerate():
        if thread.name.startswith("dns "):
            assert thread.daemon
            thread.join(5)


# What an answer means


def test_addresses_become_urls() -> None:
    assert judged(at("10.0.0.7", "10.0.0.8")) == Urls(("http://10.0.0.7:8000/metrics", "http://10.0.0.8:8000/metrics"))
    tls = Scrape(dns=DNS.dns, scheme="https", path="/v1/metrics")
    assert judged(at("fd00::7"), config=tls) == Urls(("https://[fd00::7]:8000/v1/metrics",))


def test_nothing_twice_from_a_name_that_resolved_before_means_no_replica() -> None:
    once, twice = judged(at("10.0.0.7"), EMPTY), judged(at("10.0.0.7"), EMPTY, EMPTY)

    assert once == Urls(("http://10.0.0.7:8000/metrics",), lost="the name resolves to nothing; not confirmed yet")
    assert twice == Urls((), absent="no replica: the name resolves to nothing")


def test_nothing_from_a_name_that_never_resolved_is_no_zero() -> None:
    found = judged(EMPTY, EMPTY, EMPTY)

    assert (found.urls, found.absent) == ((), None)
    assert found.lost is not None
    assert "there may be no such name" in found.lost


def test_nothing_from_whoever_knows_that_it_exists_needs_no_history() -> None:
    empty = Resolved((), "Service vllm has no endpoint", certain=True)

    assert judged(empty) == Urls((), absent="no replica: Service vllm has no endpoint")


def test_without_an_answer_the_addresses_known_last_are_still_read() -> None:
    assert judged(at("10.0.0.7"), FAILED) == Urls(("http://10.0.0.7:8000/metrics",), lost=FAILED.reason)


def test_at_zero_a_failing_resolver_is_unknown_and_no_zero() -> None:
    assert judged(at("10.0.0.7"), EMPTY, EMPTY, FAILED) == Urls((), lost=FAILED.reason)
    assert judged(FAILED) == Urls((), lost=FAILED.reason)


def test_empty_answers_on_both_sides_of_a_failure_confirm_nothing() -> None:
    assert judged(at("10.0.0.7"), EMPTY, FAILED, EMPTY).absent is None


def test_a_replica_after_none_is_found_at_once() -> None:
    assert judged(at("10.0.0.7"), EMPTY, EMPTY, at("10.0.0.9")) == Urls(("http://10.0.0.9:8000/metrics",))


class Names:
    """Answers from a list, one after the other."""

    def __init__(self, *given: Answer) -> None:
        self.given = list(given)

    async def resolve_dns(self, name: str, port: int, *, timeout: float) -> Answer:
        assert (name, port, timeout) == (NAME, 8000, DNS.timeout_seconds)
        return self.given.pop(0)


class NoCluster:
    async def endpoints(
        self, namespace: str, service: str, port: str, target: ScaleTarget, *, timeout: float
    ) -> Answer:
        return ResolveFailure(f"asked for {namespace}/{service}:{port}")


async def found(config: Scrape, trail: Trail, *given: Answer) -> tuple[Trail, Urls]:
    return await resolve_urls(config, ScaleTarget(), "chat", trail, names=Names(*given), cluster=NoCluster())


async def test_declared_urls_are_what_they_are() -> None:
    assert await found(Scrape(urls=("http://a:1/metrics",)), Trail()) == (Trail(), Urls(("http://a:1/metrics",)))


async def test_a_service_is_asked_of_the_cluster() -> None:
    _, urls = await found(Scrape(endpoint_slice="vllm:http"), Trail())

    assert urls == Urls((), lost="asked for chat/vllm:http")


@pytest.mark.parametrize("host", ["169.254.169.254", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254", "elsewhere"])
async def test_a_name_does_not_lead_to_where_a_cloud_hands_out_credentials(host: str) -> None:
    _, alone = await found(DNS, Trail(), at(host))
    _, beside = await found(DNS, Trail(), at("10.0.0.7", host))

    assert alone == Urls((), lost="the name leads to a link-local address, where no engine is")
    assert beside == Urls(("http://10.0.0.7:8000/metrics",))


async def test_another_name_has_no_past() -> None:
    trail, _ = await found(DNS, Trail(), at("10.0.0.7"))
    assert (await found(DNS, trail, EMPTY))[1].urls == ("http://10.0.0.7:8000/metrics",)

    _, urls = await found(DNS, Trail("old.chat.svc:8000", trail.urls, found=True), EMPTY)
    assert urls.urls == ()
    assert urls.absent is None


# Through the fold


async def test_g2_07_the_list_decides_which_replicas_count() -> None:
    # m-zzz (10.0.0.9) is gone after a scale-down; its queue of 40 must not scale anything up again.
    trail, history = Trail(), History()
    pages = {"10.0.0.7": pod(running=1, waiting=0), "10.0.0.9": pod(running=4, waiting=40)}
    seen = []
    for tick, answer in enumerate((at("10.0.0.7", "10.0.0.9"), at("10.0.0.7"), FAILED, EMPTY, EMPTY)):
        trail, urls = await found(DNS, trail, answer)
        now = tick * 5.0
        reads: dict[str, EngineSample | ReadFailure] = {
            url: EngineSample(now, gauges=page.gauges)
            for host, page in pages.items()
            for url in urls.urls
            if host in url
        }
        observation = Observation(now, reads, absent=urls.absent, lost=urls.lost)
        history, signals = fold(history, observation, now, Policy(), interval_seconds=5, now_unix=UNIX + now)
        seen.append((signals.waiting, signals.ready_replicas))

    assert seen == [
        (Known(40.0, 0), Known(2.0, 0)),
        (Known(0.0, 5), Known(1.0, 5)),
        (Stale(0.0, 10), Stale(1.0, 10, at_least=1.0)),
        (Stale(0.0, 15), Stale(1.0, 15, at_least=1.0)),
        (NotApplicable("no replica: the name resolves to nothing"), Known(0.0, 20)),
    ]


async def test_at_zero_a_failing_resolver_makes_the_load_unknown_and_the_reason_is_told() -> None:
    trail, _ = await found(DNS, Trail(DNS.dns or "", found=True, empty_answers=1), EMPTY)
    _, urls = await found(DNS, trail, FAILED)
    _, signals = fold(History(), Observation(0, {}, lost=urls.lost), 0, Policy(), interval_seconds=5)

    assert signals.running == signals.ready_replicas == Unknown(FAILED.reason)


# The policy's words


@pytest.mark.parametrize("dns", ["vllm", "vllm:0", "vllm:70000", "http://vllm:8000", "a b:1", ":8000", "vllm:http"])
def test_a_name_needs_a_port(dns: str) -> None:
    with pytest.raises(ValueError, match=r"write for example vllm-headless\.chat\.svc:8000"):
        Scrape(dns=dns)


@pytest.mark.parametrize("dns", ["vllm:8000", "vllm-headless.chat.svc.cluster.local.:8000", "10.0.0.7:8000", "A.b:1"])
def test_names_with_ports(dns: str) -> None:
    assert Scrape(dns=dns).declared


@pytest.mark.parametrize("service", ["vllm", "vllm:", "chat/vllm:8000", "VLLM:http", "vllm:ht tp"])
def test_a_service_needs_a_port(service: str) -> None:
    with pytest.raises(ValueError, match="write for example vllm:8000 or vllm:http"):
        Scrape(endpoint_slice=service)


def test_replicas_are_declared_in_one_way() -> None:
    with pytest.raises(ValueError, match="urls and dns both say where the replicas are"):
        Scrape(urls=("http://a:1/metrics",), dns="vllm:8000")
    with pytest.raises(ValueError, match="not a path"):
        Scrape(dns="vllm:8000", path="metrics")


def test_a_target_is_named_as_in_the_scaled_object() -> None:
    assert ScaleTarget.model_validate({"kind": "LeaderWorkerSet", "name": "llama-70b"}).kind == "leaderworkerset"
    with pytest.raises(ValueError, match="not the name of an object"):
        ScaleTarget(name="../../secrets/x")
