"""What each reason code is called in plain English. Codes are data; this table is the only place that words them."""

from __future__ import annotations

from collections.abc import Mapping

from scaler.control.model import Admission, Cause, Code, LoadState, Mode
from scaler.value import frozen

#: Each load state, to a person who sees the word for the first time.
STATES: Mapping[LoadState, str] = {
    LoadState.STALLED: "every replica has work and none makes progress",
    LoadState.CRITICAL: "a critical bound is broken or memory is nearly full; latency is being protected",
    LoadState.UNKNOWN: "signals are missing, so the load cannot be judged",
    LoadState.IDLE: "nobody is asking for anything",
    LoadState.HIGH: "the load is at or over what the ready replicas serve within their objectives",
    LoadState.LOW: "the load has been well below capacity for a while",
    LoadState.NORMAL: "the load fits the replicas",
}

#: What a breached objective was put down to.
CAUSES: Mapping[Cause, str] = {
    Cause.MEMORY: "memory is nearly full",
    Cause.PREFILL: "long prompts crowd out the answers being written",
    Cause.STEP: "each step takes too long at this batch",
    Cause.QUEUEING: "requests wait for a place",
    Cause.INHERENT: "requests take that long by themselves, without any queue",
    Cause.UNATTRIBUTED: "the cause is not clear",
}

#: Who rules the targets.
MODES: Mapping[Mode, str] = {
    Mode.ACTIVE: "what is decided is done",
    Mode.ADVISORY: "advice only, nothing is changed",
    Mode.PAUSED: "paused, the last targets stand",
    Mode.OVERRIDE: "an operator's override rules",
}

ADMISSIONS: Mapping[Admission, str] = {
    Admission.OPEN: "new requests are taken",
    Admission.HOLD: "new requests are held back",
    Admission.SHED: "new requests are refused",
}


@frozen
class Wording:
    """One code in words: ``plain`` needs no number, ``measured`` is used where the value is known, ``held`` is why
    something wanted was kept back (left out: the part of the other two before the colon, which is the cause).

    Fields in braces: ``measured`` (the value), ``compared`` (value against threshold), ``signal`` (its name), ``for``
    (the value as a duration), ``count`` (a bare number), ``target`` (the threshold, bare), ``who`` and ``until`` (of an
    override), ``replicas`` (what the load needs), and the outcome on the reason's target: as a cut (``down``), a rise
    (``up``), as it stands (``same``); ``each``: what one replica serves.
    """

    plain: str
    measured: str = ""
    held: str = ""


_WAITING_TIME = "the latency is waiting time, which a smaller batch would only lengthen"

WORDINGS: Mapping[Code, Wording] = {
    # replicas
    Code.ARRIVALS: Wording(
        "the arrival rate needs {replicas}", "{measured} needs {replicas}{each}", "the arrival rate"
    ),
    Code.BACKLOG: Wording(
        "the arrivals and the queue together need {replicas}",
        "{measured}: {replicas} needed to drain that in time",
        "the queue",
    ),
    Code.SCALE_IN: Wording(
        "after a long low load, without room for chance: {replicas} needed",
        "after a long low load, without room for chance: {measured} needs {replicas}{each}",
        "a long low load",
    ),
    Code.RUNNING: Wording("what is running needs {replicas}", "{measured} needs {replicas}{each}", "what is running"),
    Code.IN_FLIGHT: Wording(
        "what is running and waiting needs {replicas}",
        "{count} running or waiting needs {replicas}{each}",
        "what is running and waiting",
    ),
    Code.SEASON: Wording(
        "what usually comes at this time needs {replicas}",
        "{measured} by the time a replica asked for now serves: {same}",
        "what usually comes at this time",
    ),
    Code.LATENCY_STEP: Wording("latency asks for one more: {same}", "{compared}: one more, {same}"),
    Code.FLOOR: Wording("kept at the floor: {same}", held="the floor"),
    Code.CEILING: Wording("at the ceiling: {same}", held="the ceiling"),
    Code.BUDGET: Wording("the budget is spent: {same}", "{compared} GPU-hours of the budget: {same}", "the budget"),
    Code.BUDGET_SPENT: Wording("the budget is spent", "{compared} GPU-hours of the budget; nobody is held back for it"),
    Code.BUDGET_FLOOR: Wording(
        "the budget is spent and the floor stands: {same}",
        "{measured} of {target} GPU-hours, the rest is the floor's, which stands whatever the budget says: {same}",
    ),
    Code.DOWN_WINDOW: Wording(
        "kept at the highest need of the last minutes: {same}", held="the highest need of the last minutes"
    ),
    Code.TRIFLE: Wording(
        "a tenth of a replica more is left to the room that the others keep for chance: {same}",
        "{count} replicas are needed, and a tenth is left to the room that the others keep for chance: {same}",
    ),
    Code.UNPROVEN: Wording(
        "what a replica serves is a guess, so no fewer than were seen to do: {same}",
        "what a replica serves is a guess, so {target} sequences each are tried before {count}: {same}",
    ),
    Code.DOWN_STEP: Wording("going down at most half at a time: {same}", held="at most half go at a time"),
    Code.JUMP: Wording("the load jumped: {same} at once", "{compared}, a jump: {same} at once"),
    Code.JUMP_HOLD: Wording("the jump's peak is held: {same}"),
    Code.UNSCHEDULABLE: Wording(
        "no node has room for what is asked for", "{measured}", held="no node has room for the rest: they do not load"
    ),
    Code.OVERDUE: Wording(
        "a replica has been loading for too long",
        "a replica has been loading for {for}, twice the usual time: it is not counted on",
        held="a replica has been loading for too long and is not counted on",
    ),
    Code.DEMAND_FROM_ZERO: Wording("demand but no replica: {same}", "{measured} but no replica: {same}"),
    # activity
    Code.IDLE_PROVEN: Wording("proven idle long enough: {same}", "proven idle for {for}: {same}"),
    Code.IDLE_UNPROVEN: Wording("{signal} is not known, so idleness is not proven: its timer stands still"),
    Code.LOADING: Wording("a replica is loading", "a replica has been loading for {for}", "a replica is loading"),
    Code.LOAD_FAILED: Wording("a woken replica did not load in time", "a woken replica did not load within {for}"),
    Code.WAKE_BACKOFF: Wording("the last woken replica did not load: the next wake waits"),
    Code.TRAFFIC: Wording("there is traffic: {same}", "{measured}: {same}"),
    # the rung between warm and zero
    Code.NO_WAKE_SOURCE: Wording("no wake source is declared, so nothing would wake it: {same}"),
    Code.WAKE_SOURCE_LOST: Wording("{signal} is not known, so nothing might wake it: {same}"),
    Code.CANNOT_SLEEP: Wording("the engine has no sleep: {same}", held="the engine has no sleep that it tells of"),
    Code.SLEEP_UNDECLARED: Wording("no sleep is declared any longer: {same}"),
    Code.WAKING: Wording("replicas are waking", "replicas have been waking for {for}"),
    Code.WAKE_FAILED: Wording("replicas were woken and sleep still", "replicas were woken {for} ago and sleep still"),
    # batch
    Code.BATCH_START: Wording("starting value: {same}"),
    Code.HIGH_LOAD: Wording("the load is high: {up}", "the load is high ({compared}): {up}"),
    Code.LOW_LOAD: Wording("the load is low: {down}", "the load is low ({compared}): {down}"),
    Code.QUEUE_LONG: Wording("the queue is long: {up}", "{count} waiting per replica, {target} wanted: {up}"),
    Code.QUEUE_SHORT: Wording("the queue is short: {down}", "{count} waiting per replica, {target} wanted: {down}"),
    Code.QUEUE_HOPELESS: Wording(
        "whoever waits now waits too long to be served in time: {same}",
        "{compared}, so whoever comes now is served too late: {same}",
    ),
    Code.SLOW_STEPS: Wording("steps are too slow already: {same}", held="steps are too slow already"),
    Code.LATENCY_RISES: Wording("latency rises towards its bound: {down}", "{compared} and rising: {down}"),
    Code.LATENCY_ROOM: Wording("latency is far from its bound: {up}", "{compared}, room below the objective: {up}"),
    Code.MEMORY_PRESSURE: Wording("memory is nearly full: {down}", "{compared}: {down}"),
    Code.LATENCY_CRITICAL: Wording("a critical bound is broken: {down}", "{compared}, the critical bound: {down}"),
    Code.LATENCY_WARNING: Wording("an objective is broken: {down}", "{compared}, the objective: {down}"),
    Code.PREFILL_SHARE: Wording(
        "long prompts crowd out answers: {down}", "{compared}, long prompts in the way: {down}"
    ),
    Code.RECOVERY: Wording("the pressure is over: {up}", "{compared}, the pressure is over: {up}"),
    Code.COOLDOWN: Wording("the cooldown has not ended: {same}", held="cooldown"),
    Code.SETTLING: Wording(
        "the last shrink has not shown its effect yet: {same}", held="the last shrink has not shown its effect yet"
    ),
    Code.NOT_APPLIED: Wording(
        "engines do not run with the last smaller one, so a still smaller one would change nothing: {same}",
        held="engines do not run with the last smaller one, so a still smaller one would change nothing",
    ),
    Code.NOT_BINDING: Wording(
        "the batch is not filled, so raising it would change nothing: {same}",
        held="the batch is not filled, so raising it would change nothing",
    ),
    Code.KV_ROOM: Wording("KV use is not known, so nothing grows: {same}", "{compared}, no room to grow: {same}"),
    Code.QUEUEING_KEEPS_BATCH: Wording(f"{_WAITING_TIME}: {{same}}", f"{{measured}}; {_WAITING_TIME}: {{same}}"),
    # a card shared with others
    Code.CARD_OWN: Wording("as much as its own part of the card bears: {same}"),
    Code.CARD_LENT: Wording("its part of the card is lent while nobody asks for it: {same}"),
    Code.CARD_BORROWED: Wording("others of its card are idle and lend: {same}"),
    Code.CARD_MEMORY_KEPT: Wording(
        "its memory is wanted by another of its card: {same}",
        held="its KV cache was allocated at start, so another of its card that wants its memory cannot have it",
    ),
    # judgement
    Code.SIGNAL_LOST: Wording("{signal} is lost: holding {same}", "{signal} lost for {for}: holding {same}"),
    Code.SIGNAL_LOST_TOO_LONG: Wording(
        "{signal} is lost for too long to hold on: KEDA is told UNAVAILABLE and keeps its count",
        "{signal} lost for {for}, too long to hold on: KEDA is told UNAVAILABLE and keeps its count",
    ),
    Code.NEVER_READ: Wording(
        "{signal} has never been read, so there is nothing to hold: KEDA is told UNAVAILABLE and keeps its count"
    ),
    Code.STALLED: Wording("work but no progress: {same}", "{measured}, work but no progress: {same}"),
    Code.STALLED_TRIAL: Wording(
        "held back for long, and whether the engine works only a request shows: {same} for one tick",
        "{measured}, held back for long, and whether they work only a request shows: {same} for one tick",
    ),
    Code.OBJECTIVE_UNREACHABLE: Wording(
        "the objective is out of reach: neither replicas nor batch would help",
        "{compared}, and neither replicas nor batch would help: the objective is out of reach",
    ),
    Code.INFEASIBLE: Wording(
        "an empty replica cannot keep the objective, so it buys nothing",
        "an empty replica has {measured}: the objective of {target} s cannot be kept, so it buys nothing",
    ),
    Code.UNATTRIBUTED: Wording(
        "an objective is broken for no clear cause: {same}", "{compared} for no clear cause: {same}"
    ),
    Code.OSCILLATION: Wording(
        "going to and fro, so its dead band is wider for a while: {same}",
        "going to and fro, so its dead band is {count} times as wide for a while: {same}",
        "going to and fro, so small steps wait",
    ),
    # who rules
    Code.ADVISORY: Wording("advice only, what is there stays: {same}", held="advice only"),
    Code.ASKED_UNKNOWN: Wording(
        "nobody tells how many replicas are asked for, and those are to stay: KEDA is told UNAVAILABLE and keeps its "
        "count"
    ),
    Code.PAUSED: Wording("paused: {same}", held="paused"),
    Code.OVERRIDE: Wording("overridden: {same}", "override by {who} until {until}: {same}", "an override"),
    Code.OVERRIDE_ENDED: Wording("the override has ended: {same}"),
    Code.RESUMED: Wording("the laws rule again: {same}"),
}
