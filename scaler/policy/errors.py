"""The one exception of the policy room: a declaration that cannot be meant."""

from __future__ import annotations

from scaler.policy.addresses import shown_text


class PolicyError(ValueError):
    """A bad policy value. The text says what is wrong, where (file:line or metadata key) and what to write instead.

    URLs in it are without user, password and query: errors go into logs.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = [shown_text(problem) for problem in problems]
        super().__init__("\n".join(self.problems))
