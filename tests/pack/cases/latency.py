"""P95 against the objectives, from engines' histograms and from loadtide's own measurement."""

from __future__ import annotations

from tests.pack.cases.case import (
    CHAT,
    OTHER_POD,
    POD,
    At,
    Case,
    Labels,
    Pattern,
    ending,
    engine,
    fires,
    growing,
    histogram,
    objective,
    own,
    silent,
    steady,
    then,
    with_gap,
    with_reset,
)

TTFT = "time_to_first_token_seconds"
#: 20 requests a minute with a P95 of 9.75 s; of 4.75 s.
SLOW, QUICK = {"5": 0.0, "10": 20.0, "+Inf": 0.0}, {"2.5": 0.0, "5": 20.0, "+Inf": 0.0}
MODEL = {**CHAT, "model_name": "llama", "objective": "ttft"}


def own_p95(low: float | str, high: float | str, samples: float, minutes: int) -> dict[str, str]:
    """What loadtide measured of the TTFT itself."""
    told = {"signal": "ttft_seconds"}
    return (
        own("signal_latency_seconds", steady(low, minutes), quantile="0.95", bound="low", **told)
        | own("signal_latency_seconds", steady(high, minutes), quantile="0.95", bound="high", **told)
        | own("signal_latency_seconds", steady(99, minutes), quantile="0.99", bound="low", **told)
        | own("signal_latency_samples", steady(samples, minutes), **told)
    )


def slow(pattern: Pattern, **labels: str) -> dict[str, str]:
    return histogram(TTFT, SLOW, pattern, **labels)


def cases() -> list[Case]:
    return [
        *_compared("LatencyP95Critical", "critical", 2, 5),
        *_compared("LatencyP95High", "warning", 10, 10),
        *_infeasible(),
        *_beyond(),
    ]


def _infeasible() -> list[Case]:
    """A critical bound that no replica can keep is a warning: nobody who is woken can help. But several times what an
    empty replica takes is a queue or a fault, and pages; P95 is 9.75 s here.
    """
    page, ticket = ({**MODEL, "severity": severity} for severity in ("critical", "warning"))
    hold, keep = 2, 5

    def case(name: str, verdict: str, *expected: At, empty: str = "", critical: float = 5.0, **labels: str) -> Case:
        told = {"objective": "ttft", "bound": "critical", "verdict": "infeasible", **labels}
        found = own("objective_verdict", verdict, **told) | slow(growing(90))
        found |= own("empty_replica_seconds", empty or steady(9, 90), objective="ttft")
        return Case(
            "LatencyP95Critical", f"infeasible: {name}", objective(90, critical=critical, warning=1.0) | found, expected
        )

    always = steady(1, 90)
    return [
        case("a warning, and no page", always, *fires(1 + hold, ticket)),
        case("it is feasible", steady(0, 90), *fires(1 + hold, page)),
        case("only its warning bound is", always, *fires(1 + hold, page), bound="warning"),
        case("another objective is", always, *fires(1 + hold, page), objective="tpot"),
        case("another workload is", always, *fires(1 + hold, page), workload="other"),
        case(
            "known from then on: the page ends after what is kept",
            then((0, 30), (1, 60)),
            (29, (page,)),
            (33 + keep, (ticket,)),
        ),
        case(
            "faster engines since: the page comes, and what was a warning is kept",
            then((1, 30), (0, 60)),
            (29, (ticket,)),
            (34, (ticket, page)),
            (33 + keep, (page,)),
        ),
        case(
            "it outlives a scaler that is away, for a quarter of an hour", then((1, 20), ("stale", 1)), (34, (ticket,))
        ),
        case("3.9 times what an empty replica takes", always, *fires(1 + hold, ticket), empty=steady(2.5, 90)),
        case("4 times", always, *fires(1 + hold, ticket), empty=steady(2.4375, 90)),
        case("4.1 times: a queue on top of it pages", always, *fires(1 + hold, page), empty=steady(2.4, 90)),
        case("just kept for once", always, *silent(1 + hold, 30), critical=9.75),
        case("that is not known", always, *fires(1 + hold, ticket), empty=steady("_", 90)),
        case(
            "what an empty replica takes outlives a scaler that is away, as long as the bounds",
            always,
            *((at, (page,)) for at in (21, 34)),
            (35 + keep, (ticket,)),
            empty=then((2.4, 20), ("stale", 1)),
        ),
    ]


def _compared(alert: str, bound: str, hold: int, keep: int) -> list[Case]:
    """The same for either bound: 5 s is the one in question."""
    page = {**MODEL, "severity": bound}
    from_scaler = {key: value for key, value in page.items() if key != "model_name"}
    other_bound = {"critical": "warning", "warning": "critical"}[bound]
    beside = {"critical": 1.0, "warning": 20.0}[bound]

    def bounds(minutes: int, **labels: str) -> dict[str, str]:
        return objective(minutes, **{bound: 5.0, other_bound: beside}, **labels)

    def case(name: str, series: dict[str, str], *expected: list[At]) -> Case:
        return Case(alert, name, bounds(60) | series, [at for part in expected for at in part])

    end = 20
    sglang = {le: 20.0 if le != "5" else 0.0 for le in SLOW}
    # Increases are known from the second scrape on.
    first = 1 + hold
    return [
        case("fires", slow(growing(60)), fires(first, page)),
        case("quick enough", histogram(TTFT, QUICK, growing(60)), silent(first, 59)),
        case("idle: the counters stand still", slow(growing(0)) | slow(lambda _: steady(50, 60)), silent(30, 59)),
        case(
            "requests end: P95 is known while the window holds 20 of them, and then the alert is kept",
            slow(lambda each: f"0+{each:g}x{end} {each * end:g}x40"),
            # At end + 3 the window still holds a minute's 20 requests, at end + 5 none.
            [(end + 3 + keep, (page,)), (end + 5 + keep, ())],
        ),
        case(
            "scaled to zero",
            slow(ending(end)),
            [(end + 3 + keep, (page,)), (end + 10 + keep, ())],
        ),
        case("never had a replica", {}, silent(first, 59)),
        case("one failed scrape changes nothing", slow(with_gap(15, 40)), [(m, (page,)) for m in (14, 16, 17, 19, 30)]),
        case("a restart of the engine changes nothing", slow(with_reset(15, 40)), [(m, (page,)) for m in (14, 17, 30)]),
        case("spelt with _", slow(growing(60), colon=False), fires(first, page)),
        case(
            "both spellings are one: 2 requests a minute are 10 in the window, not 20",
            histogram(TTFT, {"5": 0.0, "10": 2.0, "+Inf": 0.0}, growing(60))
            | histogram(TTFT, {"5": 0.0, "10": 2.0, "+Inf": 0.0}, growing(60), colon=False),
            silent(30, 59),
        ),
        *(
            case(
                f"SGLang, spelt {prefix}",
                {
                    key: value
                    for le, each in sglang.items()
                    for key, value in engine(
                        f"{prefix}{TTFT}_bucket", growing(60)(each), model_name="llama", tp_rank="0", le=le
                    ).items()
                },
                fires(first, page),
            )
            for prefix in ("sglang:", "sglang_")
        ),
        case(
            "copies of tensor-parallel ranks are one, and data-parallel engines are added",
            histogram(TTFT, {"5": 0.0, "10": 2.0, "+Inf": 0.0}, growing(60), tp_rank="0")
            | histogram(TTFT, {"5": 0.0, "10": 2.0, "+Inf": 0.0}, growing(60), tp_rank="1"),
            silent(30, 59),
        ),
        case(
            "data-parallel engines and pods are added",
            histogram(TTFT, {"5": 0.0, "10": 2.0, "+Inf": 0.0}, growing(60))
            | histogram(TTFT, {"5": 0.0, "10": 1.0, "+Inf": 0.0}, growing(60), engine="1")
            | histogram(TTFT, {"5": 0.0, "10": 1.0, "+Inf": 0.0}, growing(60), pod=OTHER_POD),
            fires(5 + hold, page),
        ),
        case(
            "20 requests in 5 minutes are just enough",
            histogram(TTFT, {"5": 0.0, "10": 4.0, "+Inf": 0.0}, growing(60)),
            fires(5 + hold, page),
        ),
        case(
            "19 are not",
            histogram(TTFT, {"5": 0.0, "10": 3.8, "+Inf": 0.0}, growing(60)),
            silent(10, 30, 59),
        ),
        case(
            "5.5 % slower than the bound",
            histogram(TTFT, {"5": 94.5, "10": 5.5, "+Inf": 0.0}, growing(60)),
            fires(first, page),
        ),
        case(
            "4.5 % slower than the bound",
            histogram(TTFT, {"5": 95.5, "10": 4.5, "+Inf": 0.0}, growing(60)),
            silent(first, 30),
        ),
        *(
            case(
                f"{name} against its own objective",
                own("objective_seconds", steady(5, 60), objective=name, bound=bound)
                | histogram(family, SLOW, growing(60)),
                fires(first, {**page, "objective": name}),
            )
            for name, family in (
                ("tpot", "inter_token_latency_seconds"),
                ("tpot", "time_per_output_token_seconds"),
                ("e2e", "e2e_request_latency_seconds"),
            )
        ),
        case(
            "objectives told under the scraper's labels",
            {},
            silent(first),
        ),
        Case(
            alert,
            "loadtide's labels renamed by a Prometheus that honours its own",
            bounds(60, namespace="ops", exported_namespace="chat") | slow(growing(60)),
            fires(first, page),
        ),
        Case(
            alert,
            "two scalers tell the same bound",
            bounds(60) | bounds(60, instance="10.0.0.10:8080") | slow(growing(60)),
            fires(first, page),
        ),
        Case(
            alert,
            "the bound outlives a scaler that is away, for a quarter of an hour",
            {key: then((5, 20), ("stale", 1)) for key in bounds(1) if f'bound="{bound}"' in key} | slow(growing(60)),
            [(first, (page,)), (34, (page,)), (35 + keep, ())],
        ),
        # Where Prometheus does not scrape the engines, loadtide's own measurement counts.
        case("loadtide's own P95, in the middle of its interval", own_p95(4, 7, 20, 60), fires(hold, from_scaler)),
        case("loadtide's own P95 at the bound", own_p95(4, 6, 20, 60), silent(hold, 30)),
        case("loadtide's own P95 of too few requests", own_p95(4, 7, 19, 60), silent(hold, 30)),
        case("beyond the last bucket the lower bound counts", own_p95(6, "Inf", 20, 60), fires(hold, from_scaler)),
        case("which may be within the objective", own_p95(4, "Inf", 20, 60), silent(hold, 30)),
        case(
            "the engine's histogram goes before loadtide's own",
            own_p95(6, 7, 20, 60) | histogram(TTFT, QUICK, growing(60)),
            silent(first, 30),
        ),
        case(
            "one failed scrape of loadtide changes nothing",
            {
                key: then((value.split("x")[0], 15), ("stale", 1), (value.split("x")[0], 30))
                for key, value in own_p95(6, 7, 20, 60).items()
            },
            [(m, (from_scaler,)) for m in (14, 15, 16, 17, 30)],
        ),
    ]


def _beyond() -> list[Case]:
    alert, page = "LatencyBeyondBuckets", {**MODEL, "severity": "warning"}

    def case(name: str, each_minute: dict[str, float], pattern: Pattern, *expected: list[At], **labels: str) -> Case:
        found = histogram(TTFT, each_minute, pattern, **labels)
        return Case(alert, name, found, [at for part in expected for at in part])

    beyond = {"5": 10.0, "10": 80.0, "+Inf": 10.0}
    return [
        case("fires", beyond, growing(60), fires(11, page)),
        case("5.3 % beyond", {"10": 947.0, "+Inf": 53.0}, growing(60), fires(11, page)),
        case("4.7 % beyond", {"10": 953.0, "+Inf": 47.0}, growing(60), silent(11, 30)),
        case("exactly 5 % beyond", {"10": 190.0, "+Inf": 10.0}, growing(60), silent(11, 30)),
        case("idle", beyond, lambda each: steady(each, 60), silent(11, 30)),
        case("scaled to zero", beyond, ending(20), [(20, (page,)), (27, ())]),
        case("one failed scrape changes nothing", beyond, with_gap(15, 40), [(m, (page,)) for m in (15, 16, 17, 30)]),
        case(
            "a restart of the engine changes nothing", beyond, with_reset(15, 40), [(m, (page,)) for m in (16, 17, 30)]
        ),
        case("spelt with _", beyond, growing(60), fires(11, page), colon=False),
        case("too few requests", {"10": 1.9, "+Inf": 1.9}, growing(60), silent(11, 30)),
        case("just enough requests", {"10": 2.0, "+Inf": 2.0}, growing(60), fires(15, page)),
    ]


__all__ = ["POD", "Labels", "cases"]
