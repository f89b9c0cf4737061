"""Rules about triggers: their metadata, how the HPA is told to read our metric, and which stand beside ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from scaler.check.edit import Remove, Rename, Write
from scaler.check.rule import Hit, Rule, Severity
from scaler.check.subjects import ScaledObject, Trigger
from scaler.policy.addresses import shown_text
from scaler.policy.metadata import fingerprint, is_key, nearest_key, same_words

#: Plain scalars that Kubernetes' own YAML reader takes for something else than a text, beyond what ours does.
_YAML_1_1 = re.compile(
    r"(?i:y|n|yes|no|on|off|[-+]?\.inf|\.nan)|[-+]?0[xob][0-9a-fA-F_]+|[-+]?[0-9][0-9_]*(\.[0-9_]*)?"
)
#: A key this much like a real one is a typing error of it; one less like it may be another that was meant.
_SURE = 0.9
#: The object that a trigger of KEDA's HTTP add-on names (0.14 and newer).
_HTTP_ADD_ON = "interceptorRoute"
_NAMED = re.compile(r'metadata ("(?:[^"\\]|\\.)*")')


def metric_type(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.ours:
        said = scaled.manifest.get(*trigger.path, "metricType")
        if said not in (None, "AverageValue"):
            path = (*trigger.path, "metricType")
            yield Hit(
                path,
                f"metricType {said} makes the HPA multiply our replica count by the present one: it runs away "
                "(seen: 1 -> 50)",
                "metricType: AverageValue",
                (Write(path, "AverageValue"),),
            )


def cached_metrics(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.ours:
        path = (*trigger.path, "useCachedMetrics")
        if scaled.manifest.get(*path) is True:
            yield Hit(
                path,
                "with useCachedMetrics the HPA is told what KEDA read at its last poll, so a jump waits for the next; "
                "loadtide answers from memory and needs no cache",
                "useCachedMetrics: false",
                (Remove(path),),
            )


def unquoted(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.ours:
        for name, value in trigger.metadata.items():
            path = (*trigger.path, "metadata", name)
            span, written = scaled.manifest.span(path), scaled.manifest.written(path)
            if isinstance(value, str) and not (span and span.style == "plain" and _YAML_1_1.fullmatch(written)):
                continue
            text = json.dumps(written if not isinstance(value, dict | list) else json.dumps(value))
            yield Hit(
                path,
                f"{name} is no text in YAML, and metadata takes texts only: the API server refuses the ScaledObject",
                f"{name}: {shown_text(text)}",
                (Write(path, text),),
            )


def unknown_key(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.ours:
        for name in trigger.metadata:
            if is_key(name):
                continue
            meant, path = nearest_key(name), (*trigger.path, "metadata", name)
            taken = meant is not None and meant in trigger.metadata
            if meant is None or taken:
                beside = f"; {meant} stands here as well" if taken else ""
                yield Hit(path, f"metadata has no key {name}: it does nothing{beside}", f"# without {name}")
            else:
                fix = f"{meant}: {shown_text(scaled.manifest.written(path))}"
                reason = f"metadata has no key {name}: it does nothing; probably {meant} is meant"
                sure = same_words(name, meant) or SequenceMatcher(None, name.lower(), meant.lower()).ratio() >= _SURE
                yield Hit(path, reason, fix, (Rename(path, meant),) if sure else ())


def bad_value(scaled: ScaledObject) -> Iterator[Hit]:
    for problem in scaled.problems:
        named = _NAMED.search(problem)
        key = json.loads(named[1]) if named else None
        path = (*scaled.ours[0].path, "metadata", key) if key else scaled.ours[0].path
        yield Hit(path, problem)


def triggers_disagree(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.ours[1:]:
        if not _agree(trigger, scaled.ours[0]):
            yield Hit(
                (*trigger.path, "metadata"),
                "two triggers of this ScaledObject ask loadtide with differing metadata: a workload has one policy, "
                "and both are answered INVALID_ARGUMENT",
                "# one trigger; external-push does what external does, and more",
            )


def several_triggers(scaled: ScaledObject) -> Iterator[Hit]:
    others = [trigger for trigger in scaled.triggers if trigger not in scaled.ours and trigger.type != "cron"]
    for trigger in others:
        yield _http_add_on(trigger) if _HTTP_ADD_ON in trigger.metadata else _another(trigger, scaled)
    for trigger in (trigger for trigger in scaled.ours[1:] if _agree(trigger, scaled.ours[0])):
        yield Hit(
            trigger.path,
            "loadtide is asked twice the same: external-push polls as external does, and has the stream besides",
            "# one trigger",
        )


def _another(trigger: Trigger, scaled: ScaledObject) -> Hit:
    woken = ", and KEDA keeps it awake past our idle time while the other one is active" if scaled.reaches_zero else ""
    return Hit(
        trigger.path,
        f"beside loadtide's trigger stands one of type {trigger.type}: the HPA takes the larger count of the two"
        f"{woken}; what the other one buys, loadtide cannot explain or give back",
        "# loadtide's trigger alone",
    )


def _http_add_on(trigger: Trigger) -> Hit:
    return Hit(
        trigger.path,
        "beside loadtide's trigger stands that of KEDA's HTTP add-on. It keeps the workload awake while a request is "
        "in the interceptor, as it should. Its count is requests in flight over its targetValue, and the HPA takes the "
        "larger of both: with a targetValue that is never reached it is 1, and loadtide's counts",
        "concurrency: {targetValue: 1000000}   # scalingMetric of its InterceptorRoute; allow several-triggers here",
    )


def cron(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.triggers:
        if trigger.type == "cron":
            yield Hit(
                trigger.path,
                "a cron trigger keeps replicas that loadtide does not know of; as a window of the policy they are its "
                "floor, with its reason, and the batch follows",
                _window(trigger),
            )


_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _agree(one: Trigger, other: Trigger) -> bool:
    marks = [fingerprint({name: str(value) for name, value in each.metadata.items()}) for each in (one, other)]
    return marks[0] == marks[1]


def _window(trigger: Trigger) -> str:
    """The cron trigger as a window of the policy; a pattern where its expressions are more than times and days."""
    texts = trigger.texts
    start, end = (_clock(texts.get(name, "")) for name in ("start", "end"))
    days = texts.get("start", "").split()[4:5]
    on = re.sub(r"\d", lambda digit: _DAYS[int(digit[0]) % 7], days[0].lower()) if days else "*"
    known = start and end and re.fullmatch(r"\*|[a-z]{3}([-,][a-z]{3})*", on)
    at = f'start: "{start}", end: "{end}"' if known else 'start: "08:00", end: "20:00"'
    chosen = f"days: {on}, " if known and on != "*" else "" if known else "days: mon-fri, "
    replicas = texts.get("desiredReplicas", "1").strip()
    zone = texts.get("timezone", "Europe/Berlin")
    return f"warmWindows: |\n  - {{{chosen}{at}, zone: {zone}, replicas: {replicas}}}"


def _clock(expression: str) -> str | None:
    fields = expression.split()
    if len(fields) != 5 or not (fields[0].isdecimal() and fields[1].isdecimal()) or fields[2:4] != ["*", "*"]:
        return None
    return f"{int(fields[1]):02}:{int(fields[0]):02}"


TRIGGER_RULES = (
    Rule(
        "metric-type",
        Severity.ERROR,
        "metricType is not AverageValue",
        "The metric is the whole replica count with target 1. With Value the HPA multiplies it by the present count.",
        "metricType: AverageValue",
        metric_type,
    ),
    Rule(
        "cached-metrics",
        Severity.WARNING,
        "useCachedMetrics is on",
        "Between two polls the HPA gets the old number. loadtide answers from memory, so there is nothing to spare.",
        "useCachedMetrics: false",
        cached_metrics,
    ),
    Rule(
        "unquoted",
        Severity.ERROR,
        "a metadata value is not a text",
        "The API server takes texts only; 4, true, on and 08 are none without quotes.",
        'replicasMax: "4"',
        unquoted,
    ),
    Rule(
        "unknown-key",
        Severity.WARNING,
        "a metadata key that does not exist",
        "It is ignored, and what was meant by it stays at its default.",
        'replicasMax: "4"   # not maxReplicas',
        unknown_key,
    ),
    Rule(
        "bad-value",
        Severity.ERROR,
        "a metadata value, or what it makes together with the policy file, cannot be meant",
        "Every call is answered INVALID_ARGUMENT: there is no HPA, and fallback does not begin either.",
        'replicasMax: "4"   # not four',
        bad_value,
    ),
    Rule(
        "triggers-disagree",
        Severity.ERROR,
        "two triggers for loadtide with differing metadata",
        "A workload is a ScaledObject and has one policy: calls are answered INVALID_ARGUMENT.",
        "# keep one trigger",
        triggers_disagree,
    ),
    Rule(
        "several-triggers",
        Severity.WARNING,
        "another trigger beside loadtide's, pushing or not",
        "The HPA takes the larger count, and it is active while either is: what the other one asks for comes on top. "
        "Beside KEDA's HTTP add-on that is harmless where its targetValue is so high that it only ever asks for one.",
        "# loadtide's trigger alone, or the other one allowed:  # loadtide: allow several-triggers",
        several_triggers,
    ),
    Rule(
        "cron-trigger",
        Severity.WARNING,
        "a cron trigger where a window of the policy belongs",
        "Its replicas come from nowhere as far as decisions and reasons go.",
        'warmWindows: |\n  - {days: mon-fri, start: "08:00", end: "20:00", zone: Europe/Berlin, replicas: 2}',
        cron,
    ),
)
