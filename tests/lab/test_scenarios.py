"""The scenarios: both halves alike, traces by seed, and the capacity everybody is told measured in the model."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path

import pytest

from scaler.lab.contest import contest, initial_replicas, play
from scaler.lab.fleet import Request
from scaler.lab.hardware import HARDWARE
from scaler.lab.policies import POLICIES
from scaler.lab.promise import Promise
from scaler.lab.scenarios import SCENARIOS, Scenario, changed, drawn, lengths_of, of_trace, shaped, stages, step
from scaler.lab.traces import TraceError
from scaler.lab.truth import SHARE, Truth, measure_truth
from scaler.lab.wave import Lengths

GENERATED = [scenario for scenario in SCENARIOS.values() if scenario.file is None]
SMALL = HARDWARE["llama-3.1-8b-h100"]


def test_half_is_there_to_tune_on_and_half_to_report() -> None:
    halves = [scenario.half for scenario in SCENARIOS.values()]
    assert halves.count("tune") == halves.count("report") == sum(half != "shown" for half in halves) / 2 > 0


def test_cold_starts_and_sizes_of_model_are_all_there() -> None:
    assert {30, 120, 300} <= {scenario.cold_start_seconds for scenario in SCENARIOS.values()}
    assert {scenario.hardware_name for scenario in SCENARIOS.values()} <= set(HARDWARE)


SCORED = [scenario for scenario in GENERATED if scenario.half != "shown"]


@pytest.mark.parametrize("scenario", SCORED, ids=lambda scenario: scenario.name)
def test_a_trace_follows_its_seed_and_fits_its_time_and_its_memory(scenario: Scenario) -> None:
    requests = scenario.requests(None, 1)
    assert requests == scenario.requests(None, 1) != scenario.requests(None, 2)
    assert 0 < len(requests) <= 100_000
    assert all(earlier.at <= later.at for earlier, later in itertools.pairwise(requests))
    assert requests[-1].at < scenario.seconds
    longest = max(request.prompt_tokens + request.output_tokens for request in requests)
    assert longest <= scenario.hardware.kv_tokens


def test_part_of_a_rate_file_is_scaled_to_its_peak(tmp_path: Path) -> None:
    (tmp_path / "week.csv").write_text("t_s,rps\n0,10\n3600,100\n7200,50\n10800,50\n", encoding="utf-8")
    requests = shaped("week.csv", 3600.0, 3600.0, 4.0, Lengths())(tmp_path, 1)
    first, last = (sum(1 for each in requests if low <= each.at < low + 600) / 600 for low in (0, 3000))
    assert first == pytest.approx(4.0, rel=0.1)
    assert last == pytest.approx(2.0, rel=0.15)


def test_a_missing_trace_is_an_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="azure2023_code"):
        SCENARIOS["azure-code-2023"].requests(tmp_path, 1)


def test_everybody_begins_with_what_the_opening_needs() -> None:
    scenario = SCENARIOS["flat-8b"]
    requests = [Request(index / 8, 10, 10) for index in range(8 * 600)]
    assert initial_replicas(scenario, requests, Truth(50.0, 2.5)) == 4
    assert initial_replicas(scenario, [], Truth(50.0, 2.5)) == scenario.floor


class TestSomebodysTrace:
    def path(self, folder: Path) -> Path:
        rows = "".join(f"{at},10,5\n" for at in range(1000))
        path = folder / "mine.csv"
        path.write_text(f"at,prompt_tokens,output_tokens\n{rows}", encoding="utf-8")
        return path

    def test_it_is_played_to_its_end_and_so_long_that_the_last_can_be_judged(self, tmp_path: Path) -> None:
        scenario = of_trace(self.path(tmp_path))
        assert scenario.seconds == 999 + scenario.promise.patience_seconds
        assert len(scenario.requests(None, 1)) == 1000

    def test_or_in_part(self, tmp_path: Path) -> None:
        scenario = of_trace(self.path(tmp_path), start=100, seconds=300, most=100)
        assert scenario.seconds == 300
        assert len(scenario.requests(None, 1)) == pytest.approx(100, abs=30)

    def test_beyond_its_end_there_is_nothing_to_play(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="no request in it from 5000 s on"):
            of_trace(self.path(tmp_path), start=5000)


def test_a_scenario_is_changed_where_something_is_given() -> None:
    scenario = SCENARIOS["flat-8b"]
    assert changed(scenario) == scenario
    new = changed(
        scenario, hardware_name="qwen3-32b-2xh100", cold_start_seconds=0.0, floor=0, ceiling=5, tpot_seconds=0.2
    )
    assert (new.hardware.gpus, new.cold_start_seconds, new.floor, new.ceiling) == (2, 0.0, 0, 5)
    assert new.promise == Promise(scenario.promise.ttft_seconds, 0.2, scenario.promise.patience_seconds)
    with pytest.raises(ValueError, match="floor \\(9\\) is above"):
        changed(scenario, floor=9, ceiling=5)


class TestTruth:
    LENGTHS = tuple(
        (each.prompt_tokens, each.output_tokens) for each in drawn(lambda _: 20.0, Lengths(), 200)(Path(), 1)
    )

    def test_for_even_lengths_the_formula_of_mean_lengths_agrees(self) -> None:
        """TPOT = a + L(b + c·context + d·prompt/output), solved for L at the objective; μ* = L* / residence."""
        prompt, output, cost = 1000, 200, SMALL.cost
        slope = (
            cost.per_sequence_ms
            + cost.per_context_token_ms * (prompt + output / 2)
            + cost.per_prefill_token_ms * prompt / output
        )
        at_objective = (50.0 - cost.base_ms) / slope
        truth = measure_truth(SMALL, [(prompt, output)], Promise(), 512)
        residence = (output * (cost.base_ms + slope * truth.sequences) + cost.per_prefill_token_ms * prompt) / 1000
        assert truth.residence_seconds == pytest.approx(residence, rel=0.1)
        # Arrivals at random keep the mean below the concurrency at which all is just well.
        assert 0.5 * SHARE * at_objective < truth.sequences < SHARE * at_objective

    def test_it_is_the_same_every_time(self) -> None:
        assert measure_truth(SMALL, self.LENGTHS, Promise(), 256) == measure_truth(SMALL, self.LENGTHS, Promise(), 256)

    def test_a_small_batch_serves_less(self) -> None:
        small, large = (measure_truth(SMALL, self.LENGTHS, Promise(), batch) for batch in (8, 256))
        assert small.sequences <= 8 < large.sequences
        assert small.requests_per_second < large.requests_per_second / 2

    def test_a_promise_nobody_can_keep_has_no_capacity(self) -> None:
        with pytest.raises(ValueError, match="break the promise"):
            measure_truth(SMALL, self.LENGTHS, Promise(tpot_seconds=0.005), 256)


def test_lengths_are_sampled_where_there_are_too_many() -> None:
    requests = [Request(0.0, index, 1) for index in range(100)]
    assert lengths_of(requests) == [(index, 1) for index in range(100)]
    sample = lengths_of(requests, most=10)
    assert len(sample) == 10 == len(set(sample))


def test_nobody_begins_a_jump_with_what_it_will_need() -> None:
    """The opening, which says with how many replicas everybody begins, is over before the jump."""
    for scenario in (SCENARIOS["step-8b"], SCENARIOS["step-70b"], SCENARIOS["jump-60"]):
        assert initial_replicas(scenario, scenario.requests(None, 1), Truth(50.0, 2.5)) == 1


def test_stages_follow_each_other() -> None:
    rate = stages([(10, 2), (5, 4), (5, 1)])
    assert [rate(at) for at in (0, 9.9, 10, 14.9, 15, 99)] == [2, 2, 4, 4, 1, 1]


def test_a_step_is_nothing_and_then_all() -> None:
    assert [step(8.0, 60.0)(at) for at in (0, 59.9, 60, 999)] == [0, 0, 8, 8]


def test_a_contest_is_the_same_on_one_core_and_on_two() -> None:
    told: list[str] = []

    def played(jobs: int) -> object:
        return contest(
            ["trickle-8b"], ["static", "hpa-in-flight"], (1.0,), (1, 2), None, jobs=jobs,
            done=lambda name, rows: told.append(f"{name} {rows}"),
        )  # fmt: skip

    assert played(1) == played(2)
    assert told == ["trickle-8b 2"] * 4


@pytest.mark.parametrize("policy", [name for name, entry in POLICIES.items() if entry.scored])
def test_a_run_leaves_no_cycle_behind(policy: str) -> None:
    """A contest's processes go without the collector of cycles: whatever made one would stay there to the end."""
    scenario = SCENARIOS["trickle-8b"]
    requests = scenario.requests(None, 1)
    gc.collect()
    gc.disable()
    try:
        play(scenario, policy, requests, Truth(50.0, 2.5), 1.0, 1)
        assert gc.collect() == 0
    finally:
        gc.enable()
