"""The policy lines that read what was found: YAML that the policy file accepts, what nobody can measure as comments.

Values from a page stand in quotes (JSON strings are YAML), in comments too: a label may hold anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from scaler.value import frozen

_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")
_LABEL_LENGTH: Final = 63

#: What sets the engine's batch, which no metric tells.
_BATCH_FLAG: Final[Mapping[str, str]] = {
    "vllm": "--max-num-seqs",
    "sglang": "--max-running-requests",
    "tgi": "--max-batch-size or what the memory allows",
    "llamacpp": "--parallel",
    "lmdeploy": "--max-batch-size",
    "trtllm": "max_batch_size of the engine",
    "triton": "max_batch_size of the model",
    "rayserve": "max_ongoing_requests",
}


def quoted(text: str) -> str:
    """A text as a YAML scalar that means exactly it, on one line."""
    # JSON escapes in UTF-16, which YAML does not understand; what cannot be printed must not stand there either.
    written = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in written)


def workload_name(namespace: str, name: str, taken: Iterable[str] = ()) -> str:
    """``namespace/name`` out of what was found, as a policy file wants it: a model's name may hold anything."""
    label = _NOT_IN_NAMES.sub("-", name.rpartition("/")[2].lower()).strip("-")[:_LABEL_LENGTH].strip("-") or "my-model"
    space = _NOT_IN_NAMES.sub("-", namespace.lower()).strip("-")[:_LABEL_LENGTH].strip("-") or "default"
    names = {*taken}
    full, number = f"{space}/{label}", 2
    while full in names:
        full, number = f"{space}/{label[: _LABEL_LENGTH - 4].rstrip('-')}-{number}", number + 1
    return full


def scrape_lines(url: str, engine: str, models: Sequence[str], model: str | None) -> str:
    """A workload whose engine is read at ``url``. ``models`` are those on the page, ``model`` the wanted one."""
    chosen = model or (models[0] if len(models) > 1 else None)
    name = workload_name("default", chosen or (models[0] if models else ""))
    lines = [
        "workloads:",
        f"  {name}:  # the ScaledObject's namespace/name",
        f"    engine: {quoted(engine)}",
        "    scrape:",
        f"      urls: [{quoted(url)}]  # every replica's; or the pods of a headless Service: dns: NAME.NS.svc:PORT",
    ]
    if chosen is not None:
        others = [quoted(each) for each in models if each != chosen][:8]
        lines.append(f"      model_name: {quoted(chosen)}" + (f"  # also there: {', '.join(others)}" if others else ""))
    return "\n".join([*lines, *to_fill_in(engine)]) + "\n"


def gateway_lines(url: str, preset: str, match: Mapping[str, str], others: Sequence[str]) -> str:
    """A workload woken by what a gateway's page shows. ``others`` are more values of the label in ``match``."""
    lines = [
        "workloads:",
        "  default/my-model:  # the ScaledObject's namespace/name",
        "    gateway:",
        f"      preset: {quoted(preset)}",
        f"      urls: [{quoted(url)}]  # of every instance of the gateway: their numbers add up",
    ]
    if match:
        also = f"  # choose yours; also there: {', '.join(map(quoted, others))}" if others else ""
        lines.append(f"      match: {_mapping(match)}{also}")
    else:
        lines.append("      # match: {LABEL: VALUE}  # which series are this workload's; unset: all of them")
    lines.append("    # scrape: {urls: [...]}  # the engines' pages; loadtide probe URL of one of them says the rest")
    return "\n".join(lines) + "\n"


def dcgm_lines(url: str) -> str:
    """A workload that reads GPU telemetry at ``url`` beside its engines."""
    return f"""\
workloads:
  default/my-model:  # the ScaledObject's namespace/name
    gpu:
      dcgm_urls: [{quoted(url)}]  # of every node the workload may run on
      # match: {{namespace: NAMESPACE, container: vllm}}  # whose GPUs; unset: those that the replica's pod holds
    # scrape: {{urls: [...]}}  # the engines' pages; loadtide probe URL of one of them says the rest
"""


@frozen
class Declared:
    """One workload that is read from a Prometheus. ``gpus_told``: whether DCGM's series there tell which of its pods
    hold a GPU; None: there are no such series.
    """

    engine: str
    match: Mapping[str, str]
    gpus_told: bool | None = None


def prometheus_lines(url: str, headers: Mapping[str, str], workloads: Sequence[Declared], left_out: int) -> str:
    """A source and workloads that are read from it. ``headers`` are those that were sent: their values may be secrets
    and do not stand here.
    """
    lines = [*_source_lines(url, headers), "workloads:"]
    taken: list[str] = []
    for each in workloads:
        model = next((value for label, value in each.match.items() if label not in ("cluster", "namespace")), "")
        name = workload_name(each.match.get("namespace", "default"), model, taken)
        taken.append(name)
        lines += [
            f"  {name}:  # the ScaledObject's namespace/name",
            f"    engine: {quoted(each.engine)}",
            f"    prometheus: {{source: main, match: {_mapping(each.match)}}}",
        ]
        if each.gpus_told is not None:
            unsaid = "  # its series name no pod of this namespace; say whose GPUs by labels"
            by_labels = f"    # gpu: {{source: main, match: {{LABEL: VALUE}}}}{unsaid}"
            lines.append("    gpu: {source: main}" if each.gpus_told else by_labels)
        lines += to_fill_in(each.engine)
    if left_out:
        lines.append(f"  # and {left_out} more workloads like these")
    return "\n".join(lines) + "\n"


def gpu_source_lines(url: str, headers: Mapping[str, str]) -> str:
    """A source that has GPU telemetry alone, and a workload that reads it there beside its engines."""
    return (
        "\n".join(_source_lines(url, headers))
        + """
workloads:
  default/my-model:  # the ScaledObject's namespace/name
    gpu: {source: main}  # a replica's are those that its pod holds
    # scrape: {urls: [...]}  # the engines' pages; loadtide probe URL of one of them says the rest
"""
    )


def _source_lines(url: str, headers: Mapping[str, str]) -> Iterator[str]:
    yield from ("sources:", "  main:", f"    url: {quoted(url)}")
    for header, value in headers.items():
        if header.lower() == "authorization" and value.lower().startswith("basic "):
            yield "    # basic: {username: USER, password_file: /etc/loadtide/password}  # as you gave them"
        elif header.lower() == "authorization":
            yield "    # bearer_token_file: /etc/loadtide/token  # a file with the token you gave"
        else:
            yield f"    # headers: {{{header}: ...}}  # as you gave it"


def to_fill_in(engine: str) -> tuple[str, ...]:
    """What no metric tells, as comments at a workload's depth."""
    flag = _BATCH_FLAG.get(engine, "the engine's own cap")
    return (
        "    # replicas: {max: 4}  # equal to the ScaledObject's maxReplicaCount",
        f"    # batch: {{max: 64}}  # {flag}: no metric tells it",
        "    # target: {name: NAME}  # the Deployment; then replicas asked for and pending are counted too",
        "    # gateway or push: what wakes it from zero; without one it keeps one replica",
    )


def _mapping(match: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{label}: {quoted(value)}" for label, value in match.items()) + "}"
