"""Several models on one card in simulated time: what lending gives, what it never takes, and the rungs below warm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaler.cli import app
from scaler.lab import card_scenarios
from scaler.lab.card import SLICE_SECONDS, Outcome, Tenant, Ways, play_card
from scaler.lab.card_scenarios import CARD_SCENARIOS, PROMISE, CardScenario
from scaler.policy.model import Idle


def short(name: str, seconds: float, *ways: str) -> CardScenario:
    whole = CARD_SCENARIOS[name]
    chosen = tuple(each for each in whole.ways if not ways or each[0] in ways)
    return replace(whole, seconds=seconds, ways=chosen)


def kept(outcomes: list[Outcome]) -> float:
    return sum(each.attainment * each.requests for each in outcomes) / sum(each.requests for each in outcomes)


def test_two_by_turns_keep_their_promises_on_what_the_other_lends() -> None:
    played = short("two-by-turns", 600).play(1)
    assert kept(played["own parts"]) < 0.6
    assert kept(played["lent"]) > 0.9
    assert {each.largest_batch for each in played["lent"]} == {62}


def test_where_nobody_is_idle_nothing_is_lent_and_nothing_lost() -> None:
    played = short("five-all-day", 300).play(1)
    assert played["lent"] == played["own parts"]


def test_the_parts_of_a_run_never_exceed_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    from scaler.lab import card

    seen: list[float] = []

    def told(tenant: Tenant) -> None:
        plain(tenant)
        parts = [each.memory.card for each in tenants if each.memory.card]
        seen.append(max(sum(part.time for part in parts), sum(part.memory for part in parts)))

    plain = card._tell
    monkeypatch.setattr(card, "_tell", told)
    scenario = short("five-by-turns", 400, "lent")
    tenants = scenario.tenants(scenario.rates, 1, Idle())
    play_card(tenants, scenario.seconds, PROMISE, Ways())
    assert len(seen) > 100
    assert max(seen) <= 1.0 + 1e-9


def nights(*ways: tuple[str, Idle]) -> CardScenario:
    """Two models with short days and nights, their idle times as short."""
    rates = card_scenarios._nights(2, 3, 200, 600)
    return CardScenario("nights", "", 1000, 32, rates, tuple((name, Ways(lends=False), idle) for name, idle in ways))


def test_a_night_asleep_costs_a_wake_and_a_night_at_zero_a_cold_start() -> None:
    always, never = Idle(), Idle(timeout_seconds=100)
    played = nights(("awake", always), ("zero", never), ("asleep", Idle(sleep_after_seconds=100))).play(1)
    awake, zero, asleep = (played[name] for name in ("awake", "zero", "asleep"))
    assert kept(awake) > 0.99
    assert kept(zero) < 0.7 < 0.95 < kept(asleep)
    held = [sum(each.memory_share for each in outcomes) for outcomes in (zero, asleep, awake)]
    assert held[0] < held[1] < 0.8 * held[2]


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    scenario = short("two-by-turns", 240, "lent")
    assert scenario.play(3) == scenario.play(3)
    assert scenario.play(3) != scenario.play(4)


def test_whoever_comes_while_it_sleeps_waits_at_the_gateway_and_is_served_after_the_wake() -> None:
    scenario = nights(("asleep", Idle(sleep_after_seconds=100)))
    [tenant, *_] = scenario.tenants(scenario.rates, 1, scenario.ways[0][2])
    play_card([tenant], scenario.seconds, PROMISE, Ways(wake_seconds=3.0))
    late = [request for request, sequence in tenant.served if sequence.arrived_at > request.at + SLICE_SECONDS]
    waits = [sequence.arrived_at - request.at for request, sequence in tenant.served if request in late]
    assert late
    assert max(waits) <= 3.0 + 2 * SLICE_SECONDS
    assert not tenant.gateway


def test_the_command_compares_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_scenarios, "CARD_SCENARIOS", {"two-by-turns": short("two-by-turns", 150)})
    result = CliRunner().invoke(app, ["cards", "two-by-turns", "--seeds", "1"])
    assert result.exit_code == 0, result.output
    assert "own parts" in result.output
    assert "lent" in result.output
    assert CliRunner().invoke(app, ["cards", "none-such"]).exit_code == 2


def test_a_scenario_of_others_traces_says_which_it_lacks() -> None:
    told = CliRunner().invoke(app, ["cards", "servegen-nights"])
    assert told.exit_code == 2
    assert "servegen_m-small_clients_10min.csv.gz; give its folder with --data" in told.output


def test_a_clients_rate_is_played_from_its_second_day_on_and_scaled_to_a_part_of_the_card(tmp_path: Path) -> None:
    day = int(card_scenarios.DAY_SECONDS)
    rows = ["client,t_s,rps", "17,0,99", *(f"17,{day + 600 * number},{10 * (number % 2)}" for number in range(1, 4))]
    (tmp_path / "clients.csv").write_text("\n".join(rows) + "\n")
    ways = (("awake", Ways(), Idle()),)
    scenario = CardScenario("clients", "", 1800, 32, (), ways, file="clients.csv", clients=("17",))
    [outcome] = scenario.play(1, tmp_path)["awake"]
    # Ten minutes of the three are busy, at 1.5/s; the last two minutes are not judged.
    assert 600 * 1.5 * 0.85 < outcome.requests < 600 * 1.5 * 1.15
