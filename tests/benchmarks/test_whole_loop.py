"""The wave of the ten minutes on a real engine, and how what came of it is told."""

from __future__ import annotations

import pytest

from benchmarks.engine_rig import Done
from benchmarks.whole_loop import WAVE, adjustments, offered, p95_of, phase_at, stretches


def test_the_wave_takes_ten_minutes() -> None:
    assert sum(phase.seconds for phase in WAVE) == 600


@pytest.mark.parametrize(
    ("at", "name", "rates"),
    [
        (0, "quiet", (0.0, 0.0)),
        (60, "ramp", (0.2, 0.0)),
        (120, "ramp", (0.85, 0.0)),
        (179.999, "ramp", (1.5, 0.0)),
        (240, "jump", (5.0, 0.0)),
        (420, "long prompts", (0.4, 0.5)),
        (700, "quiet again", (0.0, 0.0)),
    ],
)
def test_each_moment_has_its_phase_and_its_rates(at: float, name: str, rates: tuple[float, float]) -> None:
    assert phase_at(at)[0].name == name
    assert offered(at) == pytest.approx(rates, abs=1e-4)


def test_the_log_is_told_oldest_first_with_the_reasons_of_what_changed() -> None:
    cut = {"target": "batch", "sentence": "KV use 1 is over 0.95: batch cut to 15"}
    kept = {"target": "replicas", "sentence": "kept at 2 replicas"}
    log = [
        {
            "at": "2026-01-05T09:07:10Z",
            "changes": [{"what": "batch", "from": 64, "to": 15}],
            "reasons": [cut, cut, kept],
        },
        {
            "at": "2026-01-05T09:01:05Z",
            "changes": [{"what": "state", "from": "idle", "to": "normal"}],
            "reasons": [kept],
        },
    ]
    started = 1767603600.0  # 09:00
    assert adjustments(log, started).splitlines()[2:] == [
        "| 65 s | ramp | state idle → normal |  |",
        "| 430 s | long prompts | batch 64 → 15 | KV use 1 is over 0.95: batch cut to 15 |",
    ]


def test_a_state_has_one_band_for_as_long_as_it_lasts() -> None:
    bands = stretches([(0.0, "idle"), (2.0, "idle"), (4.0, "high"), (6.0, "idle")])
    assert [(band.name, band.start, band.end) for band in bands] == [
        ("idle", 0.0, 4.0),
        ("high", 4.0, 6.0),
        ("idle", 6.0, 8.0),
    ]


def test_p95_is_of_the_requests_that_ended_lately_and_well() -> None:
    slow, fast = [Done(0.0, 9.0)] * 10, [Done(50.0, 1.0)] * 10
    points = dict(p95_of([*slow, *fast, Done(40.0, 5.0, "HTTP 500")], 60.0))
    assert points[30.0] == 9.0
    assert points[55.0] == 1.0
    assert 45.0 not in points
