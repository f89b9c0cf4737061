"""loadtide itself: up and ticking, its store, its signals and its sources."""

from __future__ import annotations

from tests.pack.cases.case import CHAT, Case, Labels, fires, own, series, silent, steady, then


def cases() -> list[Case]:
    return [*_down(), *_store(), *_stale(), *_source(), *_cannot_wake()]


def scaler(up: str, ticked: str | None = None, instance: str = "10.0.0.9:8080", **labels: str) -> dict[str, str]:
    """One scaler's target: whether it could be scraped, and for how long its freshest workload was not ticked."""
    target = {"job": "loadtide", "instance": instance, "namespace": "ops", **labels}
    target = {name: value for name, value in target.items() if value}
    told = " ".join({"1": "1", "_": "_"}.get(each, "stale") for each in up.split())
    found = series("up", up, **target) | series("loadtide_build_info", told, **target, version="0.1.0")
    if ticked is not None:
        found |= series("loadtide_seconds_since_tick", ticked, **{**target, **CHAT})
    return found


def _down() -> list[Case]:
    page = {"namespace": "ops", "severity": "critical"}
    by_default = {"namespace": "loadtide", "severity": "critical"}

    def case(name: str, raw: dict[str, str], *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        return Case("ScalerDown", name, raw, expected)

    return [
        case("fires", scaler(then((1, 10), (0, 30))), (14, ()), (15, (page,)), (30, (page,))),
        case("up", scaler(then((1, 40)), steady(3, 40)), *silent(5, 15, 30)),
        case("idle: it scales nothing", scaler(then((1, 40))), *silent(5, 15, 30)),
        case(
            "all workloads at zero",
            scaler(then((1, 40)), steady(3, 40)) | own("desired_replicas", steady(0, 40)),
            *silent(5, 30),
        ),
        case("never seen", {}, *fires(5, by_default)),
        case(
            "its target is gone",
            {key: value + " stale" for key, value in scaler(then((1, 10))).items()},
            (14, ()),
            (15, (page,)),
        ),
        case(
            "in a namespace that nobody says",
            scaler(then((1, 10), (0, 30)), namespace=""),
            (14, ()),
            (15, (by_default,)),
        ),
        case(
            "one of two",
            scaler(then((1, 10), (0, 30))) | scaler(then((1, 40)), instance="10.0.0.10:8080"),
            *silent(15, 30),
        ),
        case(
            "a second installation is up",
            scaler(then((1, 10), (0, 30))) | scaler(then((1, 40)), instance="10.0.1.9:8080", namespace="other"),
            (14, ()),
            (15, (page,)),
        ),
        case("up, and no tick for six minutes", scaler(then((1, 40)), steady(360, 40)), *fires(5, page)),
        case("up, and the last tick exactly five minutes ago", scaler(then((1, 40)), steady(300, 40)), *silent(5, 20)),
        case("4.6 minutes ago", scaler(then((1, 40)), steady(275, 40)), *silent(5, 20)),
        case("5.4 minutes ago", scaler(then((1, 40)), steady(325, 40)), *fires(5, page)),
        case(
            "one workload was not ticked, another was",
            scaler(then((1, 40)), steady(900, 40))
            | series(
                "loadtide_seconds_since_tick",
                steady(3, 40),
                job="loadtide",
                instance="10.0.0.9:8080",
                namespace="chat",
                workload="other",
            ),
            *silent(5, 20),
        ),
        case("one failed scrape", scaler(then((1, 10), (0, 1), (1, 20))), *silent(11, 15, 16, 20, 25)),
        case("up in every second scrape", scaler(" ".join(["1 0"] * 20)), (20, (page,)), (30, (page,))),
        case("up in three of five", scaler(" ".join(["1 1 1 0 0"] * 7)), (20, (page,)), (30, (page,))),
        case(
            "up in exactly as much as is enough: it begins anew",
            scaler("0.4 0.55 1 " + then((0, 20))),
            (7, ()),
            (8, (page,)),
        ),
        case("up in two of three", scaler(" ".join(["1 1 0"] * 14)), *silent(15, 20, 30)),
        case(
            "back: over when most of the last five minutes were up",
            scaler(then((1, 10), (0, 10), (1, 20))),
            (22, (page,)),
            (24, ()),
        ),
    ]


def _store() -> list[Case]:
    page = {"namespace": "ops", "severity": "warning"}

    def case(name: str, raw: dict[str, str], *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        return Case("StoreDown", name, raw, expected)

    def store(values: str, **labels: str) -> dict[str, str]:
        return series("loadtide_store_up", values, **{"namespace": "ops", "instance": "10.0.0.9:8080", **labels})

    return [
        case("fires", store(steady(0, 30)), *fires(5, page)),
        case("stores, idle and with all workloads at zero", store(steady(1, 30)), *silent(5, 20)),
        case(
            "one of two cannot", store(steady(0, 30)) | store(steady(1, 30), instance="10.0.0.10:8080"), *fires(5, page)
        ),
        case("no scaler", {}, *silent(5, 20)),
        case("one failed scrape changes nothing", store(then((0, 3), ("stale", 1), (0, 20))), *fires(5, page)),
        case("the scaler goes away", store(then((0, 10), ("stale", 1))), (10, (page,)), (13, ())),
    ]


def _stale() -> list[Case]:
    page = {**CHAT, "severity": "warning"}

    def case(name: str, raw: dict[str, str], *expected: tuple[int, tuple[Labels, ...]], desired: float = 2) -> Case:
        return Case("SignalStale", name, own("desired_replicas", steady(desired, 60)) | raw, expected)

    def status(signal: str, word: str, values: str, **labels: str) -> dict[str, str]:
        return own("signal_status", values, signal=signal, status=word, **labels)

    return [
        case("fires", status("running", "stale", steady(1, 30)), *fires(3, page)),
        case("any signal may be stale", status("kv_use_ratio", "stale", steady(1, 30)), *fires(3, page)),
        case("lost", status("running", "unknown", steady(1, 30)), *fires(3, page)),
        case("one that nothing needs is unknown", status("gpu_busy_ratio", "unknown", steady(1, 30)), *silent(3, 20)),
        case(
            "known",
            status("running", "stale", steady(0, 30)) | status("running", "known", steady(1, 30)),
            *silent(3, 20),
        ),
        case("not applicable, as when idle", status("ttft_seconds", "not_applicable", steady(1, 30)), *silent(3, 20)),
        case("scaled to zero", status("running", "unknown", steady(1, 30)), *silent(3, 20), desired=0),
        case(
            "one failed scrape changes nothing",
            status("running", "stale", then((1, 2), ("stale", 1), (1, 20))),
            *fires(3, page),
        ),
        case(
            "1 1 _ 1 1 _",
            status("running", "stale", " ".join(["1 1 stale"] * 10)),
            *((minute, (page,)) for minute in range(3, 28)),
        ),
        case(
            "known again: over after what was kept",
            status("running", "stale", then((1, 10), (0, 20))),
            (11, (page,)),
            (12, ()),
        ),
        case(
            "two scalers tell the same",
            status("running", "stale", steady(1, 30))
            | status("running", "stale", steady(1, 30), instance="10.0.0.10:8080"),
            *fires(3, page),
        ),
        Case(
            "SignalStale",
            "loadtide's labels renamed by a Prometheus that honours its own",
            own(
                "signal_status",
                steady(1, 30),
                signal="running",
                status="stale",
                namespace="ops",
                exported_namespace="chat",
            ),
            fires(3, page),
        ),
        Case(
            "SignalStale",
            "the workload's name renamed too",
            own(
                "signal_status",
                steady(1, 30),
                signal="running",
                status="stale",
                workload="loadtide",
                exported_workload="m",
            ),
            fires(3, page),
        ),
    ]


def _source() -> list[Case]:
    page = {**CHAT, "severity": "warning", "source": "scrape", "endpoint": "http://10.1.2.3:8000/metrics"}

    def case(name: str, values: str, *expected: tuple[int, tuple[Labels, ...]], desired: float = 2) -> Case:
        told = own("source_up", values, source="scrape", endpoint="http://10.1.2.3:8000/metrics")
        raw = own("desired_replicas", steady(desired, 60)) | told
        return Case("SourceDown", f"cannot be read: {name}", raw, expected, which={"severity": "warning"})

    return [
        case("fires", steady(0, 30), *fires(3, page)),
        case("read", steady(1, 30), *silent(3, 20)),
        case("fails later on", then((1, 10), (0, 20)), (12, ()), (13, (page,))),
        case("one failed read", then((1, 10), (0, 1), (1, 20)), *silent(10, 12, 13, 14, 20)),
        case("every second read fails", " ".join(["1 0"] * 20), (20, (page,)), (31, (page,))),
        case("two of five reads fail", " ".join(["1 1 1 0 0"] * 7), (20, (page,)), (31, (page,))),
        case("as good as is just enough", steady(0.65, 30), *silent(3, 20)),
        case("every third read fails", " ".join(["1 1 0"] * 14), *silent(20, 31)),
        case("scaled to zero", steady(0, 30), *silent(3, 20), desired=0),
        case("idle", steady(1, 30), *silent(3, 20), desired=1),
        case("the endpoint goes away", then((1, 5), (0, 10), ("stale", 1)), (14, (page,)), (19, ())),
        case("one failed scrape of loadtide changes nothing", then((0, 2), ("stale", 1), (0, 20)), *fires(3, page)),
        case(
            "back: over when most of five minutes are good, and after what was kept",
            then((0, 10), (1, 30)),
            (14, (page,)),
            (16, ()),
        ),
    ]


def _cannot_wake() -> list[Case]:
    page = {**CHAT, "severity": "critical"}

    def case(name: str, raw: dict[str, str], *expected: tuple[int, tuple[Labels, ...]], desired: float = 0) -> Case:
        known = own("desired_replicas", steady(desired, 60))
        return Case("SourceDown", f"cannot wake: {name}", known | raw, expected, which={"severity": "critical"})

    def status(signal: str, word: str, values: str) -> dict[str, str]:
        return own("signal_status", values, signal=signal, status=word)

    return [
        case("fires, stale", status("pending", "stale", steady(1, 30)), *fires(3, page)),
        case("fires, unknown", status("wake_demand", "unknown", steady(1, 30)), *fires(3, page)),
        case(
            "idle at zero, and it can be woken",
            status("pending", "known", steady(1, 30)) | status("pending", "stale", steady(0, 30)),
            *silent(3, 20),
        ),
        case("it has replicas", status("pending", "stale", steady(1, 30)), *silent(3, 20), desired=1),
        case(
            "the engines' signals are missing, as they must be",
            status("running", "unknown", steady(1, 30)),
            *silent(3, 20),
        ),
        case(
            "one failed scrape changes nothing",
            status("pending", "stale", then((1, 2), ("stale", 1), (1, 20))),
            *fires(3, page),
        ),
        case(
            "back: over after what was kept",
            status("pending", "stale", then((1, 10), (0, 20))),
            (11, (page,)),
            (12, ()),
        ),
    ]
