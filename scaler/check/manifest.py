"""Files as they are given: Kubernetes objects and policies, each value with the place where it stands.

A file may hold several documents, ``kubectl get -o yaml`` puts objects into a List, and a ConfigMap may carry a policy
file as one of its texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scaler.policy.document import Document, Problem, Span, read_all
from scaler.policy.keys import Path, nearest
from scaler.policy.layers import SECTIONS
from scaler.value import frozen

#: Values per document: a dump of every Deployment of a cluster is large.
VALUES_LIMIT = 2_000_000


#: What makes a mapping an object.
_OBJECT_KEYS = {"apiVersion", "kind"}
#: Sections that tell a policy file even if misspelt. Others resemble other files' words (``resources``).
_TELLING = ("defaults", "policies", "workloads", "tenancy")


@frozen
class Manifest:
    """One Kubernetes object. ``root`` is where it stands in its document: ``()``, or ``("items", 3)`` in a List."""

    file: str
    text: str
    document: Document
    root: Path
    value: Mapping[str, object]

    @property
    def kind(self) -> str:
        """``ScaledObject``, ``Deployment``, ...; empty where none is said."""
        return self.word("kind")

    @property
    def name(self) -> str:
        """The object's name; empty where none is said."""
        return self.word("metadata", "name")

    @property
    def namespace(self) -> str:
        """The object's namespace; empty where the file leaves it to ``kubectl -n``."""
        return self.word("metadata", "namespace")

    def get(self, *path: str | int) -> object:
        """The value at ``path``, None where there is none."""
        at: object = self.value
        for part in path:
            if isinstance(at, Mapping) and isinstance(part, str):
                at = at.get(part)
            elif isinstance(at, list) and isinstance(part, int) and part < len(at):
                at = at[part]
            else:
                return None
        return at

    def mapping(self, *path: str | int) -> Mapping[str, object]:
        """The mapping at ``path``, empty where there is none."""
        found = self.get(*path)
        return found if isinstance(found, Mapping) else {}

    def items(self, *path: str | int) -> Sequence[object]:
        """The list at ``path``, empty where there is none."""
        found = self.get(*path)
        return found if isinstance(found, list) else ()

    def whole(self, *path: str | int) -> int | None:
        """The whole number at ``path``, None where there is none."""
        found = self.get(*path)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def word(self, *path: str | int) -> str:
        """The text at ``path``, empty where there is none."""
        found = self.get(*path)
        return found if isinstance(found, str) else ""

    def line(self, path: Path) -> int:
        """The line of ``path`` in the file, or of the nearest place that encloses it."""
        return self.document.line((*self.root, *path))

    def span(self, path: Path) -> Span | None:
        """Where the value at ``path`` stands in the text."""
        return self.document.spans.get((*self.root, *path))

    def written(self, path: Path) -> str:
        """The value at ``path`` as it is written, quotes included; empty where there is none."""
        span = self.span(path)
        return "" if span is None else self.text[span.start : span.end]


@frozen
class PolicyText:
    """A policy file, or one that a ConfigMap carries: then its first line is line ``first_line`` of ``file``."""

    file: str
    text: str
    first_line: int = 1


@frozen
class Content:
    """What one file holds. ``problems`` are what is wrong with it as YAML; ``strays`` objects that stand where none
    can, each by its line, what is wrong and what to write instead.
    """

    file: str
    manifests: tuple[Manifest, ...]
    policies: tuple[PolicyText, ...]
    problems: tuple[Problem, ...]
    strays: tuple[tuple[int, str, str], ...] = ()


def read_content(file: str, text: str) -> Content:
    """Everything in one file that ``check`` knows something about. Never raises for what is in it."""
    documents = read_all(text, VALUES_LIMIT)
    manifests: list[Manifest] = []
    policies: list[PolicyText] = []
    problems: list[Problem] = []
    strays: list[tuple[int, str, str]] = []
    for document in documents:
        if is_policy(document.value):
            # The policy room reads it itself, and says what is wrong with it.
            policies.append(PolicyText(file, text))
            continue
        problems += document.problems
        manifests += _objects(file, text, document)
        strays += _strays(document)
    if policies and len(documents) > 1:
        policies = policies[:1]
    for manifest in manifests:
        policies += _carried(manifest)
    return Content(file, tuple(manifests), tuple(policies), tuple(problems), tuple(strays))


def is_policy(value: object) -> bool:
    """Whether a document is a policy file: no Kubernetes object, and a section is named, even if misspelt."""
    if not isinstance(value, Mapping) or value.keys() & {"kind", "apiVersion"}:
        return False
    return any(name in SECTIONS or nearest(name, _TELLING) for name in value)


def _objects(file: str, text: str, document: Document) -> Iterator[Manifest]:
    value = document.value
    if not isinstance(value, Mapping):
        return
    items = value.get("items")
    if str(value.get("kind", "")).endswith("List") and isinstance(items, list):
        for index, item in enumerate(items):
            if isinstance(item, Mapping):
                yield Manifest(file, text, document, ("items", index), item)
    elif "kind" in value:
        yield Manifest(file, text, document, (), value)


def _strays(document: Document) -> Iterator[tuple[int, str, str]]:
    """Objects in a list, which no document is, and one without a kind."""
    value = document.value
    if isinstance(value, list) and any(isinstance(each, Mapping) and each.keys() & _OBJECT_KEYS for each in value):
        said = "a list of objects stands here, and a document is one object: nothing in it is applied"
        yield document.line(()), said, '# without the "- ": documents divided by ---; or kind: List with items:'
    elif isinstance(value, Mapping) and "kind" not in value and "apiVersion" in value:
        yield (
            document.line(("apiVersion",)),
            "the object has no kind: the API server refuses that",
            "kind: ScaledObject",
        )
    items = value.get("items") if isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List") else ()
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, Mapping):
            yield document.line(("items", index)), f"items[{index}] is no object", "- {apiVersion: ..., kind: ...}"


def _carried(manifest: Manifest) -> Iterator[PolicyText]:
    """The policy files in a ConfigMap written as block texts, of which the lines can be told."""
    if manifest.kind != "ConfigMap":
        return
    for name, text in manifest.mapping("data").items():
        span = manifest.span(("data", name))
        if not isinstance(text, str) or span is None or span.style != "block":
            continue
        documents = read_all(text)
        if len(documents) == 1 and is_policy(documents[0].value):
            yield PolicyText(manifest.file, text, manifest.text.count("\n", 0, span.start) + 2)
