"""What each adapter says to its engine, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from scaler.consume import triton_repository_pb2
from scaler.consume.engine import EngineBatch, EngineError
from scaler.consume.engine_http import LARGEST_BYTES, EngineHttp, NoSuchRouteError
from scaler.consume.envoy import Envoy
from scaler.consume.ray_serve import RayServe
from scaler.consume.sglang import SGLang
from scaler.consume.triton import MARK, Triton
from tests.consume.engine_doubles import EnvoyDouble, RayServeDouble, SGLangDouble, TritonDouble, serving

ROOT = Path(__file__).parents[2]


class TestSGLang:
    async def test_the_batch_of_one_scheduler(self) -> None:
        double = SGLangDouble(max_running_requests=64)
        async with serving(*double.routes()) as http:
            engine = SGLang(http)
            assert await engine.read() == EngineBatch(64, own=64, most=64)
            await engine.write(8)
            assert await engine.read() == EngineBatch(8, own=64, most=64, follows_own=False)
            await engine.restore()
            assert (await engine.read()).follows_own
        assert double.asked == [{"pp_max_micro_batch_size": 8}, {"pp_max_micro_batch_size": 64}]

    async def test_every_rank_and_stage_has_its_part(self) -> None:
        """Two data-parallel ranks of two pipeline stages: the cap is of one micro batch, the batch is all of them."""
        double = SGLangDouble(ranks=2, stages=2, max_running_requests=64)
        async with serving(*double.routes()) as http:
            engine = SGLang(http)
            assert await engine.read() == EngineBatch(128, own=128, most=128, step=4)
            await engine.write(20)
            assert (await engine.read()).size == 20
        assert double.caps == [5, 5]

    async def test_what_it_was_launched_with_is_its_own(self) -> None:
        """An agent that starts while another's setting is in force must not take that for the engine's own."""
        double = SGLangDouble(max_running_requests=64, launched=48)
        double.caps = [6]
        async with serving(*double.routes()) as http:
            assert await SGLang(http).read() == EngineBatch(6, own=48, most=64, follows_own=False)

    async def test_old_versions_have_other_names_and_tell_less(self) -> None:
        double = SGLangDouble(old=True)
        async with serving(*double.routes()) as http:
            engine = SGLang(http, own_batch=64)
            assert await engine.read() == EngineBatch(64, own=64, most=64)
            with pytest.raises(EngineError, match="HTTP 500"):
                await engine.write(8)
            assert (await engine.read()).size == 8, "it failed, and took effect"
            nothing_said = await SGLang(http).read()
            assert (nothing_said.own, nothing_said.follows_own) == (None, False)
            with pytest.raises(EngineError, match="--own-batch"):
                await SGLang(http).restore()

    async def test_keys(self) -> None:
        """With an admin key set the API key may read, and may not change."""
        double = SGLangDouble(api_key="user", admin_key="root")
        async with serving(*double.routes()) as http:
            await SGLang(http, api_key="user", admin_key="root").write(8)
            assert double.caps == [8]
            with pytest.raises(EngineError, match=r"POST /set_internal_state: HTTP 401 .*--engine-admin-key-file"):
                await SGLang(http, api_key="user").write(4)
            with pytest.raises(EngineError, match=r"GET /server_info: HTTP 401"):
                await SGLang(http).read()

    @pytest.mark.parametrize(
        ("info", "said"),
        [
            ({}, "no internal_states"),
            ({"internal_states": []}, "no internal_states"),
            ({"internal_states": [{"other": 1}]}, "none of pp_max_micro_batch_size"),
            ([], "no JSON object"),
        ],
    )
    async def test_another_server_is_told_as_such(self, info: object, said: str) -> None:
        async with serving(web.get("/server_info", _saying(info))) as http:
            with pytest.raises(EngineError, match=said):
                await SGLang(http).read()

    async def test_neither_route(self) -> None:
        async with serving() as http:
            with pytest.raises(NoSuchRouteError, match="/get_server_info: HTTP 404"):
                await SGLang(http).read()

    @pytest.mark.parametrize("value", [None, 0, -1, "8", True, [], float("inf"), float("nan")])
    async def test_what_is_no_batch_is_not_told(self, value: object) -> None:
        info = json.dumps({"internal_states": [{"pp_max_micro_batch_size": value}]})
        async with serving(web.get("/server_info", _saying_text(info))) as http:
            assert (await SGLang(http).read()).size is None


class TestTriton:
    async def test_a_load_takes_the_place_of_the_configuration(self) -> None:
        double = TritonDouble()
        async with serving(*double.routes()) as http:
            engine = Triton(http, "text")
            assert await engine.read() == EngineBatch(64, own=64, most=64)
            await engine.write(32)
            assert await engine.read() == EngineBatch(32, own=64, most=64, follows_own=False)
        batching, kept = double.loaded["dynamic_batching"], double.loaded["parameters"]
        assert batching == {"preferred_batch_size": [16], "max_queue_delay_microseconds": 100}
        assert kept["threads"] == {"string_value": "4"}
        assert double.loaded["instance_group"] == double.config["instance_group"]

    @pytest.mark.parametrize(
        ("old", "touched", "loads"),
        [(False, False, 2), (True, False, 1), (False, True, 1)],
        ids=["2.43 and later", "before", "config.pbtxt touched"],
    )
    async def test_the_way_back_is_the_configuration_of_before(self, old: bool, touched: bool, loads: int) -> None:
        """By a load without parameters where that does it, else by another override, without our mark."""
        double = TritonDouble(old=old)
        async with serving(*double.routes()) as http:
            engine = Triton(http, "text")
            await engine.write(8)
            await engine.write(16)  # what was before is still what was before the first
            assert await engine.read() == EngineBatch(16, own=64, most=64, follows_own=False)
            assert double.loaded["dynamic_batching"]["preferred_batch_size"] == [16]
            double.touched, before = touched, len(double.loads)
            await engine.write(64)
            assert await engine.read() == EngineBatch(64, own=64, most=64)
        assert double.loads[before] is None
        assert len(double.loads) - before == loads
        assert double.loaded == double.config

    async def test_nobodys_preferred_size_is_not_kept(self) -> None:
        """Triton fills in ``[max_batch_size]`` where none is said; kept as a wish, a lower one would be refused."""
        double = TritonDouble({"name": "text", "max_batch_size": 64, "dynamic_batching": {}})
        async with serving(*double.routes()) as http:
            await Triton(http, "text").write(8)
        assert double.loaded["dynamic_batching"]["preferred_batch_size"] == [8]

    @pytest.mark.parametrize(
        ("over_grpc", "said"),
        [(False, r"HTTP 400 .*out of memory"), (True, r"over gRPC .*INVALID_ARGUMENT .*out of memory")],
    )
    async def test_a_load_that_fails_leaves_the_old_model(self, over_grpc: bool, said: str) -> None:
        double = TritonDouble(fails="out of memory")
        async with serving(*double.routes()) as http, double.over_grpc() as address:
            engine = Triton(http, "text", grpc=address if over_grpc else "")
            with pytest.raises(EngineError, match=said):
                await engine.write(32)
            assert (await engine.read()).follows_own

    async def test_loads_go_over_grpc_where_it_is_told(self) -> None:
        double = TritonDouble()
        only_reads = double.routes()[:1]
        async with serving(*only_reads) as http, double.over_grpc() as address:
            engine = Triton(http, "text", grpc=address)
            await engine.write(32)
            assert await engine.read() == EngineBatch(32, own=64, most=64, follows_own=False)
            await engine.restore()
            assert double.loaded == double.config

    async def test_grpc_that_does_not_answer_is_told(self) -> None:
        double = TritonDouble(silent=True)
        async with serving(*double.routes()) as http:
            async with double.over_grpc() as address:
                engine = Triton(http, "text", grpc=address, load_timeout_seconds=0.1)
                with pytest.raises(EngineError, match=r"no answer within 0\.1 s"):
                    await engine.write(32)
            with pytest.raises(EngineError, match="cannot connect; is Triton's gRPC on"):
                await Triton(http, "text", grpc=address).write(32)

    @pytest.mark.parametrize("over_grpc", [False, True])
    async def test_only_explicit_model_control_takes_loads(self, over_grpc: bool) -> None:
        double = TritonDouble(explicit=False)
        async with serving(*double.routes()) as http, double.over_grpc() as address:
            with pytest.raises(EngineError, match="explicit model load"):
                await Triton(http, "text", grpc=address if over_grpc else "").write(32)

    def test_the_layout_on_the_wire_is_tritons(self) -> None:
        """grpc_service.proto of triton-inference-server/common, the fields that are written."""
        asked = triton_repository_pb2.RepositoryModelLoadRequest(model_name="m")
        asked.parameters["config"].string_param = "{}"
        value = b"\x0a\x06config\x12\x04\x1a\x02{}"
        assert asked.SerializeToString() == b"\x12\x01m\x1a" + bytes([len(value)]) + value
        service = triton_repository_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        assert service.full_name == "inference.GRPCInferenceService"

    def test_the_committed_stubs_are_the_generated_ones(self, tmp_path: Path) -> None:
        pytest.importorskip("grpc_tools")
        subprocess.run([sys.executable, ROOT / "proto" / "generate.py", tmp_path], check=True, cwd=tmp_path)
        for stub in ("triton_repository_pb2.py", "triton_repository_pb2.pyi"):
            assert (tmp_path / stub).read_bytes() == (ROOT / "scaler" / "consume" / stub).read_bytes(), stub

    @pytest.mark.parametrize(
        ("config", "said"),
        [
            ({"name": "text", "max_batch_size": 0, "dynamic_batching": {}}, "does not batch"),
            ({"name": "text", "max_batch_size": 8}, "no dynamic_batching"),
        ],
    )
    async def test_a_model_that_never_batches(self, config: dict[str, object], said: str) -> None:
        async with serving(*TritonDouble(config).routes()) as http:
            with pytest.raises(EngineError, match=said):
                await Triton(http, "text").read()

    @pytest.mark.parametrize("mark", ["{}", "not json", '{"max_batch_size": "64", "preferred": []}', "[]"])
    async def test_a_broken_mark_is_none(self, mark: str) -> None:
        double = TritonDouble()
        double.loaded["parameters"] = {MARK: {"string_value": mark}}
        async with serving(*double.routes()) as http:
            assert (await Triton(http, "text").read()).follows_own


class TestRayServe:
    async def test_one_value_is_changed_and_all_else_declared_again(self) -> None:
        double = RayServeDouble()
        before = json.loads(json.dumps(double.deployed))
        async with serving(*double.routes()) as http:
            engine = RayServe(http, "chat", "Model", own_batch=64)
            assert await engine.read() == EngineBatch(64, own=64, most=64)
            await engine.write(8)
            before["chat"]["deployments"][0]["user_config"]["max_batch_size"] = 8
            assert double.deployed == before
            assert double.target_capacity == 50.0
            assert double.puts[0]["http_options"] == {"host": "0.0.0.0", "port": 8000}

    async def test_while_it_is_given_out_nothing_is_told(self) -> None:
        double = RayServeDouble(settles_after=1)
        async with serving(*double.routes()) as http:
            engine = RayServe(http, "chat", "Model", own_batch=64)
            await engine.write(8)
            assert (await engine.read()).size is None
            assert (await engine.read()).size == 8
            await engine.restore()
            assert not (await engine.read()).follows_own
            assert (await engine.read()).follows_own

    async def test_nothing_is_written_into_somebodys_deployment(self) -> None:
        double = RayServeDouble(stuck="DEPLOYING")
        async with serving(*double.routes()) as http:
            with pytest.raises(EngineError, match="is DEPLOYING"):
                await RayServe(http, "chat", "Model", own_batch=64).write(8)
        assert not double.puts

    async def test_masked_secrets_are_never_written_back(self) -> None:
        double = RayServeDouble(masked=True)
        async with serving(*double.routes()) as http:
            with pytest.raises(EngineError, match="masks secrets"):
                await RayServe(http, "chat", "Model", own_batch=64).write(8)
        assert not double.puts

    async def test_a_dashboard_that_wants_a_token_gets_it(self) -> None:
        double = RayServeDouble(token="tide")
        async with serving(*double.routes()) as http:
            await RayServe(http, "chat", "Model", own_batch=64, api_key="tide").write(8)
            assert double.deployed["chat"]["deployments"][0]["user_config"]["max_batch_size"] == 8
            with pytest.raises(EngineError, match=r"HTTP 401 .*--engine-key-file"):
                await RayServe(http, "chat", "Model", own_batch=64).read()

    async def test_a_deployment_that_is_left_to_the_code_is_added(self) -> None:
        double = RayServeDouble()
        double.deployed["chat"]["deployments"] = [{"name": "Router"}]
        async with serving(*double.routes()) as http:
            await RayServe(http, "chat", "Model", own_batch=64).write(8)
        added = {"name": "Model", "user_config": {"max_batch_size": 8}}
        assert double.deployed["chat"]["deployments"] == [{"name": "Router"}, added]

    async def test_without_an_entry_the_code_rules(self) -> None:
        double = RayServeDouble()
        double.deployed["chat"]["deployments"][0]["user_config"] = None
        async with serving(*double.routes()) as http:
            assert await RayServe(http, "chat", "Model", own_batch=64).read() == EngineBatch(64, own=64, most=64)

    async def test_code_cannot_be_declared_again(self) -> None:
        double = RayServeDouble(by_code=("chat",))
        async with serving(*double.routes()) as http:
            with pytest.raises(EngineError, match="deployed by code"):
                await RayServe(http, "chat", "Model", own_batch=64).read()

    async def test_names_that_are_not_there_are_told_with_those_that_are(self) -> None:
        async with serving(*RayServeDouble().routes()) as http:
            with pytest.raises(EngineError, match="there are: chat, other"):
                await RayServe(http, "caht", "Model", own_batch=64).read()
            with pytest.raises(EngineError, match="its deployments: Model"):
                await RayServe(http, "chat", "Modell", own_batch=64).read()


class TestEnvoy:
    async def test_a_limit_of_requests_in_flight(self) -> None:
        double = EnvoyDouble()
        async with serving(*double.routes()) as http:
            engine = Envoy(http, "engine", own_batch=64)
            assert await engine.read() == EngineBatch(1024, most=64, running=3, waiting=0)
            await engine.write(8)
            assert await engine.read() == EngineBatch(8, most=64, follows_own=False, running=3, waiting=0)
            await engine.restore()
            assert await engine.read() == EngineBatch(1024, most=64, running=3, waiting=0)

    async def test_another_cluster(self) -> None:
        async with serving(*EnvoyDouble().routes()) as http:
            with pytest.raises(EngineError, match="it has: engine"):
                await Envoy(http, "tgi").read()


class TestAnswers:
    async def test_a_page_that_is_no_json(self) -> None:
        async with serving(web.get("/server_info", _saying_text("<html>"))) as http:
            with pytest.raises(EngineError, match="not JSON"):
                await SGLang(http).read()

    async def test_an_engine_that_does_not_answer_is_not_waited_for(self) -> None:
        async def never(_request: web.Request) -> web.Response:
            await asyncio.sleep(60)
            return web.Response()

        async with serving(web.get("/server_info", never), timeout_seconds=0.1) as http:
            with pytest.raises(EngineError, match=r"no answer within 0\.1 s"):
                await SGLang(http).read()

    async def test_nobody_listens(self) -> None:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(EngineError, match="GET /server_info: cannot connect"):
                await SGLang(EngineHttp(session, "http://127.0.0.1:1")).read()

    async def test_an_endless_answer_ends(self) -> None:
        async with serving(web.get("/server_info", _saying_text(" " * (LARGEST_BYTES + 1)))) as http:
            with pytest.raises(EngineError, match="longer than 8 MiB"):
                await SGLang(http).read()

    async def test_a_redirect_leads_nowhere(self) -> None:
        async def elsewhere(_request: web.Request) -> web.Response:
            raise web.HTTPFound("http://127.0.0.1:1/")

        async with serving(web.get("/server_info", elsewhere)) as http:
            with pytest.raises(EngineError, match="HTTP 302"):
                await SGLang(http).read()


def _saying(document: object):  # type: ignore[no-untyped-def]
    return _saying_text(json.dumps(document))


def _saying_text(text: str):  # type: ignore[no-untyped-def]
    async def say(_request: web.Request) -> web.Response:
        return web.Response(text=text)

    return say
