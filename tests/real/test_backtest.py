"""A backtest on a real Prometheus, with a past whose truth the lab knows.

Two pasts of the same requests lie in its storage: one that our own policy made, which a backtest must find again tick
by tick, and one that an HPA made with other replicas at every time, of which it must tell what our policy *would* have
done, beside what it did when it was played live.
"""

from __future__ import annotations

import json
import shutil
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.lab.scenarios import LONG, drawn, sawtooth
from scaler.lab.truth import measure_truth
from tests.lab.backtest.lab_past import BEGIN, TICK_SECONDS, Lived, live, short
from tests.real import prometheus_server
from tests.real.chromium import Browser
from tests.real.prometheus_server import Server
from tests.real.recorded_past import Past

pytestmark = pytest.mark.real

SECONDS = 2 * 3600.0
UNTIL = "2026-06-01T02:00:00Z"
SAW = short("saw", SECONDS, drawn(sawtooth(0.5, 6, 3600), LONG, SECONDS))
#: Another deployment of the same namespace, in the storage of the same server.
RIVAL, OURS = "rival", "llama"
#: Of the rival's past: so far from the truth may hours and minutes at risk be. Seen: 3 % and 1 min.
HOURS_TOLERANCE, SHORT_MINUTES_TOLERANCE = 0.08, 6.0


@dataclass(frozen=True)
class World:
    """The server, and what our policy did live; ``rival_hours`` are the replica-hours of the HPA's past."""

    server: Server
    lived: Lived
    rival_hours: float
    policy: tuple[str, ...]


@pytest.fixture(scope="module")
def world(prometheus: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("backtest")
    requests = SAW.requests(None, 1)
    truth = measure_truth(
        SAW.hardware, [(each.prompt_tokens, each.output_tokens) for each in requests[:2000]], SAW.promise, SAW.batch
    )
    ours, rival = Past(folder, deployment=OURS), Past(folder / "other", deployment=RIVAL)
    lived = live(SAW, truth, "adaptive", requests, ours.watch)
    other = live(SAW, truth, "hpa-in-flight", requests, rival.watch)
    ours.blocks()
    rival.blocks()
    for block in (folder / "other" / "data").iterdir():
        block.rename(folder / "data" / block.name)
    policy = (
        "replicas.min=1",
        f"replicas.max={SAW.ceiling}",
        f"replicas.cold_start_seconds={SAW.cold_start_seconds:g}",
        f"capacity.requests_per_second={truth.requests_per_second}",
        f"capacity.sequences={truth.sequences}",
        f"batch.max={SAW.batch}",
        f"objectives.ttft_seconds={SAW.promise.ttft_seconds:g}",
        f"objectives.ttft_critical_seconds={5 * SAW.promise.ttft_seconds:g}",
        f"objectives.tpot_seconds={SAW.promise.tpot_seconds:g}",
        "push.enabled=true",
    )
    with prometheus_server.serve(folder, options=["--storage.tsdb.retention.time=10y"]) as server:
        yield World(server, lived, other.replica_hours, tuple(f"--set={each}" for each in policy))


def backtested(world: World, deployment: str, tmp_path: Path, *arguments: str) -> dict[str, object]:
    """The command's own figures."""
    figures = tmp_path / "figures.json"
    result = CliRunner().invoke(
        app,
        ["backtest", "--prometheus", world.server.url, "--workload", f"chat/{deployment}", "--range", "2h",
         "--until", UNTIL, "--json", str(figures), *world.policy, *arguments],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document: dict[str, object] = json.loads(figures.read_text())
    return document


def test_the_past_of_our_own_policy_is_decided_the_same_again(world: World, tmp_path: Path) -> None:
    document = backtested(world, OURS, tmp_path)
    timeline: dict[str, list[float]] = document["timeline"]  # type: ignore[assignment]
    found = dict(zip(timeline["unix"], zip(timeline["asked"], timeline["ready"], strict=True), strict=True))
    lived = [(BEGIN + moment.at, (moment.asked, moment.ready)) for moment in world.lived.run.timeline]
    same = sum(found.get(unix) == replicas for unix, replicas in lived)
    assert len(lived) == SECONDS / TICK_SECONDS
    assert same >= 0.95 * len(lived)
    hours: dict[str, float] = document["gpu_hours"]  # type: ignore[assignment]
    assert hours["ran"] == pytest.approx(world.lived.replica_hours, rel=0.01)
    assert hours["loadtide"] == pytest.approx(world.lived.replica_hours, rel=0.02)


def test_the_past_of_another_scaler_tells_what_ours_would_have_done(world: World, tmp_path: Path) -> None:
    document = backtested(world, RIVAL, tmp_path)
    findings: dict[str, dict[str, float]] = document["findings"]  # type: ignore[assignment]
    assert findings["ran"]["replica_hours"] == pytest.approx(world.rival_hours, rel=0.01)
    assert findings["ours"]["replica_hours"] == pytest.approx(world.lived.replica_hours, rel=HOURS_TOLERANCE)
    assert findings["ours"]["short_minutes"] == pytest.approx(world.lived.short_minutes, abs=SHORT_MINUTES_TOLERANCE)
    # It had other replicas than those that ran for a quarter of the time; with the same all along this would show
    # nothing.
    timeline: dict[str, list[float]] = document["timeline"]  # type: ignore[assignment]
    equal = sum(ran == ready for ran, ready in zip(timeline["ran"], timeline["ready"], strict=True))
    assert equal < 0.8 * len(timeline["unix"])


def test_a_server_with_a_small_limit_is_asked_for_less_at_a_time(world: World, tmp_path: Path) -> None:
    """Prometheus refuses a query that would load more than --query.max-samples."""
    free = backtested(world, OURS, tmp_path)
    options = ["--storage.tsdb.retention.time=10y", "--query.max-samples=20000"]
    shutil.copytree(
        world.server.folder / "data", tmp_path / "data", ignore=shutil.ignore_patterns("lock", "queries.active")
    )
    with prometheus_server.serve(tmp_path, options=options) as server:
        with pytest.raises(urllib.error.HTTPError, match="422"):
            server.query(f'{{__name__=~"vllm.+"}}[2h] @ {BEGIN + SECONDS}')
        limited = World(server, world.lived, world.rival_hours, world.policy)
        small = backtested(limited, OURS, tmp_path)
    assert small["findings"] == free["findings"]
    assert small["timeline"] == free["timeline"]


@pytest.fixture(scope="module")
def page(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the rival's past."""
    folder = tmp_path_factory.mktemp("page")
    backtested(world, RIVAL, folder, "--html", str(folder / "page.html"))
    return folder / "page.html"


@pytest.mark.parametrize(("width", "scheme"), [(1080, "light"), (1080, "dark"), (390, "light")])
def test_the_page_is_read_by_anybody(page: Path, browser: Browser, width: int, scheme: str) -> None:
    browser.size(width, 900)
    browser.scheme(scheme)
    browser.open(page.as_uri())
    try:
        assert "What this cannot know" in browser.text("body")
        assert browser.overflow() <= 0
        assert all(picture.get_attribute("aria-label") for picture in browser.all("svg"))
        # The audit is the live page's, whose pictures are all hidden from a screen reader: these have a text.
        assert [each for each in browser.audit() if "a picture that a screen reader meets" not in each] == []
        browser.look_behind("file://")
    finally:
        browser.size(1080, 900)
        browser.scheme("light")
