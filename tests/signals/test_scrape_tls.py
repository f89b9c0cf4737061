"""Engines' pages by https: at a pod's address no certificate names, so that the name to expect can be said."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import web

from scaler.agent.engine_watch import EngineWatch
from scaler.policy.errors import PolicyError
from scaler.policy.layers import PolicyFile
from scaler.policy.model import Policy, Scrape
from scaler.policy.warnings import warnings_of
from scaler.serve.workloads import Workloads
from scaler.signals.model import Known
from scaler.signals.observation import EngineSample, ReadFailure
from scaler.signals.preset import load_preset
from scaler.signals.scrape import scrape
from tests.serve.test_observe import observed

NAME = "vllm.chat.svc"
BODY = 'vllm:num_requests_waiting{model_name="m"} 3\n'


class Engine:
    """A page served with a certificate; ``asked_for`` are the names that clients asked for (SNI)."""

    def __init__(self) -> None:
        self.asked_for: list[str | None] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/metrics"

    def note(self, _: object, name: str | None, __: object) -> None:
        self.asked_for.append(name)


@asynccontextmanager
async def serving(ca: trustme.CA, *names: str, wants_client: bool = False) -> AsyncIterator[Engine]:
    context, engine = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Engine()
    ca.issue_cert(*names).configure_cert(context)
    context.sni_callback = engine.note  # type: ignore[assignment]
    if wants_client:
        ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=BODY)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        engine.port = runner.addresses[0][1]
        yield engine
    finally:
        await runner.cleanup()


@pytest.fixture
def authority(tmp_path: Path) -> tuple[trustme.CA, str]:
    """A certificate authority, and the file that says it may be trusted."""
    ca, file = trustme.CA(), tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(file))
    return ca, str(file)


async def read(engine: Engine, **declared: object) -> EngineSample | ReadFailure:
    config = Scrape.model_validate({"urls": [engine.url], **declared})
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as session:
        reads = await scrape(session, config, load_preset("vllm"), mono=loop.time, unix=lambda: 1.7e9)
    return reads[engine.url]


def failure(read: EngineSample | ReadFailure) -> str:
    assert isinstance(read, ReadFailure), read
    return read.reason


async def test_the_name_to_expect_is_the_one_asked_for_and_the_one_verified(authority: tuple[trustme.CA, str]) -> None:
    ca, file = authority
    async with serving(ca, NAME) as engine:
        assert isinstance(await read(engine, tls_ca_file=file, tls_server_name=NAME), EngineSample)
        assert engine.asked_for == [NAME]
        without = failure(await read(engine, tls_ca_file=file))
        assert without.startswith("TLS certificate not accepted")
        assert "127.0.0.1" in without
        other = failure(await read(engine, tls_ca_file=file, tls_server_name="other.chat.svc"))
        assert other.startswith("TLS certificate not accepted")
        assert "other.chat.svc" in other


async def test_an_authority_that_is_not_declared_is_not_trusted(authority: tuple[trustme.CA, str]) -> None:
    async with serving(authority[0], NAME) as engine:
        assert failure(await read(engine, tls_server_name=NAME)).startswith("TLS certificate not accepted")
        assert isinstance(await read(engine, tls_insecure_skip_verify=True), EngineSample)


async def test_a_client_certificate_is_shown(authority: tuple[trustme.CA, str], tmp_path: Path) -> None:
    ca, file = authority
    client = ca.issue_cert("loadtide")
    cert, key = tmp_path / "client.pem", tmp_path / "client.key"
    client.cert_chain_pems[0].write_to_path(str(cert))
    client.private_key_pem.write_to_path(str(key))
    declared = {"tls_ca_file": file, "tls_server_name": NAME}
    async with serving(ca, NAME, wants_client=True) as engine:
        assert failure(await read(engine, **declared))
        shown = {**declared, "tls_cert_file": str(cert), "tls_key_file": str(key)}
        assert isinstance(await read(engine, **shown), EngineSample)
        key.unlink()
        assert failure(await read(engine, **shown)) == f"{key} cannot be read: No such file or directory"


async def test_an_observer_reads_a_workloads_pods_by_their_service_name_and_follows_a_new_authority(
    authority: tuple[trustme.CA, str],
) -> None:
    ca, file = authority
    text = (
        "workloads:\n  chat/llama:\n    scrape: {dns: 'localhost:%d', scheme: https, "
        f"tls_ca_file: '{file}', tls_server_name: {NAME}}}\n"
    )
    async with serving(ca, NAME) as engine:
        workloads = Workloads(PolicyFile.parse("p.yaml", text % engine.port), tick_seconds=5.0)
        (observation,) = await observed(workloads, "chat/llama")
    assert [type(each) for each in observation.endpoints.values()] == [EngineSample]

    renewed = trustme.CA()
    renewed.cert_pem.write_to_path(file)
    async with serving(renewed, NAME) as engine:
        workloads.replace_policies(PolicyFile.parse("p.yaml", text % engine.port))
        (observation,) = await observed(workloads, "chat/llama")
    assert [type(each) for each in observation.endpoints.values()] == [EngineSample]


async def test_an_agent_reads_the_engine_beside_it_by_the_same_words(authority: tuple[trustme.CA, str]) -> None:
    ca, file = authority
    policy = Policy.model_validate({"scrape": {"tls_ca_file": file, "tls_server_name": NAME}})
    async with serving(ca, NAME) as engine, aiohttp.ClientSession() as session:
        watch = EngineWatch(session, engine.url, policy, mono=asyncio.get_running_loop().time)
        assert (await watch.look()).waiting == Known(3.0, watch.signals.waiting.at)  # type: ignore[union-attr]
        assert watch.trouble == ""


# What may be declared


def test_half_a_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="tls_cert_file and tls_key_file belong together"):
        Scrape.model_validate({"tls_cert_file": "/a.pem"})


@pytest.mark.parametrize(
    ("scrape", "warned"),
    [
        ({"dns": "vllm.chat.svc:8000", "tls_server_name": NAME}, True),
        ({"dns": "vllm.chat.svc:8000", "tls_server_name": NAME, "scheme": "https"}, False),
        ({"urls": ["http://a:1/m"], "tls_ca_file": "/ca.pem", "scheme": "https"}, True),
        ({"urls": ["http://a:1/m", "HTTPS://b:1/m"], "tls_ca_file": "/ca.pem"}, False),
        ({"dns": "vllm.chat.svc:8000"}, False),
    ],
)
def test_tls_that_is_never_used_is_warned_of(scrape: dict[str, object], warned: bool) -> None:
    texts = warnings_of(Policy.model_validate({"scrape": scrape}))
    assert any(text.startswith("scrape.tls_... is not used") for text in texts) is warned


@pytest.mark.parametrize(
    "key", ["scrapeTlsCaFile", "scrapeTlsCertFile", "scrapeTlsKeyFile", "scrapeTlsInsecureSkipVerify"]
)
def test_metadata_names_no_file_of_ours_and_opens_no_lock(key: str) -> None:
    value = "true" if key.endswith("Verify") else "/etc/loadtide/x.pem"
    with pytest.raises(PolicyError) as refused:
        PolicyFile.empty().resolve("chat/a", {key: value})
    assert any(key in text and "only the policy file may say this" in text for text in refused.value.problems)


def test_metadata_may_say_the_name_to_expect() -> None:
    resolved = PolicyFile.empty().resolve("chat/a", {"scrapeScheme": "https", "scrapeTlsServerName": NAME})
    assert resolved.policy.scrape.tls.server_name == NAME
