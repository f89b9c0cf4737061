"""The live page in a real browser, over snapshots made by hand: an hour of history, hundreds of workloads, a loop that
has died, texts that look like markup; with the keyboard alone, on a phone, in light and dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from scaler.control.budget import Bill, Room
from scaler.control.card_part import CardPart
from scaler.control.cold_start import ColdStarts
from scaler.control.model import Admission, Code, LoadState, Memory, Now, Reason, Rung, Target, Targets
from scaler.control.season import Expected, Season, Skill
from scaler.policy.model import Budget, Gpu, GpuGroup, Idle, Price, PriceWindow
from scaler.serve.snapshot import Snapshot, SourceHealth
from scaler.signals.model import Known, Stale, Unknown
from tests.real import chromium
from tests.real.chromium import Browser
from tests.real.page_served import NOW, hour, served
from tests.real.test_page import picture
from tests.serve.tide import POLICY, SIGNALS, START, FakeWorkloads, latency, snapshot

pytestmark = pytest.mark.real

MARKUP = "<img src=x onerror=alert(1)> & <b>bold</b>"


@pytest.fixture
def workloads() -> FakeWorkloads:
    known = FakeWorkloads()
    for name, state in (
        ("chat/llama", LoadState.NORMAL),
        ("code/qwen", LoadState.CRITICAL),
        ("embed/bge", LoadState.IDLE),
    ):
        hour(known, name, state)
    return known


@pytest.fixture
def page(browser: Browser, workloads: FakeWorkloads) -> Iterator[Browser]:
    browser.size(1280, 1000)
    browser.scheme("light")
    with served(workloads) as address:
        browser.open(address)
        browser.sees("chat/llama", "#workloads")
        yield browser
        browser.look_behind(address)


def test_the_loudest_stands_first_with_its_trend_and_its_p95(page: Browser) -> None:
    assert page.text("#workloads tbody tr:first-child").startswith("code/qwen critical")
    assert "0.1–0.25 s of 1 s met" in page.text("#workloads tbody")
    assert len(page.all("#workloads svg.spark")) == 3
    assert ", at most 80 in 30 min" in str(page.one("#workloads td.load").get_attribute("textContent"))
    picture(page, "overview")


def test_a_dead_loop_is_the_first_thing_one_sees(page: Browser, workloads: FakeWorkloads) -> None:
    workloads.current, workloads.seconds = False, NOW + 80.0
    page.sees("The loop has stopped: nothing is being decided. KEDA is told UNAVAILABLE", "#alarm")
    page.sees("The last decision was made 1 min 2", "#alarm")
    assert page.one("#alarm").get_attribute("role") == "alert"
    page.reads("answers, but decides nothing", "#link")
    page.sees("was normal no recent tick", "#workloads")
    assert page.audit() == []
    picture(page, "dead")
    page.click("#workloads a.name")
    page.sees("No recent tick: what is shown is old", "#one-alarm")
    workloads.current, workloads.seconds = True, NOW + 1.0
    page.until(lambda: page.text("#one-alarm"), lambda text: not text, "calm again")


def test_the_keyboard_alone_leads_everywhere_and_reads_the_timeline(page: Browser) -> None:
    page.press(chromium.TAB)
    assert page.focused() == "skip"
    for _ in range(20):
        page.press(chromium.TAB)
        if page.focused() == "chat/llama":
            break
    page.press(chromium.ENTER)
    page.sees("chat/llama", "#one-title")
    assert page.focused() == "one-title"
    timeline = page.one("#timeline")
    for _ in range(10):
        page.press(chromium.TAB)
        if page.focused() == "timeline":
            break

    def value() -> str:
        return str(timeline.get_attribute("aria-valuetext"))

    assert "now: normal. Requests: running 12, waiting 0." in value()
    page.press(chromium.HOME)
    assert "30 min" in value() or "29 min" in value()
    page.press(*[chromium.RIGHT] * 20)
    assert "critical" in value()
    assert "TTFT P95: 2.5–5 s" in value()
    assert "critical" in page.text("#moment")
    assert "running 60 waiting 20" in page.text("#timeline")
    at = value().split(",")[0]
    page.press(chromium.LEFT)
    assert value().split(",")[0] < at
    picture(page, "pointing")
    page.press(chromium.ESCAPE)
    assert "now: normal" in value()
    page.press(chromium.TAB, chromium.ENTER)  # the summary of the table
    page.sees("Requests: running", "#timeline-table")
    assert len(page.all("#timeline-table tbody tr")) > 150
    assert page.audit() == []
    page.driver.back()
    page.until(page.focused, lambda where: where == "chat/llama", "the link one came by has the focus again")


def test_a_range_is_chosen_and_what_is_held_counts_down(page: Browser) -> None:
    page.click("#workloads a.name")
    page.sees("cooldown", "#suppressed")
    page.sees("left", "#suppressed .left")
    for minutes in ("60", "10"):
        button = next(each for each in page.all("#ranges button") if each.text == f"{minutes} min")
        button.click()
        asked = f"/timeline?minutes={minutes}"
        page.until(lambda asked=asked: page.requests_of(asked), bool, asked)
        assert button.get_attribute("aria-pressed") == "true"
    first = page.text("#suppressed .left")
    page.until(lambda: page.text("#suppressed .left"), lambda text: text != first, "a countdown that moves")


def test_hundreds_are_sorted_filtered_and_drawn_in_part(page: Browser, workloads: FakeWorkloads) -> None:
    for number in range(300):
        state = LoadState.STALLED if number == 250 else LoadState.NORMAL
        signals = replace(SIGNALS, running=Known(float(number), NOW))
        made = snapshot(
            f"team-{number % 7}/w{number:03}",
            state=state,
            signals=signals,
            targets=Targets(number, True, 8),
            decided_at=Now(START, NOW),
        )
        workloads.add(made.workload, made)
    page.sees("303 in all", "#shown")
    assert len(page.all("#workloads tbody tr")) == 200
    assert page.text("#workloads tbody tr:first-child .name") == "team-5/w250"
    page.click("#workloads thead th[data-key=replicas] button")
    assert page.text("#workloads tbody tr:first-child .name") == "team-5/w299"
    assert page.one("#workloads thead th[data-key=replicas]").get_attribute("aria-sort") == "descending"
    page.click("#workloads thead th[data-key=replicas] button")
    assert page.text("#workloads tbody tr:first-child .replicas").startswith("0 wanted")
    page.one("#search").send_keys("team-3/")
    page.sees("43 of 303", "#shown")
    page.one("#search").send_keys("nothing-like-it")
    page.sees("No workload matches", "#none-match")
    page.click("#unfilter")
    page.sees("303 in all", "#shown")
    page.click("#more")
    assert len(page.all("#workloads tbody tr")) == 303
    page.click("#states button", "stalled")
    page.sees("1 of 303", "#shown")
    assert page.audit() == []
    picture(page, "many")


def test_texts_from_elsewhere_are_texts(page: Browser, workloads: FakeWorkloads) -> None:
    before = workloads.get("code/qwen")
    assert before is not None
    assert before.snapshot is not None
    health = (SourceHealth("scrape", "http://vllm:8000/metrics", False, MARKUP, 0.1),)
    targets = Targets(1, True, 8, None, Admission.HOLD)
    signals = replace(before.snapshot.signals, running=Stale(3.0, NOW - 60), warnings=(MARKUP,))
    before.snapshot = replace(
        before.snapshot, warnings=(MARKUP,), health=health, signals=signals,
        decision=replace(before.snapshot.decision, targets=targets),
    )  # fmt: skip
    page.click("#workloads a.name")
    page.sees(MARKUP, "#one-warnings")
    assert MARKUP in page.text("#sources")
    assert page.all("main img, main b:not(.value b)") == []
    assert "Admission: new requests are held back." in page.text("#one-warnings")
    assert "3 (stale)" in page.text("#facts")


def sleeping() -> Snapshot:
    """Two replicas asleep, in a price window, with a season believed, of a budget that is spent."""
    window = PriceWindow.model_validate({"start": "08:00", "end": "20:00", "zone": "UTC", "objective_factor": 1.5})
    policy = POLICY.model_copy(
        update={
            "idle": Idle(sleep_after_seconds=300),
            "gpu": Gpu(hour_price=2.5, currency="EUR"),
            "price": Price(windows=(window,)),
            "budget": Budget(gpu_hours=100.0, per="month"),
        }
    )
    memory = Memory(
        state_seconds=360.0,
        asleep_seconds=60.0,
        woken_seconds=3.5,
        loaded_seconds=140.0,
        cold_starts=ColdStarts(warm=(60.0, 70.0, 80.0, 90.0, 140.0)),
        season=Season(period="weekly", slots_known=2016, weekly=Skill(2000.0, 1.0, 10.0, 50.0)),
        bill=Bill(START, 321.0, 802.5, "2025-03", 100.5, 0, 36.0),
    )
    return snapshot(
        "night/llama",
        state=LoadState.IDLE,
        cause=None,
        signals=replace(SIGNALS, ttft_seconds=Known(latency(0.1, 0.25), NOW)),
        policy=policy,
        targets=Targets(2, True, 32, rung=Rung.ASLEEP),
        ready=0,
        asleep=2,
        reasons=(
            Reason(Code.BUDGET_FLOOR, Target.REPLICAS, "spent_gpu_hours", 100.5, 100.0),
            Reason(Code.INFEASIBLE, Target.REPLICAS, "tpot_seconds", 0.047, 0.05),
        ),
        verdicts={"ttft": "met", "ttft_critical": "met", "tpot": "infeasible"},
        next_memory=memory,
        cold_start_seconds=140.0,
        season=Expected(1.5, 3.0, "weekly"),
        budget=Room(100.0, 100.5, 2, True),
        decided_at=Now(START, NOW),
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sleep_season_price_and_budget_are_seen_and_what_to_do_about_them(
    page: Browser, workloads: FakeWorkloads, scheme: str
) -> None:
    made = sleeping()
    workloads.add(made.workload, made, made.policy)
    calling = snapshot("night/waking", ready=0, asleep=1, decided_at=Now(START, NOW))
    workloads.add(calling.workload, calling)
    page.scheme(scheme)
    page.sees("night/llama", "#workloads")
    page.sees("night/waking", "#workloads")
    row = next(each for each in page.texts("#workloads tbody tr") if "night/llama" in each)
    assert "asleep\nbudget spent" in row
    assert "0 ready, 2 asleep, max 4" in row
    assert "infeasible" in row
    assert "waking" in next(each for each in page.texts("#workloads tbody tr") if "night/waking" in each).splitlines()
    assert page.audit() == []
    picture(page, f"standing-all-{scheme}")
    page.click("a.name", "night/llama")
    standing = page.sees("Rung", "#standing")
    for about, sentence in (
        ("Rung", "asleep for 1 min (level 1); 2 replicas asleep; the last wake took 3.5 s, a cold start: 2 min 20 s"),
        (
            "Cold start",
            "the next replica is expected to take 2 min 20 s; measured: half within 1 min 20 s, 95 %",
        ),
        ("Season", "weekly; 3 req/s usual in 2 min, 1.5 as today goes"),
        ("Cost", "5 EUR an hour for 2 GPUs, 802 EUR so far (321 GPU-hours)"),
        ("Price", "window 08:00 to 20:00 UTC is open: objectives times 1.5"),
        ("Budget", "100 of 100 GPU-hours of 2025-03 spent, 36 set aside for the floor; nothing is left, and the floor"),
    ):
        assert f"{about} {sentence}" in standing
    assert "0 ready 2 asleep" in page.text("#facts")
    assert "raise budget.gpu_hours, or lower warm.floor" in page.text("#advice")
    assert "loosen the objective to at least 1.2 times that" in page.text("#advice")
    assert page.audit() == []
    picture(page, f"standing-{scheme}")
    page.size(390, 844)
    assert page.audit() == []
    assert page.overflow() == 0
    picture(page, f"standing-phone-{scheme}")


def on_card(workloads: FakeWorkloads, name: str, state: LoadState, part: CardPart, free: float | None = None) -> None:
    """One of those who share node-7/gpu-0."""
    policy = POLICY.model_copy(update={"gpu_group": GpuGroup(name="node-7/gpu-0", share_ratio=part.own, batch=48)})
    signals = SIGNALS if free is None else replace(SIGNALS, gpu_memory_free_ratio=Known(free, NOW))
    made = snapshot(
        name,
        policy=policy,
        signals=signals,
        state=state,
        next_memory=Memory(card=part, state_seconds=40.0),
        targets=Targets(1, True, part.bound),
        decided_at=Now(START, NOW),
    )
    workloads.add(name, made, policy)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_who_shares_a_card_is_seen_with_what_is_lent_borrowed_and_free(
    page: Browser, workloads: FakeWorkloads, scheme: str
) -> None:
    on_card(workloads, "team/night", LoadState.IDLE, CardPart(0.025, 0.05, 0.5, 2))
    on_card(workloads, "team/day", LoadState.HIGH, CardPart(0.775, 0.3, 0.3, 124), free=0.07)
    on_card(workloads, "team/small", LoadState.NORMAL, CardPart(0.1, 0.1, 0.1, 16))
    page.scheme(scheme)
    page.sees("team/day", "#workloads")
    rows = page.sees("team/small", "#workloads")
    assert "card node-7/gpu-0 47.5 % borrowed" in rows
    assert "card node-7/gpu-0 47.5 % lent" in rows
    assert page.overflow() == 0
    picture(page, f"card-all-{scheme}")
    page.click("a.name", "team/day")
    page.sees("Shared card node-7/gpu-0", "#card")
    assert "Nobody has 10 % of its time and 55 % of its memory. Measured free of its memory: 7 %." in page.text("#card")
    assert [" ".join(row.split()) for row in page.texts("#sharing tbody tr")] == [
        "team/day this one high 30 % 77.5 % 47.5 % borrowed 30 % 124",
        "team/night idle 50 % 2.5 % 47.5 % lent 5 % 45 % lent 2",
        "team/small normal 10 % 10 % 10 % 16",
    ]
    assert "beside team/night (2.5 % of its time), team/small (10 % of its time)" in page.text("#standing")
    assert page.audit() == []
    picture(page, f"card-{scheme}")
    page.size(390, 844)
    assert page.audit() == []
    assert page.overflow() == 0
    page.driver.execute_script("document.getElementById('card').scrollIntoView()")  # type: ignore[no-untyped-call]
    picture(page, f"card-phone-{scheme}")
    page.size(1280, 1000)
    page.click("#sharing a", "team/night")
    page.sees("this one", "#sharing tbody tr:nth-child(2)")
    page.click("#back")
    page.click("a.name", "chat/llama")
    page.sees("chat/llama", "#one-title")
    assert page.text("#card") == "", "who shares no card is shown none"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_can_be_read_in_both_schemes_on_a_phone_and_by_a_screen_reader(
    page: Browser, workloads: FakeWorkloads, scheme: str
) -> None:
    for state in LoadState:
        workloads.add(f"states/{state}", snapshot(f"states/{state}", state=state, decided_at=Now(START, NOW)))
    lost = snapshot(
        "states/lost",
        state=LoadState.UNKNOWN,
        available=False,
        signals=replace(SIGNALS, running=Unknown("connection refused")),
        decided_at=Now(START, NOW),
    )
    workloads.add("states/lost", lost)
    page.scheme(scheme)
    page.sees("states/stalled", "#workloads")
    assert page.audit() == []
    page.size(360, 740)
    assert page.spills("#workloads tbody tr") == []
    page.size(390, 844)
    assert page.audit() == []
    assert page.overflow() == 0
    picture(page, f"phone-{scheme}")
    page.click("a.name", "chat/llama")
    page.sees("normal", "#timeline")
    assert page.audit() == []
    assert page.overflow() == 0
    picture(page, f"phone-depth-{scheme}")
    page.size(1280, 1000)
    page.click("#absent summary")
    assert page.audit() == []
    picture(page, f"depth-{scheme}")


def test_who_asks_for_less_motion_gets_none(page: Browser) -> None:
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert page.driver.execute_script("return document.getAnimations().length") == 0
