"""The latency budget over pairs of windows: both must burn, and the share of slow requests decides."""

from __future__ import annotations

from tests.pack.cases.case import (
    CHAT,
    OTHER_POD,
    Case,
    Labels,
    Pattern,
    ending,
    fires,
    growing,
    histogram,
    objective,
    own,
    silent,
    steady,
    with_gap,
    with_reset,
)

ALERT = "LatencyBudgetBurn"
#: How long the cases of the long windows last.
MINUTES = 1000
TTFT = "time_to_first_token_seconds"


def requests(slow_share: float, pattern: Pattern, each: float = 100, **labels: str) -> dict[str, str]:
    """So many requests a minute, of which that share is slower than the objective of 1 s."""
    slow = each * slow_share
    return histogram(TTFT, {"1": each - slow, "10": slow, "+Inf": 0.0}, pattern, **labels)


def changed(slow_before: float, slow_after: float, before: int, after: int) -> dict[str, str]:
    """10,000 requests each minute, with another share of slow ones from ``before`` on. Whole numbers: what rounding
    takes from a counter would be a reset.
    """
    found: dict[str, str] = {}
    quick = [10_000 - round(10_000 * slow) for slow in (slow_before, slow_after)]
    for bound, (first, second) in (("1", quick), ("10", (10_000, 10_000)), ("+Inf", (10_000, 10_000))):
        pattern = f"0+{first}x{before} {first * before + second}+{second}x{after}"
        found |= histogram(TTFT, {bound: 0.0}, lambda _, values=pattern: values)
    return found


def page(severity: str, long: str, short: str) -> Labels:
    labels = {**CHAT, "model_name": "llama", "objective": "ttft", "severity": severity}
    return {**labels, "long_window": long, "short_window": short}


def cases() -> list[Case]:
    return [*_hour(), *_longer(), *_infeasible(), *_enough()]


def _infeasible() -> list[Case]:
    """An objective that no replica can keep burns its budget at any load: a trend, and no page; unless even the
    fastest of the slow take several times as long as in an empty replica: 3.52 s of the hour, 7.3 s of six.
    """
    cases = []
    for long, short, at, empty, pages in (
        ("1h", "5m", 7, 0.89, False),
        ("1h", "5m", 7, 0.87, True),
        ("6h", "30m", 20, 1.83, False),
        ("6h", "30m", 20, 1.82, True),
    ):
        told = own("empty_replica_seconds", steady(empty, MINUTES), objective="ttft")
        told |= own("objective_verdict", steady(1, MINUTES), objective="ttft", bound="warning", verdict="infeasible")
        expected = ((at, (page("critical", long, short),)),) if pages else silent(at, at + 60)
        cases.append(
            Case(
                ALERT,
                f"{long} and {short}: no replica keeps it, an empty one takes {empty:g} s",
                objective(MINUTES) | told | requests(1, growing(MINUTES)),
                expected,
                step=1 if long == "1h" else 5,
                which={"long_window": long},
            )
        )
    for severity, long, short, at in (
        ("critical", "1h", "5m", 7),
        ("critical", "6h", "30m", 20),
        ("warning", "1d", "2h", 120),
    ):
        for bound in ("warning", "critical"):
            burning = page(severity, long, short)
            silenced = severity == "critical" and bound == "warning"
            verdict = own("objective_verdict", steady(1, MINUTES), objective="ttft", bound=bound, verdict="infeasible")
            cases.append(
                Case(
                    ALERT,
                    f"{long} and {short}: no replica keeps the {bound} bound",
                    objective(MINUTES) | verdict | requests(1, growing(MINUTES)),
                    silent(at, at + 60) if silenced else ((at, (burning,)),),
                    step=1 if long == "1h" else 5,
                    which={"long_window": long},
                )
            )
    return cases


def _hour() -> list[Case]:
    burning = page("critical", "1h", "5m")

    def case(name: str, series: dict[str, str], *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        return Case(ALERT, f"1h and 5m: {name}", objective(200) | series, expected, which={"long_window": "1h"})

    return [
        # The windows are summed up every five minutes of the clock.
        case("fires", requests(1, growing(20)), *fires(7, burning)),
        case("73 % slow", requests(0.73, growing(20)), *fires(7, burning)),
        case("71 % slow", requests(0.71, growing(20)), *silent(7, 15)),
        case("spelt with _", requests(1, growing(20), colon=False), *fires(7, burning)),
        case("idle", requests(1, lambda each: f"{each:g}x30"), *silent(7, 20)),
        case("nothing but zero replicas", {}, *silent(7, 20)),
        case(
            "scaled to zero: over once the short window is empty", requests(1, ending(20)), (21, (burning,)), (26, ())
        ),
        case(
            "one failed scrape changes nothing", requests(1, with_gap(14, 20)), *((m, (burning,)) for m in (14, 15, 16))
        ),
        case(
            "a restart of the engine changes nothing",
            requests(1, with_reset(14, 20)),
            (15, (burning,)),
            (20, (burning,)),
        ),
        case("19 requests in the short window", requests(1, growing(60), each=3.8), *silent(30, 50)),
        case("20 requests in the short window", requests(1, growing(60), each=4), *fires(7, burning)),
        case(
            "two pods, one quick: half are slow",
            requests(1, growing(20)) | requests(0, growing(20), pod=OTHER_POD),
            *silent(7, 15),
        ),
        case("only the last ten minutes", changed(0, 1, 50, 60), *silent(60)),
        case("only until five minutes ago", changed(1, 0, 50, 20), (50, (burning,)), (56, ())),
        case("the long window just under its share", changed(_before(0.705, 60, 5), 1, 55, 20), *silent(60, 62, 64)),
        case("the short window just under its share", changed(1, 0.71, 50, 20), (50, (burning,)), (57, ()), (65, ())),
    ]


def _longer() -> list[Case]:
    return [
        *_pair(page("critical", "6h", "30m"), share=0.30, begins=5, hold=15, short_share=1.0),
        *_pair(page("warning", "1d", "2h"), share=0.15, begins=60, hold=60, short_share=1.0),
        # Six hours are more than 5 % of three days, so that even the short window alone must not be all slow.
        *_pair(page("warning", "3d", "6h"), share=0.05, begins=60, hold=180, short_share=0.4),
    ]


def _pair(burning: Labels, *, share: float, begins: int, hold: int, short_share: float) -> list[Case]:
    """``begins`` is the minute from which on the condition can hold: increases are added up every five minutes, for
    windows of days every hour.
    """
    long, short = _minutes(burning["long_window"]), _minutes(burning["short_window"])

    def case(name: str, series: dict[str, str], *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        what = f"{burning['long_window']} and {burning['short_window']}: {name}"
        which = {"long_window": burning["long_window"]}
        told = max(MINUTES, *(at for at, _ in expected))  # a case that outlives its objective is silent whatever burns
        return Case(ALERT, what, objective(told) | series, expected, step=5, which=which)

    at = begins + hold
    fire = ((at - 5, ()), (at, (burning,)))
    return [
        case("fires", requests(1, growing(MINUTES)), *fire),
        case("just over the share", requests(share + 0.01, growing(MINUTES)), *fire),
        case("just under the share", requests(share - 0.01, growing(MINUTES)), *silent(at, at + 60)),
        case("exactly the share", requests(share, growing(MINUTES), each=20), *silent(at, at + 60)),
        case("spelt with _", requests(1, growing(MINUTES), colon=False), *fire),
        case("idle", requests(1, lambda each: f"{each:g}x{MINUTES}"), *silent(at, at + 60)),
        case("scaled to zero", {}, *silent(at, at + 60)),
        case("a restart and a failed scrape", requests(1, with_reset(120, 300)), (at + 60, (burning,))),
        case(
            "the long window just under its share",
            changed(_before(0.9 * share, long, short, short_share), short_share, long - short, short + 50),
            *silent(long),
        ),
        case(
            "the short window just under its share",
            changed(1, 0.9 * share, at + 30, short + 180),
            (at + 30, (burning,)),
            (at + 30 + short + 65, ()),
        ),
    ]


def _before(share: float, long: int, short: int, short_share: float = 1.0) -> float:
    """The share of slow requests before the short window that gives the long one ``share``."""
    return (share * long - short_share * short) / (long - short)


def _enough() -> list[Case]:
    """A quantile is recorded of 20 requests in its window, up to the window's end, and not of 19."""
    cases: list[Case] = []
    for quantile, window in (
        (28, "5m"),
        (28, "1h"),
        (70, "30m"),
        (70, "6h"),
        (85, "2h"),
        (85, "1d"),
        (95, "6h"),
        (95, "3d"),
    ):
        record = f"workload_model_name_objective:latency_seconds:p{quantile}_increase{window}"
        query = f"count by (namespace, workload) ({record})"
        last = _minutes(window)
        over = last + (60 if _first(window) == 60 else 5)
        for each in (20, 19):
            found = {**CHAT, "value": "1"}
            once = requests(1, lambda total: f"0+{total / 5:g}x5 {total:g}x{MINUTES}", each=each)
            expected = [(at, (found,) if each == 20 else ()) for at in sorted({_first(window), last})]
            expected += [(over, ())] if each == 20 else []
            cases.append(Case(ALERT, f"{each} requests in {window} (P{quantile})", once, expected, query, step=5))
    return cases


def _first(window: str) -> int:
    return 60 if window in ("1d", "3d") else 5


def _minutes(text: str) -> int:
    return int(text[:-1]) * {"m": 1, "h": 60, "d": 1440}[text[-1]]
