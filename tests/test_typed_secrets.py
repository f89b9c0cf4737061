"""A URL typed on a command line may have a password in it: no command repeats it, whatever becomes of the URL."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from scaler.cli import app
from scaler.lab.run import write_policy
from scaler.policy.layers import PolicyFile
from tests.signals.fake_prometheus import vector
from tests.signals.test_scrape import serving

VLLM = (Path(__file__).parent / "signals" / "bodies" / "vllm-0.32-load.txt").read_text()
LOGIN = "Basic dXNlcjpodXNo"  # user:hush


@pytest.fixture(scope="module")
def nobody() -> Iterator[str]:
    """A host and port where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{free.getsockname()[1]}"


def typed(*arguments: str) -> Result:
    environment = {name: "" for name in os.environ if name.startswith("LOADTIDE_")}
    return CliRunner().invoke(app, arguments, env=environment | {"COLUMNS": "400"})


@pytest.fixture(autouse=True)
def logs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner's own standard error is closed when the other tests log."""
    monkeypatch.setattr("scaler.agent.command.configure_logs", lambda _level: None)


#: By where the URL stands: {} is what is tried there.
COMMANDS = (
    ("probe", "{}"),
    ("explain", "chat/m", "--url", "{}"),
    ("override", "chat/m", "--end", "--url", "{}"),
    ("backtest", "--workload", "chat/m", "--prometheus", "{}"),
    ("backtest", "--workload", "chat/m", "--prometheus", "http://127.0.0.1:1", "--set", "scrape.urls={}"),
    ("backtest", "--workload", "chat/m", "--prometheus", "http://127.0.0.1:1", "--set", "{}"),
    ("backtest", "--workload", "chat/m", "--prometheus", "http://127.0.0.1:1", "--match", "{}"),
    ("savings", "--prometheus", "{}"),
    ("agent", "--workload", "chat/m", "--engine", "sglang", "--scaler", "{}"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "url", ["http://user:hush@{}/x?key=hush", "http://user:hush/x@{}", "user:hush@{}", "htp://user:hush@{}"]
)
def test_what_cannot_be_done_is_said_without_the_password(command: tuple[str, ...], url: str, nobody: str) -> None:
    result = typed(*(part.replace("{}", url.format(nobody)) for part in command))
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.output.strip()
    assert "hush" not in result.output


SECRETS_IN_METADATA = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: m, namespace: chat}
spec:
  scaleTargetRef: {name: m}
  triggers:
    - type: external
      metadata:
        scalerAddress: http://user:hush@loadtide.lt.svc:6000
        scrapeUrl: http://user:hush@m.chat.svc:8000/metrics
        gatewayUrls: ftp://user:hush@x
        scrapeUrls: ["http://user:hush@m.chat.svc:8000/metrics"]
"""


@pytest.mark.parametrize("how", ["text", "json", "github"])
def test_a_check_does_not_carry_the_password_of_a_file_into_the_log_of_a_pipeline(how: str, tmp_path: Path) -> None:
    path = tmp_path / "scaledobject.yaml"
    path.write_text(SECRETS_IN_METADATA)
    result = typed("check", str(path), "--format", how)
    assert result.exit_code == 2
    for rule in ("scaler-address", "unknown-key", "bad-value", "unquoted"):
        assert rule in result.output
    assert "hush" not in result.output


@pytest.mark.parametrize("url", ["http://user:hush/x@h:8000", "user:hush@h:8000"])
def test_the_demonstration_refuses_what_is_no_url_without_the_password(url: str) -> None:
    result = typed("demo", "--engine", url)
    assert result.exit_code == 2
    assert "is not a URL" in result.output
    assert "hush" not in result.output


def test_the_demonstration_says_what_to_write_without_the_password(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("workloads: {}\n")
    said = write_policy(policy, "http://user:hush@h:8000/metrics")
    assert said is not None
    assert "http://USER:PASSWORD@h:8000/metrics" in said
    assert "hush" not in said


async def test_a_page_behind_a_password_is_read_and_its_policy_lines_leave_it_to_be_written() -> None:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text=VLLM) if request.headers.get("Authorization") == LOGIN else web.Response(status=401)

    async with serving(page) as url:
        result = await asyncio.to_thread(typed, "probe", f"{url.replace('://', '://user:hush@')}?key=hush")
    assert result.exit_code == 0, result.output
    assert "hush" not in result.output
    assert "complete the policy's urls" in result.output
    lines = result.stdout[result.stdout.index("workloads:") :]
    urls = PolicyFile.parse("p.yaml", lines).resolve("default/tiny").policy.scrape.urls
    assert urls == (f"{url.replace('://', '://USER:PASSWORD@')}?key=VALUE",)


async def test_a_prometheus_behind_a_password_is_asked_and_declared_with_a_file_for_it() -> None:
    labels = {"namespace": "chat", "pod": "m-0", "model_name": "m"}
    page = re.findall(r"^vllm:\w+", VLLM, re.MULTILINE)
    names = [({"__name__": name}, 1.0) for name in dict.fromkeys(page) if not name.endswith("_bucket")]

    async def api(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != LOGIN:
            return web.Response(status=401)
        if request.method == "GET":
            return web.Response(status=404)
        query = str((await request.post())["query"])
        return web.json_response(vector(*(names if query.startswith("count by (__name__)") else [(labels, 1.0)])))

    application = web.Application()
    application.router.add_route("*", "/{any:.*}", api)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        place = f"127.0.0.1:{runner.addresses[0][1]}"
        result = await asyncio.to_thread(typed, "probe", f"http://user:hush@{place}")
    finally:
        await runner.cleanup()
    assert result.exit_code == 0, result.output
    assert "hush" not in result.output
    assert f'url: "http://{place}"' in result.stdout
    assert "# basic: {username: USER, password_file: /etc/loadtide/password}" in result.stdout


@pytest.mark.parametrize(
    "command", [("probe", "{}", "--header", "Authorization: Bearer x"), ("explain", "c/m", "--url", "{}")]
)
def test_a_password_and_a_token_are_one_too_many(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADTIDE_READ_TOKEN", "token")
    result = CliRunner().invoke(app, [part.replace("{}", "http://user:hush@127.0.0.1:1") for part in command])
    assert result.exit_code == 2, result.output
    assert "leave" in result.output
    assert "hush" not in result.output
