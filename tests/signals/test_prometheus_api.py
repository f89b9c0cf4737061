"""One query over HTTP: what is sent, what comes back wrong, and credentials that change while we run."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from scaler.policy.prometheus import PrometheusServer
from scaler.signals.prometheus import api
from scaler.signals.prometheus.answer import Answer
from scaler.signals.prometheus.api import Api, QueryError
from tests.ports import free_port
from tests.signals.fake_prometheus import UNIX, FakePrometheus, serving, vector


async def ask(url: str, query: str = "up", unix: float | None = None, **server: object) -> Answer:
    async with aiohttp.ClientSession() as session:
        return await Api(PrometheusServer.model_validate({"url": url, **server})).ask(session, query, unix=unix)


async def reason(respond: Callable[[], web.StreamResponse | Awaitable[web.StreamResponse]], **server: object) -> str:
    """Why a server that answers so gives nothing."""
    async with serving(FakePrometheus(respond=lambda query: respond())) as fake:
        with pytest.raises(QueryError) as failed:
            await ask(fake.url, **server)
    assert fake.url not in str(failed.value)
    return str(failed.value)


async def test_a_query_is_posted_as_a_form_with_the_operators_headers() -> None:
    async with serving(FakePrometheus()) as fake:
        await ask(fake.url + "/", 'x{a="b"}', UNIX - 0.5, headers={"X-Scope-OrgID": "chat"}, timeout_seconds=2)
    assert fake.forms == [{"query": 'x{a="b"}', "nocache": "1", "timeout": "2s", "time": f"{UNIX - 0.5:.3f}"}]
    assert fake.headers[0]["X-Scope-OrgID"] == "chat"
    assert fake.headers[0]["User-Agent"].startswith("loadtide/")
    assert "Authorization" not in fake.headers[0]


async def test_a_compressed_answer_is_read() -> None:
    def compressed() -> web.StreamResponse:
        response = web.json_response(vector(({}, 3)))
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with serving(FakePrometheus(respond=lambda query: compressed())) as fake:
        assert (await ask(fake.url)).rows[0].value == 3


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (503, "", "HTTP 503"),
        (
            503,
            '{"status":"error","errorType":"timeout","error":"query timed out"}',
            "HTTP 503: timeout: query timed out",
        ),
        (422, '{"status":"error","errorType":"execution","error":"x"}', "HTTP 422: execution: x"),
        (401, "", "HTTP 401: the source's credentials are not accepted"),
        (403, "<html>", "HTTP 403: the source's credentials are not accepted"),
        (404, "404 page not found", "HTTP 404"),
        (200, "<html>Sign in</html>", "the answer is HTML (a login page?)"),
        (200, '{"status":"error","errorType":"timeout","error":"late"}', "the server reports an error: timeout: late"),
    ],
)
async def test_a_server_in_trouble_is_quoted(status: int, body: str, says: str) -> None:
    assert await reason(lambda: web.Response(status=status, text=body)) == says


async def test_a_redirect_is_not_followed() -> None:
    moved = web.Response(status=302, headers={"Location": "https://login.example/?token=secret"})
    text = await reason(lambda: moved)
    assert text == "HTTP 302: redirected to 'https://login.example/', which is not followed (a login page?)"


async def test_a_server_that_hangs_is_given_up_at_its_time_limit() -> None:
    async def hang() -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    began = asyncio.get_running_loop().time()
    assert await reason(hang, timeout_seconds=0.2) == "timed out after 0.2 s"
    assert asyncio.get_running_loop().time() - began < 20  # it hangs for longer


async def test_an_answer_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LARGEST_ANSWER_BYTES", 1024**2)
    assert await reason(lambda: web.Response(text=" " * (1024**2 + 1))) == "body larger than 1 MiB"


async def test_a_server_that_is_not_there_is_named_as_such() -> None:
    with pytest.raises(QueryError, match="connection refused"):
        await ask(f"http://127.0.0.1:{free_port()}")


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    client = Api(PrometheusServer(url="http://unset", bearer_token_file=str(token)))
    async with serving(FakePrometheus()) as fake, aiohttp.ClientSession() as session:
        client.server = client.server.model_copy(update={"url": fake.url})
        await client.ask(session, "up")
        fresh = tmp_path / "fresh"  # as a mounted Secret changes: a whole new file under the old name
        fresh.write_text("second")
        fresh.rename(token)
        await client.ask(session, "up")
        token.unlink()
        with pytest.raises(QueryError, match="token cannot be read: No such file or directory"):
            await client.ask(session, "up")
        token.write_text("two\nlines")
        with pytest.raises(QueryError, match="is empty or has more than one line") as failed:
            await client.ask(session, "up")
    assert "lines" not in str(failed.value).replace("line; write", "")
    assert [headers["Authorization"] for headers in fake.headers] == ["Bearer first", "Bearer second"]


async def test_basic_authentication_and_tokens_are_sent(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hunter2\n")
    async with serving(FakePrometheus()) as fake:
        await ask(fake.url, basic={"username": "loadtide", "password_file": str(password)})
        await ask(fake.url, bearer_token="abc")
    sent = [headers["Authorization"] for headers in fake.headers]
    assert sent == ["Basic bG9hZHRpZGU6aHVudGVyMg==", "Bearer abc"]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``ca.pem``, and ``server.pem`` (for localhost) and ``client.pem`` signed by it, each with its ``.key``."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed; it makes the certificates of these tests")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")
    for name, alternative in (("server", "DNS:localhost"), ("other", "DNS:elsewhere"), ("client", "DNS:loadtide")):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "extensions").write_text(f"subjectAltName={alternative}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions", "-days", "2")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signing)
    return folder


def served_with(certificates: Path, name: str, *, ask_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    if ask_client:
        context.load_verify_locations(certificates / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def test_a_server_is_verified_by_the_operators_ca(certificates: Path) -> None:
    ca = {"ca_file": str(certificates / "ca.pem")}
    async with serving(FakePrometheus(), context=served_with(certificates, "server")) as fake:
        await ask(fake.url, tls=ca)
        await ask(fake.url, tls={"insecure_skip_verify": True})
        with pytest.raises(QueryError, match="TLS certificate not accepted"):
            await ask(fake.url)
    async with serving(FakePrometheus(), context=served_with(certificates, "other")) as fake:
        with pytest.raises(QueryError, match="TLS certificate not accepted"):
            await ask(fake.url, tls=ca)
        await ask(fake.url, tls={**ca, "server_name": "elsewhere"})


async def test_a_client_certificate_is_shown_and_read_again_when_it_changes(certificates: Path, tmp_path: Path) -> None:
    for name in ("ca.pem", "client.pem", "client.key"):
        shutil.copy(certificates / name, tmp_path / name)
    tls = {
        "ca_file": str(tmp_path / "ca.pem"),
        "cert_file": str(tmp_path / "client.pem"),
        "key_file": str(tmp_path / "client.key"),
    }
    async with serving(FakePrometheus(), context=served_with(certificates, "server", ask_client=True)) as fake:
        with pytest.raises(QueryError):
            await ask(fake.url, tls={"ca_file": tls["ca_file"]})
        client = Api(PrometheusServer.model_validate({"url": fake.url, "tls": tls}))
        async with aiohttp.ClientSession() as session:
            await client.ask(session, "up")
            shutil.copy(certificates / "other.key", tmp_path / "client.key")
            with pytest.raises(QueryError, match=r"the TLS files cannot be used \(.*client.pem"):
                await client.ask(session, "up")
            shutil.copy(certificates / "other.pem", tmp_path / "client.pem")
            await client.ask(session, "up")


async def test_few_queries_are_under_way_at_a_time() -> None:
    running, most = 0, 0

    async def slow(query: str) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        return web.json_response(vector())

    async with serving(FakePrometheus(respond=slow)) as fake, aiohttp.ClientSession() as session:
        client = Api(PrometheusServer(url=fake.url, timeout_seconds=30))
        await asyncio.gather(*(client.ask(session, "up") for _ in range(20)))
    assert most == api.CONCURRENT
