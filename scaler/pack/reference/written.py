"""Every reference page by its file name."""

from __future__ import annotations

from collections.abc import Mapping

from scaler.pack.reference.alerts_page import alerts_page
from scaler.pack.reference.commands_page import commands_page
from scaler.pack.reference.engines_page import engines_page
from scaler.pack.reference.http_page import http_page
from scaler.pack.reference.metrics_page import metrics_page
from scaler.pack.reference.policy_page import policy_page
from scaler.pack.reference.words_page import words_page

#: Stands in every page's source and in no rendering of it.
MARK = "<!-- Generated from the code by `python -m scaler.pack.reference`. Edit the docstrings it comes from. -->\n\n"


def pages() -> Mapping[str, str]:
    """The pages of ``docs/reference``."""
    made = {
        "policy.md": policy_page(),
        "metrics.md": metrics_page(),
        "alerts.md": alerts_page(),
        "commands.md": commands_page(),
        "engines.md": engines_page(),
        "http.md": http_page(),
        "words.md": words_page(),
    }
    return {name: MARK + text for name, text in made.items()}
