"""Demand from gateways' own metrics: what is read, what counts, and what an unreadable gateway means.

The pages here are written by hand after each gateway's own source and docs (the presets name them); that in
``bodies/gateways`` was recorded from a LiteLLM at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scaler.policy.model import Gateway, Policy
from scaler.signals.exposition import ExpositionError
from scaler.signals.family import PresetError
from scaler.signals.gateway import (
    GatewayHistory,
    GatewaySample,
    fold_gateways,
    merge_demand,
    read_gateway,
    read_page,
)
from scaler.signals.gateway_preset import known_gateways, load_gateway_preset, read_gateway_preset
from scaler.signals.model import Known, NotApplicable, Unknown
from scaler.signals.observation import Demand, ReadFailure
from scaler.signals.scrape import scrape_gateways
from tests.signals.test_scrape import answer, raw_server, saying, serving
from tests.signals.timeline import Timeline, down, pod

GATEWAYS = Path(__file__).parents[2] / "scaler" / "signals" / "gateways"
RECORDED = Path(__file__).parent / "bodies" / "gateways"

PAGES = {
    "envoy": """\
envoy_cluster_upstream_rq_pending_active{envoy_cluster_name="chat"} 2
envoy_cluster_upstream_rq_pending_active{envoy_cluster_name="other"} 90
envoy_cluster_upstream_cx_none_healthy{envoy_cluster_name="chat"} 5
envoy_cluster_upstream_rq_pending_overflow{envoy_cluster_name="chat"} 3
envoy_cluster_upstream_rq_pending_failure_eject{envoy_cluster_name="chat"} 1
envoy_cluster_upstream_rq_total{envoy_cluster_name="chat"} 1000
""",
    "envoy-door": """\
envoy_http_downstream_rq_active{envoy_http_conn_manager_prefix="admin"} 1
envoy_http_downstream_rq_active{envoy_http_conn_manager_prefix="chat"} 20
envoy_http_downstream_rq_active{envoy_http_conn_manager_prefix="other"} 90
envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix="admin"} 700
envoy_http_downstream_rq_total{envoy_http_conn_manager_prefix="chat"} 24
envoy_cluster_upstream_rq_pending_failure_eject{envoy_cluster_name="chat"} 160
""",
    "istio": """\
istio_requests_total{reporter="source",destination_service_name="chat",response_code="503",response_flags="UH"} 5
istio_requests_total{reporter="source",destination_service_name="chat",response_code="503",response_flags="UF,URX"} 4
istio_requests_total{reporter="source",destination_service_name="chat",response_code="200",response_flags="-"} 900
istio_requests_total{reporter="destination",destination_service_name="chat",response_code="503",response_flags="UF"} 40
istio_requests_total{reporter="source",destination_service_name="other",response_code="503",response_flags="UH"} 70
""",
    "ingress-nginx": """\
nginx_ingress_controller_requests{namespace="ai",ingress="chat",service="chat",method="POST",status="503"} 8
nginx_ingress_controller_requests{namespace="ai",ingress="chat",service="chat",method="HEAD",status="503"} 70
nginx_ingress_controller_requests{namespace="ai",ingress="chat",service="chat",method="OPTIONS",status="503"} 9
nginx_ingress_controller_requests{namespace="ai",ingress="chat",service="chat",method="POST",status="200"} 900
nginx_ingress_controller_requests{namespace="web",ingress="chat",service="chat",method="POST",status="503"} 60
""",
    "keda-http": """\
interceptor_request_concurrency{route_name="chat",route_namespace="ai"} 3
interceptor_request_count_total{code="504",method="POST",route_name="chat",route_namespace="ai"} 6
interceptor_request_count_total{code="200",method="POST",route_name="chat",route_namespace="ai"} 600
""",
    "vllm-router": """\
vllm:num_incoming_requests_total{model="chat"} 40
vllm:num_incoming_requests_total{model="other"} 900
vllm:num_requests_waiting{server="http://a:8000"} 17
""",
    "llm-d": """\
inference_extension_flow_control_queue_size{fairness_id="a",inference_pool="p",model_name="chat",priority="0"} 2
llm_d_epp_flow_control_queue_size{fairness_id="a",inference_pool="p",model_name="chat",priority="0"} 2
llm_d_epp_flow_control_queue_size{fairness_id="b",inference_pool="p",model_name="chat",priority="0"} 1
llm_d_epp_request_error_total{error_code="ServiceUnavailable",model_name="chat"} 7
inference_objective_request_error_total{error_code="ServiceUnavailable",model_name="chat"} 7
llm_d_epp_request_error_total{error_code="BadRequest",model_name="chat"} 50
""",
    "litellm": """\
litellm_proxy_failed_requests_metric_total{requested_model="chat",api_key_alias="a",exception_status="503"} 4
litellm_proxy_failed_requests_metric_total{requested_model="chat",api_key_alias="health",exception_status="503"} 90
litellm_proxy_failed_requests_metric_total{requested_model="chat",api_key_alias="a",exception_status="401"} 70
litellm_in_flight_requests 12
""",
}
MATCH = {
    "envoy": {"envoy_cluster_name": "chat"},
    "envoy-door": {"envoy_http_conn_manager_prefix": "chat"},
    "istio": {"destination_service_name": "chat"},
    "ingress-nginx": {"namespace": "ai", "ingress": "chat"},
    "keda-http": {"route_name": "chat", "route_namespace": "ai"},
    "vllm-router": {"model": "chat"},
    "llm-d": {"model_name": "chat"},
    "litellm": {"requested_model": "chat"},
}
#: What each page says of the workload: (pending, refused in all, arrivals in all).
SAID = {
    "envoy": (2.0, 9.0, None),
    "envoy-door": (20.0, 0.0, 24.0),
    "istio": (0.0, 9.0, None),
    "ingress-nginx": (0.0, 8.0, None),
    "keda-http": (3.0, 6.0, None),
    "vllm-router": (0.0, 0.0, 40.0),
    "llm-d": (3.0, 7.0, None),
    "litellm": (0.0, 4.0, None),
}


def read(
    preset: str, body: str, match: Mapping[str, str] | None = None, at: float = 0.0, **exclude: str
) -> GatewaySample:
    gateway = load_gateway_preset(preset)
    return read_gateway(read_page(body, gateway, at, 0.1), gateway, match or {}, exclude)


@pytest.mark.parametrize("preset", sorted(PAGES))
def test_a_gateways_page_says_what_waits_and_what_was_refused(preset: str) -> None:
    sample = read(preset, PAGES[preset], MATCH[preset], api_key_alias="health|probe")
    arrivals = None if sample.arrivals is None else sum(sample.arrivals.values())
    assert (sample.pending, sum(sample.refused.values()), arrivals) == SAID[preset]
    assert sample.in_flight == (preset in ("keda-http", "envoy-door"))
    assert not sample.warnings


def test_a_real_litellm_refuses_for_want_of_replicas_also_while_they_are_in_cooldown() -> None:
    """Nobody listened: two requests could not connect (500), four found both deployments set aside (429)."""
    sample = read("litellm", (RECORDED / "litellm-1.108.txt").read_text(), {"requested_model": "m-7b"})
    assert sum(sample.refused.values()) == 6.0
    assert not sample.warnings


@pytest.mark.parametrize(
    ("exception", "status", "refused"),
    [
        ("RouterRateLimitError", 429, 7.0),
        ("RouterRateLimitErrorBasic", 429, 7.0),
        ("Openai.RateLimitError", 429, 0.0),  # the engine is there, and says enough
        ("Openai.APIConnectionError", 500, 7.0),
        ("ProxyModelNotFoundError", 400, 0.0),
    ],
)
def test_of_litellms_failures_those_count_that_more_replicas_would_cure(
    exception: str, status: int, refused: float
) -> None:
    labels = f'requested_model="chat",exception_class="{exception}",exception_status="{status}"'
    sample = read("litellm", f"litellm_proxy_failed_requests_metric_total{{{labels}}} 7\n", MATCH["litellm"])
    assert sum(sample.refused.values()) == refused


def test_every_shipped_gateway_has_its_page_here() -> None:
    assert set(known_gateways()) == set(PAGES)


# Which series are the workload's


def test_a_series_without_a_label_of_the_match_is_not_the_workloads() -> None:
    assert read("envoy", "envoy_cluster_upstream_rq_pending_active 7\n", MATCH["envoy"]).pending == 0.0
    assert read("envoy", "envoy_cluster_upstream_rq_pending_active 7\n").pending == 7.0


@pytest.mark.parametrize("name", ["/data/models/gemma (v2)", "org/m+x", 'a"b', "back\\slash", "a|b"])
def test_a_match_is_exact_whatever_its_value_holds(name: str) -> None:
    label = name.replace("\\", "\\\\").replace('"', '\\"')
    body = f'vllm:num_incoming_requests_total{{model="{label}"}} 3\n' + PAGES["vllm-router"]
    assert list((read("vllm-router", body, {"model": name}).arrivals or {}).values()) == [3.0]


def test_a_match_without_any_series_is_zero_and_says_what_there_is() -> None:
    sample = read("envoy", PAGES["envoy"], {"envoy_cluster_name": "caht"})
    assert (sample.pending, sample.refused) == (0.0, {})
    (warning,) = sample.warnings
    assert 'no series of envoy_cluster_name="caht" yet' in warning
    assert "envoy_cluster_name: chat, other" in warning


def test_a_match_by_a_label_no_series_has_names_the_usual_ones() -> None:
    (warning,) = read("istio", PAGES["istio"], {"model": "chat"}).warnings
    assert "usual labels: destination_service_name, destination_service_namespace" in warning


def test_a_nan_costs_its_own_series_and_is_said() -> None:
    body = PAGES["envoy"].replace(
        'none_healthy{envoy_cluster_name="chat"} 5', 'none_healthy{envoy_cluster_name="chat"} NaN'
    )
    sample = read("envoy", body, MATCH["envoy"])
    assert sum(sample.refused.values()) == 4.0
    assert "is nan" in sample.warnings[0]


BROKEN = 'interceptor_request_concurrency{route_namespace="ai",route_name="chat} 3\n'


@pytest.mark.parametrize(
    "page",
    [
        'interceptor_request_concurrency{route_name="chat"} NaN\n',
        'interceptor_request_concurrency{route_name="chat"} -1\n',
        'interceptor_request_concurrency{route_name="chat"} +Inf\n',
        'interceptor_request_concurrency{route_name="chat"} 1.76e9\n',
        'interceptor_request_count_total{code="503",route_name="chat"} 1e300\n',
        'interceptor_request_count_total{code="503",route_name="chat"} NaN\n',
        f"{BROKEN}process_cpu_seconds_total 12\n",
    ],
)
def test_what_a_gateway_says_and_cannot_be_used_proves_no_absence_of_demand(page: str) -> None:
    """At zero replicas nobody else would wake the workload: what is left out is not nothing (G3-08 d)."""
    match = {"route_name": "chat"}
    quiet = 'interceptor_request_concurrency{route_name="chat"} 0\n'
    first = read("keda-http", quiet, match)
    assert told({"g": first}) == Demand(0, 0.0, False)
    demand = told({"g": first}, {"g": read("keda-http", page, match, at=5.0)})
    assert demand is not None
    assert demand.pending is None
    assert "interceptor_request_co" in demand.reason
    held = told({"g": read("keda-http", page, match), "h": read("keda-http", quiet.replace(" 0", " 2"), match)})
    assert held is not None
    assert held.pending == 2.0


def test_another_workloads_broken_series_costs_this_one_nothing() -> None:
    for page in (BROKEN, BROKEN.replace('"chat}', '"chat"}').replace(" 3", " NaN")):
        body = f'interceptor_request_concurrency{{route_name="other"}} 0\n{page}'
        assert told({"g": read("keda-http", body, {"route_name": "other"})}) == Demand(
            0, 0.0, False, warnings=("unreadable lines of the gateway's metrics skipped: 1",) if page == BROKEN else ()
        )


def test_a_page_that_is_none_is_no_read() -> None:
    with pytest.raises(ExpositionError, match="HTML"):
        read("envoy", "<html>502</html>")


# What the reads come to


def told(*steps: dict[str, GatewaySample | ReadFailure]) -> Demand | None:
    history, demand = GatewayHistory(), None
    for reads in steps:
        history, demand = fold_gateways(history, reads)
    return demand


def refusing(at: float, pending: float = 0.0, **refused: float) -> GatewaySample:
    return GatewaySample(at=at, pending=pending, refused=refused)


def unreadable(at: float) -> ReadFailure:
    return ReadFailure(at, "connection refused")


def test_without_gateways_there_is_no_demand_to_know() -> None:
    assert told({}) is None


def test_what_waits_and_what_was_refused_since_the_last_read_is_demand_once() -> None:
    first, second, third = refusing(0, 1, a=100), refusing(5, 1, a=104), refusing(10, 1, a=104)
    assert told({"g": first}) == Demand(0, 1.0, False)  # what was refused before we looked says nothing of now
    assert told({"g": first}, {"g": second}) == Demand(5, 5.0, False)
    assert told({"g": first}, {"g": second}, {"g": third}) == Demand(10, 1.0, False)


def test_what_a_person_should_know_of_a_gateway_reaches_the_signals() -> None:
    sample = read("envoy", PAGES["envoy"], {"envoy_cluster_name": "caht"})
    demand = merge_demand(Demand(0, 0.0, False), told({"g": sample, "h": sample}))
    assert demand is not None
    signals = Timeline().at(0, demand=demand, a=pod(running=0))
    assert signals.warnings == sample.warnings


def test_the_first_refusal_ever_is_a_series_that_was_not_there() -> None:
    demand = told({"g": refusing(0)}, {"g": refusing(5, a=1)})
    assert demand is not None
    assert demand.pending == 1.0


def test_a_gateway_that_restarted_counts_from_zero() -> None:
    demand = told({"g": refusing(0, a=100)}, {"g": refusing(5, a=3)})
    assert demand is not None
    assert demand.pending == 3.0


def test_what_was_refused_while_a_gateway_could_not_be_read_counts_when_it_is_back() -> None:
    demand = told({"g": refusing(0, a=100)}, {"g": unreadable(5)}, {"g": refusing(10, a=102)})
    assert demand is not None
    assert demand.pending == 2.0


def test_an_unreadable_gateway_is_unknown_and_one_of_two_leaves_a_lower_bound() -> None:
    alone = told({"g": unreadable(5)})
    assert alone == Demand(5, None, False, reason="1 of 1 gateways could not be read; connection refused")
    busy = told({"g": unreadable(5), "h": refusing(5, 3)})
    quiet = told({"g": unreadable(5), "h": refusing(5, 0)})
    assert busy is not None
    assert quiet is not None
    assert (busy.pending, quiet.pending) == (3.0, None)


def test_gateways_add_up() -> None:
    demand = told(
        {"g": refusing(0, 2, a=1), "h": refusing(0, 3, a=7)}, {"g": refusing(5, 2, a=2), "h": refusing(5, 3, a=8)}
    )
    assert demand is not None
    assert demand.pending == 7.0


def test_arrivals_at_the_router_are_a_rate_from_the_second_read_on() -> None:
    def counted(at: float, total: float) -> GatewaySample:
        return GatewaySample(at=at, arrivals={"a": total})

    assert told({"g": counted(0, 900)}) == Demand(0, 0.0, False)
    assert told({"g": counted(0, 900)}, {"g": counted(5, 910)}) == Demand(5, 0.0, False, 2.0)
    assert told({"g": counted(0, 900)}, {"g": counted(5, 900)}) == Demand(5, 0.0, False, 0.0)


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 50)) | st.none(),
        min_size=2,
        max_size=12,
    )
)
def test_however_counters_reset_vanish_and_return_nothing_is_negative_or_counted_twice(
    totals: list[dict[str, int] | None],
) -> None:
    """Each series' own increases, resets counted from zero, bound what may be told; lost reads lose nothing."""
    history, seen, expected = GatewayHistory(), 0.0, 0.0
    last: dict[str, float] | None = None
    for step, total in enumerate(totals):
        reading = unreadable(step) if total is None else refusing(step, **{key: float(n) for key, n in total.items()})
        history, demand = fold_gateways(history, {"g": reading})
        assert demand is not None
        assert (demand.pending is None) == (total is None)
        seen += demand.pending or 0.0
        if total is not None:
            for key, value in total.items():
                if last is not None:
                    expected += value - last.get(key, 0.0) if value >= last.get(key, 0.0) else value
            last = {**(last or {}), **{key: float(value) for key, value in total.items()}}
    assert seen == pytest.approx(expected)


# With other sources of demand


def test_demands_of_several_sources_add_up() -> None:
    inbox = Demand(9, 2.0, True, arrivals_per_second=0.5)
    gateways = Demand(8, 3.0, False, arrivals_per_second=1.0, in_flight=3.0)
    assert merge_demand(None, None) is None
    assert merge_demand(inbox, None) is inbox
    assert merge_demand(inbox, gateways) == Demand(8, 5.0, True, 1.5, in_flight=3.0)
    lost = Demand(8, None, False, reason="1 of 1 gateways could not be read; HTTP 503")
    assert merge_demand(inbox, lost) == Demand(8, 2.0, True, 0.5, lost.reason)
    assert merge_demand(Demand(9, 0.0, False), lost) == Demand(8, None, False, reason=lost.reason)


def test_requests_that_a_replica_has_already_are_not_counted_again() -> None:
    inside = Demand(at=0, pending=5.0, wake_requested=False, in_flight=5.0)
    assert Timeline().at(0, demand=inside, a=pod(running=3, waiting=1)).pending == Known(1.0, 0)
    assert Timeline().at(0, demand=inside, a=pod(running=9, waiting=0)).pending == Known(0.0, 0)
    assert Timeline().at(0, demand=inside, a=down()).pending == Known(5.0, 0)
    queued = replace(inside, in_flight=0.0)
    assert Timeline().at(0, demand=queued, a=pod(running=3, waiting=1)).pending == Known(5.0, 0)


# Over the wire


async def test_gateways_are_scraped_together_each_within_its_limit() -> None:
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=PAGES["envoy"])

    async with (
        serving(metrics) as good,
        raw_server(saying(answer(b"gone", status="503 Service Unavailable"))) as bad,
        aiohttp.ClientSession() as session,
    ):
        config = Gateway(preset="envoy", urls=(good, bad), match=MATCH["envoy"])  # type: ignore[arg-type]
        reads = await scrape_gateways(session, config, load_gateway_preset("envoy"), mono=lambda: 7.0)
    assert isinstance(reads[good], GatewaySample)
    assert reads[bad] == ReadFailure(7.0, "HTTP 503", 0.0)
    demand = fold_gateways(GatewayHistory(), reads)[1]
    assert demand is not None
    assert demand.pending == 2.0


# Presets and policy


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "x"}, "write name: envoy"),
        ({"families": {}}, "neither in families nor in not_applicable: pending, refused"),
        ({"families": {}, "not_applicable": ["pending", "refused"]}, "could wake nobody"),
        ({"not_applicable": ["pending"]}, "both in families and in not_applicable: pending"),
        ({"not_applicable": ["waiting"]}, "no such family: waiting"),
        ({"surprise": 1}, "surprise: Extra inputs"),
    ],
)
def test_a_gateway_preset_that_cannot_be_meant_is_refused(change: dict[str, object], words: str) -> None:
    document = yaml.safe_load((GATEWAYS / "envoy.yaml").read_text()) | change
    with pytest.raises(PresetError, match=words):
        read_gateway_preset(yaml.safe_dump(document), "envoy")


def test_or_where_has_a_where_beside_it() -> None:
    document = yaml.safe_load((GATEWAYS / "litellm.yaml").read_text())
    del document["families"]["refused"]["where"]
    with pytest.raises(PresetError, match="or_where is beside where"):
        read_gateway_preset(yaml.safe_dump(document), "litellm")


def test_a_gateway_family_must_be_of_its_kind() -> None:
    document = yaml.safe_load((GATEWAYS / "envoy.yaml").read_text())
    document["families"]["pending"] = {"kind": "counter", "names": ["x"]}
    with pytest.raises(PresetError, match="pending must be a plain gauge"):
        read_gateway_preset(yaml.safe_dump(document), "envoy")


def test_an_unknown_gateway_lists_the_known_ones() -> None:
    with pytest.raises(PresetError, match="envoy, envoy-door, ingress-nginx, istio"):
        load_gateway_preset("../gateways/envoy")


def test_a_policy_with_a_gateway_can_wake() -> None:
    gateway = {"preset": "envoy", "urls": ["http://envoy:9901/stats/prometheus"], "match": {"model": "a|b"}}
    policy = Policy.model_validate({"gateway": gateway})
    assert policy.can_wake
    assert hash(policy) == hash(Policy.model_validate({"gateway": gateway}))
    assert not Policy().can_wake


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"urls": ["http://envoy:9901/"]}, "urls without preset"),
        ({"preset": "envoy", "urls": ["envoy:9901"]}, "is not a URL"),
        ({"preset": "envoy", "urls": ["http://a/", "http://a/"]}, "twice"),
        ({"preset": "Envoy!"}, "pattern"),
    ],
)
def test_a_gateway_that_cannot_be_meant_is_refused(body: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Policy.model_validate({"gateway": body})


# G2-03: at zero replicas the engine has no metrics


def at_zero(body: str | None, before: str | None = None) -> Timeline:
    """One tick at zero replicas: no endpoint to read, a router that says ``body`` (None: it cannot be read)."""
    line, history = Timeline(Policy(gateway=Gateway(preset="llm-d", urls=("http://router/metrics",)))), GatewayHistory()
    for seconds, page in ((0.0, before), (5.0, body)):
        reading = unreadable(seconds) if page is None else read("llm-d", page, {"model_name": "org/m-7b"}, at=seconds)
        history, demand = fold_gateways(history, {"http://router/metrics": reading})
        line.at(seconds, demand=demand)
    return line


ROUTER_UP = "process_cpu_seconds_total 12\n"
ONE_REFUSED = 'llm_d_epp_request_error_total{error_code="ServiceUnavailable",model_name="org/m-7b"} 10\n'


@pytest.mark.parametrize(
    ("body", "before", "pending"),
    [
        ('inference_extension_flow_control_queue_size{model_name="org/m-7b"} 3\n', ROUTER_UP, Known(3.0, 5.0)),
        (ROUTER_UP, ROUTER_UP, Known(0.0, 5.0)),
        (None, ROUTER_UP, Unknown("1 of 1 gateways could not be read; connection refused")),
        (ONE_REFUSED.replace("10", "14"), ONE_REFUSED, Known(4.0, 5.0)),
    ],
    ids=["main: 3 wait", "a: router up, series absent", "b: router down", "d: 4 refused since the last tick"],
)
def test_who_wakes_a_workload_at_zero(body: str | None, before: str, pending: object) -> None:
    signals = at_zero(body, before).judged(5.0)
    assert signals.pending == pending
    assert isinstance(signals.running, Unknown)  # which control takes as "nothing there", having asked for zero


def test_without_any_wake_source_there_is_no_demand_and_the_floor_is_one() -> None:
    signals = Timeline().at(0)  # c: nothing can wake it
    assert isinstance(signals.pending, NotApplicable)
    assert not Policy().can_wake


# G2-08: probes keep nobody awake


def test_probes_refused_at_the_gateway_are_no_demand() -> None:
    def minute(number: int, completions: int = 0) -> str:
        series = {
            'service="chat",method="OPTIONS"': number,
            'service="chat",method="HEAD"': 6 * number,
            'service="chat",method="POST"': completions,
        }
        return "".join(
            f'nginx_ingress_controller_requests{{{labels},status="503"}} {n}\n' for labels, n in series.items()
        )

    history = GatewayHistory()
    for number in range(6):
        reading = read("ingress-nginx", minute(number), {"service": "chat"}, at=60.0 * number)
        history, demand = fold_gateways(history, {"g": reading})
        assert demand is not None
        assert demand.pending == 0.0
    reading = read("ingress-nginx", minute(6, completions=1), {"service": "chat"}, at=360.0)
    demand = fold_gateways(history, {"g": reading})[1]
    assert demand is not None
    assert demand.pending == 1.0


def test_a_health_checkers_requests_are_left_out_by_label() -> None:
    sample = read("litellm", PAGES["litellm"], MATCH["litellm"], api_key_alias="health")
    assert sum(sample.refused.values()) == 4.0
    assert sum(read("litellm", PAGES["litellm"], MATCH["litellm"]).refused.values()) == 94.0
