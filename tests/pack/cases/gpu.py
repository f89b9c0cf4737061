"""XID errors and missing GPU telemetry."""

from __future__ import annotations

from tests.pack.cases.case import CHAT, Case, fires, own, silent, steady, then
from tests.pack.cases.vram import CARD, GPU, dcgm, info, memory


def cases() -> list[Case]:
    return [*_xid(), *_missing()]


def _xid() -> list[Case]:
    page = {**CHAT, "UUID": GPU, "severity": "warning"}

    def case(name: str, raw: dict[str, str], *expected: object) -> Case:
        return Case("GpuXid", name, info(True) | raw, expected)  # type: ignore[arg-type]

    held = memory(CARD - 6_000, 6_000)
    return [
        # A change is seen for ten minutes, then the alert is kept for thirty.
        case(
            "fires", held | dcgm("XID_ERRORS", then((0, 10), (79, 60))), (9, ()), (10, (page,)), (48, (page,)), (50, ())
        ),
        case(
            "the same error, for ever (dcgm-exporter#500)",
            held | dcgm("XID_ERRORS", steady(31, 60)),
            *silent(1, 10, 30),
        ),
        case("no error", held | dcgm("XID_ERRORS", steady(0, 60)), *silent(1, 10, 30)),
        case("the smallest code", held | dcgm("XID_ERRORS", then((0, 10), (1, 60))), (9, ()), (10, (page,))),
        case("cleared", held | dcgm("XID_ERRORS", then((31, 10), (0, 60))), *silent(9, 10, 15)),
        case("another one", held | dcgm("XID_ERRORS", then((31, 10), (79, 60))), (9, ()), (10, (page,))),
        case(
            "the code is a label, so that a new series stands beside the old one",
            held
            | dcgm("XID_ERRORS", steady(31, 60), err_code="31")
            | dcgm("XID_ERRORS", then(("_", 10), (79, 50)), err_code="79"),
            (9, ()),
            (10, (page,)),
        ),
        case(
            "the error ends the pod, so that nobody holds the GPU any more",
            dcgm("FB_USED", then((CARD - 6_000, 10), ("stale", 1)))
            | dcgm("FB_FREE", then((6_000, 10), ("stale", 1)))
            | dcgm("XID_ERRORS", then((0, 10), ("stale", 1)))
            | dcgm("XID_ERRORS", then(("_", 10), (79, 40)), pod="dcgm-exporter-x2x4z"),
            (9, ()),
            (10, (page,)),
        ),
        case(
            "on a GPU that it held long ago",
            dcgm("FB_USED", then((CARD - 6_000, 5), ("stale", 1)))
            | dcgm("FB_FREE", then((6_000, 5), ("stale", 1)))
            | dcgm("XID_ERRORS", then((0, 50), (79, 9)), pod="dcgm-exporter-x2x4z"),
            *silent(50, 55),
        ),
        case(
            "on a GPU that it held twenty minutes ago",
            dcgm("FB_USED", then((CARD - 6_000, 5), ("stale", 1)))
            | dcgm("FB_FREE", then((6_000, 5), ("stale", 1)))
            | dcgm("XID_ERRORS", then((0, 26), (79, 20)), pod="dcgm-exporter-x2x4z"),
            (25, ()),
            (26, (page,)),
        ),
        case(
            "on a GPU of nobody's",
            dcgm("XID_ERRORS", then((0, 10), (79, 40)), pod="dcgm-exporter-x2x4z"),
            *silent(10, 20),
        ),
        case(
            "on another GPU of the node",
            held | dcgm("XID_ERRORS", then((0, 10), (79, 40)), uuid="GPU-2", pod="dcgm-exporter-x2x4z"),
            *silent(10, 20),
        ),
        case(
            "a GPU that two pods share is one GPU",
            held
            | memory(CARD - 6_000, 6_000, pod="m-6d5f7c9b8d-k7k8w")
            | dcgm("XID_ERRORS", then((0, 10), (79, 40)))
            | dcgm("XID_ERRORS", then((0, 10), (79, 40)), pod="m-6d5f7c9b8d-k7k8w"),
            (10, (page,)),
        ),
        case(
            "under the exporter's own labels",
            memory(CARD - 6_000, 6_000, honoured=False) | dcgm("XID_ERRORS", then((0, 10), (79, 40)), honoured=False),
            (9, ()),
            (10, (page,)),
        ),
        case(
            "one failed scrape is no change",
            held | dcgm("XID_ERRORS", then((31, 10), ("stale", 1), (31, 30))),
            *silent(10, 11, 12, 20),
        ),
        case("scaled to zero", {}, *silent(10)),
        Case(
            "GpuXid",
            "not one of loadtide's workloads",
            held | dcgm("XID_ERRORS", then((0, 10), (79, 40))),
            silent(10, 20),
        ),
    ]


def _missing() -> list[Case]:
    page = {**CHAT, "severity": "warning"}

    def case(name: str, raw: dict[str, str], *expected: object) -> Case:
        return Case("GpuMetricsMissing", name, raw, expected)  # type: ignore[arg-type]

    ready = own("ready_replicas", steady(2, 60)) | own("desired_replicas", steady(2, 60))
    return [
        case("fires", ready, *fires(15, page)),
        case("one replica", own("ready_replicas", steady(1, 60)), *fires(15, page)),
        case("its GPU is told", ready | memory(CARD - 6_000, 6_000), *silent(15, 30)),
        case(
            "only another pod's is", ready | memory(CARD - 6_000, 6_000, pod="other-6d5f7c9b8d-x2x4z"), *fires(15, page)
        ),
        case(
            "none is ready",
            own("ready_replicas", steady(0, 60)) | own("desired_replicas", steady(2, 60)),
            *silent(15, 30),
        ),
        case(
            "on its way to zero",
            own("ready_replicas", steady(1, 60)) | own("desired_replicas", steady(0, 60)),
            *silent(15, 30),
        ),
        case(
            "scaled to zero",
            own("ready_replicas", steady(0, 60)) | own("desired_replicas", steady(0, 60)),
            *silent(15, 30),
        ),
        case("idle, with its GPU", ready | memory(0, CARD), *silent(15, 30)),
        case(
            "DCGM goes away",
            ready
            | dcgm("FB_USED", then((70_000, 10), ("stale", 1)))
            | dcgm("FB_FREE", then((6_000, 10), ("stale", 1))),
            (25, ()),
            (26, (page,)),
        ),
        case(
            "one failed scrape changes nothing",
            {key: then((2, 10), ("stale", 1), (2, 30)) for key in ready},
            *fires(15, page),
        ),
        case(
            "one failed scrape of DCGM is not missing",
            ready
            | dcgm("FB_USED", " ".join(["70000 70000 stale"] * 12))
            | dcgm("FB_FREE", " ".join(["6000 6000 stale"] * 12)),
            *silent(15, 30),
        ),
        case("under the exporter's own labels", ready | memory(CARD - 6_000, 6_000, honoured=False), *silent(15, 30)),
    ]
