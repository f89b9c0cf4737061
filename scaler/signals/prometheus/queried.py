"""Queries of the operator's own: one number each for the whole workload, in place of what ``match`` would find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import aiohttp

from scaler.policy.prometheus import Prometheus
from scaler.signals.model import Known, Signal, Stale, Unknown
from scaler.signals.observation import Queried
from scaler.signals.prometheus.answer import Answer
from scaler.signals.prometheus.api import Api, QueryError

#: Of requests, tokens a second, and whatever else a signal may be: more is a mistake, and adds up to infinity at last.
_LARGEST = 1e12


async def ask_all(
    session: aiohttp.ClientSession,
    api: Api,
    prometheus: Prometheus,
    before: Mapping[str, Known[float]],
    hold_seconds: float,
    mono: Callable[[], float],
) -> dict[str, Queried]:
    """Every query of ``prometheus``, all together. ``before`` are the signals' last good values, which are held for
    ``hold_seconds``. Never raises for what a server says.
    """

    async def one(signal: str, query: str) -> tuple[str, Queried]:
        try:
            # Unlike a round, which is alone, these may be many: what waits behind a hanging server waits no longer.
            async with asyncio.timeout(api.server.timeout_seconds):
                answer = await api.ask(session, query)
            return signal, judge(answer, prometheus, before.get(signal), mono(), hold_seconds)
        except TimeoutError:
            reason = f"timed out after {api.server.timeout_seconds:g} s"
        except QueryError as error:
            reason = str(error)
        return signal, held(reason, before.get(signal), mono(), hold_seconds)

    return dict(await asyncio.gather(*(one(signal, query) for signal, query in prometheus.queries.items())))


def judge(
    answer: Answer, prometheus: Prometheus, before: Known[float] | None, now: float, hold_seconds: float
) -> Queried:
    """The signal that an answer is. Several series are refused unless ``aggregation`` says what to make of them (which
    of them would be first is chance); partial data may raise and never lowers; no series is zero only if the operator
    said so.
    """
    values = [row.value for row in answer.rows]
    if not values and prometheus.empty_means == "zero" and not answer.partial:
        values = [0.0]
    if not values:
        return held("the query gives no series", before, now, hold_seconds)
    if len(values) > 1 and prometheus.aggregation is None:
        several = f"the query gives {len(values)} series; write sum(...) around it, or set prometheus.aggregation"
        return held(several, before, now, hold_seconds)
    value = max(values) if prometheus.aggregation == "max" else sum(values)
    if wrong := [each for each in (*values, value) if not 0 <= each <= _LARGEST]:  # the others alone would be less
        return held(f"the query gives {wrong[0]:g}, which is no quantity", before, now, hold_seconds)
    if not answer.partial:
        return Queried(Known(value, now))
    reason = f"partial data: {answer.partial}"
    if before is not None and now - before.at <= hold_seconds and before.value > value:
        return Queried(Stale(before.value, before.at, value), reason)
    return Queried(Stale(value, now, value), reason)


def held(reason: str, before: Known[float] | None, now: float, hold_seconds: float) -> Queried:
    """What a signal is when its query gave nothing: the last good value for a while, then unknown."""
    signal: Signal[float] = Unknown(reason)
    if before is not None and now - before.at <= hold_seconds:
        signal = Stale(before.value, before.at)
    return Queried(signal, reason)
