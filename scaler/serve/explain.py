"""``loadtide explain``: a workload's document from the API, worded for a terminal, ending in what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scaler.control.model import Code, LoadState, Mode
from scaler.serve.cost_document import cost_lines
from scaler.serve.quantities import counted, duration, number, quantity

Document = dict[str, Any]

#: How the reason of a signal begins that nothing gives: rows that would only say so are folded into one line.
NOT_REPORTED = ("no source gives", "no endpoint reports")

#: Replicas named in one line.
REPLICAS_NAMED = 5

#: How a word is coloured; the word itself says the same.
_STYLES = {
    "critical": "bold red",
    "stalled": "bold red",
    "high": "yellow",
    "stale": "yellow",
    "normal": "green",
    "known": "green",
    "low": "cyan",
    "idle": "cyan",
}

#: What an operator can do about a code, where there is something to do.
_ADVICE: dict[str, str] = {
    Code.CEILING: "raise replicas.max and the ScaledObject's maxReplicaCount together, or accept longer waits",
    Code.BUDGET: "raise budget.gpu_hours, or write budget.at_end: warn; the next period begins with nothing spent",
    Code.BUDGET_SPENT: "raise budget.gpu_hours, or write budget.at_end: cap to go down to the floor when it is spent",
    Code.BUDGET_FLOOR: "raise budget.gpu_hours, or lower warm.floor, its windows and replicas.min: they take it all",
    Code.OBJECTIVE_UNREACHABLE: "loosen the objective: the answers take this long on an empty engine too",
    Code.INFEASIBLE: "loosen the objective to at least 1.2 times that, or run a faster engine",
    Code.MEMORY_PRESSURE: "if this keeps coming back, lower batch.max or give the engine more KV cache",
    Code.KV_ROOM: "more load needs more replicas, not a larger batch: KV cache is the limit here",
    Code.UNSCHEDULABLE: "add nodes, or lower replicas.max: no node has room for what is asked for",
    Code.OVERDUE: "look at the pod's events: a replica has been loading for more than twice its usual time",
    Code.LOAD_FAILED: "look at the pod's events: it did not become ready within replicas.load_timeout_seconds",
    Code.WAKE_BACKOFF: "look at the pod's events: the last woken replica did not become ready",
    Code.STALLED: "restart the stalled replica: it has work, makes no progress, and gets no new capacity from us",
    Code.IDLE_UNPROVEN: "restore the missing signal, or the workload will never be taken to zero",
    Code.SIGNAL_LOST: "restore the missing signal: replicas cannot go down without it",
    Code.SIGNAL_LOST_TOO_LONG: "restore the missing signal: KEDA keeps the present count until then",
    Code.NO_WAKE_SOURCE: "declare gateway.urls or push.enabled: true, or nothing would wake what sleeps",
    Code.WAKE_FAILED: "look at the agent's log beside the engine: it says why the engine does not wake",
    Code.OSCILLATION: "if this keeps coming back, part the marks yourself: a lower memory.kv_growth_ratio, a longer "
    "batch.cooldown_seconds or replicas.down_window_seconds",
    Code.ASKED_UNKNOWN: "declare target.name, so that the cluster is asked how many replicas are to stay",
    Code.ADVISORY: "write mode: active to let the advice be carried out",
    Code.PAUSED: "write mode: active to let the laws rule again",
    Code.OVERRIDE: "end the override before its time with: loadtide override NAMESPACE/NAME --end",
    Code.UNATTRIBUTED: "declare a TTFT or TPOT objective: they tell queueing from slow steps",
}


def explain(document: Document) -> RenderableType:
    """The document of ``GET /v1/workloads/{namespace}/{name}`` as a rich renderable, to be printed as it is."""
    if document["decided_at"] is None:
        return Group(_heading(document), *_listed("Warnings", document["warnings"]), *_next(document))
    return Group(
        _heading(document),
        *_wants(document),
        *_listed("Why", [reason["sentence"] for reason in document["reasons"]], "nothing moved, and nothing needs to"),
        *_listed("Held back", [held["sentence"] for held in document["suppressed"]]),
        *_listed("What lasts", [_lasts(each) for each in document["lasting"]]),
        *_listed("Last adjustments", [_adjusted(entry) for entry in document["last_adjustments"]]),
        *_signals(document["signals"]),
        *_listed("Sources that fail", [_failure(source) for source in document["sources"] if not source["ok"]]),
        *_listed("Warnings", [*document["warnings"], *document["signal_warnings"]]),
        *_next(document),
    )


def _heading(document: Document) -> Text:
    state = document["state"]
    heading = Text.assemble((document["workload"], "bold"), " is ", (state, _STYLES.get(state, "bold")))
    if document["state_seconds"] is not None:
        heading.append(f" for {duration(document['state_seconds'])}")
    heading.append(f": {document['state_words']}")
    if document.get("cause_words"):
        heading.append(f" ({document['cause_words']})")
    return heading


def _wants(document: Document) -> Iterator[Text]:
    """The targets in a line each, and the objectives against their P95."""
    if document["mode"] != Mode.ACTIVE:
        yield Text(f"  mode       {_mode(document)}", "yellow")
    replicas = document["replicas"]
    line = f"{counted(replicas['desired'], 'replicas')} wanted"
    if not document["available"]:
        line = f"KEDA is told UNAVAILABLE and keeps its count ({line} last)"
    elif not document["active"]:
        line += " (inactive)"
    ready = "readiness not known" if replicas["ready"] is None else f"{number(replicas['ready'])} ready"
    bounds = f"floor {replicas['floor']}, ceiling {replicas['ceiling'] if replicas['ceiling'] is not None else 'none'}"
    yield Text(f"  replicas   {line}, {ready}, {bounds}")
    batch = document["batch_size"]
    engine = "the engine's own" if batch is None else number(batch)
    if document["token_budget"] is not None:
        engine += f", token budget {number(document['token_budget'])}"
    if document["workers"] is not None:
        engine += f", queue up to {number(document['queue_limit'])}, {counted(document['workers'], 'workers')}"
    yield Text(f"  batch      {engine}; {document['admission_words']}")
    if document["applied"]:
        yield Text(f"  applied    {_applied(document)}")
    if document["rung"] != "awake" or document["idle"]["sleep_after_seconds"] is not None:
        yield Text(f"  rung       {_rung(document)}")
    yield Text(f"  capacity   {_capacity(document['capacity'])}")
    for objective in document["objectives"]:
        bound = (
            objective["warning_seconds"] if objective["warning_seconds"] is not None else objective["critical_seconds"]
        )
        judged = "breached" if objective["critical_verdict"] == "breached" else objective["verdict"] or "not judged"
        p95 = "no P95" if objective["p95"] is None else f"P95 {_between(objective['p95'])}"
        yield Text(f"  {objective['objective']:<10} {p95}, objective {duration(bound)}: {judged}")
    for title, line in cost_lines(document):
        yield Text(f"  {title:<10} {line}")
    if (seen := document.get("idle", {}).get("last_activity")) is not None:
        where = "".join(f" {word} {seen[key]}" for word, key in (("at", "endpoint"), ("of", "series")) if seen[key])
        yield Text(f"  wanted     {duration(seen['age_seconds'])} ago, as {seen['signal']} shows{where}")


def _applied(document: Document) -> str:
    """What the replicas report to run with, and who of them does not follow the target."""
    told = document["applied"]
    sizes = [each["batch_size"] for each in told if each["batch_size"] is not None]
    least, most = min(sizes, default=None), max(sizes, default=None)
    size = "a batch not told" if least is None else number(least) if least == most else f"{least} to {most}"
    astray = [each["replica"] for each in told if each["generation"] is None]
    line = f"{size}, as {counted(len(told), 'replicas')} report{'s' if len(told) == 1 else ''}"
    if astray:
        more = f" and {len(astray) - REPLICAS_NAMED} more" if len(astray) > REPLICAS_NAMED else ""
        line += f"; its own setting: {', '.join(astray[:REPLICAS_NAMED])}{more}"
    return line


def _rung(document: Document) -> str:
    """Who sleeps, and how long a wake takes beside a cold start."""
    sleep, after = document["sleep"], document["idle"]["sleep_after_seconds"]
    line = str(document["rung"])
    if sleep["asleep_seconds"] is not None:
        line += f" for {duration(sleep['asleep_seconds'])} (level {sleep['level']})"
    elif after is not None:
        line += f", asleep after {duration(after)} idle"
    if sleep["asleep_replicas"]:
        line += f"; {counted(sleep['asleep_replicas'], 'replicas')} asleep"
    wake, cold, declared = (sleep[f"{name}_seconds"] for name in ("wake", "cold_start", "declared_cold_start"))
    start = f"{duration(declared)} declared" if cold is None else f"{duration(cold)} measured"
    woken = "no wake measured yet" if wake is None else f"the last wake took {duration(wake)}"
    if wake is not None and sleep["engines_wake_seconds"] is not None:
        woken += f" ({duration(sleep['engines_wake_seconds'])} in the engine)"
    return f"{line}; {woken}, a cold start: {start}"


def _mode(document: Document) -> str:
    """Who rules, and what the laws would do."""
    told, override, advised = f"{document['mode']}: {document['mode_words']}", document["override"], document["advised"]
    if override is not None:
        told += f" ({override['by']}, for another {duration(override['remaining_seconds'])})"
    if advised is not None:
        batch = "the engine's own batch" if advised["batch_size"] is None else f"batch {number(advised['batch_size'])}"
        told += f"; by the laws {counted(advised['replicas'], 'replicas')}, {batch}"
    return told


def _capacity(capacity: Document) -> str:
    """What one replica serves within its objectives, and how that is known."""
    rate = capacity["requests_per_second"]
    line = f"{number(capacity['sequences'] or 0)} sequences a replica"
    line += "" if rate is None else f", {number(rate)} req/s"
    if capacity["assumed"]:
        return f"{line}, assumed: declare capacity.sequences, or wait until windows have shown it"
    low, high = capacity["measured"]["low"], capacity["measured"]["high"]
    if low is None:
        return f"{line}, {capacity['source'].replace('_', ' ')}"
    between = f"at least {number(low)}" if high is None else f"{number(low)} to {number(high)}"
    return f"{line}, {capacity['source'].replace('_', ' ')}; {between} by {counted(capacity['windows'], 'windows')}"


def _signals(signals: list[Document]) -> Iterator[RenderableType]:
    """A table of signals with value, or the reason there is none; below it, in a line, what no source gives at all."""
    absent = [
        signal["signal"]
        for signal in signals
        if signal["status"] == "unknown" and str(signal["reason"]).startswith(NOT_REPORTED)
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("signal", "status"):
        table.add_column(column, no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("age", justify="right", no_wrap=True)
    for signal in signals:
        if signal["signal"] not in absent:
            word = signal["status"].replace("_", " ")
            age = "" if signal["age_seconds"] is None else duration(signal["age_seconds"])
            table.add_row(signal["signal"], Text(word, _STYLES.get(word, "dim")), _value(signal), age)
    yield Text()
    yield table
    if absent:
        yield Text(f"no source gives {', '.join(absent)}", "dim")


def _value(signal: Document) -> Text:
    if signal["latency"] is not None:
        latency = signal["latency"]
        return Text(f"P95 {_between(latency['p95'])}, {number(latency['samples'] or 0)} requests")
    if signal["value"] is not None:
        return Text(quantity(signal["signal"], signal["value"]))
    return Text(signal["reason"] or "", "dim")


def _between(interval: Document) -> str:
    low, high = interval["low"], interval["high"]
    if high is None:
        return f"over {duration(low)}"
    if not low:
        return f"up to {duration(high)}"
    return duration(low) if low == high else f"{duration(low)} to {duration(high)}"


def _lasts(condition: Document) -> str:
    """A condition, its age, and its way out."""
    name = condition["condition"].replace("_", " ")
    return f"{name} for {duration(condition['seconds'])}; ends when {condition['ends']}"


def _adjusted(entry: Document) -> str:
    """One adjustment, and what came of it."""
    changes = ", ".join(
        f"{change['what'].replace('_', ' ')} {_shown(change['from'])} to {_shown(change['to'])}"
        for change in entry["changes"]
    )
    effect = entry["effect"]
    return f"{entry['at'][:19]}Z {changes}" + ("" if effect is None else f": {effect['sentence']}")


def _shown(value: object) -> str:
    return "none" if value is None else number(value) if isinstance(value, int | float) else str(value)


def _failure(source: Document) -> str:
    return f"{source['source']} {source['endpoint']}: {source['detail'] or 'no answer'}"


def _listed(title: str, lines: list[str], otherwise: str | None = None) -> Iterator[Text]:
    shown = lines or ([otherwise] if otherwise else [])
    if shown:
        yield Text(f"\n{title}", "bold")
        yield from (Text(f"  - {line}") for line in shown)


def _next(document: Document) -> Iterator[Text]:
    """What to do next; always something, if only where to look."""
    yield from _listed("What to do next", list(dict.fromkeys(_advice(document))))


def _advice(document: Document) -> Iterator[str]:
    if document["decided_at"] is None:
        yield "ask again in a few seconds: the first tick is being made"
        return
    if not document["current"]:
        yield "look at the scaler's log: it has not evaluated this workload lately, so KEDA is told UNAVAILABLE"
    for said in (*document["suppressed"], *document["reasons"]):
        if said["code"] in _ADVICE:
            yield _ADVICE[said["code"]]
    if document["state"] == LoadState.STALLED:
        yield _ADVICE[Code.STALLED]
    if any(not source["ok"] for source in document["sources"]):
        yield "make the failing sources answer: open their URL from the scaler's pod"
    if document["warnings"]:
        yield "settle the warnings: each says which policy key to write"
    yield f"see what changed before: GET /v1/workloads/{document['workload']}/decisions"
