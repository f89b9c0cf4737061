"""Desired → enacted: what the HPA makes of every count, with the examples' behaviour block and without one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scaler.lab.hpa import Behaviour, Hpa, Remembered, ScalingPolicy, ScalingRules, behaviour_from, propose, sync

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"
SYNC = 15.0


def example_behaviours() -> dict[str, dict[str, Any]]:
    """The behaviour block of every ScaledObject in deploy/examples, by its file and name."""
    found = {}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if isinstance(document, dict) and document.get("kind") == "ScaledObject":
                config = document["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
                found[f"{path.name}:{document['metadata']['name']}"] = config["behavior"]
    assert found, "the examples have no ScaledObject: nothing would be shown"
    return found


def example(tolerance: str | None = None) -> Behaviour:
    """The examples' block; they must all let a jump through, so one stands for all once they are compared."""
    block = next(iter(example_behaviours().values()))
    rules = {way: rule if tolerance is None else rule | {"tolerance": tolerance} for way, rule in block.items()}
    return behaviour_from(rules)


def replay(hpa: Hpa, start: int, totals: Iterator[float | None] | list[float | None]) -> list[int]:
    """The count after each sync, the replicas existing at once."""
    remembered, asked, counts = Remembered(), start, []
    for number, total in enumerate(totals):
        done = sync(hpa, remembered, number * SYNC, asked=asked, total=total)
        remembered, asked = done.remembered, done.replicas
        counts.append(asked)
    return counts


def settled(hpa: Hpa, start: int, total: float, syncs: int = 100) -> int:
    return replay(hpa, start, [total] * syncs)[-1]


class TestProposal:
    def test_it_is_the_total_over_the_target_rounded_up(self) -> None:
        assert propose(Hpa(200), 3.2, asked=1, existing=1) == 4
        assert propose(Hpa(200, target=10), 40, asked=2, existing=2) == 4

    def test_averaging_twice_halves_an_overload(self) -> None:
        """G5-02: five pods with 8 waiting each, target 5: the sum wants 8, the average 2."""
        hpa = Hpa(200, target=5)
        assert propose(hpa, 40, asked=5, existing=5) == 8
        assert propose(hpa, 8, asked=5, existing=5) == 2

    def test_a_shortage_is_asked_for_once_while_its_pods_load(self) -> None:
        """G5-01: two pods exist, four are asked for, the total stays; it never becomes 6, 8, 10."""
        hpa, remembered, asked = Hpa(16, target=10, behaviour=example()), Remembered(), 2
        for number in range(20):
            done = sync(hpa, remembered, number * SYNC, asked=asked, existing=2, total=40)
            remembered, asked = done.remembered, done.replicas
            assert asked == 4

    def test_metric_type_value_runs_away_with_an_absolute_count(self) -> None:
        hpa = Hpa(50, metric_type="Value")
        assert replay(hpa, 1, [3.0] * 8) == [3, 6, 12, 24, 48, 50, 50, 50]
        assert set(replay(Hpa(50), 1, [3.0] * 8)) == {3}

    def test_an_enormous_total_stays_a_count(self) -> None:
        assert propose(Hpa(200), 1e15, asked=1, existing=1) == 2**31 - 1


class TestDeadZone:
    @pytest.mark.parametrize("current", range(1, 201))
    def test_from_ten_replicas_up_one_more_or_less_is_overlooked(self, current: int) -> None:
        hpa = Hpa(300, behaviour=example())
        up = settled(hpa, current, current + 1)
        down = settled(hpa, current, current - 1) if current > 1 else 0
        assert (up == current) == (current >= 10)
        assert (down == current) == (current >= 10)

    @pytest.mark.parametrize("current", range(1, 201))
    def test_with_tolerance_zero_it_is_not(self, current: int) -> None:
        hpa = Hpa(300, behaviour=example("0"))
        assert settled(hpa, current, current + 1) == current + 1
        assert current == 1 or settled(hpa, current, current - 1) == current - 1

    def test_its_edges(self) -> None:
        """A tenth is the last step overlooked, in either direction; below 0.9 × current it goes down."""
        hpa = Hpa(300, behaviour=example())
        assert [settled(hpa, 100, wanted) for wanted in (89, 90, 110, 111)] == [89, 100, 100, 111]


class TestDesiredToEnacted:
    @pytest.mark.parametrize("name", example_behaviours())
    def test_every_example_brings_every_count_about(self, name: str) -> None:
        """0..200 from 1, from 10 and from 200: in the end exactly what was desired, where the tolerance is zero."""
        block = {way: rule | {"tolerance": "0"} for way, rule in example_behaviours()[name].items()}
        hpa = Hpa(200, behaviour=behaviour_from(block))
        for start in (1, 10, 200):
            for desired in range(201):
                assert settled(hpa, start, desired) == max(desired, 1)

    @pytest.mark.parametrize("name", example_behaviours())
    def test_every_example_lets_a_jump_through(self, name: str) -> None:
        """At least tenfold or a hundred more in the first sync, everything by the second."""
        hpa = Hpa(200, behaviour=behaviour_from(example_behaviours()[name]))
        for desired in range(2, 201):
            first, second = replay(hpa, 1, [desired] * 2)
            assert first == min(desired, 101)
            overlooked = 101 < desired <= 111  # the rest of the jump lies within the tolerance of its first part
            assert second == (101 if overlooked else desired)

    def test_without_a_block_a_jump_takes_six_syncs(self) -> None:
        assert replay(Hpa(200), 1, [200] * 7) == [4, 8, 16, 32, 64, 128, 200]

    def test_the_example_goes_down_by_halves(self) -> None:
        """A minute of stabilisation, then half of the count per 120 s; never more at once."""
        counts = replay(Hpa(200, behaviour=example()), 40, [40.0] + [4.0] * 40)
        halvings = [
            (number * SYNC, count) for number, count in enumerate(counts) if count != counts[max(0, number - 1)]
        ]
        assert halvings == [(60.0, 20), (180.0, 10), (300.0, 5), (420.0, 4)]

    def test_a_dip_inside_the_stabilisation_is_not_followed(self) -> None:
        dip: list[float | None] = [40, 40, 4, 4, 4, 40, 40]
        assert set(replay(Hpa(200, behaviour=example()), 40, dip)) == {40}

    def test_without_a_block_the_highest_of_five_minutes_holds(self) -> None:
        counts = replay(Hpa(200), 40, [40.0] + [4.0] * 30)
        assert counts.index(4) * SYNC == 315.0

    def test_min_and_max_are_kept_whatever_is_desired(self) -> None:
        hpa = Hpa(6, min_replicas=2, behaviour=example())
        assert {settled(hpa, 3, desired) for desired in range(201)} == {2, 3, 4, 5, 6}

    def test_a_count_outside_the_bounds_comes_back_at_once_and_without_a_metric(self) -> None:
        hpa = Hpa(6, min_replicas=2, behaviour=example())
        assert replay(hpa, 50, [None]) == [6]
        assert replay(hpa, 1, [None]) == [2]

    def test_zero_is_keda_s_and_a_missing_metric_changes_nothing(self) -> None:
        hpa = Hpa(200, behaviour=example())
        assert set(replay(hpa, 0, [7.0] * 5)) == {0}
        assert replay(hpa, 5, [None] * 30 + [5.0, 5.0]) == [5] * 32


class TestPolicies:
    def test_each_counts_from_its_own_period_s_beginning(self) -> None:
        four_a_minute = ScalingRules((ScalingPolicy("Pods", 4, 60.0),), "Max", 0.0)
        counts = replay(Hpa(200, behaviour=Behaviour(up=four_a_minute)), 1, [100.0] * 9)
        assert counts == [5, 5, 5, 5, 9, 9, 9, 9, 13]

    def test_min_takes_the_least_and_disabled_nothing(self) -> None:
        both = (ScalingPolicy("Pods", 4, 15.0), ScalingPolicy("Percent", 100, 15.0))
        least = Hpa(200, behaviour=Behaviour(up=ScalingRules(both, "Min", 0.0)))
        assert replay(least, 10, [100.0] * 2) == [14, 18]
        off = Hpa(200, behaviour=Behaviour(up=ScalingRules(both, "Disabled", 0.0)))
        assert replay(off, 10, [100.0] * 2) == [10, 10]

    def test_an_up_window_waits_for_the_lowest(self) -> None:
        slow = ScalingRules((ScalingPolicy("Percent", 900, 15.0),), "Max", 60.0)
        counts = replay(Hpa(200, behaviour=Behaviour(up=slow)), 5, [5.0] + [8.0] * 6)
        assert counts == [5, 5, 5, 5, 8, 8, 8]

    def test_going_down_makes_room_for_going_up_again(self) -> None:
        """What was removed within the period may come back on top of the policy's own amount."""
        behaviour = Behaviour(
            up=ScalingRules((ScalingPolicy("Pods", 1, 600.0),), "Max", 0.0),
            down=ScalingRules((ScalingPolicy("Percent", 100, 15.0),), "Max", 0.0),
        )
        assert replay(Hpa(200, behaviour=behaviour), 10, [4.0, 20.0]) == [4, 11]

    def test_a_block_with_one_half_gets_the_defaults_for_the_other(self) -> None:
        block = {"scaleUp": {"stabilizationWindowSeconds": 0}}
        assert replay(Hpa(200, behaviour=behaviour_from(block)), 1, [200.0] * 4) == [5, 10, 20, 40]
        assert replay(Hpa(200, behaviour=behaviour_from(block)), 40, [40.0] + [4.0] * 30).index(4) * SYNC == 300.0


counts = st.integers(1, 200)
rules = st.builds(
    ScalingRules,
    st.lists(
        st.builds(
            ScalingPolicy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 900), st.sampled_from([15.0, 60.0])
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    st.sampled_from(["Max", "Min", "Disabled"]),
    st.sampled_from([0.0, 60.0, 300.0]),
    st.sampled_from([None, 0.0, 0.2]),
)


@given(st.builds(Behaviour, rules, rules), counts, st.lists(st.one_of(st.none(), st.floats(0, 500)), max_size=40))
def test_whatever_the_block_no_count_leaves_the_bounds_and_none_passes_what_was_proposed(
    behaviour: Behaviour, start: int, totals: list[float | None]
) -> None:
    hpa, remembered, asked = Hpa(200, behaviour=behaviour), Remembered(), start
    proposed = [start]
    for number, total in enumerate(totals):
        done = sync(hpa, remembered, number * SYNC, asked=asked, total=total)
        if done.proposal is not None:
            proposed.append(done.proposal)
        assert 1 <= done.replicas <= 200
        assert min(1, *proposed) <= done.replicas <= max(proposed)
        if total is None:
            assert done.replicas == asked
        if done.replicas > asked:
            assert done.proposal is not None
            assert asked < done.replicas <= math.ceil(total or 0)
        remembered, asked = done.remembered, done.replicas
    assert len(remembered.proposals) <= len(totals) + 1
