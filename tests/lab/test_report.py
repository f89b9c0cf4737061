"""The report: one page without any other file, that shows what the run was; and the commands that make it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.lab.chart import MOST_POINTS, Band, Panel, Series, draw, thin
from scaler.lab.contest import play
from scaler.lab.report import page, quantile
from scaler.lab.scenarios import LONG, PATIENT, Scenario, drawn, step
from scaler.lab.truth import Truth

TRUTH = Truth(50.0, 2.2)
JUMP = Scenario(
    "jump", "0 to 6/s <at once>", "tune", "llama-3.1-8b-h100", 60.0, 600.0, drawn(step(6, 60), LONG, 600), PATIENT
)


class Tags(HTMLParser):
    """Counts tags, and keeps what a page would load from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.foreign: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.foreign += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]


@pytest.fixture(scope="module")
def jump_page() -> str:
    requests = JUMP.requests(None, 1)
    played = [play(JUMP, name, requests, TRUTH, 1.0, 1) for name in ("adaptive", "hpa-in-flight", "static")]
    return page(played, TRUTH, seed=1)


def test_the_page_stands_alone_and_is_small(jump_page: str) -> None:
    tags = Tags(jump_page)
    assert tags.foreign == []
    assert "script" not in tags.counts
    assert "@import" not in jump_page
    assert "url(" not in jump_page
    assert len(jump_page) < 200_000


def test_every_policy_has_a_row_and_a_panel_of_its_own(jump_page: str) -> None:
    tags = Tags(jump_page)
    assert tags.counts["tr"] == 1 + 3
    # load, state, replicas of each, concurrency, first token, per token
    assert tags.counts["figure"] == 2 + 3 + 3
    for words in ("adaptive", "hpa-in-flight", "static", "objective 3", "P95 time to first token"):
        assert words in jump_page


def test_states_are_explained_beside_their_band_and_every_batch_of_ours_is_drawn() -> None:
    requests = JUMP.requests(None, 1)
    played = [play(JUMP, name, requests, TRUTH, 1.0, 1) for name in ("adaptive", "hpa-in-flight", "stepwise")]
    text = page(played, TRUTH, seed=1)
    (states,) = [part for part in text.split("<figure>") if "State as adaptive saw it" in part]
    occurred = {decision.state.value for decision in played[0].policy.decisions}  # type: ignore[attr-defined]
    legend = states.split("</figcaption>")[0]
    assert occurred == {
        word
        for word in ("idle", "low", "normal", "high", "critical", "stalled", "unknown")
        if f">{word}<" in legend.replace("</i>", ">")
    }
    assert "batch, adaptive" in text
    assert "batch, stepwise" in text
    assert "batch, hpa-in-flight" not in text


def test_a_logarithmic_axis_reaches_down_to_where_nothing_is_drawn_as_nothing() -> None:
    """With 256 and 3000 alone it would begin at 100, and an empty replica seem to have 100 in flight."""
    panel = Panel("in flight", [Series("x", [(0, 0.0), (1, 3000.0)], "red")], scale="log", most_bottom=1.0)
    assert ">1</text>" in draw(panel, 10.0)


def test_what_people_wrote_is_text_and_not_markup(jump_page: str) -> None:
    assert "&lt;at once&gt;" in jump_page
    assert "<at once>" not in jump_page


def test_every_svg_is_well_formed_and_within_its_box(jump_page: str) -> None:
    for part in jump_page.split("<svg")[1:]:
        svg = ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")
        _, _, width, height = map(float, svg.attrib["viewBox"].split())
        for line in svg.iter("polyline"):
            for corner in line.attrib["points"].split():
                x, y = map(float, corner.split(","))
                assert 0 <= x <= width
                assert 0 <= y <= height


def test_light_and_dark_define_the_same_colours(jump_page: str) -> None:
    style = jump_page.split("<style>")[1].split("</style>")[0]
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    names = [{word.split(":")[0] for word in part.split() if word.startswith("--")} for part in (light, dark)]
    assert names[0] == names[1] != set()


def test_a_line_is_thinned_to_its_peaks() -> None:
    points = [(float(at), 1.0) for at in range(10_000)]
    points[5003] = (5003.0, 99.0)
    thinned = thin(points)
    assert len(thinned) <= MOST_POINTS
    assert (5003.0, 99.0) in thinned


def test_a_chart_of_nothing_is_still_a_chart() -> None:
    assert "<svg" in draw(Panel("empty", [Series("none", [], "red")]), 100.0)
    assert "<svg" in draw(Panel("empty", [Series("none", [], "red")], scale="log"), 100.0)
    assert "idle, so long" in draw(Panel("state", bands=[Band(0, 50, "idle, so long", "grey")]), 100.0)


def test_an_axis_may_be_a_calendar() -> None:
    """Whole steps of the clock, a midnight as its day, and no label that would be cut at the end."""

    def labels(seconds: float, begin: datetime) -> list[str]:
        svg = draw(Panel("load", [Series("", [(0.0, 1.0)], "red")]), seconds, begin)
        return re.findall(r'text-anchor="middle">([^<]+)<', svg)

    evening = datetime(2026, 6, 1, 21, 30, tzinfo=UTC)
    assert labels(5 * 3600, evening) == ["22:00", "23:00", "Tue 2 Jun", "01:00", "02:00"]
    assert labels(7 * 86_400, evening) == [f"{day} {date} Jun" for day, date in zip(
        ("Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Mon"), range(2, 9), strict=True
    )]  # fmt: skip
    assert labels(3600, datetime(2026, 6, 1, 21, 0, tzinfo=UTC)) == ["21:15", "21:30", "21:45"]


def test_quantiles_are_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (quantile(values, 0.95), quantile([5.0], 0.95)) == (95.0, 5.0)
    assert quantile([], 0.95) != quantile([], 0.95)  # nothing has no quantile


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_simulate_writes_its_report(tmp_path: Path) -> None:
    out = tmp_path / "trickle.html"
    code, text = invoke("simulate", "trickle-8b", "--vs", "static", "--seed", "2", "--report", str(out))
    assert code == 0, text
    assert "adaptive" in text
    assert "static" in text
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_engines_that_batch_statically_can_be_played() -> None:
    code, text = invoke("simulate", "trickle-8b", "--policy", "stepwise", "--fill-seconds", "0.5")
    assert code == 0, text
    assert "stepwise" in text


def test_somebodys_own_trace_can_be_played(tmp_path: Path) -> None:
    trace = tmp_path / "mine.csv"
    rows = "".join(f"{at},500,50\n" for at in range(0, 600, 2))
    trace.write_text(f"at,prompt_tokens,output_tokens\n{rows}", encoding="utf-8")
    out = tmp_path / "mine.html"
    code, text = invoke("simulate", "--trace", str(trace), "--seconds", "300", "--floor", "2", "--report", str(out))
    assert code == 0, text
    assert "100.00%" in text
    assert "2 to 12 replicas" in out.read_text(encoding="utf-8")


def test_simulate_lists_what_there_is() -> None:
    code, text = invoke("simulate", "--list")
    assert code == 0
    assert "ramp-llm-d" in text
    assert "knative-kpa" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("simulate", "nowhere"), "there is no scenario 'nowhere'"),
        (("simulate", "flat-8b", "--vs", "magic"), "there is no policy 'magic'"),
        (("simulate", "mooncake"), "--data"),
        (("simulate", "trickle-8b", "--fill-seconds", "60"), "break the promise"),
        (("simulate", "trickle-8b", "--floor", "20"), "above the ceiling"),
        (("simulate", "trickle-8b", "--hardware", "abacus"), "there is no hardware 'abacus'"),
        (("simulate", "trickle-8b", "--trace", __file__), "not both"),
        (("simulate", "--trace", __file__), "test_report.py:1: columns"),
        (("simulate", "trickle-8b", "--start", "600"), "what is played of a --trace"),
        (("simulate", "trickle-8b", "--most", "10"), "what is played of a --trace"),
        (("simulate", "trickle-8b", "--ttft", "0.01"), "(0.01 s to the first token, 0.05 s per output token)"),
        (("simulate", "trickle-8b", "--cold-start", "inf"), "Invalid value for '--cold-start'"),
        (("score", "--policy", "magic"), "there is no policy 'magic'"),
        (("score", "--scenario", "mooncake"), "need --data"),
    ],
)
def test_what_cannot_be_played_is_said(arguments: tuple[str, ...], words: str) -> None:
    code, text = invoke(*arguments)
    assert code == 2
    assert words in text


def test_score_writes_rows_and_readings(tmp_path: Path) -> None:
    out, markdown = tmp_path / "card.json", tmp_path / "card.md"
    code, text = invoke(
        "score", "--scenario", "trickle-8b", "--policy", "adaptive", "--policy", "static", "--seeds", "1",
        "--jobs", "1", "--out", str(out), "--markdown", str(markdown),
    )  # fmt: skip
    assert code == 0, text
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert {(row["scenario"], row["seed"]) for row in rows} == {("trickle-8b", 1)}
    assert len(rows) == 2 * 5
    assert "trickle-8b" in markdown.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "option", "path", "words"),
    [
        ("score", "--out", "nowhere/card.json", "cannot be written (there is no folder"),
        ("score", "--markdown", "nowhere/card.md", "cannot be written (there is no folder"),
        ("score", "--out", ".", "is a folder; write the name of a file in it"),
        ("simulate", "--report", "nowhere/page.html", "cannot be written (there is no folder"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_played(
    command: str, option: str, path: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scaler.lab.contest.contest", pytest.fail)
    monkeypatch.setattr("scaler.lab.contest.measured_truth", pytest.fail)
    what = ["trickle-8b"] if command == "simulate" else []
    code, text = invoke(command, *what, option, str(tmp_path / path))
    assert code == 2, text
    assert words in " ".join(text.split())


def test_a_half_that_does_not_exist_is_said_with_those_that_do() -> None:
    code, text = invoke("score", "--half", "front")
    assert code == 2
    assert "there is no half 'front'; there are: tune, report" in " ".join(text.split())


def test_the_scaler_starts_without_the_lab() -> None:
    """`loadtide serve` imports of the lab no more than the names of its commands."""
    code = "import sys, scaler.cli; print(sorted(m for m in sys.modules if m.startswith('scaler.lab')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = ("", ".backtest", ".backtest.command", ".backtest.server_options", ".commands")
    rooms += (".run", ".savings", ".savings.command")
    assert done.stdout.strip() == str([f"scaler.lab{room}" for room in rooms])
