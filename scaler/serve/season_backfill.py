"""A season learned from what a Prometheus already knows: four weeks of arrivals, read once where little is known yet.

Whoever ticks the workload asks, in the background, for the arrivals of each past quarter of an hour, and lets the code
that learns in a tick learn from them. A failure is said and tried again later; until then the season is learned by and
by, as without a source.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import aiohttp
import structlog

from scaler.control.season import NO_SEASON, SLOTS_KEPT, Season, learn_season
from scaler.policy.model import SLOT_SECONDS, SLOTS_A_DAY, Policy, Seasonal
from scaler.policy.promql import any_of
from scaler.serve.workload import Workload
from scaler.serve.workloads import Workloads
from scaler.signals.preset import Preset
from scaler.signals.prometheus.api import Api, QueryError
from scaler.signals.prometheus.plan import series_of

log = structlog.get_logger(__name__)

#: Four weeks are more to answer than a tick's query; and a failure is not repeated at every tick.
TIMEOUT_SECONDS, RETRY_SECONDS = 60.0, 900.0
#: Who has learned this much by itself needs no other's word.
ENOUGH_SLOTS: Final = 7 * SLOTS_A_DAY


class Backfill:
    """Fills the seasons of ``workloads``, each once."""

    def __init__(self, workloads: Workloads) -> None:
        self._workloads = workloads
        self._tried: dict[str, float] = {}

    def due(self, workload: Workload) -> bool:
        """Whether the workload names a source and knows little; asking is taken for trying."""
        law, mono = workload.resolved.policy.season, self._workloads.mono()
        if law.source is None or workload.memory.season.slots_known >= ENOUGH_SLOTS:
            return False
        if mono - self._tried.get(workload.name, -math.inf) < RETRY_SECONDS:
            return False
        self._tried[workload.name] = mono
        return True

    async def fill(self, workload: Workload, session: aiohttp.ClientSession) -> None:
        """Read the past and learn from it. What is wrong is logged, and tried again later."""
        policy = workload.resolved.policy
        query, utc = arrivals_query(policy, workload.preset), self._workloads.utc()
        server = self._workloads.policies.sources.get(policy.season.source or "")
        if query is None or server is None:
            return
        end = utc.timestamp() // SLOT_SECONDS * SLOT_SECONDS
        asked = f"({query})[{SLOTS_KEPT * SLOT_SECONDS}s:{SLOT_SECONDS}s]"
        try:
            api = Api(server.model_copy(update={"timeout_seconds": TIMEOUT_SECONDS}))
            rates = await asyncio.to_thread(read_rates, await api.fetch(session, asked, unix=end))
            season = await asyncio.to_thread(season_of, rates, policy.season)
        except (QueryError, ValueError) as error:
            log.warning(
                "season not filled", workload=workload.name, source=policy.season.source, problem=str(error)[:500]
            )
            return
        async with workload.judging:
            if season.slots_known <= workload.memory.season.slots_known:
                return
            workload.memory = replace(workload.memory, season=season)
        log.info(
            "season filled",
            workload=workload.name,
            source=policy.season.source,
            days_known=round(season.slots_known / SLOTS_A_DAY, 1),
            period=season.period,
        )


def arrivals_query(policy: Policy, preset: Preset) -> str | None:
    """PromQL for the workload's arrivals per second: the declared one; else what its engines' series of finished
    requests say, by ``prometheus.match``. None where neither is there.
    """
    if policy.season.query is not None:
        return policy.season.query
    family = preset.families.get("arrivals") or preset.families.get("finished")
    if family is None or not family.names or not policy.prometheus.match:
        return None
    narrow = "".join(f",{label}{any_of([value])}" for label, value in sorted(policy.prometheus.match.items()))
    return f"sum(rate({series_of(family.names, narrow)}[{SLOT_SECONDS}s]))"


def read_rates(body: bytes) -> Mapping[float, float]:
    """The rates of an answer by their time (Unix seconds): each of the quarter of an hour before. Raises
    ``ValueError`` that says what the query should give.
    """
    try:
        document = json.loads(body)
        series = document["data"]["result"] if document["status"] == "success" else None
        if series is None or document["data"]["resultType"] != "matrix":
            raise ValueError(f"the source gave no series: {str(document.get('error', ''))[:200]}")
        if len(series) != 1:
            raise ValueError(f"season.query gave {len(series)} series; write one that gives one, for example sum(...)")
        rates = {float(at): float(value) for at, value in series[0]["values"]}
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the source's answer cannot be read: {error!r}") from None
    return {at: rate for at, rate in rates.items() if math.isfinite(rate) and rate >= 0.0}


def season_of(rates: Mapping[float, float], law: Seasonal) -> Season:
    """What is learned of the rates, oldest first."""
    season = NO_SEASON
    for at, rate in sorted(rates.items()):
        middle = datetime.fromtimestamp(at - SLOT_SECONDS / 2, UTC)
        season = learn_season(season, law, law.slot(middle), rate, SLOT_SECONDS)
    return season
