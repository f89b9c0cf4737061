"""Forecasting libraries behind one call, for the comparison with the season's own estimator: what the next quarters of
an hour will bring by the history up to now.

Neither is a dependency of anything else: ``pip install 'loadtide[forecast]'``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from scaler.control.season import SLOTS_A_WEEK
from scaler.policy.model import SLOTS_A_DAY

#: Standard deviations from the middle to the 90th percentile of a normal distribution.
NINTH = 1.2816


@dataclass(frozen=True, slots=True)
class Forecast:
    """By slot ahead, from the one that begins now on: the middle and the 90th percentile, req/s."""

    middle: Sequence[float]
    ninth: Sequence[float]


#: LOESS is computed at every so many points and is a line between them: a sixth of the time (1.7 s) for forecasts that
#: differ by 0.1 %.
JUMPS = {"seasonal_jump": 2, "trend_jump": 15, "low_pass_jump": 10}

#: From the past slots' rates, oldest first, and how many slots ahead.
Forecaster = Callable[[Sequence[float], int], Forecast]


def periods(history: Sequence[float]) -> list[int]:
    """The seasons of which at least two are there: days, and weeks."""
    return [each for each in (SLOTS_A_DAY, SLOTS_A_WEEK) if len(history) >= 2 * each]


def mstl(history: Sequence[float], slots: int) -> Forecast:
    """statsforecast's MSTL: days and weeks by LOESS, and what is left by the exponential smoothing of least AICc."""
    models: Any = import_module("statsforecast.models")
    model = models.MSTL(season_length=periods(history), trend_forecaster=models.AutoETS(model="ZZN"), stl_kwargs=JUMPS)
    found = model.forecast(y=import_module("numpy").array(history), h=slots, level=[80])
    return _forecast(found["mean"], found["hi-80"])


def holt_winters(history: Sequence[float], slots: int) -> Forecast:
    """statsmodels' exponential smoothing with an additive day; the constants are fitted anew each time."""
    numpy, smoothing = import_module("numpy"), import_module("statsmodels.tsa.holtwinters")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the fit has not converged to the last digit
        found = smoothing.ExponentialSmoothing(
            numpy.array(history), seasonal="add", seasonal_periods=SLOTS_A_DAY, initialization_method="estimated"
        ).fit()
    middle, doubt = found.forecast(slots), math.sqrt(float(found.sse) / len(history))
    return _forecast(middle, [each + NINTH * doubt for each in middle])


def installed() -> Mapping[str, Forecaster]:
    """Those whose library is here."""
    known: Mapping[str, tuple[str, Forecaster]] = {
        "MSTL and AutoETS": ("statsforecast", mstl),
        "Holt-Winters": ("statsmodels", holt_winters),
    }
    return {name: call for name, (library, call) in known.items() if find_spec(library) is not None}


def _forecast(middle: Sequence[float], ninth: Sequence[float]) -> Forecast:
    return Forecast([max(0.0, float(each)) for each in middle], [max(0.0, float(each)) for each in ninth])
