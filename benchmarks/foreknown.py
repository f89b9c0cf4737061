"""What a season could be worth at the most: the same laws, told the true rate of this moment and of a cold start ahead.

What is left is what no season mends: chance in the arrivals, and prompts that meet in a replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scaler.control.model import Now
from scaler.control.season import COURSE_SLOTS, SLOTS_NEEDED, Season, Skill
from scaler.lab.contest import Played, play_built
from scaler.lab.fleet import Request
from scaler.lab.ours import Ours
from scaler.lab.policies import POLICIES, Case
from scaler.lab.scenarios import Scenario
from scaler.lab.simulate import BEGIN_UTC, Wish
from scaler.lab.traces import Rate
from scaler.lab.truth import Truth
from scaler.policy.model import SLOT_SECONDS
from scaler.signals.model import Signals
from scaler.value import frozen

FOREKNOWN_NAME = "adaptive-foreknown"
#: So many requests stand behind it that none of it is chance.
NO_CHANCE = 1e12


@frozen
class Foreknown(Season):
    """A season whose course is the rate itself, by seconds from the beginning; ``begun`` is that of its slot."""

    rate: Rate = lambda _: 0.0
    begun: float = 0.0

    def along(self, slots: float) -> float:
        """The true rate so many slots after the beginning of this one."""
        return self.rate(self.begun + slots * SLOT_SECONDS)


class Knowing(Ours):
    """Ours, with :class:`Foreknown` in the place of what was learned."""

    def __init__(self, ours: Ours, rate: Rate) -> None:
        super().__init__(FOREKNOWN_NAME, ours.policy, ours.memory)
        self._rate = rate

    def tick(self, signals: Signals, now: Now, asked: int) -> Wish:
        """One tick."""
        at = (now.utc - BEGIN_UTC).total_seconds()
        begun = at // SLOT_SECONDS * SLOT_SECONDS
        middles = (begun + (further + 0.5) * SLOT_SECONDS for further in range(-1, COURSE_SLOTS + 1))
        known = Foreknown(
            self.policy.season.zone, "daily", self.policy.season.slot(now.utc), came=NO_CHANCE, usual=NO_CHANCE,
            course=tuple(map(self._rate, middles)), today=Skill(SLOTS_NEEDED, 0.0, 1.0, 1.0),
            rate=self._rate, begun=begun,
        )  # fmt: skip
        self.memory = replace(self.memory, season=known)
        return super().tick(signals, now, asked)


def play_foreknown(
    scenario: Scenario, requests: Sequence[Request], truth: Truth, knob: float, seed: int, folder: Path | None
) -> Played:
    """One cell of a recorded day: the record of its past goes on into the part that is played."""
    if scenario.past is None or scenario.file is None:
        raise ValueError(f"{scenario.name} is no recorded day with a past: nothing tells its true rate")
    rate, _ = scenario.past(folder or Path(), seed)
    case = Case(scenario, truth, knob, requests)
    policy, enactor = POLICIES["adaptive"].build(case)
    assert isinstance(policy, Ours)
    return play_built(case, Knowing(policy, rate), enactor, seed)
