"""What is spent."""

from __future__ import annotations

from tests.pack.cases.case import CHAT, Case, Labels, fires, own, silent, steady, then

HOUR = 3600


def cases() -> list[Case]:
    return [*_spent(), *_held_back()]


def _spent() -> list[Case]:
    def kept(spent: str, reserved: float, budget: float = 100) -> dict[str, str]:
        return (
            own("budget_spent_gpu_seconds", spent)
            | own("budget_reserved_gpu_seconds", steady(reserved * HOUR, 60))
            | own("budget_gpu_seconds", steady(budget * HOUR, 60))
        )

    def case(name: str, found: dict[str, str], *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        return Case("BudgetSpent", name, found, expected)

    warns = {**CHAT, "severity": "warning"}
    return [
        case("it is spent", kept(steady(100 * HOUR, 60), 0), *fires(5, warns)),
        case("what is left is the floor's", kept(steady(60 * HOUR, 60), 40), *fires(5, warns)),
        case("of a small budget too", kept(steady(0.4 * HOUR, 60), 0.6, budget=1), *fires(5, warns)),
        case("something is left", kept(steady(60 * HOUR, 60), 39), *silent(5, 30)),
        case("a new period, in which the floor alone takes it all", kept(steady(0, 60), 100), *silent(5, 30)),
        case("idle at zero, nothing is taken and nothing set aside", kept(steady(0, 60), 0), *silent(5, 30)),
        case("no budget is declared", own("budget_spent_gpu_seconds", steady(60 * HOUR, 60)), *silent(5, 30)),
        case("one failed scrape changes nothing", kept(then((100 * HOUR, 20), ("stale", 1), (100 * HOUR, 30)), 0),
             *((minute, (warns,)) for minute in (19, 20, 21, 22))),
        case("a new day", kept(then((100 * HOUR, 20), (1 * HOUR, 40)), 0), (34, (warns,)), (35, ())),
    ]  # fmt: skip


def _held_back() -> list[Case]:
    page = {**CHAT, "severity": "warning", "code": "budget"}

    def held(target: str, values: str = steady(1, 60), code: str = "budget") -> dict[str, str]:
        return own("suppressed", values, target=target, code=code)

    def case(name: str, raw: dict[str, str], *expected: tuple[int, tuple[Labels, ...]]) -> Case:
        return Case("BudgetHoldsBack", name, raw, expected)

    gap = then((1, 10), ("stale", 1), (1, 30))
    return [
        case("more replicas are needed than it leaves", held("replicas"), *fires(15, page)),
        case("scaled to zero, and somebody asks", held("active"), *fires(15, page)),
        case("both at once are one", held("replicas") | held("active"), *fires(15, page)),
        case("idle: nothing is held back", held("replicas", steady(0, 60)), *silent(15, 30)),
        case("the ceiling is no budget", held("replicas", code="ceiling"), *silent(15, 30)),
        case("one failed scrape changes nothing", held("replicas", gap), *fires(15, page)),
        case("the period ends", held("replicas", then((1, 20), (0, 20))), (24, (page,)), (25, ())),
    ]
