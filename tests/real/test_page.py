"""The live page in a real browser, over a whole process and an engine page that the test writes.

Every test ends by looking behind the page: nothing was requested from anybody else, nothing was said on the console.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.chromium import Browser
from tests.running_scaler import RunningScaler, running_scaler
from tests.serve.test_process import Engine, policy

pytestmark = pytest.mark.real

#: Upper ends of the histogram's buckets, seconds.
BUCKETS = (0.1, 0.25, 1.0, 5.0, 10.0)
#: Where to leave pictures for a person to look at; unset: nowhere.
PICTURES = os.environ.get("LOADTIDE_PICTURES")


class TimedEngine(Engine):
    """The engine with a histogram of the time to first token."""

    def __init__(self) -> None:
        super().__init__()
        self.first_tokens = dict.fromkeys(BUCKETS, 0)
        #: Within how many seconds it answers two requests before each reading; None: it answers none.
        self.answers_within: float | None = None

    def answer(self, requests: int, within_seconds: float) -> None:
        """Finish so many requests, whose first token came just within one of :data:`BUCKETS`."""
        self.finished += requests
        self.first_tokens[within_seconds] += requests

    def page(self) -> str:
        if self.answers_within is not None:
            self.answer(2, self.answers_within)
        name, labels, lines, seen = "vllm:time_to_first_token_seconds", 'engine="0",model_name="m"', [], 0
        for end, count in self.first_tokens.items():
            seen += count
            lines.append(f'{name}_bucket{{{labels},le="{end}"}} {seen}')
        mean = sum(end * count for end, count in self.first_tokens.items())
        lines += [f'{name}_bucket{{{labels},le="+Inf"}} {seen}', f"{name}_sum{{{labels}}} {mean}"]
        return super().page() + "\n".join([*lines, f"{name}_count{{{labels}}} {seen}", ""])


@pytest.fixture
def engine() -> Iterator[TimedEngine]:
    engine = TimedEngine()
    yield engine
    engine.server.shutdown()
    engine.server.server_close()


@pytest.fixture
def scaler(engine: TimedEngine, tmp_path: Path) -> Iterator[RunningScaler]:
    arguments = policy(
        tmp_path,
        engine,
        "hold_seconds: 12",  # longer than a machine stands still: that it is held is to be seen
        "window_seconds: 20",
        "objectives: {ttft_seconds: 1, ttft_critical_seconds: 5}",
        "jump: {rows: [{rate_at_least: 100, batch: 32, replicas: 8}]}",
        "replicas: {min: 1, max: 8}",
        "batch: {start: 4, max: 64}",
    )
    with running_scaler(tmp_path, *arguments) as scaler:
        yield scaler


@pytest.fixture
def page(browser: Browser, scaler: RunningScaler) -> Iterator[Browser]:
    """The page of the scaler, at its overview."""
    browser.size(1280, 900)
    browser.scheme("light")
    browser.open(f"http://{scaler.http}/")
    yield browser
    browser.look_behind(f"http://{scaler.http}/")


def picture(page: Browser, name: str) -> None:
    if PICTURES:
        page.screenshot(Path(PICTURES) / f"{name}.png")


def open_one(page: Browser) -> None:
    page.sees("chat/m", "#workloads")
    page.click("#workloads a.name")
    page.sees("chat/m", "#one-title")


def test_at_idle_it_says_that_nothing_is_asked_and_what_stands(page: Browser) -> None:
    page.sees("idle", "#workloads tbody tr")
    page.sees("1 wanted 1 ready, max 8", "#workloads tbody tr")
    page.reads("live", "#link")
    page.reads("1 in all", "#shown")
    open_one(page)
    page.sees("idle nobody is asking for anything, for", "#one-state")
    page.reads("", "#one-alarm")
    page.sees("running sequences being computed known 0 requests", "#signals")
    assert page.sees("State", "#timeline .panel")
    assert page.audit() == []
    picture(page, "idle")


def test_in_a_jump_the_new_replicas_the_reason_and_the_decision_are_seen(
    page: Browser, engine: TimedEngine, scaler: RunningScaler
) -> None:
    page.sees("idle", "#workloads tbody tr")
    # A jump is one against what was expected, and that is to be seen for a while first.
    idle_seconds = lambda: scaler.get("/v1/workloads/chat/m")["state_seconds"]  # noqa: E731
    page.until(idle_seconds, lambda seconds: seconds > 4, "idle for a while")
    engine.waiting, engine.running = 300, 4
    page.sees("8 wanted", "#workloads tbody tr")
    page.sees("304 , at most 304 in 30 min", "#workloads tbody tr")
    open_one(page)
    assert "jump" in page.sees("replicas 1 → 8", "#decisions")
    page.sees("running 4 waiting 300", "#timeline")
    assert page.audit() == []
    picture(page, "jump")


def test_critical_is_loud_and_says_what_is_broken(page: Browser, engine: TimedEngine) -> None:
    open_one(page)
    engine.running, engine.waiting = 30, 20
    engine.answers_within = 10.0
    page.sees("critical", "#one-state")
    page.until(page.said, lambda text: "chat/m is now critical" in text, "announced")
    page.sees("5–10 s of 1 s breached", "#facts")
    page.until(lambda: page.driver.title, lambda title: title.startswith("chat/m: critical"), "its title says it")
    assert page.audit() == []
    picture(page, "critical")
    page.click("#back")
    page.sees("critical", "#workloads tbody tr")
    page.until(page.focused, lambda where: where == "chat/m", "the link one came by has the focus again")


def test_lost_data_is_held_aloud_and_then_unavailable_and_never_drawn_on(page: Browser, engine: TimedEngine) -> None:
    engine.running = 20
    open_one(page)
    page.sees("running sequences being computed known 20 requests", "#signals")
    engine.up = False
    page.sees("Signals are lost", "#one-warnings")
    page.sees("stale", "#signals")
    page.sees("Unavailable: signals are lost", "#one-alarm")
    page.sees("fails scrape", "#sources")
    page.sees("running unknown", "#timeline")
    page.sees("Data age no data", "#facts")
    assert page.audit() == []
    picture(page, "lost")
    page.click("#back")
    page.sees("KEDA is told: unavailable", "#workloads tbody tr.silent")
    engine.up = True
    page.until(lambda: page.all("tr.silent"), lambda rows: not rows, "KEDA is answered again")


def test_a_scaler_that_is_gone_is_said_loudly_and_its_data_grow_old(page: Browser, scaler: RunningScaler) -> None:
    page.sees("idle", "#workloads tbody tr")
    scaler.kill()
    page.sees("No answer from the scaler: what is shown is old", "#link")

    def seconds() -> int:
        found = re.fullmatch(r"(\d+) s|(\d+) min.*", page.text("td.age"))
        return 0 if found is None else int(found[1] or 60 * int(found[2]))

    before = seconds()
    page.until(seconds, lambda now: now >= max(3, before + 1), "an age that grows")
    assert page.audit() == []
    page.excuse("ERR_CONNECTION_REFUSED")


def test_a_workload_that_is_not_there_is_said_and_leads_back(page: Browser, scaler: RunningScaler) -> None:
    page.sees("chat/m", "#workloads")
    page.driver.get(f"http://{scaler.http}/#chat/nobody")
    page.sees("There is no workload chat/nobody", "#gone")
    page.excuse("404 (Not Found)")  # the browser's own line about the API's answer
    page.click("#gone a")
    page.sees("chat/m", "#workloads")
