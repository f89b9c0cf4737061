"""What a backtest cannot know, in words, each with its figure from this past."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scaler.lab.backtest.span import shown_duration, shown_time
from scaler.lab.backtest.study import TICK_SECONDS, Backtest, gaps, shorter_than_asked

#: A cold start that is off by more than this factor is worth a word.
_FAR_OFF: Final = 1.5
#: Scraped more rarely than this, a minute's jump is hardly seen.
_COARSE_SECONDS: Final = 30.0
#: Whose word a capacity is.
CAPACITY_SOURCES: Final = {
    "declared": "as the policy declares",
    "prior": "assumed, for want of anything better",
    "kv_cache": "what its KV cache holds",
    "batch_max": "the declared batch",
    "applied_batch": "the batch it applies",
    "saturated": "what it ran while it queued",
}


def percent(part: float, whole: float) -> str:
    """A share in words: ``12 %``; ``under 1 %`` where that would read 0."""
    share = part / whole if whole else 0.0
    return "under 1 %" if 0 < share < 0.005 else f"{share:.0%}".replace("%", " %")


def minutes(value: float) -> str:
    """Minutes as people say them."""
    return shown_duration(60.0 * value) if value else "0 min"


def what_it_cannot_know(backtest: Backtest) -> list[str]:
    """The list, the weightiest first."""
    return [*_latency(backtest), *_demand(backtest), *_data(backtest), *_belief(backtest)]


def _latency(backtest: Backtest) -> Iterator[str]:
    found = backtest.findings
    fewer, unseen = found.minutes["seen"] + found.minutes["unseen"], found.minutes["unseen"]
    said = (
        f"Latency with other replica counts. For {minutes(fewer)} ({percent(fewer, found.data_minutes)}) fewer "
        "replicas would have been ready than ran, without the need being above them. How long requests would have "
        "taken then was never measured."
    )
    if unseen:
        kept = "" if found.kept_up_to is None else f" ({found.kept_up_to:.3g} in flight)"
        said += (
            f" For {minutes(unseen)} of it each replica would have had more to do than this past ever shows within "
            f"the objectives{kept}."
        )
    yield said
    undecided = found.data_minutes - found.none_ready_minutes - found.judged_minutes
    if undecided > 0.01 * found.data_minutes:
        yield (
            f"Whether objectives were kept for {minutes(undecided)} ({percent(undecided, found.data_minutes)}): too "
            "few requests for a P95, or a P95 in the histogram bucket in which the objective lies too."
        )
    batches = [moment.batch for moment in backtest.moments if moment.batch is not None]
    low, high = min(batches, default=0), max(batches, default=0)
    published = f"{low}" if low == high else f"{low} to {high}"
    yield (
        f"What another batch size does. {f'It would have published {published}.' if batches else 'It published none.'} "
        "The engines of the past ran with their own, which is in all the figures. How far it may grow is taken from "
        "mean lengths: their spread, for which a live scaler leaves room in the KV cache, is not read."
    )


def _demand(backtest: Backtest) -> Iterator[str]:
    found = backtest.findings
    yield (
        "Requests that no engine counted: refused or given up at a gateway, not sent because it was slow, or sent "
        "again. Arrivals are taken to be the same whatever the replicas."
    )
    if found.none_ready_minutes:
        yield (
            f"Demand while no replica was ready ({minutes(found.none_ready_minutes)}). No series tells who asked then; "
            "it is taken for nobody, but for a wake where a replica was asked for."
        )


def _data(backtest: Backtest) -> Iterator[str]:
    found = backtest.findings
    if said := shorter_than_asked(backtest):
        yield said[0].upper() + said[1:] + "."
    if found.gap_minutes:
        stretches = gaps(backtest.moments, backtest.tick_seconds)
        longest = max(stretches, key=lambda stretch: stretch.seconds)
        share = percent(found.gap_minutes, found.gap_minutes + found.data_minutes)
        times = f"{len(stretches)} stretches, the longest" if len(stretches) > 1 else "one stretch of"
        yield (
            f"{minutes(found.gap_minutes)} without data ({share} of the time; {times} "
            f"{shown_duration(longest.seconds)} from {shown_time(longest.since)} UTC). There the scaler holds its "
            "answer, and neither side's hours count. One that reads the engines itself need not have had these gaps."
        )
    if backtest.partial:
        yield f"What the server left out: it called an answer partial ({backtest.partial})."
    if backtest.interval_seconds > TICK_SECONDS:
        coarse = backtest.interval_seconds > _COARSE_SECONDS
        yield (
            f"What happened between two scrapes, {backtest.interval_seconds:g} s apart"
            + (", which is coarse: a jump may be over before it shows" if coarse else "")
            + f". A scaler that reads the engines itself looks every {TICK_SECONDS:g} s."
        )


def _belief(backtest: Backtest) -> Iterator[str]:
    policy, capacity, found = backtest.setting.policy, backtest.capacity, backtest.findings
    rate = capacity.requests_per_second
    serves = "" if rate is None else f", {rate:.3g} requests/s at the end"
    source = CAPACITY_SOURCES.get(capacity.source, capacity.source)
    yield (
        f"What one replica really serves. Taken were {capacity.sequences:.3g} sequences at once{serves} ({source}). "
        "The need, and so the minutes at risk, stand and fall with it."
    )
    if found.held_minutes:
        yield f"What KEDA does while it is answered UNAVAILABLE ({minutes(found.held_minutes)}): nothing was changed."
    cold, declared = backtest.cold_start, policy.replicas.cold_start_seconds
    near = declared / _FAR_OFF <= cold.seconds <= declared * _FAR_OFF
    yield (
        f"Whether GPUs are to be had when asked for. Each replica was taken to serve {cold.seconds:.0f} s after it was "
        f"asked for ({cold.source})."
        + ("" if near else f" The policy says {declared:g} s: correct replicas.cold_start_seconds.")
    )
    ran = "the replicas asked for, as kube-state-metrics tells"
    if not backtest.counted:
        ran = (
            "the replicas that reported, from their process' start on (kube-state-metrics tells nothing of the target)"
        )
    yield f"GPU-hours that no series shows. What ran is {ran}; pods that drain are on neither side."
