"""What goes on KEDA's wire: the one metric, its spec and its value, or a refusal to say it at all.

KEDA's side, which the rules below answer: it takes the float field only where that is above 0 and the integer field
otherwise, turns the result into thousandths in an int64 (``int64(value * 1000)``, towards zero, unchecked), and hands
that to the HPA. So a NaN, a negative or a huge value arrives as 0 or as a huge negative quantity, both of which scale
**down**; and an HPA with target 0 is refused by the API server, so it never exists.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from scaler.serve.externalscaler_pb2 import (
    GetMetricSpecResponse,
    GetMetricsResponse,
    IsActiveResponse,
    MetricSpec,
    MetricValue,
)

#: Our one metric. Lower case and [a-z0-9-] only, so that no step between us and the HPA rewrites it.
METRIC_NAME = "desired-replicas"
#: One replica answers for one desired replica: the HPA then wants ceil(value).
TARGET = 1.0
#: The answers to IsActive.
ACTIVE, INACTIVE = IsActiveResponse(result=True), IsActiveResponse(result=False)
#: The smallest amount KEDA's thousandths can hold.
SMALLEST = 0.001
#: From here on KEDA's int64 of thousandths overflows.
TOO_LARGE = 2.0**63 / 1000

#: KEDA has put the trigger's index before the name (``s0-``) in some versions, and the HPA path lower-cases it.
_OUR_NAME = re.compile(r"(s[0-9]+-)?" + re.escape(METRIC_NAME), re.IGNORECASE | re.ASCII)


class UnsayableValue(ValueError):  # noqa: N818 -- it is not a fault of the program: the value is unknown to KEDA
    """A number that KEDA would read as another one. ``reason`` is one of ``nan``, ``infinite``, ``negative``,
    ``too_large``, ``target_not_positive``: few enough to be a metric label.
    """

    def __init__(self, reason: str, number: float) -> None:
        super().__init__(f"{number!r} cannot be told to KEDA: {reason}")
        self.reason = reason
        self.number = number


def match_metric_name(asked: str) -> bool:
    """Whether ``asked`` means our metric: any case, with or without an index prefix, or empty (we have but one)."""
    return asked in ("", METRIC_NAME) or _OUR_NAME.fullmatch(asked) is not None


def metric_spec(target: float = TARGET) -> GetMetricSpecResponse:
    """The metric for the HPA, both target fields filled.

    Raises UnsayableValue for a target that is not a number above zero (as KEDA counts, in thousandths).
    """
    exact, rounded_up = encode_target(target)
    spec = MetricSpec(metricName=METRIC_NAME, targetSize=rounded_up, targetSizeFloat=exact)
    return GetMetricSpecResponse(metricSpecs=[spec])


def metric_value(name_asked: str, value: float) -> MetricValue:
    """The metric's value under the very name that was asked for, both value fields filled.

    Raises UnsayableValue; whether the name is ours is the caller's question (:func:`match_metric_name`).
    """
    exact, rounded_up = encode_value(value)
    return MetricValue(metricName=name_asked or METRIC_NAME, metricValue=rounded_up, metricValueFloat=exact)


@lru_cache(maxsize=1024)
def metrics_answer(name_asked: str, value: float) -> GetMetricsResponse:
    """The whole answer to GetMetrics, made once: KEDA asks under one or two names, and replica counts are few. Raises
    UnsayableValue.
    """
    return GetMetricsResponse(metricValues=[metric_value(name_asked, value)])


def encode_value(value: float) -> tuple[float, int]:
    """``value`` as (float field, integer field). Zero is zero in both; anything above never reads as zero.

    The integer is rounded up, so that a KEDA without the float field still scales up. Raises UnsayableValue for NaN,
    an infinity, a negative number and what overflows.
    """
    _check_sayable(value)
    if value == 0:
        return 0.0, 0  # and not -0.0
    return max(value, SMALLEST), math.ceil(value)


def encode_target(target: float) -> tuple[float, int]:
    """``target`` as (float field, integer field), the integer rounded up. Raises UnsayableValue as for a value, and
    for a target that KEDA would read as 0.
    """
    if target < SMALLEST:  # NaN is not, and is caught below
        raise UnsayableValue("target_not_positive", target)
    _check_sayable(target)
    return target, math.ceil(target)


def _check_sayable(number: float) -> None:
    if math.isnan(number):
        raise UnsayableValue("nan", number)
    if math.isinf(number):
        raise UnsayableValue("infinite", number)
    if number < 0:
        raise UnsayableValue("negative", number)
    if number >= TOO_LARGE:
        raise UnsayableValue("too_large", number)
