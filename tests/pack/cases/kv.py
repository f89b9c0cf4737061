"""The KV cache of engines that preallocate: room, preemptions, and both at once."""

from __future__ import annotations

from tests.pack.cases.case import (
    CHAT,
    OTHER_POD,
    Case,
    engine,
    fires,
    growing,
    own,
    silent,
    steady,
    then,
    vllm,
    with_gap,
    with_reset,
)

MODEL = {**CHAT, "model_name": "llama"}


def use(values: str, **more: object) -> dict[str, str]:
    """vLLM's KV-cache use."""
    return vllm("kv_cache_usage_perc", values, **more)  # type: ignore[arg-type]


def preempted(values: str, **more: object) -> dict[str, str]:
    """vLLM's count of preemptions."""
    return vllm("num_preemptions_total", values, **more)  # type: ignore[arg-type]


def cases() -> list[Case]:
    return [*_low(), *_preemptions(), *_exhausted()]


def _low() -> list[Case]:
    page = {**MODEL, "severity": "warning"}
    by_scaler = {**CHAT, "severity": "warning"}

    def case(name: str, raw: dict[str, str], *expected: object) -> Case:
        return Case("KvCacheHeadroomLow", name, raw, expected)  # type: ignore[arg-type]

    return [
        case("fires", use(steady(0.95, 30)), *fires(5, page)),
        case("0.92 is little room", use(steady(0.92, 30)), *fires(5, page)),
        case("0.88 is room", use(steady(0.88, 30)), *silent(5, 20)),
        case("0.9 is room", own("signal", steady(0.9, 30), signal="kv_use_ratio"), *silent(5, 20)),
        case("by its old name", vllm("gpu_cache_usage_perc", steady(0.95, 30)), *fires(5, page)),
        case(
            "by both names: the new one counts",
            use(steady(0.5, 30)) | vllm("gpu_cache_usage_perc", steady(0.95, 30)),
            *silent(5, 20),
        ),
        case("spelt with _", use(steady(0.95, 30), colon=False), *fires(5, page)),
        case("old name, spelt with _", vllm("gpu_cache_usage_perc", steady(0.95, 30), colon=False), *fires(5, page)),
        case("SGLang", engine("sglang:token_usage", steady(0.95, 30), model_name="llama"), *fires(5, page)),
        case(
            "SGLang, spelt with _", engine("sglang_token_usage", steady(0.95, 30), model_name="llama"), *fires(5, page)
        ),
        case("the fuller of two engines", use(steady(0.95, 30)) | use(steady(0.1, 30), pod=OTHER_POD), *fires(5, page)),
        case(
            "two half full ones are not a full one",
            use(steady(0.5, 30)) | use(steady(0.5, 30), engine="1"),
            *silent(5, 20),
        ),
        case("idle", use(steady(0, 30)), *silent(5, 20)),
        case("scaled to zero", {}, *silent(5, 20)),
        case(
            "the pod goes away: over after what was kept", use(then((0.95, 10), ("stale", 1))), (15, (page,)), (17, ())
        ),
        case(
            "one failed scrape changes nothing",
            use(then((0.95, 10), ("stale", 1), (0.95, 10))),
            *((m, (page,)) for m in (9, 10, 11, 12)),
        ),
        case("full for a moment only", use(then((0.5, 10), (0.95, 3), (0.5, 20))), *silent(12, 15, 18, 25)),
        case("as loadtide sees it", own("signal", steady(0.95, 30), signal="kv_use_ratio"), *fires(5, by_scaler)),
        case(
            "the engine goes before it",
            own("signal", steady(0.95, 30), signal="kv_use_ratio") | use(steady(0.2, 30)),
            *silent(5, 20),
        ),
    ]


def _preemptions() -> list[Case]:
    page = {**MODEL, "severity": "warning"}
    by_scaler = {**CHAT, "severity": "warning"}

    def case(name: str, raw: dict[str, str], *expected: object) -> Case:
        return Case("KvPreemptions", name, raw, expected)  # type: ignore[arg-type]

    # A rate over 5 minutes: of 12 a minute it is 0.2 a second, once the window is full.
    return [
        case("fires", preempted(growing(30)(120)), *fires(6, page)),
        case("6.6 a minute", preempted(growing(30)(6.6)), *fires(9, page)),
        case("5.4 a minute", preempted(growing(30)(5.4)), *silent(12, 25)),
        case(
            "exactly one in ten seconds", own("signal", steady(1.5, 30), signal="preemptions_recent"), *silent(12, 25)
        ),
        case(
            "two engines are added",
            preempted(growing(30)(4)) | preempted(growing(30)(4), pod=OTHER_POD),
            (8, ()),
            (9, (page,)),
        ),
        case("spelt with _", preempted(growing(30)(120), colon=False), *fires(6, page)),
        case(
            "both spellings are one",
            preempted(growing(30)(4)) | preempted(growing(30)(4), colon=False),
            *silent(12, 25),
        ),
        case(
            "SGLang calls them retractions",
            engine("sglang:num_retracted_requests_total", growing(30)(120), model_name="llama"),
            *fires(6, page),
        ),
        case("idle", preempted(steady(900, 30)), *silent(6, 25)),
        case("scaled to zero", {}, *silent(6, 25)),
        case(
            "one failed scrape changes nothing", preempted(with_gap(10, 10)(120)), *((m, (page,)) for m in (10, 11, 12))
        ),
        case(
            "a restart of the engine changes nothing",
            preempted(with_reset(10, 10)(120)),
            *((m, (page,)) for m in (11, 12, 15)),
        ),
        case("a restart is no preemption", preempted("1000x10 0x20"), *silent(11, 15, 20)),
        case("over after what was kept", preempted("0+120x10 1200x20"), (18, (page,)), (20, ())),
        case("as loadtide sees it", own("signal", steady(3, 30), signal="preemptions_recent"), *fires(5, by_scaler)),
        case(
            "1.65 in 15 seconds are more than one in ten",
            own("signal", steady(1.65, 30), signal="preemptions_recent"),
            *fires(5, by_scaler),
        ),
        case("1.35 are not", own("signal", steady(1.35, 30), signal="preemptions_recent"), *silent(5, 20)),
    ]


def _exhausted() -> list[Case]:
    page = {**MODEL, "severity": "critical"}
    by_scaler = {**CHAT, "severity": "critical"}

    def case(name: str, raw: dict[str, str], *expected: object) -> Case:
        return Case("KvExhausted", name, raw, expected)  # type: ignore[arg-type]

    busy = preempted(growing(30)(1))
    full = {"kv_use_ratio": 0.99, "preemptions_recent": 1}
    return [
        case("fires", use(steady(0.99, 30)) | busy, *fires(6, page)),
        case("0.97 is not full", use(steady(0.97, 30)) | busy, *silent(6, 25)),
        case("full, and nobody is preempted", use(steady(0.99, 30)) | preempted(steady(7, 30)), *silent(6, 25)),
        case("full, and preemptions are not counted", use(steady(0.99, 30)), *silent(6, 25)),
        case("preempted, with room", use(steady(0.5, 30)) | busy, *silent(6, 25)),
        case(
            "spelt with _", use(steady(0.99, 30), colon=False) | preempted(growing(30)(1), colon=False), *fires(6, page)
        ),
        case(
            "SGLang",
            engine("sglang:token_usage", steady(0.99, 30), model_name="llama")
            | engine("sglang:num_retracted_requests_total", growing(30)(1), model_name="llama"),
            *fires(6, page),
        ),
        case("idle", use(steady(0, 30)) | preempted(steady(7, 30)), *silent(6, 25)),
        case("scaled to zero", {}, *silent(6, 25)),
        case(
            "one failed scrape changes nothing",
            use(then((0.99, 10), ("stale", 1), (0.99, 10))) | preempted(with_gap(9, 10)(1)),
            *((m, (page,)) for m in (10, 11, 12)),
        ),
        case(
            "a restart of the engine changes nothing",
            use(steady(0.99, 30)) | preempted(with_reset(10, 19)(1)),
            *((m, (page,)) for m in (11, 12, 15)),
        ),
        case("over after what was kept", use(then((0.99, 10), (0.2, 20))) | busy, (14, (page,)), (15, ())),
        case(
            "as loadtide sees it",
            {k: v for n, x in full.items() for k, v in own("signal", steady(x, 30), signal=n).items()},
            *fires(5, by_scaler),
        ),
        case(
            "exactly 98 %",
            own("signal", steady(0.98, 30), signal="kv_use_ratio")
            | own("signal", steady(1, 30), signal="preemptions_recent"),
            *silent(5, 20),
        ),
    ]
