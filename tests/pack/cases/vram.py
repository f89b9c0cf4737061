"""GPU memory: free where the engine does not preallocate, growth and exhaustion where it does (G4-01)."""

from __future__ import annotations

from tests.pack.cases.case import CHAT, POD, Case, engine, fires, own, series, silent, steady, then, vllm

GPU = "GPU-11111111-2222-3333-4444-555555555555"
#: An 80 GiB card, MiB.
CARD = 80_000


def info(preallocates: bool, minutes: int = 60) -> dict[str, str]:
    """loadtide says what the engine is, and the emergency line of one that does not preallocate."""
    engine_name = "vllm" if preallocates else "triton"
    found = own(
        "engine_info", steady(1, minutes), engine=engine_name, preallocates_gpu_memory=str(preallocates).lower()
    )
    return found if preallocates else found | own("gpu_free_emergency_ratio", steady(0.1, minutes))


def dcgm(
    field: str, values: str, uuid: str = GPU, honoured: bool = True, pod: str = POD, **labels: str
) -> dict[str, str]:
    """A DCGM series of a GPU that a pod of chat/m holds."""
    holder = {"namespace": "chat", "pod": pod}
    scraper = {"namespace": "gpu", "pod": "dcgm-exporter-x2x4z", "exported_namespace": "chat", "exported_pod": pod}
    who = {**(holder if honoured else scraper), "container": "engine", "instance": "10.0.0.7:9400", "job": "dcgm"}
    return series(f"DCGM_FI_DEV_{field}", values, **{**who, "UUID": uuid, "gpu": "0", "Hostname": "node-1", **labels})


def memory(used: float, free: float, minutes: int = 60, **more: str) -> dict[str, str]:
    """Used and free for that long, MiB."""
    return dcgm("FB_USED", steady(used, minutes), **more) | dcgm("FB_FREE", steady(free, minutes), **more)


def cases() -> list[Case]:
    return [*_headroom(), *_growth(), *_exhausted()]


def _headroom() -> list[Case]:
    found: list[Case] = []
    for alert, severity, hold, keep, line in (
        ("VramHeadroomCritical", "critical", 5, 5, 8_000),
        ("VramHeadroomLow", "warning", 10, 10, 12_000),
    ):
        page = {**CHAT, "severity": severity}
        little, enough = line - 400, line + 400

        def case(name: str, raw: dict[str, str], *expected: object, alert: str = alert, free: bool = False) -> Case:
            return Case(alert, name, info(preallocates=free) | raw, expected)  # type: ignore[arg-type]

        found += [
            case("fires", memory(CARD - little, little), *fires(hold, page)),
            case("enough", memory(CARD - enough, enough), *silent(hold, 30)),
            # An emergency line of an eighth, so that no rounding decides.
            Case(
                alert,
                "exactly at the line",
                own("gpu_free_emergency_ratio", steady(0.125, 60)) | memory(CARD - line * 1.25, line * 1.25),
                silent(hold, 30),
            ),
            case("an engine that preallocates", memory(CARD - 400, 400), *silent(hold, 30), free=True),
            case(
                "what is reserved counts as there",
                memory(CARD - enough - 600, enough) | dcgm("FB_RESERVED", steady(600, 60)),
                *silent(hold, 30),
            ),
            case(
                "what is reserved is part of the card",
                memory(CARD - little - 6_000, little) | dcgm("FB_RESERVED", steady(6_000, 60)),
                *fires(hold, page),
            ),
            case("under the exporter's own labels", memory(CARD - little, little, honoured=False), *fires(hold, page)),
            case(
                "the fuller of two GPUs",
                memory(CARD - little, little) | memory(0, CARD, uuid="GPU-2"),
                *fires(hold, page),
            ),
            case(
                "time slicing repeats the GPU for each pod, and counts each pod's own use",
                memory(CARD - little, little) | memory(10, little, pod="other-6d5f7c9b8d-x2x4z"),
                *fires(hold, page),
            ),
            case(
                "a GPU that nobody holds", memory(CARD - little, little, pod="dcgm-exporter-x2x4z"), *silent(hold, 30)
            ),
            case("idle, nothing loaded", memory(0, CARD), *silent(hold, 30)),
            case("scaled to zero", {}, *silent(hold, 30)),
            case("a field that the card lacks, as a huge number", memory(9.2e18, line * 2), *silent(hold, 30)),
            case("both fields lacking", memory(9.2e18, 9.2e18), *silent(hold, 30)),
            case("a card that reports no memory at all", memory(0, 0), *silent(hold, 30)),
            case(
                "one failed scrape changes nothing",
                {
                    key: then((value.split("x")[0], 20), ("stale", 1), (value.split("x")[0], 10))
                    for key, value in memory(CARD - little, little).items()
                },
                *((minute, (page,)) for minute in (19, 20, 21, 22)),
            ),
            case(
                "freed: over after what was kept",
                dcgm("FB_USED", then((CARD - little, 20), (0, 30))) | dcgm("FB_FREE", then((little, 20), (CARD, 30))),
                (19 + keep, (page,)),
                (20 + keep, ()),
            ),
            case(
                "as loadtide's agent sees it",
                own("signal", steady(little / CARD, 60), signal="gpu_memory_free_ratio"),
                *fires(hold, page),
            ),
            case(
                "DCGM goes before it",
                own("signal", steady(little / CARD, 60), signal="gpu_memory_free_ratio") | memory(0, CARD),
                *silent(hold, 30),
            ),
        ]
    return found


def serving(minutes: int = 60, start: int = 0) -> dict[str, str]:
    """A vLLM whose page answers from that minute on."""
    return vllm("num_requests_running", then(("_", start), (2, minutes)) if start else steady(2, minutes))


def _growth() -> list[Case]:
    alert = "VramGrowth"
    page = {**CHAT, "pod": POD, "UUID": GPU, "severity": "warning"}

    def case(name: str, raw: dict[str, str], *expected: object, **more: bool) -> Case:
        return Case(alert, name, info(**{"preallocates": True, **more}) | raw, expected)  # type: ignore[arg-type]

    def used(*parts: tuple[float | str, int], **more: str) -> dict[str, str]:
        """Shares of the card over time."""
        share = [(part if isinstance(part, str) else part * CARD, n) for part, n in parts]
        rest = [(part if isinstance(part, str) else CARD - part * CARD, n) for part, n in parts]
        return dcgm("FB_USED", then(*share), **more) | dcgm("FB_FREE", then(*rest), **more)

    # The baseline is looked at every five minutes of the clock.
    return [
        case("fires", serving() | used((0.90, 20), (0.94, 40)), *fires(30, page)),
        case("3.3 % more", serving() | used((0.90, 20), (0.933, 40)), *fires(30, page)),
        case("2.7 % more", serving() | used((0.90, 20), (0.927, 40)), *silent(30, 50)),
        case("exactly 3.125 % is more", serving() | used((0.5, 20), (0.53125, 40)), *fires(30, page)),
        case("92 % full, as ever (vllm#550)", serving() | used((0.92, 60)), *silent(10, 30, 50)),
        case("99.7 % full, with CUDA graphs", serving() | used((0.997, 60)), *silent(10, 30, 50)),
        case("loading is no growth", serving(45, start=15) | used((0.02, 15), (0.92, 45)), *silent(25, 40, 55)),
        case(
            "an engine that does not preallocate",
            serving() | used((0.3, 20), (0.9, 40)),
            *silent(30, 50),
            preallocates=False,
        ),
        case("nothing serves on it", used((0.3, 20), (0.9, 40)), *silent(30, 50)),
        case("idle", vllm("num_requests_running", steady(0, 60)) | used((0.92, 60)), *silent(30, 50)),
        case("scaled to zero", {}, *silent(30, 50)),
        case(
            "another pod on another GPU has its own baseline",
            serving() | used((0.94, 60)) | used((0.5, 60), uuid="GPU-2", pod="m-6d5f7c9b8d-k7k8w"),
            *silent(30, 50),
        ),
        case(
            "one failed scrape changes nothing",
            serving() | used((0.90, 20), (0.94, 5), ("stale", 1), (0.94, 30)),
            *fires(30, page),
        ),
        case(
            "given back: over after what was kept",
            serving() | used((0.90, 20), (0.94, 20), (0.90, 20)),
            (49, (page,)),
            (50, ()),
        ),
        case(
            "spelt with _",
            vllm("num_requests_running", steady(2, 60), colon=False) | used((0.90, 20), (0.94, 40)),
            *fires(30, page),
        ),
        case(
            "SGLang",
            engine("sglang:num_queue_reqs", steady(0, 60), model_name="llama") | used((0.90, 20), (0.94, 40)),
            *fires(30, page),
        ),
        case(
            "under the exporter's own labels",
            serving() | used((0.90, 20), (0.94, 40), honoured=False),
            *fires(30, page),
        ),
    ]


def _exhausted() -> list[Case]:
    alert = "VramExhausted"
    page = {**CHAT, "pod": POD, "container": "vllm", "severity": "critical"}

    def kube(name: str, values: str, **labels: str) -> dict[str, str]:
        return series(
            f"kube_pod_container_{name}",
            values,
            **{
                "namespace": "chat",
                "pod": POD,
                "container": "vllm",
                "job": "ksm",
                "instance": "10.0.0.3:8080",
                **labels,
            },
        )

    def case(name: str, raw: dict[str, str], *expected: object, preallocates: bool = True) -> Case:
        known = info(preallocates) | own("desired_replicas", steady(1, 60))
        return Case(alert, name, known | raw, expected)  # type: ignore[arg-type]

    restart = kube("status_restarts_total", then((0, 10), (1, 60)))
    killed = kube("status_last_terminated_reason", then(("_", 10), (1, 60)), reason="OOMKilled")
    grew = (
        vllm("num_requests_running", steady(2, 60))
        | dcgm("FB_USED", then((72_000, 6), (76_000, 60)))
        | dcgm("FB_FREE", then((8_000, 6), (4_000, 60)))
    )
    return [
        # The increase is seen for ten minutes, then the alert is kept for thirty.
        case("killed for want of memory", restart | killed, (9, ()), (10, (page,)), (49, (page,)), (50, ())),
        case(
            "restarted for another reason",
            restart | kube("status_last_terminated_reason", steady(1, 60), reason="Error"),
            *silent(10, 15),
        ),
        case(
            "killed long ago, and no restart since",
            kube("status_restarts_total", steady(3, 60))
            | kube("status_last_terminated_reason", steady(1, 60), reason="OOMKilled"),
            *silent(10, 30),
        ),
        case(
            "another container of the pod was killed long ago",
            restart | kube("status_last_terminated_reason", steady(1, 60), reason="OOMKilled", container="proxy"),
            *silent(10, 15),
        ),
        case("restarted after its memory had grown", restart | grew, (9, ()), (10, (page,))),
        case("grown, and no restart", grew, *silent(10, 30)),
        case("restarted at 92 %, as ever", restart | serving() | memory(73_600, 6_400), *silent(10, 15)),
        case(
            "grown by 2.7 % only",
            restart
            | serving()
            | dcgm("FB_USED", then((72_000, 6), (74_160, 60)))
            | dcgm("FB_FREE", then((8_000, 6), (5_840, 60))),
            *silent(10, 15),
        ),
        case(
            "restarted after its memory had grown, spelt with _",
            restart | {key.replace("vllm:", "vllm_"): value for key, value in grew.items()},
            (9, ()),
            (10, (page,)),
        ),
        case(
            "grown by 3.3 %",
            restart
            | serving()
            | dcgm("FB_USED", then((72_000, 6), (74_640, 60)))
            | dcgm("FB_FREE", then((8_000, 6), (5_360, 60))),
            (9, ()),
            (10, (page,)),
        ),
        case(
            "restarted with a full card",
            restart | memory(CARD - 1_500, 1_500),
            (9, ()),
            (10, (page,)),
            preallocates=False,
        ),
        case("restarted with 2.1 % free", restart | memory(CARD - 1_680, 1_680), *silent(10, 15), preallocates=False),
        case(
            "restarted with exactly 2 % free",
            restart | memory(CARD - 1_600, 1_600),
            *silent(10, 15),
            preallocates=False,
        ),
        case("restarted with 1.9 % free", restart | memory(CARD - 1_520, 1_520), (10, (page,)), preallocates=False),
        case("a full card and no restart", memory(CARD - 400, 400), *silent(10, 30), preallocates=False),
        case(
            "an engine that preallocates has a full card",
            restart | serving() | memory(CARD - 400, 400),
            *silent(10, 15),
        ),
        case("idle", kube("status_restarts_total", steady(0, 60)), *silent(10, 30)),
        case("scaled to zero", {}, *silent(10, 30)),
        case(
            "not one of loadtide's workloads",
            {key.replace(POD, "other-6d5f7c9b8d-x2x4z"): value for key, value in (restart | killed).items()},
            *silent(10, 15),
        ),
        case(
            "a new pod begins at no restart",
            kube("status_restarts_total", then(("_", 10), (0, 30))) | killed,
            *silent(10, 15),
        ),
        case(
            "kube-state-metrics began anew",
            kube("status_restarts_total", then((3, 10), (0, 30))) | killed,
            *silent(10, 15),
        ),
        case(
            "one failed scrape changes nothing",
            kube("status_restarts_total", then((0, 10), ("stale", 1), (1, 30))) | killed,
            (10, ()),
            (11, (page,)),
        ),
        case(
            "under the scraper's labels",
            {
                key.replace(
                    'namespace="chat",pod=', 'namespace="monitoring",exported_namespace="chat",exported_pod='
                ): value
                for key, value in (restart | killed).items()
            },
            (10, (page,)),
        ),
    ]
