"""The Grafana dashboards as plain data: :func:`dashboards` makes the three, :mod:`.written` gives them as files.

``python -m scaler.pack.dashboards`` writes the committed files of ``dashboards/``; ``loadtide dashboards`` prints the
same, or ConfigMaps of them, for one's own data source.
"""

from __future__ import annotations

from scaler.pack.dashboards.decisions import decisions
from scaler.pack.dashboards.gpu import gpu
from scaler.pack.dashboards.model import Dashboard
from scaler.pack.dashboards.overview import overview
from scaler.pack.model import Options
from scaler.pack.written import alerts


def dashboards() -> tuple[Dashboard, ...]:
    """Overview, Decisions and GPU."""
    names = tuple(dict.fromkeys(alert.name for alert in alerts(Options())))
    return overview(names), decisions(names), gpu(names)
