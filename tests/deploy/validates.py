"""Objects against Kubernetes' schemas and the models of custom resources. Runs in the tools' environment, not in ours.

Standard input: a list of objects; standard output: for each a text that says what is wrong, "" for nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

#: Of the schemas. Newer than the oldest the chart is for (1.30), whose preStop `sleep` was still beta.
KUBERNETES = "1.37"


def problem(body: dict[str, Any]) -> str:
    """What is wrong with one object."""
    import cloudcoil.models.keda.v1alpha1 as keda
    import cloudcoil.models.prometheus_operator.v1 as operator
    import kubernetes_validate
    from pydantic import ValidationError

    models = {"keda.sh/v1alpha1": keda, "monitoring.coreos.com/v1": operator}
    try:
        if body["apiVersion"] in models:
            read = getattr(models[body["apiVersion"]], body["kind"]).model_validate(body)
            # The models drop what they do not know; the cluster would too, without a word.
            lost = dropped(body, json.loads(read.model_dump_json(by_alias=True, exclude_unset=True)), body["kind"])
            return f"no such key: {', '.join(lost)}" if lost else ""
        kubernetes_validate.validate(body, KUBERNETES, strict=True)
    except (ValidationError, kubernetes_validate.ValidationError) as error:
        return str(getattr(error, "message", error))[:500]
    return ""


def dropped(given: Any, kept: Any, where: str) -> list[str]:
    """The keys of ``given`` that ``kept`` lacks."""
    if isinstance(given, dict):
        kept = kept if isinstance(kept, dict) else {}
        gone = [f"{where}.{key}" for key in given.keys() - kept.keys()]
        return gone + [each for key in given.keys() & kept.keys() for each in dropped(given[key], kept[key], key)]
    if isinstance(given, list) and isinstance(kept, list):
        return [each for one, other in zip(given, kept, strict=True) for each in dropped(one, other, where)]
    return []


if __name__ == "__main__":
    json.dump([problem(each) for each in json.load(sys.stdin)], sys.stdout)
