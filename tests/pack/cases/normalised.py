"""The normalising layer by itself: one workload, one pod, one number, however the series came."""

from __future__ import annotations

from scaler.pack.series import DESIRED, KV_USE, REQUESTS, RUNNING, WAITING
from tests.pack.cases.case import OTHER_POD, POD, Case, engine, own, series, steady, vllm
from tests.pack.cases.vram import memory

NAME = "Normalising"
AT = {"namespace": "chat", "workload": "m", "pod": POD, "engine": "vllm"}


def cases() -> list[Case]:
    def running(name: str, raw: dict[str, str], value: float, **labels: str) -> Case:
        found = {**AT, "__name__": RUNNING, "value": f"{value:g}", **labels}
        return Case(NAME, name, raw, [(5, (found,))], query=RUNNING)

    gauge = "num_requests_running"
    recorded = '{__name__=~".+:.+:.+"}'
    both = vllm(gauge, steady(4, 9)) | vllm(gauge, steady(4, 9), colon=False)
    return [
        running("as vLLM writes it", vllm(gauge, steady(4, 9)), 4),
        running("as a collector writes it", vllm(gauge, steady(4, 9), colon=False), 4),
        running("both at once", both, 4),
        running(
            "both at once, on two ways to Prometheus",
            vllm(gauge, steady(4, 9)) | vllm(gauge, steady(4, 9), colon=False, instance="collector:9464", job="otel"),
            4,
        ),
        running("scraped twice", vllm(gauge, steady(4, 9)) | vllm(gauge, steady(4, 9), job="again"), 4),
        running("four ranks", {k: v for rank in "0123" for k, v in vllm(gauge, steady(4, 9), tp_rank=rank).items()}, 4),
        running("two data-parallel engines", vllm(gauge, steady(4, 9)) | vllm(gauge, steady(3, 9), engine="1"), 7),
        running("two models, one pod", vllm(gauge, steady(4, 9)) | vllm(gauge, steady(3, 9), model_name="other"), 7),
        running(
            "the pod under the scraper's labels",
            vllm(gauge, steady(4, 9), namespace="ops", pod="x", exported_namespace="chat", exported_pod=POD),
            4,
        ),
        running("a StatefulSet's pod", vllm(gauge, steady(4, 9), pod="m-0"), 4, pod="m-0"),
        running(
            "a name with numbers",
            vllm(gauge, steady(4, 9), pod="llama-7b-12"),
            4,
            pod="llama-7b-12",
            workload="llama-7b",
        ),
        running(
            "a name that looks like a hash",
            vllm(gauge, steady(4, 9), pod="llm-bcdfg-6d5f7c9b8d-x2x4z"),
            4,
            pod="llm-bcdfg-6d5f7c9b8d-x2x4z",
            workload="llm-bcdfg",
        ),
        running(
            "a workload label of the scrape configuration", vllm(gauge, steady(4, 9), pod="x", workload="m"), 4, pod="x"
        ),
        running(
            "no pod: the address, and no workload",
            series(f"vllm:{gauge}", steady(4, 9), namespace="chat", instance="10.0.0.7:8000"),
            4,
            pod="10.0.0.7:8000",
            workload="",
        ),
        Case(
            NAME,
            "what vLLM 0.7 swapped waits too",
            vllm("num_requests_waiting", steady(4, 9)) | vllm("num_requests_swapped", steady(2, 9)),
            [(5, ({**AT, "__name__": WAITING, "value": "6"},))],
            query=WAITING,
        ),
        Case(
            NAME,
            "SGLang's total, without its breakdown by priority",
            engine("sglang:num_running_reqs", steady(4, 9), model_name="llama", priority="")
            | engine("sglang:num_running_reqs", steady(3, 9), model_name="llama", priority="1"),
            [(5, ({**AT, "engine": "sglang", "__name__": RUNNING, "value": "4"},))],
            query=RUNNING,
        ),
        Case(
            NAME,
            "two pods stay two",
            vllm(gauge, steady(4, 9)) | vllm(gauge, steady(3, 9), OTHER_POD),
            [
                (
                    5,
                    (
                        {**AT, "__name__": RUNNING, "value": "4"},
                        {**AT, "pod": OTHER_POD, "__name__": RUNNING, "value": "3"},
                    ),
                )
            ],
            query=RUNNING,
        ),
        Case(
            NAME,
            "requests of Triton: successes and failures, model as model_name",
            engine("nv_inference_request_success", "0+54x9", model="resnet", version="1")
            | engine("nv_inference_request_failure", "0+6x9", model="resnet", version="1", reason="OTHER"),
            [
                (
                    6,
                    (
                        {
                            "namespace": "chat",
                            "workload": "m",
                            "engine": "triton",
                            "model_name": "resnet",
                            "__name__": REQUESTS,
                            "value": "1",
                        },
                    ),
                )
            ],
            query=REQUESTS,
        ),
        Case(
            NAME,
            "KV-cache use: the greatest, never a sum",
            vllm("kv_cache_usage_perc", steady(0.5, 9)) | vllm("kv_cache_usage_perc", steady(0.25, 9), engine="1"),
            [
                (
                    5,
                    (
                        {
                            "namespace": "chat",
                            "workload": "m",
                            "engine": "vllm",
                            "model_name": "llama",
                            "__name__": KV_USE,
                            "value": "0.5",
                        },
                    ),
                )
            ],
            query=KV_USE,
        ),
        Case(
            NAME,
            "what two scalers tell is one",
            own("desired_replicas", steady(3, 9)) | own("desired_replicas", steady(3, 9), instance="10.0.0.10:8080"),
            [(5, ({"namespace": "chat", "workload": "m", "__name__": DESIRED, "value": "3"},))],
            query=DESIRED,
        ),
        Case(
            NAME,
            "nothing is recorded of nothing: no NaN",
            memory(0, 0)
            | vllm("time_to_first_token_seconds_bucket", steady(0, 9), le="+Inf")
            | vllm("time_to_first_token_seconds_bucket", steady(0, 9), le="1")
            | vllm("num_requests_running", steady(0, 9)),
            # Only NaN is not equal to itself, and it makes a sum of anything NaN.
            [(5, ({"value": "1"},))],
            query=f"sum({recorded}) == bool sum({recorded})",
        ),
    ]
