"""What was decided against what came of it."""

from __future__ import annotations

from tests.pack.cases.case import CHAT, Case, Labels, fires, own, series, silent, steady, then


def cases() -> list[Case]:
    return [*_demand(), *_not_woken(), *_not_loading(), *_at_max(), *_converging(), *_batch(), *_flapping()]


def kept(name: str, value: float, /, **labels: str) -> dict[str, str]:
    """One of loadtide's gauges for an hour."""
    return own(name, steady(value, 60), **labels)


def missed(found: dict[str, str], at: int) -> dict[str, str]:
    """The same series with one failed scrape."""
    return {
        key: then((value.split("x")[0], at), ("stale", 1), (value.split("x")[0], 30)) for key, value in found.items()
    }


def _demand() -> list[Case]:
    def case(cause: str, name: str, found: dict[str, str], *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        return Case("DemandWithoutReplicas", f"{cause}: {name}", found, expected, which={"cause": cause})

    page = {**CHAT, "severity": "critical"}
    cases: list[Case] = []
    for cause, hold, failed in (("load_failed", 1, 1), ("not_ready", 15, 0)):
        firing = {**page, "cause": cause}
        zero = kept("ready_replicas", 0) | kept("failed_loads", failed)
        wake = kept("signal", 1, signal="wake_demand")
        cases += [
            case(cause, "a wake", zero | wake, *fires(hold, firing)),
            case(
                cause, "requests held at the gateway", zero | kept("signal", 3, signal="pending"), *fires(hold, firing)
            ),
            case(
                cause, "scaled to zero, and nobody asks", zero | kept("signal", 0, signal="pending"), *silent(hold, 30)
            ),
            case(
                cause, "other signals are no demand", zero | kept("signal", 1, signal="kv_use_ratio"), *silent(hold, 30)
            ),
            case(cause, "a replica is ready", zero | wake | kept("ready_replicas", 1), *silent(hold, 30)),
            case(cause, "how many are ready is not known", kept("failed_loads", failed) | wake, *fires(hold, firing)),
            case(
                cause,
                "kube-state-metrics knows of one",
                kept("failed_loads", failed)
                | wake
                | kept("desired_replicas", 1)
                | series("kube_deployment_status_replicas_ready", steady(1, 60), namespace="chat", deployment="m"),
                *silent(hold, 30),
            ),
            case(
                cause,
                "one failed scrape changes nothing",
                missed(zero | wake, 20),
                *((m, (firing,)) for m in (19, 20, 21, 22)),
            ),
            case(
                cause,
                "callers that try again every five minutes",
                zero | own("signal", " ".join(["1 0 0 0 0"] * 8), signal="wake_demand"),
                *fires(hold, firing),
                (hold + 13, (firing,)),
            ),
            case(
                cause,
                "nobody has tried for five minutes",
                zero | own("signal", then((1, 20), (0, 20)), signal="wake_demand"),
                (19, (firing,)),
                (23, (firing,)),
                (26, ()),
            ),
            case(
                cause,
                "it gets ready",
                kept("failed_loads", failed) | wake | own("ready_replicas", then((0, 20), (1, 10))),
                (19, (firing,)),
                (20, ()),
            ),
        ]
    cases.append(
        case(
            "load_failed",
            "loading, for the first time",
            kept("ready_replicas", 0) | kept("failed_loads", 0) | kept("signal", 1, signal="wake_demand"),
            *silent(1, 14),
        )
    )
    waits = kept("ready_replicas", 0) | kept("failed_loads", 0) | kept("signal", 1, signal="wake_demand")
    loads = own("condition_seconds", "0+60x60", condition="loading")
    active, paused = (kept("mode", 1, mode=mode) for mode in ("active", "paused"))
    firing = {**page, "cause": "not_ready"}
    loaded = own("condition_seconds", then((0, 20), ("stale", 1)), condition="loading")
    cases += [
        case("not_ready", "a load that may take longer", waits | loads | active, *silent(15, 50)),
        case("not_ready", "it loads no longer", waits | loaded | active, *silent(35), (36, (firing,))),
        case(
            "not_ready",
            "another condition lasts",
            waits | kept("condition_seconds", 9, condition="doubt") | active,
            *fires(15, firing),
        ),
        case("not_ready", "a load that nobody counts, for it is paused", waits | loads | paused, *fires(15, firing)),
        case(
            "not_ready",
            "a load, and another mode than active is 0",
            waits | loads | kept("mode", 0, mode="active") | paused,
            *fires(15, firing),
        ),
    ]
    return cases


def _not_woken() -> list[Case]:
    def case(name: str, raw: dict[str, str], *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        return Case("WakeFailed", name, raw, expected)

    def told(ready: float, asleep: float, awake: float = 1) -> dict[str, str]:
        found = kept("ready_replicas", ready) | kept("asleep_replicas", asleep)
        return found | kept("rung", awake, rung="awake") | kept("rung", 1 - awake, rung="asleep")

    some = {**CHAT, "severity": "warning"}
    none = {**CHAT, "severity": "critical"}
    return [
        case("all of them sleep on", told(2, 2), *fires(5, none, some)),
        case("the only one does", told(1, 1), *fires(5, none, some)),
        case("one of two does", told(2, 1), *fires(5, some)),
        case("idle: they are asleep, and that is wanted", told(2, 2, awake=0), *silent(5, 30)),
        case("nobody sleeps", told(2, 0), *silent(5, 30)),
        case("scaled to zero", told(0, 0), *silent(5, 30)),
        case("an engine without a sleep", kept("ready_replicas", 2) | kept("rung", 1, rung="awake"), *silent(5, 30)),
        case(
            "how many are ready is not known, by anybody",
            kept("asleep_replicas", 2) | kept("rung", 1, rung="awake"),
            *fires(5, some),
        ),
        case(
            "woken after four minutes",
            kept("ready_replicas", 2)
            | own("asleep_replicas", then((2, 4), (0, 30)))
            | own("rung", steady(1, 60), rung="awake"),
            *silent(4, 5, 6, 20),
        ),
        case("one failed scrape changes nothing", missed(told(2, 2), 3), *fires(5, none, some)),
        case(
            "the last one wakes: over",
            kept("ready_replicas", 2)
            | own("asleep_replicas", then((2, 10), (1, 5), (0, 20)))
            | own("rung", steady(1, 60), rung="awake"),
            (9, (none, some)),
            (10, (some,)),
            (15, ()),
        ),
    ]


def _not_loading() -> list[Case]:
    cases: list[Case] = []
    for code in ("unschedulable", "overdue"):
        page = {**CHAT, "severity": "warning", "code": code}

        def case(
            name: str,
            values: str,
            *expected: tuple[int, tuple[Labels, ...]],
            code: str = code,
        ) -> Case:
            raw = own("suppressed", values, target="replicas", code=code) if values else kept("desired_replicas", 0)
            return Case("ReplicasNotLoading", f"{code}: {name}", raw, expected)

        cases += [
            case("asked for, and they do not come", steady(1, 40), *fires(10, page)),
            case("they came after nine minutes", then((1, 9), ("stale", 1)), *silent(9, 10, 20)),
            case("idle: nobody is asked for", steady(0, 40), *silent(10, 30)),
            case("scaled to zero", "", *silent(10, 30)),
            case("one failed scrape changes nothing", then((1, 5), ("stale", 1), (1, 30)), *fires(10, page)),
            case("a node is there: over after what was kept", then((1, 20), (0, 20)), (24, (page,)), (25, ())),
        ]
    cases.append(case("is no reason of this kind", steady(1, 40), *silent(10, 30), code="budget"))
    return cases


def _at_max() -> list[Case]:
    def case(
        name: str, desired: float, needed: float, ceiling: float, *expected: tuple[int, tuple[Labels, ...]]
    ) -> Case:
        found = kept("desired_replicas", desired) | kept("needed_replicas", needed) | kept("replicas_ceiling", ceiling)
        return Case("AtMaxReplicas", name, found, expected)

    page = {**CHAT, "severity": "warning"}
    full = {"desired_replicas": 4, "needed_replicas": 5, "replicas_ceiling": 4}
    return [
        case("needs one more than it may have", 4, 5, 4, *fires(15, page)),
        case("decided above the ceiling, which was lowered", 5, 5, 4, *fires(15, page)),
        case("needs exactly what it may have", 4, 4, 4, *silent(15, 30)),
        case("held below the ceiling", 3, 5, 4, *silent(15, 30)),
        case("idle, at the only replica it may have", 1, 0, 1, *silent(15, 30)),
        case("scaled to zero", 0, 0, 4, *silent(15, 30)),
        Case(
            "AtMaxReplicas",
            "no ceiling is declared",
            kept("desired_replicas", 4) | kept("needed_replicas", 5),
            silent(15, 30),
        ),
        Case(
            "AtMaxReplicas",
            "one failed scrape changes nothing",
            missed({key: value for name, n in full.items() for key, value in kept(name, n).items()}, 20),
            [(minute, (page,)) for minute in (19, 20, 21, 30)],
        ),
        Case(
            "AtMaxReplicas",
            "the need falls: over after what was kept",
            kept("desired_replicas", 4) | own("needed_replicas", then((5, 20), (4, 20))) | kept("replicas_ceiling", 4),
            [(24, (page,)), (25, ())],
        ),
    ]


def _converging() -> list[Case]:
    def case(name: str, desired: float, ready: float | None, *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        found = kept("desired_replicas", desired) | ({} if ready is None else kept("ready_replicas", ready))
        return Case("ReplicasNotConverging", name, found, expected)

    page = {**CHAT, "severity": "warning"}
    kube = {"namespace": "chat", "job": "kube-state-metrics", "instance": "10.0.0.3:8080"}
    return [
        case("too few", 3, 2, *fires(15, page)),
        case("too many", 2, 3, *fires(15, page)),
        case("none at all", 1, 0, *fires(15, page)),
        case("as decided, idle at the floor", 3, 3, *silent(15, 30)),
        case("scaled to zero", 0, 0, *silent(15, 30)),
        case("how many are ready is not known", 3, None, *silent(15, 30)),
        case("within what the HPA leaves alone", 11, 10, *silent(15, 30)),
        case("just beyond it", 221, 200, *fires(15, page)),
        case("just within it", 219, 200, *silent(15, 30)),
        Case(
            "ReplicasNotConverging",
            "as kube-state-metrics sees a Deployment",
            kept("desired_replicas", 3)
            | series("kube_deployment_status_replicas_ready", steady(1, 60), deployment="m", **kube),
            fires(15, page),
        ),
        Case(
            "ReplicasNotConverging",
            "as kube-state-metrics sees a StatefulSet, under the scraper's labels",
            kept("desired_replicas", 3)
            | series(
                "kube_statefulset_status_replicas_ready",
                steady(1, 60),
                **{**kube, "namespace": "monitoring", "exported_namespace": "chat"},
                statefulset="m",
            ),
            fires(15, page),
        ),
        Case(
            "ReplicasNotConverging",
            "loadtide's own count goes before it",
            kept("desired_replicas", 3)
            | kept("ready_replicas", 3)
            | series("kube_deployment_status_replicas_ready", steady(1, 60), deployment="m", **kube),
            silent(15, 30),
        ),
        Case(
            "ReplicasNotConverging",
            "one failed scrape changes nothing",
            missed(kept("desired_replicas", 3) | kept("ready_replicas", 2), 10),
            fires(15, page),
        ),
        Case(
            "ReplicasNotConverging",
            "met once, so it begins anew",
            kept("desired_replicas", 3) | own("ready_replicas", then((2, 10), (3, 1), (2, 30))),
            [(15, ()), (25, ()), (26, (page,))],
        ),
    ]


def _batch() -> list[Case]:
    def case(name: str, target: str, applied: str, *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        found = (own("target_batch_size", target) if target else {}) | (
            own("signal", applied, signal="applied_batch") if applied else {}
        )
        return Case("BatchNotApplied", name, found, expected)

    def each(**applied: str) -> dict[str, str]:
        return {
            key: value
            for replica, values in applied.items()
            for key, value in own("applied_batch_size", values, replica=replica).items()
        }

    page = {**CHAT, "severity": "warning"}
    return [
        case("larger than decided", steady(32, 30), steady(64, 30), *fires(5, page)),
        case("smaller than decided", steady(32, 30), steady(16, 30), *fires(5, page)),
        case("as decided, idle or not", steady(32, 30), steady(32, 30), *silent(5, 20)),
        case("nothing decided: the engine keeps its own", "", steady(64, 30), *silent(5, 20)),
        case("the engine does not report it", steady(32, 30), "", *silent(5, 20)),
        case("scaled to zero", steady(32, 30), then((32, 5), ("stale", 1)), *silent(5, 20)),
        Case(
            "BatchNotApplied",
            "one replica of three keeps its own, and the least of them is as decided",
            own("target_batch_size", steady(32, 30))
            | own("signal", steady(32, 30), signal="applied_batch")
            | each(m0=steady(32, 30), m1=steady(64, 30), m2=steady(32, 30)),
            fires(5, page),
        ),
        Case(
            "BatchNotApplied",
            "every replica as decided",
            own("target_batch_size", steady(32, 30)) | each(m0=steady(32, 30), m1=steady(32, 30)),
            silent(5, 20),
        ),
        Case(
            "BatchNotApplied",
            "nothing decided, and replicas differ",
            each(m0=steady(32, 30), m1=steady(64, 30)),
            silent(5, 20),
        ),
        Case(
            "BatchNotApplied",
            "the one that did not follow is gone before five minutes",
            own("target_batch_size", steady(32, 30)) | each(m0=steady(32, 30), m1=then((64, 3), ("stale", 1))),
            silent(5, 20),
        ),
        Case(
            "BatchNotApplied",
            "replicas that do not follow take turns",
            own("target_batch_size", steady(32, 30)) | each(m0=then((64, 4), (32, 20)), m1=then((32, 4), (64, 20))),
            fires(5, page),
        ),
        case("taken on after a while", then((64, 5), (32, 30)), then((64, 8), (32, 30)), *silent(5, 8, 12, 20)),
        case(
            "one failed scrape changes nothing",
            then((32, 3), ("stale", 1), (32, 20)),
            then((64, 3), ("stale", 1), (64, 20)),
            *fires(5, page),
        ),
    ]


def _flapping() -> list[Case]:
    cases: list[Case] = []
    for target, gauge in (("replicas", "desired_replicas"), ("batch", "target_batch_size")):
        page = {**CHAT, "severity": "warning", "target": target}

        def case(name: str, values: str, *expected: tuple[int, tuple[Labels, ...]], gauge: str = gauge) -> Case:
            return Case("Flapping", f"{name} ({gauge})", own(gauge, values), expected)

        # The seventh change is seen at minute 7.
        cases += [
            case("up and down every minute", " ".join(["2", "4"] * 20), *fires(12, page)),
            case("seven changes", "2 4 2 4 2 4 2 4x32", *fires(12, page)),
            case("six changes", "2 4 2 4 2 4 2x33", *silent(12, 25)),
            case("a climb of eight", "1 2 3 4 5 6 7 8 9x32", *silent(13, 25)),
            case("a descent of eight", "9 8 7 6 5 4 3 2 1x32", *silent(13, 25)),
            case("five up, two down", "1 2 3 4 3 4 3 4x30", *silent(13, 25)),
            case("five up, three down", "1 2 3 4 3 4 3 4 3x30", *fires(12 + 1, page)),
            case("two up, five down", "9 8 7 8 7 8 7 6x30", *silent(13, 25)),
            case("three up, five down", "9 8 9 8 9 8 9 8 7x30", *fires(12, page)),
            # What was more than half an hour ago counts for none of the three.
            case("six up, two down, and one down before", f"4 {'2 ' * 35}3 4 5 6 5 6 5 6x20", *silent(50, 55, 58)),
            case("two up, five down, and one up before", f"2 {'9 ' * 35}8 7 8 7 8 7 6x20", *silent(50, 55, 58)),
            case("three up, four down, and one down before", f"9 {'8 ' * 36}9 8 9 8 9 8 7x20", *fires(48, page)),
            case("idle at the floor", steady(3, 40), *silent(12, 35)),
            case("scaled to zero and still", steady(0, 40), *silent(12, 35)),
            case("failed scrapes are no changes", then(*[(2, 1), ("stale", 1)] * 15), *silent(12, 25)),
            case("a restart of the scaler is one change at most", "4 4 4 1 4x30", *silent(12, 25)),
            # Below seven again at minute 31, when the first leaves the half hour; kept for ten minutes.
            case("over after a quiet half hour and what was kept", "2 4 2 4 2 4 2 4x60", (39, (page,)), (41, ())),
        ]
    return cases
