"""The one exception of the policy room: a declaration that cannot be meant."""

from __future__ import annotations

import re

#: A URL's user and password, and what stands behind its path, where secrets may be. Errors go into logs.
_URL = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*://)(?:[^\s/'\"]*@)?([^\s'\"?#]*)(?:[?#][^\s'\"]*)?")


class PolicyError(ValueError):
    """A bad policy value. The text says what is wrong, where (file:line or metadata key) and what to write instead.

    URLs in it are without user, password and query.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = [_URL.sub(r"\1\2", problem) for problem in problems]
        super().__init__("\n".join(self.problems))
