"""Sources that Prometheus should have and has not: kube-state-metrics, engines."""

from __future__ import annotations

from tests.pack.cases.case import CHAT, OTHER_POD, Case, engine, fires, own, series, silent, steady, then, vllm


def cases() -> list[Case]:
    return [*_kube(), *_engines()]


def _kube() -> list[Case]:
    page = {"namespace": "loadtide", "severity": "info"}

    def case(name: str, raw: dict[str, str], *expected: object) -> Case:
        return Case("KubeStateMetricsMissing", name, raw, expected)  # type: ignore[arg-type]

    pod = {"namespace": "chat", "pod": "m-6d5f7c9b8d-x2x4z"}
    return [
        case("fires", {}, *fires(15, page)),
        case("it is there", series("kube_pod_info", steady(1, 30), **pod), *silent(15, 25)),
        case(
            "idle, all workloads at zero: nothing but its own pod",
            series("kube_pod_info", steady(1, 30), namespace="kube-system", pod="x"),
            *silent(15, 25),
        ),
        case("it goes away", series("kube_pod_info", then((1, 10), ("stale", 1)), **pod), (25, ()), (26, (page,))),
        case(
            "every third is a failed scrape",
            series("kube_pod_info", " ".join(["1 1 stale"] * 12), **pod),
            *silent(15, 25, 32),
        ),
    ]


def _engines() -> list[Case]:
    found: list[Case] = []
    for name, counter, labels in (
        ("vllm", "vllm:request_success_total", {"model_name": "llama"}),
        ("sglang", "sglang:num_requests_total", {"model_name": "llama"}),
        ("tgi", "tgi_request_success", {}),
        ("triton", "nv_inference_request_success", {"model": "resnet"}),
    ):
        page = {**CHAT, "severity": "info", "engine": name}
        told = own("engine_info", steady(1, 60), engine=name, preallocates_gpu_memory="true")
        ready = told | own("ready_replicas", steady(1, 60))

        def case(what: str, raw: dict[str, str], *expected: object, name: str = name) -> Case:
            return Case("EngineMetricsMissing", f"{name}: {what}", raw, expected)  # type: ignore[arg-type]

        found += [
            case("fires", ready, *fires(15, page)),
            case("its counters are there", ready | engine(counter, steady(9, 60), **labels), *silent(15, 25)),
            case(
                "another workload's are",
                ready | engine(counter, steady(9, 60), pod="other-0", **labels),
                *fires(15, page),
            ),
            case("none is ready", told | own("ready_replicas", steady(0, 60)), *silent(15, 25)),
            case("scaled to zero", told, *silent(15, 25)),
            case(
                "they go away", ready | engine(counter, then((9, 10), ("stale", 1)), **labels), (27, ()), (30, (page,))
            ),
            case(
                "under a workload label of the scrape configuration",
                ready | engine(counter, steady(9, 60), pod="x", workload="m", **labels),
                *silent(15, 25),
            ),
            case(
                "one failed scrape of loadtide changes nothing",
                {key: then((1, 10), ("stale", 1), (1, 30)) for key in ready},
                *fires(15, page),
            ),
        ]
    gauge = own("engine_info", steady(1, 60), engine="tgi", preallocates_gpu_memory="true") | own(
        "ready_replicas", steady(1, 60)
    )
    found += [
        Case(
            "EngineMetricsMissing",
            "tgi: idle since its start, only a gauge",
            gauge | engine("tgi_queue_size", steady(0, 60)),
            silent(15, 25),
        ),
        Case(
            "EngineMetricsMissing",
            "tgi: idle since its start, only the other gauge",
            gauge | engine("tgi_batch_current_size", steady(0, 60)),
            silent(15, 25),
        ),
        Case(
            "EngineMetricsMissing",
            "vllm: spelt with _",
            own("engine_info", steady(1, 60), engine="vllm", preallocates_gpu_memory="true")
            | own("ready_replicas", steady(1, 60))
            | vllm("num_requests_running", steady(0, 60), OTHER_POD, colon=False),
            silent(15, 25),
        ),
    ]
    return found
