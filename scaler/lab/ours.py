"""Our own strategies in the lab: the same ``decide`` as in the server, on the same signals."""

from __future__ import annotations

from dataclasses import dataclass, field

from scaler.control.decide import decide
from scaler.control.model import Admission, Decision, Memory, Now
from scaler.lab.simulate import Wish
from scaler.policy.model import Policy
from scaler.signals.model import Signals


@dataclass(slots=True)
class Ours:
    """``decide`` under ``policy``. ``decisions`` keeps every tick's, for the report."""

    name: str
    policy: Policy
    memory: Memory = field(default_factory=Memory)
    decisions: list[Decision] = field(default_factory=list)
    metric_target: float = 1.0

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:  # noqa: ARG002 -- KEDA never tells us
        """One tick of ``decide``."""
        decision = decide(self.policy, self.memory, signals, now)
        self.memory = decision.next_memory
        self.decisions.append(decision)
        metric = float(decision.targets.replicas) if decision.available else None
        targets = decision.targets
        # An engine can refuse nobody: told to shed, it holds.
        hold = targets.admission is not Admission.OPEN
        return Wish(metric, targets.active, targets.batch, targets.token_budget, hold)
