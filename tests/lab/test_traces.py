"""Traces: the public formats, faults named with their line, and generators that keep rate and burstiness."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from random import Random
from statistics import mean, pstdev

import pytest

from scaler.lab.fleet import Request
from scaler.lab.scenarios import CHAT, HEAVY
from scaler.lab.traces import (
    TraceError,
    day,
    piecewise,
    poisson,
    read_client_rate,
    read_lengths,
    read_rate,
    read_trace,
    sawtooth,
    thinned,
)
from scaler.lab.wave import Lengths


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def test_azure_2023_begins_at_time_zero_and_keeps_seven_digits(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    first, second = read_trace(written(tmp_path, "azure.csv.gz", text))
    assert first == Request(0.0, 374, 44)
    assert second.at == pytest.approx(4.314579, abs=1e-5)


def test_azure_2024_with_its_time_zone(tmp_path: Path) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
    assert read_trace(written(tmp_path, "azure.csv", text)) == [Request(0.0, 2162, 5)]


def test_mooncake_counts_in_milliseconds(tmp_path: Path) -> None:
    text = (
        '{"timestamp": 27000, "input_length": 6955, "output_length": 52, "hash_ids": [1]}\n'
        '{"timestamp": 30500, "input_length": 10, "output_length": 0, "hash_ids": []}\n\n'
    )
    assert read_trace(written(tmp_path, "m.jsonl", text)) == [Request(0.0, 6955, 52), Request(3.5, 10, 1)]


def test_a_plain_file_is_put_in_order(tmp_path: Path) -> None:
    text = "at,prompt_tokens,output_tokens\n9,1,2\n4.5,3,4\n"
    assert read_trace(written(tmp_path, "plain.csv", text)) == [Request(0.0, 3, 4), Request(4.5, 1, 2)]


def test_a_rate_file_is_drawn_from_by_seed(tmp_path: Path) -> None:
    path = written(tmp_path, "rate.csv", "t_s,rps\n600,2\n1200,4\n")
    rate, seconds = read_rate(path)
    assert (rate(0), rate(300), rate(600), seconds) == (2, 3, 4, 600)
    assert read_trace(path, seed=3) == read_trace(path, seed=3) != read_trace(path, seed=4)
    assert len(read_trace(path, seed=3)) == pytest.approx(1800, rel=0.1)


def test_one_client_of_many_and_its_silent_windows(tmp_path: Path) -> None:
    text = "client,t_s,rps,cv\n7,0,1.5,1\n49,600,3,2\n49,1200,4,2\n49,2400,5,2\n"
    rate = read_client_rate(written(tmp_path, "clients.csv.gz", text), "49")
    assert [rate(at) for at in (0, 600, 1199, 1200, 1900, 2400)] == [0, 3, 3, 4, 0, 5]


def test_a_client_that_is_not_in_the_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "clients.csv", "client,t_s,rps\n7,0,1\n7,600,1\n8,0,2\n")
    with pytest.raises(TraceError, match=r"client '8' has 1 rows.*has 2 clients"):
        read_client_rate(path, "8")


def test_a_window_in_which_the_whole_pool_is_silent_is_a_gap_and_not_idleness(tmp_path: Path) -> None:
    text = "t_s,rps,active_clients\n0,100,55\n600,0,0\n1200,200,54\n1800,0.5,1\n"
    rate, _ = read_rate(written(tmp_path, "pool.csv", text))
    assert [rate(at) for at in (0, 600, 1200, 1800)] == [100, 150, 200, 0.5]


def test_part_of_a_trace_begins_at_time_zero_and_is_thinned(tmp_path: Path) -> None:
    rows = "".join(f"{at},10,5\n" for at in range(50, 1050))
    path = written(tmp_path, "plain.csv", f"at,prompt_tokens,output_tokens\n{rows}")
    assert [each.at for each in read_trace(path, start=100, seconds=3)] == [0, 1, 2]
    thin = read_trace(path, start=100, seconds=500, most=100)
    assert len(thin) == pytest.approx(100, abs=30)
    assert thin[-1].at < 500


def test_part_of_a_rate_file_is_drawn_at_a_rate_that_keeps_to_the_most(tmp_path: Path) -> None:
    path = written(tmp_path, "rate.csv", "t_s,rps\n0,2000\n600000,2000\n")
    drawn = read_trace(path, start=1000, seconds=1000, most=5000)
    assert len(drawn) == pytest.approx(5000, rel=0.1)
    assert drawn[-1].at < 1000


def servegen(folder: Path) -> Path:
    """A client that is silent in every second window of ten minutes, and has other lengths from six hours on."""
    windows = "".join(
        f"{start},{0 if start % 1200 else 5},{0 if start % 1200 else 2.0},Gamma,0.25,0.8\n"
        for start in range(0, 43200, 600)
    )
    lengths = {
        "0": {"input_tokens": "{100: 0.25, 200: 0.75}", "output_tokens": "{7: 1.0}"},
        "21600": {"input_tokens": "{}", "output_tokens": "{}"},
        "32400": {"input_tokens": "{900: 1.0}", "output_tokens": "{0: 1.0}"},
    }
    (folder / "chunk-3-dataset.json").write_text(json.dumps(lengths), encoding="utf-8")
    return written(folder, "chunk-3-trace.csv", windows)


def test_a_servegen_client_is_drawn_from_its_windows_and_lengths(tmp_path: Path) -> None:
    path = servegen(tmp_path)
    requests = read_trace(path, seed=1)
    assert len(requests) == pytest.approx(36 * 600 * 5, rel=0.05)
    assert all(each.at // 600 % 2 == 0 for each in requests)
    early = [each for each in requests if each.at < 32400]  # nothing is known of six to nine hours: as before
    assert {each.output_tokens for each in early} == {7}
    assert sum(each.prompt_tokens == 200 for each in early) / len(early) == pytest.approx(0.75, abs=0.02)
    assert {(each.prompt_tokens, each.output_tokens) for each in requests if each.at >= 32400} == {(900, 1)}
    assert requests == read_trace(path, seed=1) != read_trace(path, seed=2)
    between = gaps([each for each in requests if each.at < 600])
    assert pstdev(between) / mean(between) == pytest.approx(2.0, rel=0.2)


def test_part_of_a_servegen_client_keeps_to_the_most(tmp_path: Path) -> None:
    part = read_trace(servegen(tmp_path), seed=1, start=1200, seconds=2400, most=600)
    assert len(part) == pytest.approx(600, rel=0.25)
    assert all(0 <= each.at < 600 or 1200 <= each.at < 1800 for each in part)


@pytest.mark.parametrize(
    ("trace", "dataset", "words"),
    [
        ("0,1\n", "{}", "chunk-1-trace.csv:1"),
        ("0,1,1,Gamma,1,1\n", "{}", "two windows"),
        ("0,1,1,Gamma,1,1\n600,1,1,Gamma,1,1\n", "{", "chunk-1-dataset.json"),
        ("0,1,1,Gamma,1,1\n600,1,1,Gamma,1,1\n", '{"0": {"text_tokens": "{1: 1.0}"}}', "input_tokens"),
        ("0,1,1,Gamma,1,1\n600,1,1,Gamma,1,1\n", '{"0": {"input_tokens": "{}", "output_tokens": "{}"}}', "no lengths"),
    ],
)
def test_a_fault_in_a_servegen_file_is_named(tmp_path: Path, trace: str, dataset: str, words: str) -> None:
    written(tmp_path, "chunk-1-dataset.json", dataset)
    with pytest.raises(TraceError, match=words):
        read_trace(written(tmp_path, "chunk-1-trace.csv", trace))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "f.csv:1: columns"),
        ("at,prompt_tokens,output_tokens\n1,2,3\nx,2,3\n", "f.csv:3"),
        ("at,prompt_tokens,output_tokens\nnan,2,3\n", "f.csv:2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "f.csv:2"),
        ('{"timestamp": 1}\n', "f.csv:1"),
        ("t_s,rps\n1,2\n", "two rows"),
        ("t_s,rps\n1,2\n60,-2\n", "f.csv:3.*0 or more"),
        ("t_s,rps\n1,2\n60,nan\n", "f.csv:3.*0 or more"),
        ("t_s,rps\n60,2\n1,2\n", "must rise"),
        ("t_s,rps\n0,2\n86400000,2\n", "1,000 days long.*seconds"),
        ("at,prompt_tokens,output_tokens\n1,-2,3\n", "f.csv:2.*fewer tokens than none"),
        ("at,prompt_tokens,output_tokens\n1.7e12,2,3\n1.70008640e12,2,3\n", "1,000 days long.*seconds"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read_trace(written(tmp_path, "f.csv", text))


def test_lengths_of_real_requests_are_drawn_by_lot(tmp_path: Path) -> None:
    sample = read_lengths(written(tmp_path, "lengths.csv", "prompt_tokens,output_tokens\n100,7\n3000,200\n"))
    source = Random(1)
    drawn = [sample.draw(source) for _ in range(1000)]
    assert set(drawn) == {(100, 7), (3000, 200)}
    assert drawn.count((100, 7)) == pytest.approx(500, abs=80)


def test_a_part_of_a_long_trace_can_be_played(tmp_path: Path) -> None:
    path = written(tmp_path, "f.csv", "at,prompt_tokens,output_tokens\n0,2,3\n60,2,3\n1e12,2,3\n")
    assert len(read_trace(path, seconds=3600.0)) == 2


def test_a_mark_that_a_spreadsheet_writes_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("at,prompt_tokens,output_tokens\n0,2,3\n", encoding="utf-8-sig")
    assert [each.prompt_tokens for each in read_trace(path)] == [2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prompt_tokens,output_tokens\n1,2\n3,x\n", "f.csv:3"),
        ("prompt_tokens\n1\n", "f.csv:2.*output_tokens"),
        ("prompt_tokens,output_tokens\n", "no lengths"),
    ],
)
def test_a_fault_in_a_file_of_lengths_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read_lengths(written(tmp_path, "f.csv", text))


def gaps(requests: list[Request]) -> list[float]:
    return [later.at - earlier.at for earlier, later in itertools.pairwise(requests)]


@pytest.mark.parametrize("cv", [1.0, 4.0])
def test_burstiness_leaves_the_rate_alone(cv: float) -> None:
    requests = poisson(lambda _: 10.0, Lengths(), seed=1, seconds=20_000.0, cv=cv)
    between = gaps(requests)
    assert len(requests) == pytest.approx(200_000, rel=0.05)
    assert pstdev(between) / mean(between) == pytest.approx(cv, rel=0.1)


def test_rates_follow_their_shapes() -> None:
    smooth = day(2, 10, peak_hour=14.0, night_hours=(22.0, 6.0))
    assert (smooth(14 * 3600), smooth(23 * 3600), smooth(3 * 3600)) == (10, 0, 0)
    assert (sawtooth(1, 5, 100)(0), sawtooth(1, 5, 100)(50), sawtooth(1, 5, 100)(100)) == (1, 3, 1)
    ramp = piecewise([(0, 2), (10, 10), (10, 1)])
    assert (ramp(-1), ramp(5), ramp(99)) == (2, 6, 1)


def test_a_trickle_is_rare_and_an_idle_night_is_silent() -> None:
    trickle = poisson(lambda _: 0.1, Lengths(), seed=2, seconds=36_000.0)
    assert len(trickle) == pytest.approx(3600, rel=0.1)
    assert pstdev(gaps(trickle)) / mean(gaps(trickle)) == pytest.approx(1.0, rel=0.1)
    office = poisson(day(0.5, 2.0, night_hours=(20.0, 7.0)), Lengths(), seed=1, seconds=86_400.0)
    assert office
    assert all(7 <= each.at / 3600 < 20 for each in office)


def test_a_sawtooth_falls_at_once() -> None:
    requests = poisson(sawtooth(1, 9, 900), Lengths(), seed=1, seconds=9000.0)
    last, first = (sum(1 for each in requests if low <= each.at % 900 < low + 90) for low in (810, 0))
    assert last / first == pytest.approx(8.6 / 1.4, rel=0.25)


def test_heavy_tails_are_heavier_than_conversations_and_are_cut_off() -> None:
    source = Random(1)
    heavy, chat = ([lengths.draw(source) for _ in range(20_000)] for lengths in (HEAVY, CHAT))

    def tail(drawn: list[tuple[int, int]], which: int) -> float:
        ordered = sorted(each[which] for each in drawn)
        return ordered[int(0.99 * len(ordered))] / ordered[len(ordered) // 2]

    for which in (0, 1):
        assert tail(heavy, which) > 1.4 * tail(chat, which)
    assert max(each[0] for each in heavy) == HEAVY.prompt_longest
    assert max(each[1] for each in heavy) == HEAVY.output_longest


def test_every_generator_follows_its_seed() -> None:
    shapes = (lambda _: 0.1, sawtooth(1, 9, 900), day(1, 3, night_hours=(0.0, 0.1)), piecewise([(0, 2), (900, 10)]))
    for rate, cv in itertools.product(shapes, (1.0, 4.0)):
        one, again, other = (poisson(rate, HEAVY, seed=seed, seconds=1800.0, cv=cv) for seed in (5, 5, 6))
        assert one == again != other


def test_thinning_keeps_the_shape() -> None:
    requests = poisson(lambda at: 10.0 if at < 500 else 30.0, Lengths(), seed=1, seconds=1000.0)
    thin = thinned(requests, 2000, seed=1)
    assert len(thin) == pytest.approx(2000, rel=0.1)
    assert sum(1 for each in thin if each.at < 500) / len(thin) == pytest.approx(0.25, abs=0.03)
    assert thinned(requests, 10**6, seed=1) == requests
