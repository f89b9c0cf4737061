"""Replicas with work and no progress."""

from __future__ import annotations

from tests.pack.cases.case import (
    CHAT,
    OTHER_POD,
    POD,
    Case,
    Labels,
    engine,
    fires,
    own,
    silent,
    steady,
    then,
    vllm,
)

ONE = {**CHAT, "pod": POD, "severity": "warning"}
OTHER = {**CHAT, "pod": OTHER_POD, "severity": "warning"}
ALL = {**CHAT, "severity": "critical"}
BY_SCALER = {**CHAT, "severity": "warning"}


def replica(running: str, waiting: str, tokens: str, pod: str = POD, colon: bool = True) -> dict[str, str]:
    """A vLLM whose tokens are all it makes."""
    return (
        vllm("num_requests_running", running, pod, colon)
        | vllm("num_requests_waiting", waiting, pod, colon)
        | vllm("generation_tokens_total", tokens, pod, colon)
        | vllm("prompt_tokens_total", steady(900, 60), pod, colon)
    )


def cases() -> list[Case]:
    found: list[Case] = []
    hung = replica(steady(106, 60), steady(15, 60), steady(5000, 60))
    works = replica(steady(4, 60), steady(0, 60), "0+900x60", OTHER_POD)
    # Progress is known from the second read on, at minute 1.
    for alert, page in (("ReplicaStalled", ONE), ("WorkloadStalled", ALL)):

        def case(
            name: str,
            series: dict[str, str],
            *expected: tuple[int, tuple[Labels, ...]],
            alert: str = alert,
            step: float = 1,
        ) -> Case:
            return Case(alert, name, series, expected, step=step)

        found += [
            case("fires", hung, *fires(2, page)),
            case(
                "frozen gauges while tokens move",
                replica(steady(106, 60), steady(15, 60), "0+1x60"),
                *silent(2, 10, 30),
            ),
            case(
                "waiting and nothing running",
                replica(steady(0, 60), steady(6, 60), steady(0, 60)),
                *fires(2, page),
            ),
            case("idle", replica(steady(0, 60), steady(0, 60), steady(5000, 60)), *silent(2, 10, 30)),
            case("scaled to zero", {}, *silent(2, 10)),
            case(
                "the pod goes away",
                {key: then((value.split("x")[0], 15), ("stale", 1)) for key, value in hung.items()},
                (15, (page,)),
                (19, ()),
            ),
            case(
                "one failed scrape changes nothing",
                {
                    key: then((value.split("x")[0], 10), ("stale", 1), (value.split("x")[0], 10))
                    for key, value in hung.items()
                },
                *((minute, (page,)) for minute in (9, 10, 11, 12, 13, 14)),
            ),
            case(
                "failing every third scrape",
                {
                    key: " ".join([value.split("x")[0], value.split("x")[0], "stale"] * 14)
                    for key, value in hung.items()
                },
                *((minute, (page,)) for minute in range(4, 20)),
                step=0.5,
            ),
            case(
                "it computes again: over once what was kept is past",
                replica(steady(106, 30), steady(15, 30), "5000x10 5900+900x19"),
                (10, (page,)),
                (12, (page,)),
                (13, ()),
            ),
            case(
                "a restart of the engine is no progress of a stalled one, and 0 tokens of a new one are none either",
                replica(steady(106, 30), steady(15, 30), then((5000, 10), (0, 20))),
                (10, (page,)),
                (20, (page,)),
            ),
            case("spelt with _", replica(steady(4, 30), steady(1, 30), steady(7, 30), colon=False), *fires(2, page)),
            case(
                "SGLang's tokens of every step are progress",
                engine("sglang:num_running_reqs", steady(4, 30), model_name="llama")
                | engine("sglang:num_queue_reqs", steady(0, 30), model_name="llama")
                | engine("sglang:num_requests_total", steady(9, 30), model_name="llama")
                | engine("sglang:realtime_tokens_total", "0+50x30", model_name="llama", mode="decode"),
                *silent(2, 10, 20),
            ),
            case(
                "SGLang that hangs, spelt with _",
                engine("sglang_num_running_reqs", steady(4, 30), model_name="llama")
                | engine("sglang_num_requests_total", steady(9, 30), model_name="llama"),
                *fires(2, page),
            ),
            case(
                "TGI: every forward pass is progress",
                engine("tgi_batch_current_size", steady(4, 30))
                | engine("tgi_request_generated_tokens_sum", steady(40, 30))
                | engine("tgi_batch_inference_success", "0+9x30", method="decode"),
                *silent(2, 10, 20),
            ),
            case(
                "TGI that hangs",
                engine("tgi_batch_current_size", steady(4, 30))
                | engine("tgi_batch_inference_success", steady(9, 30), method="decode"),
                *fires(2, page),
            ),
            case(
                "Triton: requests pend and none ends",
                engine("nv_inference_pending_request_count", steady(4, 30), model="resnet", version="1")
                | engine("nv_inference_request_success", steady(9, 30), model="resnet", version="1"),
                *fires(2, page),
            ),
            case("no counter was read twice: nothing is said", vllm("num_requests_running", steady(4, 30)), *silent(9)),
        ]
    found += [
        Case("ReplicaStalled", "one of two", hung | works, fires(2, ONE)),
        Case("WorkloadStalled", "one of two", hung | works, silent(2, 10, 30)),
        Case(
            "ReplicaStalled",
            "an idle replica beside it has no work",
            hung | replica(steady(0, 60), steady(0, 60), steady(5, 60), OTHER_POD),
            fires(2, ONE),
        ),
        Case(
            "WorkloadStalled",
            "an idle replica beside it can take requests",
            hung | replica(steady(0, 60), steady(0, 60), steady(5, 60), OTHER_POD),
            silent(2, 10),
        ),
        Case(
            "ReplicaStalled",
            "two of two",
            hung | replica(steady(1, 60), steady(0, 60), steady(5, 60), OTHER_POD),
            fires(2, ONE, OTHER),
        ),
        # What loadtide says of replicas that Prometheus does not scrape.
        Case(
            "ReplicaStalled",
            "as loadtide sees it",
            own("signal", steady(1, 30), signal="stalled_replicas"),
            fires(1, BY_SCALER),
        ),
        Case(
            "ReplicaStalled",
            "none, as loadtide sees it",
            own("signal", steady(0, 30), signal="stalled_replicas"),
            silent(1, 20),
        ),
        Case(
            "WorkloadStalled",
            "as loadtide sees it: none of the others is ready",
            own("signal", steady(2, 30), signal="stalled_replicas") | own("ready_replicas", steady(0, 30)),
            fires(1, ALL),
        ),
        Case(
            "WorkloadStalled",
            "as loadtide sees it: the only one",
            own("signal", steady(1, 30), signal="stalled_replicas") | own("ready_replicas", steady(0, 30)),
            fires(1, ALL),
        ),
        Case(
            "WorkloadStalled",
            "as loadtide sees it, one serves",
            own("signal", steady(2, 30), signal="stalled_replicas") | own("ready_replicas", steady(1, 30)),
            silent(1, 20),
        ),
        Case(
            "WorkloadStalled",
            "none ready and none stalled",
            own("signal", steady(0, 30), signal="stalled_replicas") | own("ready_replicas", steady(0, 30)),
            silent(1, 20),
        ),
    ]
    return found
