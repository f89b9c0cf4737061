"""Snapshots as the JSON documents of the HTTP API."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from scaler.consume.contract import ServedTarget
from scaler.control.cold_start import measured_cold_starts
from scaler.control.lasting import ENDS, lasting
from scaler.control.model import Code, Decision, LoadState, Mode, Override, Rung
from scaler.policy.model import Objectives
from scaler.serve.advice import advice
from scaler.serve.card_document import card_document, card_part
from scaler.serve.cost_document import cost_document, season_document
from scaler.serve.decision_document import outline, reason_document, suppressed_document
from scaler.serve.plain_json import age_seconds, finite, instant
from scaler.serve.published import PublishedWorkload
from scaler.serve.signal_document import interval_document, signal_document
from scaler.serve.snapshot import Snapshot, SourceHealth
from scaler.serve.standing import standing_lines
from scaler.serve.words import ADMISSIONS, CAUSES, MODES, STATES
from scaler.signals.activity import Activity
from scaler.signals.model import CATALOG, Applied, Known, Signals, Stale, Verdict, known_value, status

Document = dict[str, Any]

#: Characters of an endpoint in a label or document. Longer label values cost every scrape, and some servers drop them.
LABEL_LENGTH = 200
#: The objectives a policy can declare, in the order they are shown.
OBJECTIVES = ("ttft", "tpot", "e2e")
#: Adjustments told with a workload; ``/decisions`` has them all.
LAST_TOLD = 3
_LOST = (Code.SIGNAL_LOST, Code.SIGNAL_LOST_TOO_LONG, Code.NEVER_READ)


def workload_summary(workload: PublishedWorkload, mono: float, *, current: bool) -> Document:
    """One workload at a glance. ``mono`` is the monotonic time now; ``current`` whether its snapshot is to be believed.

    Before the first tick everything measured or decided is null and the state ``unknown``.
    """
    name = workload.name
    namespace, _, short = name.partition("/")
    head: Document = {"workload": name, "namespace": namespace, "name": short, "owner": workload.owner}
    snapshot = workload.snapshot
    if snapshot is None:
        return head | {
            "state": LoadState.UNKNOWN.value,
            "state_words": "not evaluated yet",
            "state_seconds": None,
            "mode": workload.resolved.policy.mode,
            "mode_words": MODES[Mode(workload.resolved.policy.mode)],
            "override": None,
            "advised": None,
            "available": False,
            "current": False,
            "decided_at": None,
            "age_seconds": None,
            "data_age_seconds": None,
            "active": None,
            "replicas": dict.fromkeys(("desired", "needed", "ready", "asleep", "floor", "ceiling")),
            "batch_size": None,
            "token_budget": None,
            "admission": None,
            "queue_limit": None,
            "workers": None,
            "rung": None,
            "budget_spent_ratio": None,
            "card": None,
            "in_flight": None,
            "objectives": [],
            "lost_signals": [],
            "warnings": list(workload.resolved.warnings),
        }
    decision, budget = snapshot.decision, snapshot.decision.budget
    return head | {
        "state": decision.state.value,
        "state_words": STATES[decision.state],
        "state_seconds": finite(decision.next_memory.state_seconds),
        "mode": decision.mode.value,
        "mode_words": MODES[decision.mode],
        "override": override_document(decision.next_memory.override, snapshot.decided_at.utc),
        "advised": _advised(decision),
        "available": decision.available,
        "current": current,
        "decided_at": instant(snapshot.decided_at.utc),
        "age_seconds": age_seconds(snapshot.decided_at.mono, mono),
        "data_age_seconds": _data_age(snapshot.signals, mono),
        "active": decision.targets.active,
        "replicas": {
            "desired": decision.targets.replicas,
            "needed": decision.need,
            "ready": decision.ready,
            "asleep": decision.asleep,
            "floor": decision.floor,
            "ceiling": decision.ceiling,
        },
        "batch_size": decision.targets.batch,
        "token_budget": decision.targets.token_budget,
        "admission": decision.targets.admission.value,
        "queue_limit": decision.targets.queue_limit,
        "workers": decision.targets.workers,
        "rung": decision.targets.rung.value,
        "budget_spent_ratio": None if budget is None else finite(budget.spent / budget.gpu_hours),
        "card": card_part(snapshot),
        "in_flight": _in_flight(snapshot.signals),
        "objectives": _objectives(snapshot),
        "lost_signals": [reason.signal for reason in decision.reasons if reason.code in _LOST],
        "warnings": list(snapshot.warnings),
    }


def override_document(override: Override | None, utc: datetime) -> Document | None:
    """An override as it stands at ``utc``; None where there is none."""
    if override is None:
        return None
    return {
        "replicas": override.replicas,
        "batch_size": override.batch,
        "until": instant(override.until),
        "remaining_seconds": max(0.0, round((override.until - utc).total_seconds(), 3)),
        "by": override.by,
    }


def _advised(decision: Decision) -> Document | None:
    """What the laws would have published; None where they rule."""
    advised = decision.advised
    if advised is None:
        return None
    return {
        "replicas": advised.replicas,
        "active": advised.active,
        "batch_size": advised.batch,
        "token_budget": advised.token_budget,
        "admission": advised.admission.value,
    }


def workload_detail(
    workload: PublishedWorkload, mono: float, *, current: bool, sharing: Sequence[PublishedWorkload] = ()
) -> Document:
    """Everything known of one workload: its summary, each signal, the decision with its reasons, the sources.
    ``sharing``: all whose card it shares, itself among them.
    """
    summary = workload_summary(workload, mono, current=current)
    snapshot = workload.snapshot
    if snapshot is None:
        nothing = ("lasting", "signals", "reasons", "suppressed", "applied", "sources", "signal_warnings", "standing")
        return _advised_to(summary | {name: [] for name in (*nothing, "last_adjustments")})
    decision, memory = snapshot.decision, snapshot.decision.next_memory
    detail = summary | {
        "engine": snapshot.policy.engine,
        "strategy": snapshot.policy.strategy,
        "cause": None if decision.cause is None else decision.cause.value,
        "cause_words": None if decision.cause is None else CAUSES[decision.cause],
        "admission_words": ADMISSIONS[decision.targets.admission],
        "utilisation": finite(decision.utilisation),
        "capacity": {
            "sequences": finite(decision.capacity.sequences),
            "requests_per_second": finite(decision.capacity.requests_per_second),
            "source": decision.capacity.source,
            "assumed": decision.capacity.assumed,
            "measured": {"low": finite(decision.capacity.low), "high": finite(decision.capacity.high)},
            "windows": decision.capacity.windows,
            "load_share": finite(decision.load_share),
            "loaded_sequences": finite(decision.capacity.at_share(decision.load_share).sequences),
        },
        "cold_start": _cold_start(decision),
        "season": season_document(snapshot),
        "cost": cost_document(snapshot),
        "idle": {
            "seconds": finite(memory.idle_seconds),
            "timeout_seconds": snapshot.policy.idle.timeout_seconds,
            "sleep_after_seconds": snapshot.policy.idle.sleep_after_seconds,
            "last_activity": None if snapshot.activity is None else _activity(snapshot.activity, mono),
        },
        "sleep": sleep_document(snapshot),
        "card": card_document(snapshot, sharing),
        "generation": snapshot.generation,
        "valid_until": instant(snapshot.valid_until),
        "tick_seconds": finite(snapshot.tick_seconds),
        "lasting": [
            {"condition": condition, "seconds": finite(seconds), "ends": ENDS[condition]}
            for condition, seconds in lasting(memory).items()
        ],
        "reasons": [reason_document(reason, decision) for reason in decision.reasons],
        "suppressed": [suppressed_document(held) for held in decision.suppressed],
        "applied": [_applied(each) for each in snapshot.signals.applied],
        "signals": [signal_document(name, signal, mono) for name, signal in snapshot.signals.items()],
        "signal_warnings": list(snapshot.signals.warnings),
        "last_adjustments": [outline(entry) for entry in islice(reversed(workload.adjustments), LAST_TOLD)],
        "sources": [_source(health) for health in snapshot.health],
    }
    standing = [{"about": about, "sentence": sentence} for about, sentence in standing_lines(detail)]
    return _advised_to(detail | {"standing": standing})


def _advised_to(detail: Document) -> Document:
    """The document, with what a person can do about what it says."""
    return detail | {"advice": advice(detail)}


def served_target(snapshot: Snapshot, mono: float) -> ServedTarget:
    """What an engine consumes, served at ``mono`` (monotonic seconds)."""
    targets, lasts = snapshot.decision.targets, snapshot.valid_until - snapshot.decided_at.utc
    return ServedTarget(
        workload=snapshot.workload,
        batch_size=targets.batch,
        token_budget=targets.token_budget,
        admission=targets.admission.value,
        generation=snapshot.generation,
        valid_until=snapshot.valid_until,
        valid_seconds=max(0.0, lasts.total_seconds() - max(0.0, mono - snapshot.decided_at.mono)),
        state=snapshot.decision.state.value,
        queue_limit=targets.queue_limit,
        workers=targets.workers,
        rung=targets.rung.value,
        sleep_level=snapshot.policy.idle.sleep_level if targets.rung is Rung.ASLEEP else None,
    )


def sleep_document(snapshot: Snapshot) -> Document:
    """The rung between warm and zero: who sleeps, and how long a wake takes beside a cold start."""
    memory, replicas = snapshot.decision.next_memory, snapshot.policy.replicas
    told = [each.wake_seconds for each in snapshot.signals.applied if each.wake_seconds is not None]
    return {
        "level": snapshot.policy.idle.sleep_level,
        "asleep_replicas": snapshot.decision.asleep,
        "asleep_seconds": finite(memory.asleep_seconds),
        "waking_seconds": finite(memory.waking_seconds),
        "wake_seconds": finite(memory.woken_seconds),
        "engines_wake_seconds": finite(max(told, default=None)),
        "cold_start_seconds": finite(memory.loaded_seconds),
        "declared_cold_start_seconds": finite(replicas.cold_start_seconds),
    }


def objective_bounds(objectives: Objectives, name: str) -> Mapping[str, float]:
    """The declared bounds of one objective, seconds: ``warning`` and ``critical``, each only where declared."""
    bounds = {
        "warning": getattr(objectives, f"{name}_seconds"),
        "critical": getattr(objectives, f"{name}_critical_seconds"),
    }
    return {bound: seconds for bound, seconds in bounds.items() if seconds is not None}


def verdict(verdicts: Mapping[str, Verdict], name: str, bound: str) -> Verdict | None:
    """What the decision says of one bound of one objective; None where it was not judged."""
    return verdicts.get(name if bound == "warning" else f"{name}_{bound}")


def endpoint_label(endpoint: str) -> str:
    """An endpoint as it may be shown: a URL without its user, password, query and fragment, where secrets may stand.

    What is longer than :data:`LABEL_LENGTH` is cut, with a digest of the whole so that two stay two.
    """
    try:
        parts = urlsplit(endpoint)
    except ValueError:  # not even a URL: nothing in it can be told apart from a secret
        return "unreadable"
    shown = endpoint
    if parts.scheme and parts.netloc:
        shown = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if len(shown) <= LABEL_LENGTH:
        return shown
    return f"{shown[:LABEL_LENGTH]}…{hashlib.blake2s(shown.encode(), digest_size=4).hexdigest()}"


def _cold_start(decision: Decision) -> Document:
    """How long a replica takes: what is expected of the next one, and what was measured by node and quantile."""
    found: Document = {"expected_seconds": finite(decision.cold_start_seconds), "warm": {}, "new": {}}
    for node, quantile, seconds in measured_cold_starts(decision.next_memory.cold_starts):
        found[node][f"p{100 * quantile:g}_seconds"] = finite(seconds)
    return found


def _data_age(signals: Signals, mono: float) -> float | None:
    """Age of the oldest reading that replicas are judged by: a decision of this moment may rest on old ones."""
    told = [getattr(signals, name) for name, kind in CATALOG.items() if "replicas down" in kind.required_for]
    return max((age_seconds(signal.at, mono) for signal in told if isinstance(signal, Known | Stale)), default=None)


def _in_flight(signals: Signals) -> float | None:
    """Requests running and, where that is told, waiting."""
    running, waiting = known_value(signals.running), known_value(signals.waiting)
    return None if running is None else finite(running + (waiting or 0.0))


def _objectives(snapshot: Snapshot) -> list[Document]:
    shown: list[Document] = []
    objectives = snapshot.policy.at(snapshot.decided_at.utc).objectives
    for name in OBJECTIVES:
        bounds = objective_bounds(objectives, name)
        signal = getattr(snapshot.signals, f"{name}_seconds")
        if not bounds:
            continue
        shown.append(
            {
                "objective": name,
                "warning_seconds": bounds.get("warning"),
                "critical_seconds": bounds.get("critical"),
                "verdict": verdict(snapshot.decision.verdicts, name, "warning"),
                "critical_verdict": verdict(snapshot.decision.verdicts, name, "critical"),
                "status": status(signal),
                "p95": interval_document(signal.value.p95) if isinstance(signal, Known | Stale) else None,
            }
        )
    return shown


def _activity(seen: Activity, mono: float) -> Document:
    return {
        "signal": seen.signal,
        "endpoint": endpoint_label(seen.endpoint) if seen.endpoint else None,
        "series": seen.series or None,
        "age_seconds": age_seconds(seen.at, mono),
    }


def _source(health: SourceHealth) -> Document:
    return {
        "source": health.source,
        "endpoint": endpoint_label(health.endpoint),
        "ok": health.ok,
        "detail": health.detail,
        "seconds": finite(health.seconds),
        "no_progress_seconds": None if health.no_progress_seconds is None else finite(health.no_progress_seconds),
    }


def _applied(each: Applied) -> Document:
    return asdict(each) | {"age_seconds": round(each.age_seconds, 3)}
