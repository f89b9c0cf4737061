"""`loadtide probe` as a person calls it: exit codes, headers, a Prometheus behind the URL, and nobody behind it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from scaler.cli import app
from scaler.policy.layers import PolicyFile
from scaler.probe.prometheus import names_query
from tests.ports import free_port
from tests.signals.fake_prometheus import vector
from tests.signals.test_scrape import serving

BODIES = Path(__file__).parents[1] / "signals" / "bodies"
VLLM = (BODIES / "vllm-0.32-load.txt").read_text()


def probe(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["probe", *arguments])


async def probed(handler: Callable[[web.Request], web.StreamResponse], *arguments: str) -> tuple[Result, str]:
    """The command against a page; it runs its own event loop, so beside this one."""

    async def page(request: web.Request) -> web.StreamResponse:
        return handler(request)

    async with serving(page) as url:
        return await asyncio.to_thread(probe, url, *arguments), url


async def test_an_engine_is_told_and_ends_in_policy_lines() -> None:
    result, url = await probed(lambda _: web.Response(text=VLLM))
    assert result.exit_code == 0, result.output
    assert "a metrics page of engine vllm" in result.stdout
    assert "vllm:num_requests_waiting" in result.stdout
    lines = result.stdout[result.stdout.index("workloads:") :]
    assert PolicyFile.parse("p.yaml", lines).resolve("default/tiny").policy.scrape.urls == (url,)


async def test_the_policy_alone_can_be_written_to_a_file() -> None:
    result, _ = await probed(lambda _: web.Response(text=VLLM), "--only-policy")
    assert result.exit_code == 0
    assert PolicyFile.parse("p.yaml", result.stdout).workloads == ("default/tiny",)


async def test_headers_are_sent_and_never_shown() -> None:
    def guarded(request: web.Request) -> web.Response:
        good = request.headers.get("Authorization") == "Bearer s3cret"
        return web.Response(text=VLLM) if good else web.Response(status=401)

    result, _ = await probed(guarded, "--header", "Authorization: Bearer s3cret")
    assert result.exit_code == 0
    assert "s3cret" not in result.output
    assert "the scaler reads pages without any" in result.output
    assert (await probed(guarded))[0].exit_code == 1


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (lambda: web.Response(text="<html>login</html>", content_type="text/html"), "not a metrics page: HTML"),
        (lambda: web.Response(text=""), "empty body"),
        (lambda: web.Response(status=404), "HTTP 404"),
        (lambda: web.Response(status=302, headers={"Location": "/login"}), "which is not followed"),
        (lambda: web.Response(text="go_goroutines 3\n"), "of no engine or gateway"),
        (lambda: web.Response(text=VLLM[:-1]), "body cut"),
    ],
)
async def test_an_answer_that_cannot_be_used_says_why(response: Callable[[], web.Response], words: str) -> None:
    result, _ = await probed(lambda _: response())
    assert result.exit_code == 1, result.output
    assert words in " ".join(result.stdout.split())
    assert "nothing here that loadtide can use" in result.stdout


def test_nobody_there_is_exit_status_2() -> None:
    result = probe(f"http://127.0.0.1:{free_port()}/metrics")
    assert result.exit_code == 2
    assert "connection refused" in result.stderr


@pytest.mark.parametrize(
    "arguments", [("vllm:8000",), ("http://x/metrics", "--header", "nonsense"), ("http://x/metrics", "--engine", "gpt")]
)
def test_what_cannot_be_meant_is_refused(arguments: tuple[str, ...]) -> None:
    assert probe(*arguments).exit_code == 2


def test_help_teaches() -> None:
    said = " ".join(probe("--help").stdout.split())
    assert "loadtide probe http://localhost:8000/metrics" in said
    assert "Exit status: 0 found" in said


# A Prometheus


class Api:
    """An API that holds series: (name, labels, age in seconds). It answers a probe's queries by their shape."""

    def __init__(self, *series: tuple[str, Mapping[str, str], float]) -> None:
        self.series = series
        self.queries: list[str] = []

    async def query(self, request: web.Request) -> web.Response:
        query = str((await request.post())["query"])
        self.queries.append(query)
        return web.json_response(vector(*self.rows(query)))

    def rows(self, query: str) -> list[tuple[Mapping[str, str], float]]:
        if query.startswith("count by (__name__)"):
            patterns = re.findall(r'=~"([^"]*)"', query)
            names = [name for name, _, _ in self.series if any(re.fullmatch(each, name) for each in patterns)]
            return [({"__name__": name}, names.count(name)) for name in dict.fromkeys(names)]
        if "loadtide_times" in query:
            gpus = [(name, labels) for name, labels, _ in self.series if name.startswith("DCGM")]
            times = [({**labels, "loadtide_times": "1"}, 1.76e9) for _, labels in gpus]
            return [*(({"__name__": name, **labels}, 1.0) for name, labels in gpus), *times]
        named = re.findall(r'__name__="([^"]*)"', query)
        if query.startswith("count by"):
            by = re.findall(r"\w+", query[len("count by (") : query.index(")")])
            replicas: dict[tuple[tuple[str, str], ...], set[str]] = {}
            for name, labels, _ in self.series:
                if name in named:
                    key = tuple((label, labels[label]) for label in by if label in labels)
                    replicas.setdefault(key, set()).add(labels["pod"])
            return [(dict(key), len(pods)) for key, pods in replicas.items()]
        if query.startswith("label_replace"):
            families = re.findall(
                r'(min|max)\(time\(\) - timestamp\(\{__name__="([^"]*)"\}\)\), "family", "(\w+)"', query
            )
            pick = {"min": min, "max": max}
            return [
                ({"family": family}, pick[how](age for name, _, age in self.series if name == wanted))
                for how, wanted, family in families
            ]
        return [({"__name__": name, **labels}, 1.0) for name, labels, _ in self.series if name in named][:1]


def vllm(pod: str, model: str, age: float = 3.0) -> list[tuple[str, Mapping[str, str], float]]:
    labels = {"namespace": "chat", "pod": pod, "instance": f"{pod}:8000", "job": "vllm", "model_name": model}
    names = ("num_requests_running", "num_requests_waiting", "request_success_total", "kv_cache_usage_perc")
    more = ("prompt_tokens_total", "generation_tokens_total", "num_preemptions_total", "cache_config_info")
    latencies = ("time_to_first_token_seconds_count", "e2e_request_latency_seconds_count")
    return [(f"vllm:{name}", labels, age) for name in (*names, *more, *latencies)]


async def asked(api: Api, *arguments: str) -> tuple[Result, str]:
    application = web.Application()
    application.router.add_post("/api/v1/query", api.query)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return await asyncio.to_thread(probe, url, *arguments), url
    finally:
        await runner.cleanup()


async def test_a_prometheus_is_told_by_workload_and_ends_in_policy_lines() -> None:
    api = Api(
        *vllm("a-0", "a"),
        *vllm("a-1", "a", age=200.0),
        *vllm("b-0", "org/b"),
        ("DCGM_FI_DEV_GPU_UTIL", {"UUID": "GPU-1", "exported_pod": "a-0", "exported_namespace": "chat"}, 1.0),
        ("kube_deployment_spec_replicas", {"deployment": "a"}, 1.0),
    )
    result, url = await asked(api, "--header", "X-Scope-OrgID: chat")
    said = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.output
    assert "engine vllm (10 of 18 families): workloads: 2, replicas: 3" in said
    assert 'namespace="chat", model_name="a": replicas: 2' in said
    assert "DCGM: 1 of 11 fields, 1 GPUs or MIG instances, held by pods in: chat" in said
    assert "kube-state-metrics: there" in said
    assert "missing" in said
    assert "oldest replica's sample is 3 min 20 s old" in said
    file = PolicyFile.parse("p.yaml", result.stdout[result.stdout.index("sources:") :])
    assert file.workloads == ("chat/a", "chat/b")
    policy = file.resolve("chat/b").policy
    assert policy.read_from_prometheus
    assert dict(policy.prometheus.match) == {"namespace": "chat", "model_name": "org/b"}
    assert file.sources["main"].url == url
    assert "# headers: {X-Scope-OrgID: ...}" in result.stdout
    assert file.resolve("chat/a").policy.gpu.source == "main"
    assert len(api.queries) == 5


async def test_a_prometheus_of_gpus_alone_is_declared_for_them() -> None:
    api = Api(("DCGM_FI_DEV_GPU_UTIL", {"UUID": "GPU-1", "exported_pod": "a-0", "exported_namespace": "chat"}, 1.0))
    result, url = await asked(api, "--only-policy")
    assert result.exit_code == 0, result.output
    file = PolicyFile.parse("p.yaml", result.stdout)
    (name,) = file.workloads
    assert (file.resolve(name).policy.gpu.source, file.sources["main"].url) == ("main", url)


async def test_one_model_of_a_prometheus() -> None:
    api = Api(*vllm("a-0", "a"), *vllm("b-0", "b"))
    result, _ = await asked(api, "--model", "b", "--only-policy")
    assert PolicyFile.parse("p.yaml", result.stdout).workloads == ("chat/b",)
    result, _ = await asked(api, "--model", "c")
    assert result.exit_code == 1
    assert "names the model 'c'" in result.stdout


async def test_a_prometheus_without_engines_is_nothing_usable() -> None:
    result, _ = await asked(Api())
    assert result.exit_code == 1
    assert "DCGM: no series" in result.stdout
    result, _ = await asked(Api(*vllm("a-0", "a")), "--engine", "sglang")
    assert result.exit_code == 1
    assert "no series of it is there" in result.stdout


def test_the_query_for_names_fits_into_the_strictest_server() -> None:
    assert len(names_query()) < 16 * 1024
