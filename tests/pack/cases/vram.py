"""GPU memory: free where the engine does not preallocate, growth and exhaustion where it does (G4-01)."""

from __future__ import annotations

from tests.pack.cases.case import CHAT, POD, Case, fires, own, series, silent, steady, then

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
    return _headroom()


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
            case(
                "only what is reserved is lacking",
                memory(CARD - little, little) | dcgm("FB_RESERVED", steady(9.2e18, 60)),
                *fires(hold, page),
            ),
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
