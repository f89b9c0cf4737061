"""Writes the committed copies of the pack, in ``rules/`` and ``deploy/``, and the version into ``deploy/``:
``python -m scaler.pack``, in the repository.

The chart's copies are for any release: :data:`OF_A_RELEASE` stands where its templates put what is chosen there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scaler import __version__
from scaler.pack.dashboards.written import Form
from scaler.pack.dashboards.written import files as dashboards
from scaler.pack.model import Options
from scaler.pack.released import stamped
from scaler.pack.written import prometheus_rule, prometheus_rules

REPOSITORY = Path(__file__).parents[2]
RULES = REPOSITORY / "rules"
CHART = REPOSITORY / "deploy" / "helm" / "loadtide" / "files"
KUSTOMIZE = REPOSITORY / "deploy" / "kustomize" / "components" / "prometheus-operator"

#: Replaced by deploy/helm/loadtide/templates/rules.yaml.
OF_A_RELEASE = Options(
    namespace="LOADTIDE-NAMESPACE", runbooks="https://LOADTIDE-RUNBOOKS", grafana="https://LOADTIDE-GRAFANA"
)


def files() -> Mapping[Path, str]:
    """Every generated file and what stands in it."""
    options = Options()
    drawn = dashboards(Form.JSON).items()
    return {
        RULES / "loadtide.rules.yaml": prometheus_rules(options),
        RULES / "prometheusrule.yaml": prometheus_rule(options),
        CHART / "rules.yaml": prometheus_rules(OF_A_RELEASE),
        KUSTOMIZE / "prometheusrule.yaml": prometheus_rule(options),
        **{folder / "dashboards" / name: text for folder in (CHART, KUSTOMIZE) for name, text in drawn},
        **stamped(REPOSITORY / "deploy", __version__),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
