"""Writes the committed files of ``rules/``: ``python -m scaler.pack``, in the repository."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scaler.pack.model import Options
from scaler.pack.written import prometheus_rule, prometheus_rules

RULES = Path(__file__).parents[2] / "rules"


def files() -> Mapping[Path, str]:
    """Every generated file and what stands in it."""
    options = Options()
    return {
        RULES / "loadtide.rules.yaml": prometheus_rules(options),
        RULES / "prometheusrule.yaml": prometheus_rule(options),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
