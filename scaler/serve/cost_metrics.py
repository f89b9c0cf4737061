"""What a workload's hours cost and what it expects, as samples of our own ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scaler.serve.snapshot import Snapshot

#: Every gauge: its name without ``loadtide_``, and what it says.
COST_GAUGES: Mapping[str, str] = {
    "season_requests_per_second": "Arrivals that usually come a cold start from now, by how today goes. Absent: none.",
    "season_unexplained_ratio": "What the season leaves unexplained of the arrivals' ups and downs; absent: too new.",
    "season_believed": "1 while arrivals follow the time of day or week well enough to buy replicas for it.",
    "season_known_ratio": "The share of the last four weeks' quarter hours whose arrivals are known.",
}

#: A gauge, its value (None: no sample), and its own labels.
Sample = tuple[str, float | None, Mapping[str, str]]


def cost_samples(snapshot: Snapshot) -> Iterator[Sample]:
    """One workload's samples of :data:`COST_GAUGES`."""
    season, expected = snapshot.decision.next_memory.season, snapshot.decision.season
    yield "season_requests_per_second", None if expected is None else expected.rate, {}
    for period, skill in (("weekly", season.weekly), ("daily", season.daily)):
        if skill.unexplained < float("inf"):
            yield "season_unexplained_ratio", skill.unexplained, {"period": period}
    yield "season_believed", season.period is not None, {}
    yield "season_known_ratio", season.known_ratio, {}
