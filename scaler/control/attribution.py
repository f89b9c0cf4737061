"""To what a breached objective is due, before anything is done about it: each cause asks for another cure.

The mistake this exists to prevent: e2e latency explodes because requests queue, the controller halves the batch "to
protect latency", the queue grows, and so on to batch 1 with thousands waiting. The signature of queueing is that e2e
explodes while the time per output token stays or falls.
"""

from __future__ import annotations

from scaler.control.model import Cause
from scaler.control.situation import Situation
from scaler.signals.model import Known, known_value

#: A queue worth speaking of: this share of what is running (and at least one request per ready replica).
QUEUE_SHARE = 0.1
#: Queueing explains a latency when it makes up this share of its mean.
QUEUE_TIME_SHARE = 0.5
#: Prompts crowd out answers when they are this share of all tokens computed.
PREFILL_TOKEN_SHARE = 0.8

WARNINGS = ("ttft", "tpot", "e2e")
CRITICALS = ("ttft_critical", "tpot_critical", "e2e_critical")


def attribute(situation: Situation) -> Cause | None:
    """The cause of what is breached now, or None if nothing is. Memory pressure is a cause by itself, breach or not."""
    if situation.pressure is not None:
        return Cause.MEMORY
    if not situation.breached(*WARNINGS, *CRITICALS):
        return None
    tpot_breached = situation.breached("tpot", "tpot_critical")
    queueing = queues(situation)
    if tpot_breached and _prefill_crowds(situation):
        return Cause.PREFILL
    if tpot_breached and queueing is False:
        return Cause.STEP
    if queueing:
        return Cause.QUEUEING
    tpot_met = situation.verdicts.get("tpot", "met") == "met"
    if queueing is False and tpot_met:
        return Cause.INHERENT
    return Cause.UNATTRIBUTED


def queues(situation: Situation) -> bool | None:
    """Whether requests wait enough to explain a latency; None where waiting is not known.

    A queue now, or requests of the window that spent most of their latency in one (the queue may just have drained).
    """
    signals = situation.signals
    waiting, running = known_value(signals.waiting), known_value(signals.running)
    if waiting is None:
        return None
    if waiting >= max(1.0, float(situation.ready or 0), QUEUE_SHARE * (running or 0.0)):
        return True
    queued, first_token = known_value(signals.queue_seconds), known_value(signals.ttft_seconds)
    if queued is None or first_token is None or first_token.mean_seconds <= 0:
        return False
    return queued.mean_seconds >= QUEUE_TIME_SHARE * first_token.mean_seconds and situation.breached(
        "ttft", "ttft_critical"
    )


def _prefill_crowds(situation: Situation) -> bool:
    """Interference shows in the tail: the median token is on time, the 95th is not, and most tokens are prompts."""
    signals, objective = situation.signals, situation.policy.objectives.tpot_seconds
    tpot = signals.tpot_seconds
    prompts = known_value(signals.prompt_tokens_per_second)
    answers = known_value(signals.generation_tokens_per_second)
    if objective is None or not isinstance(tpot, Known) or prompts is None or answers is None or prompts + answers <= 0:
        return False
    return tpot.value.p50.high <= objective and prompts / (prompts + answers) >= PREFILL_TOKEN_SHARE
