"""``loadtide explain``: a workload's document from the API, worded for a terminal, ending in what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from scaler.control.model import Mode
from scaler.serve.advice import advice
from scaler.serve.quantities import counted, duration, number, quantity
from scaler.serve.told_document import NOT_TOLD, Told, told

Document = dict[str, Any]

#: How the reason of a signal begins that nothing gives: rows that would only say so are folded into one line.
NOT_REPORTED = ("no source gives", "no endpoint reports")

#: So many signals that are unknown for one and the same reason (an endpoint that is down) share a line.
ALIKE = 4

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


def _still(document: Document) -> str:
    """What is said where there is no reason, as nothing moved."""
    held = document["suppressed"]
    return "nothing moved: what was wanted is held back" if held else "nothing moved, and nothing needs to"


def explain(answer: Document) -> RenderableType:
    """The document of ``GET /v1/workloads/{namespace}/{name}`` as a rich renderable, to be printed as it is. It may
    come from a scaler of another version.
    """
    whole = told(answer)
    document = whole.document
    if document["decided_at"] is None:
        return Group(_heading(document), *_listed("Warnings", document["warnings"]), *_next(document))
    return Group(
        _heading(document),
        *_wants(document),
        *_listed("Why", [reason["sentence"] for reason in document["reasons"]], _still(document)),
        *_listed("Held back", [held["sentence"] for held in document["suppressed"]]),
        *_listed("What lasts", [_lasts(each) for each in document["lasting"]]),
        *_listed("Last adjustments", [_adjusted(entry) for entry in document["last_adjustments"]]),
        *_signals(document["signals"]),
        *_listed("Sources that fail", [_failure(source) for source in document["sources"] if not source["ok"]]),
        *_listed("Warnings", [*document["warnings"], *document["signal_warnings"]]),
        *_listed("Another version", list(_versions(whole))),
        *_next(document),
    )


def _heading(document: Document) -> Text:
    state = document["state"]
    heading = Text.assemble((document["workload"], "bold"), " is ", (state, _STYLES.get(state, "bold")))
    if document["state_seconds"] is not None:
        heading.append(f" for {duration(document['state_seconds'])}")
    if document["state_words"]:
        heading.append(f": {document['state_words']}")
    if document.get("cause_words"):
        heading.append(f" ({document['cause_words']})")
    return heading


def _wants(document: Document) -> Iterator[Text]:
    """The targets in a line each, and the objectives against their P95."""
    if document["mode"] != Mode.ACTIVE:
        yield Text(f"  mode       {_mode(document)}", "yellow")
    replicas = document["replicas"]
    wanted = "a number not told" if replicas["desired"] is None else counted(replicas["desired"], "replicas")
    line = f"{wanted} wanted"
    if not document["available"]:
        line = f"KEDA is told UNAVAILABLE and keeps its count ({line} last)"
    elif not document["active"]:
        line += " (inactive)"
    ready = "readiness not known" if replicas["ready"] is None else f"{number(replicas['ready'])} ready"
    floor = NOT_TOLD if replicas["floor"] is None else replicas["floor"]
    bounds = f"floor {floor}, ceiling {replicas['ceiling'] if replicas['ceiling'] is not None else 'none'}"
    yield Text(f"  replicas   {line}, {ready}, {bounds}")
    batch = document["batch_size"]
    engine = "the engine's own" if batch is None else number(batch)
    if document["token_budget"] is not None:
        engine += f", token budget {number(document['token_budget'])}"
    if document["workers"] is not None and document["queue_limit"] is not None:
        engine += f", queue up to {number(document['queue_limit'])}, {counted(document['workers'], 'workers')}"
    yield Text(f"  batch      {engine}; {document['admission_words']}")
    if document["applied"]:
        yield Text(f"  applied    {_applied(document)}")
    yield Text(f"  capacity   {_capacity(document['capacity'])}")
    for objective in document["objectives"]:
        bound = (
            objective["warning_seconds"] if objective["warning_seconds"] is not None else objective["critical_seconds"]
        )
        judged = "breached" if objective["critical_verdict"] == "breached" else objective["verdict"] or "not judged"
        p95 = "no P95" if objective["p95"] is None else f"P95 {_between(objective['p95'])}"
        yield Text(f"  {objective['objective']:<10} {p95}, objective {_span(bound)}: {judged}")
    for each in document["standing"]:
        yield Text(f"  {each['about']:<10} {each['sentence']}")
    if (seen := document["idle"]["last_activity"]) is not None:
        where = "".join(f" {word} {seen[key]}" for word, key in (("at", "endpoint"), ("of", "series")) if seen[key])
        yield Text(f"  wanted     {_span(seen['age_seconds'])} ago, as {seen['signal']} shows{where}")


def _span(seconds: float | None) -> str:
    return NOT_TOLD if seconds is None else duration(seconds)


def _applied(document: Document) -> str:
    """What the replicas report to run with, and who of them does not follow the target."""
    reported = document["applied"]
    sizes = [each["batch_size"] for each in reported if each["batch_size"] is not None]
    least, most = min(sizes, default=None), max(sizes, default=None)
    size = "a batch not told" if least is None else number(least) if least == most else f"{least} to {most}"
    astray = [each["replica"] for each in reported if each["generation"] is None]
    line = f"{size}, as {counted(len(reported), 'replicas')} report{'s' if len(reported) == 1 else ''}"
    if astray:
        more = f" and {len(astray) - REPLICAS_NAMED} more" if len(astray) > REPLICAS_NAMED else ""
        line += f"; its own setting: {', '.join(astray[:REPLICAS_NAMED])}{more}"
    return line


def _mode(document: Document) -> str:
    """Who rules, and what the laws would do."""
    said, override, advised = f"{document['mode']}: {document['mode_words']}", document["override"], document["advised"]
    if override is not None:
        said += f" ({override['by']}, for another {_span(override['remaining_seconds'])})"
    if advised is not None:
        batch = "the engine's own batch" if advised["batch_size"] is None else f"batch {number(advised['batch_size'])}"
        replicas = "replicas not told" if advised["replicas"] is None else counted(advised["replicas"], "replicas")
        said += f"; by the laws {replicas}, {batch}"
    return said


def _capacity(capacity: Document) -> str:
    """What one replica serves within its objectives, and how that is known."""
    rate = capacity["requests_per_second"]
    if capacity["sequences"] is None:
        return NOT_TOLD
    line = f"{number(capacity['sequences'])} sequences a replica"
    line += "" if rate is None else f", {number(rate)} req/s"
    if capacity["assumed"]:
        return f"{line}, assumed: declare capacity.sequences, or wait until windows have shown it"
    low, high = capacity["measured"]["low"], capacity["measured"]["high"]
    line += f", {capacity['source'].replace('_', ' ')}"
    if low is not None:
        between = f"at least {number(low)}" if high is None else f"{number(low)} to {number(high)}"
        line += f"; {between} by {counted(capacity['windows'], 'windows')}"
    loaded = capacity.get("loaded_sequences")  # an older scaler does not tell it
    if loaded is not None and loaded > capacity["sequences"]:
        line += f"; {number(loaded)} while arrivals are settled"
    return line


def _signals(signals: list[Document]) -> Iterator[RenderableType]:
    """A table of signals with value, or the reason there is none; below it, in a line each, what no source gives at
    all, and what many lack for one and the same reason.
    """
    unknown = [signal for signal in signals if signal["status"] == "unknown"]
    absent = [signal["signal"] for signal in unknown if str(signal["reason"]).startswith(NOT_REPORTED)]
    lacking: dict[str, list[str]] = {}
    for signal in unknown:
        if signal["signal"] not in absent:
            lacking.setdefault(str(signal["reason"]), []).append(signal["signal"])
    lacking = {reason: names for reason, names in lacking.items() if len(names) >= ALIKE}
    folded = {*absent, *(name for names in lacking.values() for name in names)}
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("signal", "status"):
        table.add_column(column, no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("age", justify="right", no_wrap=True)
    for signal in signals:
        if signal["signal"] not in folded:
            word = signal["status"].replace("_", " ")
            age = "" if signal["age_seconds"] is None else duration(signal["age_seconds"])
            table.add_row(signal["signal"], Text(word, _STYLES.get(word, "dim")), _value(signal), age)
    yield Text()
    yield table
    for reason, names in lacking.items():
        yield Text(f"unknown, because {reason}: {', '.join(names)}", _STYLES["stale"])
    if absent:
        yield Text(f"no source gives {', '.join(absent)}", "dim")


def _value(signal: Document) -> Text:
    if signal["latency"] is not None:
        latency = signal["latency"]
        samples = NOT_TOLD if latency["samples"] is None else number(latency["samples"])
        return Text(f"P95 {_between(latency['p95'])}, {samples} requests")
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
    return f"{name} for {_span(condition['seconds'])}; ends when {condition['ends']}"


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
    before = f"see what changed before: GET /v1/workloads/{document['workload']}/decisions"
    mine = advice(document) if document["advice"] is None else document["advice"]
    yield from _listed("What to do next", [*mine, *([before] if document["decided_at"] else [])])


def _versions(whole: Told) -> Iterator[str]:
    """Where scaler and command are of two versions: what is not told here, and where all of it is."""
    if whole.lacking:
        yield f"this scaler is older than this command: it does not tell {', '.join(whole.lacking)}"
    if whole.unknown:
        yield f"this scaler is newer than this command, which has no words for {', '.join(whole.unknown)}"
    if whole.lacking or whole.unknown:
        yield "`loadtide explain` in the scaler's own pod is of its version"
