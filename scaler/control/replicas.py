"""How many replicas: the flow law's need, a jump's or a latency breach's on top of it, and the pace of the way down.

Up is immediate. Down goes to the highest need of the last ``down_window_seconds``, or where that was noise to what
settled arrivals need (:mod:`scaler.control.settled`); on a guess of what a replica serves no farther than what replicas
were seen to serve (:func:`~scaler.control.capacity.shown_sequences`); at most half per ``down_step_seconds``, and only
when arrivals, running, waiting and ready are known from every replica.
"""

from __future__ import annotations

import math

from scaler.control.attribution import CRITICALS, WARNINGS
from scaler.control.capacity import shown_sequences, tpot_objective
from scaler.control.cold_start import CREDIT_COLD_STARTS, overdue_seconds
from scaler.control.evenness import pooled
from scaler.control.jump import JumpSeen, jump_reason
from scaler.control.model import Cause, Code, Reason, Suppressed, Target
from scaler.control.season import SEASON_SIGNAL
from scaler.control.settled import settled_replicas
from scaler.control.situation import DOWN_NEEDS, Situation, satisfied, wants_service
from scaler.signals.model import known_value
from scaler.value import frozen

#: Room for floating-point dust before rounding up to a whole replica.
_DUST = 1e-9
#: So much of a replica is not worth one more: the room that the others keep for chance takes it. (Lab: 1.3 % fewer
#: GPU-hours for as many promises kept, 6 % where two or three do it all. By 0.15 ``ramp-llm-d`` lost 1.5 points.)
TRIFLE = 0.1
#: After so long with the same replicas and no trouble one fewer may be tried, though what a replica serves is a guess.
UNTESTED_SECONDS = 1800.0
#: A latency step helped if the breached P95 fell below this share of what it was.
HELPED_SHARE = 0.9


@frozen
class ReplicaMove:
    """Where the replica count goes in this tick (floor and ceiling applied), the need behind it, and the new memory."""

    replicas: int
    need: int
    reasons: tuple[Reason, ...]
    suppressed: tuple[Suppressed, ...]
    needs: tuple[tuple[float, int], ...]
    jump_seconds: float | None
    jump_replicas: int
    latency_step_seconds: float | None
    latency_replicas: int
    latency_p95_seconds: float | None
    since_down_seconds: float | None


def move_replicas(situation: Situation, cause: Cause | None, jump: JumpSeen | None) -> ReplicaMove:
    """The replica target of this tick."""
    memory, elapsed = situation.memory, situation.elapsed_seconds
    need, reason, trifle = whole_need(situation)
    jump_seconds, jump_replicas = _hold_jump(situation, jump)
    if jump is not None:
        value, threshold = jump_reason(jump, situation)
        row_replicas = jump.row.replicas if jump.row else need
        jump_replicas, jump_seconds = max(jump_replicas, row_replicas), 0.0
        jump_why = Reason(Code.JUMP, Target.REPLICAS, _JUMP_SIGNAL, value, threshold)
    else:
        jump_why = Reason(Code.JUMP_HOLD, Target.REPLICAS, _JUMP_SIGNAL, float(jump_replicas))
    # Until rates are known the operator's row is better evidence of the need than what happens to be in flight.
    if jump_replicas > need or (jump_replicas and not situation.flow.rates_known) or jump is not None:
        need, reason = jump_replicas, jump_why
    step = _latency_step(situation, cause, need)
    if step.replicas > need:
        need, reason = step.replicas, step.reason or reason
    usual, usual_reason = _season_need(situation)
    if usual > need:
        need, reason = usual, usual_reason
    needs = _remember_need(situation, need)
    suppressed = [*step.suppressed, *_not_loading(situation)]
    # An active workload has at least one replica; below that there is nothing to hold back.
    bounded, held = _paced(situation, max(need, situation.floor, 1), needs)
    suppressed += held
    suppressed += (each for each in trifle if bounded == each.kept)
    reasons = [reason] if reason and need == bounded else []
    if need < situation.floor == bounded:
        reasons.append(Reason(Code.FLOOR, Target.REPLICAS, "floor", float(situation.floor), float(need)))
    if situation.ceiling is not None and bounded > situation.ceiling:
        suppressed.append(over_ceiling(situation, Target.REPLICAS, bounded, situation.ceiling))
        bounded = situation.ceiling
        reasons = [reason] if reason else reasons
    since_down = None if memory.since_replicas_down_seconds is None else memory.since_replicas_down_seconds + elapsed
    if memory.targets is not None and bounded < memory.targets.replicas:
        since_down = 0.0
        reasons = reasons or [Reason(Code.ARRIVALS, Target.REPLICAS, "arrivals_per_second", _rate(situation))]
    return ReplicaMove(
        replicas=bounded,
        need=need,
        reasons=tuple(reasons),
        suppressed=tuple(suppressed),
        needs=needs,
        jump_seconds=jump_seconds,
        jump_replicas=jump_replicas,
        latency_step_seconds=step.seconds,
        latency_replicas=step.replicas,
        latency_p95_seconds=step.p95_seconds,
        since_down_seconds=since_down,
    )


def over_ceiling(situation: Situation, target: Target, wanted: float, ceiling: float) -> Suppressed:
    """More than there may be: because of the budget, where that is what sets the ceiling now."""
    budget = situation.budget
    if budget is not None and budget.ceiling == situation.ceiling:
        return Suppressed(Code.BUDGET, target, wanted, ceiling, "spent_gpu_hours", budget.spent, budget.gpu_hours)
    return Suppressed(Code.CEILING, target, wanted, ceiling, "ceiling", ceiling)


_JUMP_SIGNAL = "arrivals_recent_per_second"


def whole_need(situation: Situation) -> tuple[int, Reason | None, list[Suppressed]]:
    """The flow law's need in whole replicas, at least one while anything is wanted, and its reason. No replica is
    bought for a trifle of one.
    """
    flow = situation.flow
    whole = math.ceil(flow.replicas - _DUST)
    if whole == 0:
        wanted = wants_service(situation)
        return int(wanted), Reason(Code.TRAFFIC, Target.REPLICAS) if wanted else None, []
    trifle = flow.replicas <= whole - 1 + TRIFLE and flow.drain <= TRIFLE
    if not trifle or whole <= max(situation.replicas, 1):
        return whole, flow.reason, []
    held = Suppressed(Code.TRIFLE, Target.REPLICAS, whole, whole - 1, "needed_replicas", flow.replicas, whole - 1)
    return whole - 1, flow.reason, [held]


def _not_loading(situation: Situation) -> list[Suppressed]:
    """What was asked for, has not come, and is not counted on: said, because nobody else will."""
    told, ready = known_value(situation.signals.asked_replicas), situation.ready
    asked = situation.replicas if told is None else int(told)
    if ready is None or asked <= ready:
        return []
    no_node = known_value(situation.signals.unschedulable_replicas) or 0.0
    if no_node > 0:
        return [Suppressed(Code.UNSCHEDULABLE, Target.REPLICAS, asked, ready, "unschedulable_replicas", no_node)]
    overdue = overdue_seconds(situation.cold_starts, situation.cold_start_seconds)
    if overdue is None:
        return []
    limit = CREDIT_COLD_STARTS * situation.cold_start_seconds
    return [Suppressed(Code.OVERDUE, Target.REPLICAS, asked, ready, "loading_seconds", overdue, limit)]


def _season_need(situation: Situation) -> tuple[int, Reason | None]:
    """What usually comes a cold start ahead, in whole replicas; one where no rate of a replica is known."""
    season, mu = situation.season, situation.capacity.requests_per_second
    if season is None or not situation.season_wakes:
        return 0, None
    alone = 1.0 if mu is None else season.rate / mu
    need = math.ceil(pooled(alone, situation.unevenness, situation.capacity.load_share) - _DUST)
    return need, Reason(Code.SEASON, Target.REPLICAS, SEASON_SIGNAL, season.rate, mu)


def _hold_jump(situation: Situation, jump: JumpSeen | None) -> tuple[float | None, int]:
    memory = situation.memory
    if memory.jump_seconds is None:
        return None, 0
    seconds = memory.jump_seconds + situation.elapsed_seconds
    if seconds >= situation.policy.jump.hold_seconds and jump is None:
        return None, 0
    return seconds, memory.jump_replicas


@frozen
class _Step:
    replicas: int
    seconds: float | None
    p95_seconds: float | None
    reason: Reason | None = None
    suppressed: tuple[Suppressed, ...] = ()


_NO_STEP = _Step(0, None, None)


def _latency_step(situation: Situation, cause: Cause | None, need: int) -> _Step:
    """One replica more for a breached objective that replicas can cure, at most once per cold start, and again only if
    the first one helped: latency that does not follow the replica count is not theirs to mend.
    """
    memory, period = situation.memory, situation.cold_start_seconds
    if cause is None and memory.latency_step_seconds is None:
        return _NO_STEP
    seconds = None if memory.latency_step_seconds is None else memory.latency_step_seconds + situation.elapsed_seconds
    if not _replicas_cure(situation, cause):
        # The cure is kept for one cold start after the breach has ended, then let go.
        if seconds is None or seconds >= period:
            return _NO_STEP
        return _Step(memory.latency_replicas, seconds, memory.latency_p95_seconds)
    name, p95, objective = _worst(situation)
    reason = Reason(Code.LATENCY_STEP, Target.REPLICAS, name, p95, objective)
    if seconds is None:
        wanted = max(need, (situation.ready or 0) + 1) if situation.ready is not None else need
        return _Step(wanted, 0.0, p95, reason)
    kept = _Step(memory.latency_replicas, seconds, memory.latency_p95_seconds, reason)
    arrived = situation.ready is not None and situation.ready >= memory.latency_replicas
    if seconds < period or not arrived:
        left = period - seconds if seconds < period else None
        held = Suppressed(
            Code.LOADING,
            Target.REPLICAS,
            memory.latency_replicas + 1,
            memory.latency_replicas,
            name,
            p95,
            objective,
            left,
        )
        return _Step(kept.replicas, kept.seconds, kept.p95_seconds, reason, (held,))
    helped = p95 is not None and p95 < HELPED_SHARE * (memory.latency_p95_seconds or math.inf)
    return _Step(memory.latency_replicas + 1, 0.0, p95, reason) if helped else kept


def _replicas_cure(situation: Situation, cause: Cause | None) -> bool:
    """Whether more replicas are what helps: against a queue, slow steps, and prompts where there is no token budget."""
    no_budget = situation.policy.batch.token_budget is None
    return cause in (Cause.QUEUEING, Cause.STEP) or (cause is Cause.PREFILL and no_budget)


def _worst(situation: Situation) -> tuple[str, float | None, float | None]:
    for bound in (*CRITICALS, *WARNINGS):
        if situation.breached(bound):
            name = bound.removesuffix("_critical")
            latency = known_value(getattr(situation.signals, f"{name}_seconds"))
            objective = getattr(situation.policy.objectives, f"{bound}_seconds")
            return f"{name}_seconds", latency.p95.low if latency else None, objective
    return "ttft_seconds", None, None


def _remember_need(situation: Situation, need: int) -> tuple[tuple[float, int], ...]:
    """The down window's needs, aged; entries that a later, higher need covers are dropped: the first is the highest."""
    memory, window = situation.memory, situation.policy.replicas.down_window_seconds
    earlier = memory.needs
    if memory.targets is None:
        # Taking over a running workload: what runs is taken for needed until a whole window says otherwise.
        earlier = ((0.0, situation.replicas),)
    aged = [(age + situation.elapsed_seconds, past) for age, past in earlier if past > need]
    return (*[entry for entry in aged if entry[0] <= window], (0.0, need))


def _paced(situation: Situation, need: int, needs: tuple[tuple[float, int], ...]) -> tuple[int, list[Suppressed]]:
    """The need, with every way down held back that is not proven, not yet due, or too steep."""
    current = situation.replicas
    if need >= current:
        return need, []
    if not situation.may_lower or situation.nobody_to_hear:
        doubtful = (name for name in DOWN_NEEDS if not satisfied(getattr(situation.signals, name)))
        missing = next(iter((*situation.lost, *doubtful)), None)
        return current, [Suppressed(Code.SIGNAL_LOST, Target.REPLICAS, need, current, missing)]
    replicas = situation.policy.replicas
    highest, window_left = _needed_lately(situation, need, needs)
    suppressed: list[Suppressed] = []
    target = min(current, max(need, highest))
    if target > need:
        held = Suppressed(
            Code.DOWN_WINDOW, Target.REPLICAS, need, target, "needed_replicas", float(highest), None, window_left
        )
        suppressed.append(held)
    shown = shown_sequences(situation.policy, situation.memory, situation.signals, situation.capacity)
    if shown is not None and target < (proven := _proven(situation, shown)):
        each = (situation.running_mean or 0.0) / target
        suppressed.append(Suppressed(Code.UNPROVEN, Target.REPLICAS, target, proven, "running_each", each, shown))
        target = proven
    half = math.ceil(current / 2)
    since = situation.memory.since_replicas_down_seconds
    left = 0.0 if since is None else max(0.0, replicas.down_step_seconds - since - situation.elapsed_seconds)
    least = current if left > 0 else half
    if target < least:
        suppressed.append(Suppressed(Code.DOWN_STEP, Target.REPLICAS, target, least, remaining_seconds=left or None))
        target = least
    return target, suppressed


def _proven(situation: Situation, shown: float) -> int:
    """The fewest replicas that run no more than ``shown`` each; one fewer than there are once nothing has happened for
    long, if a token that takes longer in proportion to what runs, as it does at the most, still meets its objective: a
    load that stays the same, or that no window can judge, would never show more, and of few replicas one is more than a
    quarter.
    """
    kinds, most = situation.memory.learned, situation.replicas
    if kinds and kinds[0].undisturbed_seconds >= UNTESTED_SECONDS and situation.ready == kinds[0].window_ready <= most:
        tpot = known_value(situation.signals.tpot_seconds)
        objective = tpot_objective(situation.policy, situation.signals)
        if tpot is None or objective is None or tpot.p95.estimate * most <= objective * (most - 1):
            most -= 1
    return min(most, math.ceil((situation.running_mean or 0.0) / shown - _DUST))


def _needed_lately(situation: Situation, need: int, needs: tuple[tuple[float, int], ...]) -> tuple[int, float | None]:
    """The highest need of the down window and for how much longer it counts; what settled arrivals need, if that is
    less: it counts as long as it is so.
    """
    age, highest = max(needs, key=lambda entry: entry[1])
    settled = settled_replicas(situation) if highest > need else None
    suffice = highest if settled is None else max(need, math.ceil(settled - _DUST))
    if suffice < highest:
        return suffice, None
    return highest, max(0.0, situation.policy.replicas.down_window_seconds - age)


def _rate(situation: Situation) -> float | None:
    return known_value(situation.signals.arrivals_per_second)
