"""The ``sources:`` section of a policy file: the servers that workloads may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from scaler.policy.document import Document
from scaler.policy.keys import dotted, schema_of, wording
from scaler.policy.prometheus import PrometheusServer

#: Stands in for a server that could not be read, while the file's other problems are collected.
_UNUSABLE: Final = PrometheusServer(url="http://unusable.invalid")
#: What must not be quoted in an error: a token that reads as a number is still a token.
_SECRET: Final = frozenset({"bearer_token", "headers", "url"})


def read_servers(
    file: str, document: Document, section: Mapping[str, object]
) -> tuple[dict[str, PrometheusServer], list[str]]:
    """The servers of the section by their names, and every problem as ``file:line: path: what; what instead``.

    One that cannot be meant is in the answer all the same: it is one problem, and not one more for every workload that
    names it. A file with problems is refused as a whole.
    """
    servers: dict[str, PrometheusServer] = {}
    problems = []
    for name, body in section.items():
        servers[name] = _UNUSABLE
        try:
            servers[name] = PrometheusServer.model_validate({} if body is None else body)
        except ValidationError as error:
            for part in error.errors(include_url=False):
                path = ("sources", name, *part["loc"])
                secret = not _SECRET.isdisjoint(part["loc"])
                what = wording({**part, "input": "(withheld)"} if secret else part, schema_of(PrometheusServer))
                problems.append(f"{file}:{document.line(path)}: {dotted(path)}: {what}")
    return servers, problems
