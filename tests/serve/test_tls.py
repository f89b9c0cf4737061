"""TLS for KEDA and for HTTP over real sockets: what is accepted, what is refused, and files that change under us."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import trustme
from aiohttp import ClientSession, TCPConnector, web
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry

from scaler.serve.grpc_server import start_grpc
from scaler.serve.http import start_http
from scaler.serve.rpc_statistics import RpcStatistics
from scaler.serve.tls import TlsFiles, WatchedTlsFiles, grpc_credentials, http_context
from tests.contract.conftest import FakeWorkloads, decided
from tests.contract.keda_client import Operator, scaled_object

SERVING = health_pb2.HealthCheckResponse.SERVING


@dataclass
class Authority:
    """A certificate authority of the test's own, and the files a server gets from it."""

    ca: trustme.CA
    folder: Path

    def issue(self) -> None:
        """Write a new pair over the one before, as a renewal does: whole files, renamed into place."""
        certificate = self.ca.issue_cert("localhost", "127.0.0.1")
        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        for name, content in (("tls.key", certificate.private_key_pem.bytes()), ("tls.crt", chain)):
            (self.folder / f"{name}.new").write_bytes(content)
            os.replace(self.folder / f"{name}.new", self.folder / name)

    def files(self, *, clients: bool = False) -> TlsFiles:
        authorities = self.folder / "ca.crt"
        authorities.write_bytes(self.ca.cert_pem.bytes())
        return TlsFiles(self.folder / "tls.crt", self.folder / "tls.key", authorities if clients else None)

    def trusted(self, *, own: bool = False) -> grpc.ChannelCredentials:
        """What KEDA makes of ``caCert``, and of ``tlsClientCert`` and ``tlsClientKey`` where ``own``."""
        root = self.ca.cert_pem.bytes()
        if not own:
            return grpc.ssl_channel_credentials(root)
        client = self.ca.issue_cert("keda-operator")
        return grpc.ssl_channel_credentials(
            root, client.private_key_pem.bytes(), b"".join(pem.bytes() for pem in client.cert_chain_pems)
        )

    def context(self) -> ssl.SSLContext:
        """A client's context that trusts this authority alone."""
        return ssl.create_default_context(cadata=self.ca.cert_pem.bytes().decode())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(trustme.CA(), tmp_path)
    made.issue()
    return made


async def asked(port: int, credentials: grpc.ChannelCredentials | None) -> bool | grpc.StatusCode:
    """What a new operator with these credentials gets: the activity, or the code it is refused with."""
    operator = Operator(f"localhost:{port}", credentials=credentials)
    try:
        async with asyncio.timeout(60):
            return (await operator.check(scaled_object("llm"))).active
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        await operator.close()


class TestForKeda:
    @pytest.fixture
    async def workloads(self) -> FakeWorkloads:
        known = FakeWorkloads()
        await known.tick("prod/llm", decided())
        return known

    async def served(
        self, workloads: FakeWorkloads, files: TlsFiles, health: str | None = None
    ) -> AsyncIterator[tuple[int, int | None]]:
        credentials = grpc_credentials(files)
        statistics = RpcStatistics(CollectorRegistry())
        server = await start_grpc(workloads, "127.0.0.1:0", statistics, credentials, health_address=health)
        yield server.port, server.health_port
        await server.stop(0.1)

    async def test_who_trusts_our_authority_is_answered_and_plaintext_is_not(
        self, workloads: FakeWorkloads, authority: Authority
    ) -> None:
        async for port, _ in self.served(workloads, authority.files()):
            assert await asked(port, authority.trusted()) is True
            assert await asked(port, None) is grpc.StatusCode.UNAVAILABLE
            other = Authority(trustme.CA(), authority.folder)
            assert await asked(port, other.trusted()) is grpc.StatusCode.UNAVAILABLE

    async def test_mtls_answers_only_clients_of_the_authority(
        self, workloads: FakeWorkloads, authority: Authority
    ) -> None:
        async for port, _ in self.served(workloads, authority.files(clients=True)):
            assert await asked(port, authority.trusted(own=True)) is True
            assert await asked(port, authority.trusted()) is grpc.StatusCode.UNAVAILABLE
            stranger = trustme.CA().issue_cert("keda-operator")
            forged = grpc.ssl_channel_credentials(
                authority.ca.cert_pem.bytes(),
                stranger.private_key_pem.bytes(),
                stranger.cert_chain_pems[0].bytes(),
            )
            assert await asked(port, forged) is grpc.StatusCode.UNAVAILABLE

    async def test_a_rotated_authority_takes_effect_without_a_restart_and_open_streams_live(
        self, workloads: FakeWorkloads, authority: Authority
    ) -> None:
        async for port, _ in self.served(workloads, authority.files(clients=True)):
            before = Operator(f"localhost:{port}", credentials=authority.trusted(own=True))
            stream = before.push(scaled_object("llm"))
            await stream.until(lambda it: it.told == [True])
            old, authority.ca = Authority(authority.ca, authority.folder), trustme.CA()
            authority.issue()
            authority.files(clients=True)
            assert await asked(port, authority.trusted(own=True)) is True
            assert await asked(port, old.trusted(own=True)) is grpc.StatusCode.UNAVAILABLE
            assert (await before.check(scaled_object("llm"))).active
            await workloads.tick("prod/llm", decided(active=False))
            await asyncio.sleep(0.1)
            await workloads.tick("prod/llm", decided())
            await stream.until(lambda it: it.told == [True, True])
            await stream.stop()
            await before.close()

    async def test_a_pair_that_does_not_belong_together_is_refused_and_the_one_before_stays(
        self, workloads: FakeWorkloads, authority: Authority, capsys: pytest.CaptureFixture[str]
    ) -> None:
        async for port, _ in self.served(workloads, authority.files()):
            good = (authority.folder / "tls.key").read_bytes()
            (authority.folder / "tls.key").write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes())
            for _ in range(2):
                assert await asked(port, authority.trusted()) is True
            (authority.folder / "tls.key").unlink()
            assert await asked(port, authority.trusted()) is True
            (authority.folder / "tls.key").write_bytes(good)
            assert await asked(port, authority.trusted()) is True
        said = capsys.readouterr().out
        assert said.count("are no certificate with its unencrypted key") == 1
        assert "TLS files read again" in said

    async def test_kubelet_s_port_is_plain_and_tells_health_alone(
        self, workloads: FakeWorkloads, authority: Authority
    ) -> None:
        async for port, health_port in self.served(workloads, authority.files(clients=True), "127.0.0.1:0"):
            async with grpc.aio.insecure_channel(f"127.0.0.1:{health_port}") as channel:
                for service in ("", "liveness", "readiness"):
                    request = health_pb2.HealthCheckRequest(service=service)
                    assert (await health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)).status == SERVING
            assert health_port is not None
            assert await asked(health_port, None) is grpc.StatusCode.UNIMPLEMENTED
            assert port != health_port


class TestForHttp:
    async def answer(self, port: int, context: ssl.SSLContext) -> str:
        """The page's text over a new connection, or the name of what went wrong."""
        async with ClientSession(connector=TCPConnector(ssl=context, force_close=True)) as session:
            try:
                async with session.get(f"https://localhost:{port}/") as response:
                    return await response.text()
            except OSError as error:
                return type(error).__name__

    async def test_new_connections_get_the_renewed_certificate(self, authority: Authority) -> None:
        async def page(_: web.Request) -> web.Response:
            return web.Response(text="tide")

        app = web.Application()
        app.router.add_get("/", page)
        runner, port = await start_http(app, "127.0.0.1", 0, http_context(authority.files()))
        try:
            before = authority.context()
            assert await self.answer(port, before) == "tide"
            authority.ca = trustme.CA()
            authority.issue()
            assert await self.answer(port, authority.context()) == "tide"
            assert await self.answer(port, before) == "ClientConnectorCertificateError"
            (authority.folder / "tls.crt").write_text("half a file")
            assert await self.answer(port, authority.context()) == "tide"
        finally:
            await runner.cleanup()


class TestAtTheStart:
    def test_a_missing_file_is_named(self, authority: Authority) -> None:
        (authority.folder / "tls.key").unlink()
        with pytest.raises(OSError, match=r"tls\.key"):
            WatchedTlsFiles(authority.files())

    def test_files_that_are_no_pair_are_named(self, authority: Authority) -> None:
        (authority.folder / "tls.crt").write_text("hello")
        with pytest.raises(OSError, match=r"tls\.crt.*are no certificate"):
            WatchedTlsFiles(authority.files())

    def test_an_authority_that_is_none_is_named(self, authority: Authority) -> None:
        files = authority.files(clients=True)
        (authority.folder / "ca.crt").write_text("hello")
        with pytest.raises(OSError, match=r"ca\.crt holds no certificate authority"):
            WatchedTlsFiles(files)

    def test_an_encrypted_key_asks_nobody_for_a_passphrase(self, authority: Authority) -> None:
        from cryptography.hazmat.primitives import serialization

        key = serialization.load_pem_private_key((authority.folder / "tls.key").read_bytes(), None)
        encrypted = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
        (authority.folder / "tls.key").write_bytes(encrypted)
        with pytest.raises(OSError, match="unencrypted key"):
            WatchedTlsFiles(authority.files())
