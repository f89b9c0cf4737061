"""The whole of it on a past whose truth the lab knows."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from scaler.lab.backtest.export import as_json
from scaler.lab.backtest.limits import what_it_cannot_know
from scaler.lab.backtest.money import money
from scaler.lab.backtest.page import page
from scaler.lab.backtest.show import show
from scaler.lab.backtest.span import Span
from scaler.lab.backtest.study import Backtest, NothingReadError, Setting, cold_start_of, study
from scaler.lab.backtest.summary import basis, compared, next_steps, remarks, shares
from scaler.lab.scenarios import CONTEXT, LONG, drawn, sawtooth, step
from scaler.lab.truth import Truth
from scaler.policy.model import Gpu, Policy, Price, PriceWindow
from scaler.signals.preset import load_preset
from tests.lab.backtest.lab_past import BEGIN, Lived, policy_for, remembered, short
from tests.lab.backtest.remembered import Remembered
from tests.lab.backtest.replaying import policy_of

TRUTH = Truth(50.0, 2.2)
SAW = short("saw", 2400.0, drawn(sawtooth(1, 7, 1200), LONG, 2400))
#: From 20 to 28 minutes the Prometheus was away.
DARK = (1200.0, 1680.0)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Remembered, Lived]:
    """Our own policy made this past."""
    return remembered(tmp_path_factory.mktemp("ours"), SAW, TRUTH, "adaptive", SAW.requests(None, 1))


def studied(server: Remembered, policy: Policy, seconds: float = SAW.seconds, **more: object) -> Backtest:
    told: list[tuple[float, str]] = []
    setting = Setting(
        "chat/llama",
        policy,
        load_preset("vllm"),
        "http://prometheus:9090",
        Span(BEGIN, BEGIN + seconds),
        **more,  # type: ignore[arg-type]
    )
    result = asyncio.run(study(setting, server, lambda share, words: told.append((share, words))))
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert told[-1] == (1.0, "deciding")
    return result


@pytest.fixture(scope="module")
def plain(ours: tuple[Remembered, Lived]) -> Backtest:
    """The policy that made this past, backtested on it."""
    return studied(ours[0], policy_for(SAW, TRUTH))


def test_a_scaler_that_made_the_past_decides_the_same_again(ours: tuple[Remembered, Lived], plain: Backtest) -> None:
    (_, lived), result = ours, plain
    live = {
        BEGIN + moment.at: (moment, decision)
        for moment, decision in zip(lived.run.timeline, lived.decisions, strict=True)
    }
    assert len(result.moments) == len(live)
    same = sum(
        (each.asked, each.ready) == (live[each.unix][0].asked, live[each.unix][0].ready) for each in result.moments
    )
    assert same >= 0.95 * len(live)
    assert result.findings.ours.replica_hours == pytest.approx(lived.replica_hours, rel=0.02)
    assert result.findings.ours.short_minutes == pytest.approx(lived.short_minutes, abs=1.5)


def test_so_it_does_where_it_had_lowered_the_batch(tmp_path: Path) -> None:
    """A jump of long contexts fills the KV cache, the memory guard cuts the batch below what was declared of shorter
    ones, and each replica serves less for a while: no engine tells that, but a scaler of ours that was there does.
    """
    jump = replace(short("jump", 750.0, drawn(step(6, 120), CONTEXT, 750), ceiling=24), cold_start_seconds=300)
    truth = Truth(20.0, 2.0)
    server, lived = remembered(tmp_path, jump, truth, "adaptive", jump.requests(None, 1))
    assert any(decision.capacity.source == "applied_batch" for decision in lived.decisions)
    moments = studied(server, policy_for(jump, truth), jump.seconds).moments
    assert [each.asked for each in moments] == [moment.asked for moment in lived.run.timeline]


def test_it_says_on_what_it_stands(plain: Backtest) -> None:
    result = plain
    assert result.interval_seconds == 15.0
    assert result.counted
    assert result.binding.said == "bound by its pods' names, llama-..."
    assert result.cold_start.seconds == pytest.approx(120.0, abs=15.0)
    assert "replicas that came up, from a pod's creation to the first sample" in result.cold_start.source
    # One step of the model: 6.42 ms, and 0.05 µs more for each token of context of each sequence.
    assert 0.006 < result.pace.token_seconds < 0.009


def test_what_is_given_wins_over_what_was_measured(ours: tuple[Remembered, Lived], plain: Backtest) -> None:
    result = studied(ours[0], policy_for(SAW, TRUTH), cold_start_seconds=600.0)
    assert (result.cold_start.seconds, result.cold_start.source) == (600.0, "as given")
    assert result.findings.ours.short_minutes > plain.findings.ours.short_minutes
    assert any(
        "The policy says 120 s: correct replicas.cold_start_seconds" in line for line in what_it_cannot_know(result)
    )


@pytest.mark.parametrize(
    ("loads", "seconds", "source"),
    [
        ([], 120.0, "the policy's word: none came up in the past"),
        ([60.0, 900.0], 120.0, "the policy's word: 2 came up in the past, too few to tell"),
        ([70.0, 60.0, 90.0], 90.0, "P95 of 3 replicas that came up, from a pod's creation to the first sample"),
        ([60.0] * 19 + [900.0], 60.0, "P95 of 20 replicas"),
        ([60.0] * 18 + [300.0, 900.0], 300.0, "P95 of 20 replicas"),
    ],
)
def test_a_cold_start_is_what_95_of_100_replicas_took(loads: list[float], seconds: float, source: str) -> None:
    found = cold_start_of(None, loads, True, 120.0)
    assert found.seconds == seconds
    assert found.source.startswith(source)
    assert "without scheduling and image pull" in cold_start_of(None, [60.0] * 3, False, 120.0).source


def test_a_guessed_capacity_is_called_a_guess(ours: tuple[Remembered, Lived]) -> None:
    result = studied(
        ours[0], policy_of(**{"replicas.max": "12", "capacity.sequences": "400", "capacity.learn": "false"})
    )
    assert any("rests on loads that this past never had" in line for line in remarks(result))
    prior = studied(ours[0], policy_of(**{"replicas.max": "12"}))
    assert any("--set capacity.sequences=" in line for line in next_steps(prior, drawn=True))


def tables(result: Backtest) -> dict[str, tuple[str, str, str]]:
    return {row.what: (row.ran, row.ours, row.note) for row in compared(result)}


def test_gpus_and_price_multiply_and_nothing_else(ours: tuple[Remembered, Lived], plain: Backtest) -> None:
    one = plain
    eight = studied(ours[0], policy_for(SAW, TRUTH), gpus_per_replica=8.0, gpu_hour_price=2.5)
    hours = [float(tables(result)["GPU-hours"][0].replace(",", "")) for result in (one, eight)]
    assert hours[1] == pytest.approx(8 * hours[0], abs=0.5)
    assert float(tables(eight)["cost"][0].replace(",", "")) == pytest.approx(2.5 * hours[1], rel=0.01)
    assert "cost" not in tables(one)
    assert tables(one)["replicas, mean"] == tables(eight)["replicas, mean"]


def test_the_policys_prices_count_each_hour_at_its_own(plain: Backtest) -> None:
    """The saw begins at midnight UTC: its first twenty minutes are dear."""
    policy = policy_for(SAW, TRUTH)
    dear = PriceWindow(start="00:00", end="00:20", zone="UTC", hour_price=10.0)
    declared = policy.model_copy(
        update={"gpu": Gpu(hour_price=2.0, currency="EUR", per_replica=4), "price": Price(windows=(dear,))}
    )
    setting = replace(plain.setting, policy=declared, gpus_per_replica=4.0, currency="EUR")
    result = replace(plain, setting=setting)
    early = [each for each in plain.moments if each.unix <= BEGIN + 1200.0 and each.kind != "gap"]
    late = [each for each in plain.moments if each.unix > BEGIN + 1200.0 and each.kind != "gap"]
    hour = 4.0 * plain.tick_seconds / 3600.0
    paid = money(result)
    assert paid is not None
    assert early
    assert late
    assert paid.ours == pytest.approx(hour * (10.0 * sum(m.asked for m in early) + 2.0 * sum(m.asked for m in late)))
    assert paid.ran == pytest.approx(
        hour * (10.0 * sum(m.paid or 0.0 for m in early) + 2.0 * sum(m.paid or 0.0 for m in late))
    )
    assert tables(result)["cost"][1] == f"{paid.ours:,.2f} EUR"
    assert any("4 GPUs; a GPU costs 2 EUR an hour, and in the policy's price windows" in line for line in basis(result))
    assert json.loads(as_json(result))["money"] == {"ran": paid.ran, "loadtide": paid.ours}
    one = money(replace(result, setting=replace(setting, gpu_hour_price=1.0)))
    assert one is not None
    assert one.ours == pytest.approx(hour * sum(m.asked for m in early + late)), "what is typed wins over windows too"


@pytest.fixture(scope="module")
def gappy(ours: tuple[Remembered, Lived]) -> Remembered:
    """The same past, and the Prometheus was away for eight minutes."""
    server = Remembered()
    for labels, samples in ours[0].series.items():
        server.series[labels] = [(at, value) for at, value in samples if not DARK[0] < at - BEGIN <= DARK[1]]
    return server


def test_a_gap_is_told_with_its_length_and_counts_on_neither_side(gappy: Remembered) -> None:
    result = studied(gappy, policy_for(SAW, TRUTH))
    found = result.findings
    assert found.gap_minutes == pytest.approx(8.0, abs=1.5)
    assert found.data_minutes + found.gap_minutes == pytest.approx(40.0)
    (gap,) = [line for line in what_it_cannot_know(result) if "without data" in line]
    assert "one stretch of" in gap
    assert "from 2026-06-01 00:2" in gap
    assert found.held_minutes > 0


def test_a_past_that_begins_later_than_the_range_is_said_so(ours: tuple[Remembered, Lived]) -> None:
    server = Remembered()
    for labels, samples in ours[0].series.items():
        server.series[labels] = [(at, value) for at, value in samples if at - BEGIN > 1300]
    result = studied(server, policy_for(SAW, TRUTH))
    (late,) = [line for line in what_it_cannot_know(result) if "begin only" in line]
    assert "The workload's series begin only 2026-06-01 00:2" in late
    assert any("of the range has data: conclude nothing" in line for line in remarks(result))


def test_series_without_two_samples_are_nothing_to_go_by(ours: tuple[Remembered, Lived]) -> None:
    server = Remembered()
    for labels, samples in ours[0].series.items():
        server.series[labels] = samples[:1]
    with pytest.raises(NothingReadError, match="no replica has two samples between 2026-06-01 00:00"):
        studied(server, policy_for(SAW, TRUTH))


class Page(HTMLParser):
    """Counts tags, keeps what a page would load from elsewhere, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.foreign: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.foreign += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone_and_shows_the_gap(gappy: Remembered) -> None:
    result = studied(gappy, policy_for(SAW, TRUTH), policy_warnings=("beware of <b>",))
    text = page(result)
    found = Page(text)
    assert found.foreign == []
    assert "script" not in found.counts
    assert "url(" not in text
    assert len(text) < 300_000
    # load, replicas, verdict, state, first token, per token, in flight
    assert found.counts["figure"] == 7
    assert "beware of <b>" in found.text
    assert "<b>beware" not in text
    assert text.count("<title>no data</title>") >= 5
    for line in (*what_it_cannot_know(result), *next_steps(result, drawn=True), *remarks(result)):
        assert line in found.text
    for part in text.split("<svg")[1:]:
        svg = ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")
        _, _, width, height = map(float, svg.attrib["viewBox"].split())
        for line in svg.iter("polyline"):
            for corner in line.attrib["points"].split():
                x, y = map(float, corner.split(","))
                assert 0 <= x <= width
                assert 0 <= y <= height


def test_the_json_has_the_same_figures_and_every_tick(gappy: Remembered) -> None:
    result = studied(gappy, policy_for(SAW, TRUTH), gpus_per_replica=2.0)
    document = json.loads(as_json(result))
    timeline = document["timeline"]
    assert {len(column) for column in timeline.values()} == {len(result.moments)}
    paid = sum(value or 0.0 for value, kind in zip(timeline["paid"], timeline["kind"], strict=True) if kind != "gap")
    assert document["gpu_hours"]["ran"] == pytest.approx(2 * paid * 15 / 3600)
    assert document["findings"]["minutes"] == dict(result.findings.minutes)
    assert document["cannot_know"] == what_it_cannot_know(result)
    assert [None if verdict is None else verdict for verdict in timeline["verdict"]] == list(result.findings.verdicts)
    assert document["changes"][0]["reason"]["code"]


def test_the_terminal_says_all_of_it(ours: tuple[Remembered, Lived]) -> None:
    result = studied(ours[0], policy_for(SAW, TRUTH), policy_warnings=("[bold]no markup[/bold]",))
    console = Console(width=4000, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    show(result, drawn=False, console=console)
    text = console.export_text()
    assert "chat/llama, 40 min from 2026-06-01 00:00 to 2026-06-01 00:40 UTC" in text
    assert "[bold]no markup[/bold]" in text
    for share in shares(result):
        assert share.words in text
    for line in (*what_it_cannot_know(result), *next_steps(result, drawn=False), *remarks(result)):
        assert line in text
