"""G1-01 and G1-02: the metric's names and numbers, as KEDA reads them."""

from __future__ import annotations

import math

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from scaler.serve.wire import (
    METRIC_NAME,
    TOO_LARGE,
    UnsayableValue,
    encode_target,
    encode_value,
    match_metric_name,
    metric_spec,
    metric_value,
)
from tests.contract.conftest import FakeWorkloads, Keda, decided, ref, refusal

OURS = ["desired-replicas", "DESIRED-REPLICAS", "Desired-Replicas", "s0-desired-replicas", "s12-Desired-Replicas"]
NOT_OURS = [
    "somethingElse",
    "desired-replica",
    "s-desired-replicas",
    "s0-s0-desired-replicas",
    "x0-desired-replicas",
    " desired-replicas",
    "desired-replicas\n",
    "desired_replicas",
    "s٣-desired-replicas",
]


def as_keda_reads(exact: float, rounded_up: int) -> float:
    """KEDA's arithmetic on a (float, integer) pair: thousandths in an int64, towards zero."""
    value = exact if exact > 0 else float(rounded_up)
    return int(value * 1000) / 1000


class TestNames:
    @pytest.mark.parametrize("asked", OURS)
    async def test_every_spelling_keda_uses_gives_the_value_under_that_spelling(
        self, workloads: FakeWorkloads, keda: Keda, asked: str
    ) -> None:
        await workloads.tick("prod/llm", decided(replicas=4))
        answer = await keda.value(asked)
        assert (answer.metricName, answer.metricValueFloat) == (asked, 4.0)

    async def test_no_name_means_our_one_metric(self, workloads: FakeWorkloads, keda: Keda) -> None:
        await workloads.tick("prod/llm", decided(replicas=4))
        answer = await keda.value("")
        assert (answer.metricName, answer.metricValueFloat) == (METRIC_NAME, 4.0)

    @pytest.mark.parametrize("asked", NOT_OURS)
    async def test_another_name_is_refused_with_the_one_we_have(
        self, workloads: FakeWorkloads, keda: Keda, asked: str
    ) -> None:
        await workloads.tick("prod/llm", decided())
        code, text = await refusal(keda.value(asked))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "desired-replicas" in text

    async def test_a_huge_name_is_refused_with_a_text_that_fits_a_header(
        self, workloads: FakeWorkloads, keda: Keda
    ) -> None:
        await workloads.tick("prod/llm", decided())
        code, _ = await refusal(keda.value("n" * 100_000))
        assert code is grpc.StatusCode.INVALID_ARGUMENT

    def test_the_advertised_name_is_safe_for_kubernetes_and_always_the_same(self) -> None:
        names = {metric_spec().metricSpecs[0].metricName for _ in range(3)}
        assert names == {"desired-replicas"}
        assert match_metric_name(*names)


class TestNumbers:
    def test_the_spec_is_target_one_in_both_fields(self) -> None:
        (spec,) = metric_spec().metricSpecs
        assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == ("desired-replicas", 1, 1.0)

    def test_a_fraction_is_exact_for_a_new_keda_and_rounded_up_for_an_old_one(self) -> None:
        assert encode_value(0.5) == (0.5, 1)
        assert encode_target(0.7) == (0.7, 1)
        assert encode_value(12.4) == (12.4, 13)

    @pytest.mark.parametrize("zero", [0.0, -0.0, 0])
    def test_zero_leaves_no_integer_behind(self, zero: float) -> None:
        exact, rounded_up = encode_value(zero)
        assert (exact, rounded_up) == (0.0, 0)
        assert math.copysign(1.0, exact) == 1.0

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (math.nan, "nan"),
            (math.inf, "infinite"),
            (-math.inf, "infinite"),
            (-1.0, "negative"),
            (-1e-9, "negative"),
            (1e16, "too_large"),
            (1e19, "too_large"),
            (9.3e15, "too_large"),  # its thousandths pass int64 already
        ],
    )
    def test_what_keda_would_misread_is_never_said(self, value: float, reason: str) -> None:
        with pytest.raises(UnsayableValue) as caught:
            metric_value("desired-replicas", value)
        assert caught.value.reason == reason

    @pytest.mark.parametrize("target", [0.0, -0.0, -3.0, 0.0009, math.nan, math.inf, -math.inf, 1e16])
    def test_a_target_without_an_hpa_is_never_said(self, target: float) -> None:
        with pytest.raises(UnsayableValue):
            metric_spec(target)

    @given(st.floats(min_value=0, max_value=TOO_LARGE, exclude_max=True))
    def test_keda_reads_every_sayable_value_and_none_as_zero(self, value: float) -> None:
        exact, rounded_up = encode_value(value)
        assert rounded_up == math.ceil(value)
        assert int(exact * 1000) < 2**63
        read = as_keda_reads(exact, rounded_up)
        assert (read == 0) == (value == 0)
        assert value < 0.001 or value - read <= max(0.001, value * 1e-12)

    @given(st.floats())
    def test_any_float_is_either_said_right_or_not_at_all(self, value: float) -> None:
        try:
            exact, rounded_up = encode_value(value)
        except UnsayableValue:
            assert not 0 <= value < TOO_LARGE
        else:
            assert exact >= 0
            assert 0 <= rounded_up < 2**63

    @pytest.mark.parametrize(
        ("replicas", "reason"), [(-1, "negative"), (10**16, "too_large"), (math.nan, "nan"), (math.inf, "infinite")]
    )
    async def test_on_the_wire_it_is_unknown_and_counted(
        self, workloads: FakeWorkloads, keda: Keda, registry: CollectorRegistry, replicas: float, reason: str
    ) -> None:
        await workloads.tick("prod/llm", decided(replicas=replicas))  # type: ignore[arg-type]
        code, text = await refusal(keda.value())
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "prod/llm" in text
        assert registry.get_sample_value("loadtide_bad_values_total", {"reason": reason}) == 1

    async def test_inactive_is_zero_in_both_fields_whatever_the_replicas(
        self, workloads: FakeWorkloads, keda: Keda
    ) -> None:
        await workloads.tick("prod/llm", decided(replicas=2, active=False))
        answer = await keda.value()
        assert (answer.metricValue, answer.metricValueFloat) == (0, 0.0)
        assert await keda.is_active(ref()) is False
