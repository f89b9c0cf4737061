"""Objectives that no replica can keep."""

from __future__ import annotations

from tests.pack.cases.case import CHAT, Case, Labels, fires, own, silent, steady, then


def cases() -> list[Case]:
    page = {**CHAT, "severity": "warning", "objective": "tpot", "bound": "warning"}

    def verdicts(values: str, verdict: str = "infeasible", bound: str = "warning") -> dict[str, str]:
        return own("objective_verdict", values, objective="tpot", bound=bound, verdict=verdict)

    def case(name: str, raw: dict[str, str], *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        return Case("ObjectiveInfeasible", name, raw, expected)

    always, never = steady(1, 90), steady(0, 90)
    return [
        case("no replica keeps it", verdicts(always), *fires(30, page)),
        case(
            "both bounds",
            verdicts(always) | verdicts(always, bound="critical"),
            *fires(30, page, {**page, "bound": "critical"}),
        ),
        case("broken, which more replicas may help", verdicts(always, "breached") | verdicts(never), *silent(30, 60)),
        case("idle, and met", verdicts(never), *silent(30, 60)),
        case("scaled to zero, and not judged", own("desired_replicas", never), *silent(30, 60)),
        case("one failed scrape changes nothing", verdicts(then((1, 10), ("stale", 1), (1, 60))), *fires(30, page)),
        case("it was loosened: over after what was kept", verdicts(then((1, 40), (0, 30))), (49, (page,)), (50, ())),
    ]
