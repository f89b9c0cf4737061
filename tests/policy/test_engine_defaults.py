"""Objectives nobody promised: by engine class, and never at odds with what was said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policy.engine_defaults import LANGUAGE_MODEL_ENGINES, fill
from scaler.policy.model import Objectives


def bounds(objectives: Objectives, pair: str) -> tuple[float | None, float | None]:
    return getattr(objectives, f"{pair}_seconds"), getattr(objectives, f"{pair}_critical_seconds")


@pytest.mark.parametrize("engine", sorted(LANGUAGE_MODEL_ENGINES))
def test_language_models_promise_the_first_token_and_the_pace(engine: str) -> None:
    filled = fill(Objectives(), engine)
    assert bounds(filled, "ttft") == (1.0, 5.0)
    assert bounds(filled, "tpot") == (0.05, 0.1)
    assert bounds(filled, "e2e") == (None, None)


def test_other_engines_promise_the_whole_request() -> None:
    filled = fill(Objectives(), "triton")
    assert bounds(filled, "e2e") == (2.0, 5.0)
    assert bounds(filled, "ttft") == (None, None)
    assert bounds(filled, "tpot") == (None, None)


@pytest.mark.parametrize(
    ("said", "pair", "wanted"),
    [
        ({"ttft_seconds": 8}, "ttft", (8, 40)),
        ({"ttft_critical_seconds": 0.5}, "ttft", (0.1, 0.5)),
        ({"ttft_critical_seconds": 3}, "ttft", (1.0, 3)),
        ({"ttft_critical_seconds": 1.0}, "ttft", (1.0, 1.0)),
        ({"ttft_critical_seconds": 5e-324}, "ttft", (5e-324, 5e-324)),
        ({"tpot_seconds": 0.2}, "tpot", (0.2, 0.4)),
        ({"e2e_seconds": 4}, "e2e", (4, 10)),
        ({"e2e_critical_seconds": 4}, "e2e", (None, 4)),
        ({"ttft_seconds": None}, "ttft", (None, None)),
        ({"ttft_critical_seconds": None}, "ttft", (1.0, None)),
        ({"ttft_seconds": None, "ttft_critical_seconds": 3}, "ttft", (None, 3)),
        ({"ttft_seconds": 31_536_000}, "ttft", (31_536_000, 31_536_000)),
    ],
)
def test_one_half_said_gives_the_other(
    said: dict[str, float | None], pair: str, wanted: tuple[float | None, float | None]
) -> None:
    assert bounds(fill(Objectives.model_validate(said), "vllm"), pair) == pytest.approx(wanted)


def test_what_is_no_bound_is_kept() -> None:
    assert fill(Objectives(minimum_samples=7), "vllm").minimum_samples == 7


SECONDS = st.none() | st.floats(min_value=0, max_value=31_536_000, exclude_min=True)


@given(st.dictionaries(st.sampled_from(["ttft_seconds", "tpot_seconds", "e2e_seconds"]), SECONDS), st.booleans())
def test_any_warning_alone_makes_valid_objectives(said: dict[str, float | None], language_model: bool) -> None:
    engine = "vllm" if language_model else "triton"
    critical = {name.replace("_seconds", "_critical_seconds"): value for name, value in said.items()}
    fill(Objectives.model_validate(said), engine)
    fill(Objectives.model_validate(critical), engine)
