"""Traces: the public formats, faults named with their line, and generators that keep rate and burstiness."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path
from random import Random
from statistics import mean, pstdev

import pytest

from scaler.lab.fleet import Request
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "f.csv:1: columns"),
        ("at,prompt_tokens,output_tokens\n1,2,3\nx,2,3\n", "f.csv:3"),
        ("at,prompt_tokens,output_tokens\nnan,2,3\n", "f.csv:2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "f.csv:2"),
        ('{"timestamp": 1}\n', "f.csv:1"),
        ("t_s,rps\n1,2\n", "two rows"),
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


def test_thinning_keeps_the_shape() -> None:
    requests = poisson(lambda at: 10.0 if at < 500 else 30.0, Lengths(), seed=1, seconds=1000.0)
    thin = thinned(requests, 2000, seed=1)
    assert len(thin) == pytest.approx(2000, rel=0.1)
    assert sum(1 for each in thin if each.at < 500) / len(thin) == pytest.approx(0.25, abs=0.03)
    assert thinned(requests, 10**6, seed=1) == requests
