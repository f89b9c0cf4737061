"""What a backtest found, in the words and figures that the terminal and the page share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from scaler.lab.backtest.findings import Side, Verdict
from scaler.lab.backtest.limits import CAPACITY_SOURCES, minutes, percent
from scaler.lab.backtest.money import Money, money
from scaler.lab.backtest.span import shown_duration, shown_time
from scaler.lab.backtest.study import Backtest, Setting

#: Told for each kind of time; the kinds are explained in :mod:`scaler.lab.backtest.findings`.
VERDICT_WORDS: Final[Mapping[Verdict, str]] = {
    "covered": "as many replicas ready as ran, or more: latency no worse than it was",
    "seen": "fewer, at a load per replica that kept the objectives in this past",
    "unseen": "fewer, at more load per replica than that: it cannot be known",
    "short": "at risk: the need is above the replicas that would have been ready",
    "unjudged": "it is not known how much was in flight",
}
#: Under this share of the range with data nothing should be concluded.
LEAST_DATA_SHARE: Final = 0.5
#: From this share of time on loads never seen the result is called a guess.
GUESSED_SHARE: Final = 0.1
#: At risk for this much longer than what ran is worth a hint.
_HINT_SHORT_SHARE: Final = 0.005


class Share(NamedTuple):
    """One kind of time: how much of it there is, what it means, and the GPU-hours saved in it."""

    verdict: Verdict
    minutes: float
    words: str
    saved_gpu_hours: float


class Compared(NamedTuple):
    """One row: what ran beside what would have."""

    what: str
    ran: str
    ours: str
    note: str = ""


def heading(backtest: Backtest) -> str:
    """What was backtested."""
    span = backtest.span
    return (
        f"{backtest.setting.workload}, {shown_duration(span.seconds)} from {shown_time(span.since)} to "
        f"{shown_time(span.until)} UTC"
    )


def basis(backtest: Backtest) -> list[str]:
    """On what it stands: which series, which policy, what was assumed of a replica."""
    setting, capacity = backtest.setting, backtest.capacity
    rate = capacity.requests_per_second
    pace = backtest.pace
    return [
        f"{setting.server}: {backtest.binding.said}; scraped every {backtest.interval_seconds:g} s, "
        f"{backtest.samples:,} samples",
        f"policy: {setting.policy_source}; replicas {setting.policy.replicas.min} to "
        f"{setting.policy.replicas.max or 'no declared maximum'}",
        f"a replica serves {backtest.cold_start.seconds:.0f} s after it is asked for ({backtest.cold_start.source}), "
        f"{capacity.sequences:.3g} sequences at once"
        + ("" if rate is None else f" or {rate:.3g} requests/s")
        + f" ({CAPACITY_SOURCES.get(capacity.source, capacity.source)})",
        f"under load it slows from {1000 * pace.token_seconds:.3g} ms per token to twice that at "
        f"{pace.doubled_at:.3g} sequences"
        if math.isfinite(pace.doubled_at)
        else "no slowdown under load shows in its time per token",
        *_priced(setting),
    ]


def _priced(setting: Setting) -> list[str]:
    """What GPU-hours are counted and paid by, where anybody told."""
    if not setting.priced and setting.gpus_per_replica == 1.0:
        return []
    line = f"a replica takes {setting.gpus_per_replica:g} GPU{'' if setting.gpus_per_replica == 1 else 's'}"
    if not setting.priced:
        return [line]
    given, declared = setting.gpu_hour_price, setting.policy.gpu.hour_price
    price = declared if given is None else given
    line += f"; a GPU costs {price or 0.0:g} {setting.currency}".rstrip() + " an hour"
    windows = given is None and any(each.hour_price is not None for each in setting.policy.price.windows)
    return [line + (", and in the policy's price windows what they say" if windows else "")]


def compared(backtest: Backtest) -> list[Compared]:
    """What ran beside what would have."""
    found, setting = backtest.findings, backtest.setting
    ran, ours, gpus, paid = found.ran, found.ours, setting.gpus_per_replica, money(backtest)
    saved = found.saved_share
    rows = [
        Compared(
            "GPU-hours",
            f"{ran.replica_hours * gpus:,.1f}",
            f"{ours.replica_hours * gpus:,.1f}",
            "" if saved is None else f"{abs(saved):.1%} {'less' if saved >= 0 else 'more'}".replace("%", " %"),
        )
    ]
    if paid is not None:
        rows.append(_cost(paid))
    return [
        *rows,
        Compared("replicas, mean", f"{ran.mean_replicas:.2f}", f"{ours.mean_replicas:.2f}"),
        Compared("replicas, most", f"{ran.most_replicas}", f"{ours.most_replicas}"),
        Compared("changes of the number", f"{ran.changes}", f"{ours.changes}"),
        Compared(
            "need above the ready replicas", minutes(ran.short_minutes), minutes(ours.short_minutes), _risk(backtest)
        ),
    ]


def _cost(paid: Money) -> Compared:
    ran, ours, saved = (
        f"{value:,.2f} {paid.currency}".rstrip() for value in (paid.ran, paid.ours, abs(paid.ran - paid.ours))
    )
    return Compared("cost", ran, ours, f"{saved} {'saved' if paid.ran >= paid.ours else 'more'}")


def _risk(backtest: Backtest) -> str:
    only = backtest.findings.ours_only_short_minutes
    return f"{minutes(only)} where what ran sufficed" if only else "nowhere that what ran sufficed"


def shares(backtest: Backtest) -> list[Share]:
    """Each kind of time there is."""
    found, gpus = backtest.findings, backtest.setting.gpus_per_replica
    told = []
    for verdict, words in VERDICT_WORDS.items():
        value = found.minutes[verdict]
        kept = found.kept_up_to
        if verdict == "seen" and kept is not None:
            words = f"{words} (up to {kept:.3g} in flight)"
        if value or verdict in ("covered", "short"):
            told.append(Share(verdict, value, words, found.saved_replica_hours[verdict] * gpus))
    return told


def remarks(backtest: Backtest) -> list[str]:
    """What else is worth a sentence: broken objectives of the past, a fixed number in hindsight, too little data."""
    found, gpus = backtest.findings, backtest.setting.gpus_per_replica
    said = []
    if found.minutes["unseen"] >= GUESSED_SHARE * found.data_minutes:
        said.append(
            f"Mind that {percent(found.minutes['unseen'], found.data_minutes)} of the time rests on loads that this "
            "past never had: what is saved there is what the policy believes of a replica, not what was measured."
        )
    broken = found.broken
    if broken.total:
        said.append(
            f"This past broke an objective for {minutes(broken.total)} ({minutes(broken.critical)} critically). "
            f"loadtide would have had more replicas ready in {minutes(broken.with_more)} of it, as many in "
            f"{minutes(broken.with_as_many)}, fewer in {minutes(broken.with_fewer)}."
        )
    elif found.judged_minutes:
        said.append("This past broke no objective, as far as it can be judged.")
    if found.fixed is not None:
        said.append(
            f"In hindsight a fixed {found.fixed.replicas} would have been short no longer than loadtide, for "
            f"{found.fixed.replica_hours * gpus:,.1f} GPU-hours."
        )
    if not enough_data(backtest):
        share = percent(found.data_minutes, backtest.setting.span.seconds / 60.0)
        said.append(f"Only {share} of the range has data: conclude nothing from this yet.")
    return said


def enough_data(backtest: Backtest) -> bool:
    """Whether the range has enough data to conclude anything."""
    return 60.0 * backtest.findings.data_minutes >= LEAST_DATA_SHARE * backtest.setting.span.seconds


def next_steps(backtest: Backtest, *, drawn: bool) -> list[str]:
    """What to do with it: what may make the policy better, then how to go on."""
    return [*_tuning(backtest), *_going_on(backtest, drawn)]


def _tuning(backtest: Backtest) -> list[str]:
    found, capacity = backtest.findings, backtest.capacity
    steps = []
    if capacity.source == "prior" and found.kept_up_to is not None:
        most = max(1, math.floor(found.kept_up_to))
        steps.append(
            f"The policy does not say what a replica serves. This past kept its objectives with {found.kept_up_to:.3g} "
            f"in flight per replica: --set capacity.sequences={most} stays within what it shows, and is the most "
            "cautious. To go beyond, load one replica until an objective breaks, and declare three quarters of that."
        )
    if _longer_short(found.ours, found.ran, found.data_minutes):
        steps.append(
            "At risk longer than what ran: see when in the page, and try a higher floor (--set replicas.min=N), a "
            "keep-warm window (warm.windows), or a lower load per replica (--set capacity.sequences=N)."
        )
    return steps


def _longer_short(ours: Side, ran: Side, data_minutes: float) -> bool:
    return ours.short_minutes - ran.short_minutes > _HINT_SHORT_SHARE * data_minutes


def _going_on(backtest: Backtest, drawn: bool) -> list[str]:
    workload = backtest.setting.workload
    steps = [] if drawn else ["See it drawn: --html report.html (and --keep FOLDER, to read the server only once)."]
    return [
        *steps,
        f"Then run it as advice beside what scales {workload} today: loadtide serve --policy FILE decides and shows, "
        f"and changes nothing while no ScaledObject names it; loadtide explain {workload} says why.",
        "When its advice holds for some days, let KEDA ask it: deploy/examples has the ScaledObject, loadtide check "
        "finds its mistakes.",
    ]
