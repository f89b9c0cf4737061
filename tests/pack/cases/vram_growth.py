"""GPU memory of engines that preallocate: growth past their own baseline, and restarts for want of memory (G4-01)."""

from __future__ import annotations

from tests.pack.cases.case import CHAT, POD, Case, engine, fires, own, series, silent, steady, then, vllm
from tests.pack.cases.vram import CARD, GPU, dcgm, info, memory


def cases() -> list[Case]:
    return [*_growth(), *_exhausted()]


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
        case("3.2 % more", serving() | used((0.90, 20), (0.932, 40)), *fires(30, page)),
        case("2.7 % more", serving() | used((0.90, 20), (0.927, 40)), *silent(30, 50)),
        case("exactly 3 % more", serving() | used((0.0, 20), (0.03, 40)), *silent(30, 50)),
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

    def memory_of(used: float, free: float, minutes: int, before: float = 0) -> dict[str, str]:
        """Of a GPU that is seen for so long; ``before`` was used in the first six."""
        first = before or used
        return dcgm("FB_USED", then((first, 6), (used, minutes - 6), ("stale", 1))) | dcgm(
            "FB_FREE", then((used + free - first, 6), (free, minutes - 6), ("stale", 1))
        )

    def restarted_at(minute: int) -> dict[str, str]:
        return kube("status_restarts_total", then((0, minute), (1, 60)))

    grew_and_gone = vllm("num_requests_running", steady(2, 60)) | memory_of(76_000, 4_000, 10, before=72_000)
    return [
        # The increase is seen for ten minutes, then the alert is kept for thirty.
        case("killed for want of memory", restart | killed, (9, ()), (10, (page,)), (48, (page,)), (50, ())),
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
        *(
            case(f"{what}, and restarted {after} after its GPU was seen last", gone | restarted_at(at), *found, **told)
            for after, at, found in (
                ("20 min", 30, [(29, ()), (30, (page,))]),
                ("40 min", 50, silent(50, 55)),
            )
            for what, gone, told in (
                ("grown", grew_and_gone, {}),
                ("full", memory_of(79_000, 1_000, 10), {"preallocates": False}),
            )
        ),
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
            "grown by exactly 3 %",
            restart
            | serving()
            | dcgm("FB_USED", then((0, 6), (2_400, 60)))
            | dcgm("FB_FREE", then((80_000, 6), (77_600, 60))),
            *silent(10, 15),
        ),
        case(
            "grown by 3.2 %",
            restart
            | serving()
            | dcgm("FB_USED", then((72_000, 6), (74_560, 60)))
            | dcgm("FB_FREE", then((8_000, 6), (5_440, 60))),
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
