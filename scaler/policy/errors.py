"""The one exception of the policy room: a declaration that cannot be meant."""

from __future__ import annotations


class PolicyError(ValueError):
    """A bad policy value. The text says what is wrong, where (file:line or metadata key) and what to write instead."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
