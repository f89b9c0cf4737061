"""``alerts.md``: every alert of the rule pack with its severity, its wait and its runbook."""

from __future__ import annotations

import re

from scaler.pack.model import Options
from scaler.pack.reference.markdown import code, table
from scaler.pack.written import alerts

_LABEL = re.compile(r"\{\{ *\$labels\.(\w+) *\}\}")
_HEAD = """\
# Alerts

Those of `loadtide rules`, with the defaults ([how to install them](../../rules/README.md)). Only `critical` is meant to
page. What stands in angle brackets is a label of the alert; the runbook says what it means and what to do first.

"""


def alerts_page() -> str:
    """The page."""
    rows = (
        (
            f"[{alert.name}](../../rules/runbooks/{alert.name}.md)",
            alert.severity,
            alert.hold,
            code(alert.dashboard),
            _LABEL.sub(r"‹\1›", alert.summary),
        )
        for alert in alerts(Options())
    )
    return _HEAD + table(("alert", "severity", "after", "dashboard", "says"), rows)
