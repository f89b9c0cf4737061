"""Reads the wanted samples out of a Prometheus text body, quickly and tolerantly.

Why not ``prometheus_client.parser``: it reads every line (a loop that asks 100 engines every 5 s wants a third of
them), takes an OpenMetrics exemplar for a time stamp, and loses everything after one malformed line. Here a bad line
costs one line, is counted, and is told where its name was wanted. Two things are still refused whole
(:class:`ExpositionError`), because half a body looks like less load: a body that is cut, and one that is not metrics at
all.

Speed comes from looking at the name first (a dictionary lookup on the text before ``{``) and from remembering label
sets: they are the same text in every read of every replica.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Final, NamedTuple

from scaler.value import frozen


class ExpositionError(ValueError):
    """The body as a whole must not be used; the text says why, for a person."""


@frozen
class Labels:
    """The labels of one series. Never changed after they are made: equal texts share one object."""

    values: Mapping[str, str]
    """Label name → value, escapes resolved."""
    text: str
    """The one spelling of this label set: sorted by name, values escaped as exposed."""
    series: str
    """:attr:`text` without ``le``: what all buckets, the sum and the count of one histogram share."""
    bound: float
    """``le`` as a number; NaN where there is none, or none that can be read."""


class Sample(NamedTuple):
    """One sample line. (A tuple, not a dataclass: made for every wanted line, in a third of the time.)"""

    labels: Labels
    value: float
    """As exposed: may be NaN or infinite, which the caller must refuse."""
    unix: float | None
    """The explicit time stamp, Unix seconds; None (nearly always) means now."""


@frozen
class Exposition:
    """What one body says about the wanted names."""

    samples: Mapping[str, tuple[Sample, ...]]
    """Normalised name → its samples in the order exposed. Of two spellings of one name only the first is here."""
    spellings: Mapping[str, str]
    """Normalised name → the name as the body spells it, for every name in :attr:`samples`."""
    names: frozenset[str]
    """Every name in the body as spelled there, wanted or not: for telling a person what the body holds instead."""
    bad_lines: int
    """Lines that could not be read and were skipped. Of lines not wanted only what is cheap is checked."""
    duplicates: int
    """Lines that repeat a series already read; the first one counts, they are never added up."""
    damaged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Wanted normalised name → its lines that could not be read: what the others add up to is less than there was."""


def normalised(name: str) -> str:
    """The name with ``:`` and ``_`` treated alike: exporters and collectors on the way disagree about them."""
    return name.replace(":", "_")


def parse(body: str, wanted: Callable[[str], bool]) -> Exposition:
    """Read the samples whose :func:`normalised` name is ``wanted`` (asked once per name, not per line).

    Understood beside the plain format: OpenMetrics exemplars (ignored), ``# EOF``, CRLF, time stamps in milliseconds
    or (OpenMetrics) seconds, repeated ``# TYPE`` blocks. Names are matched whole, so ``x_created`` is never ``x``.

    Raises :class:`ExpositionError` if the body is empty, HTML, cut (its last line has no end) or has no sample line.
    """
    lines = _lines(body)
    series_of: dict[str, dict[str, Sample]] = {}  # a wanted name as spelled → label text → sample
    routes: dict[str, dict[str, Sample] | None] = {}  # a name as spelled → where its samples go; None: not wanted
    damaged: dict[str, list[str]] = {}
    bad_lines = duplicates = 0
    any_sample = False

    for line in lines:
        if not line or line[0] == "#":
            continue
        head, _, rest = line.partition("{")
        name = head
        if head in routes:
            series = routes[head]
        else:
            start = _NAME.match(line)
            if start is None:
                bad_lines += not line.isspace() and not line.lstrip().startswith("#")
                continue
            name = start[1]
            if head != name:
                rest = ""  # the brace may belong to an exemplar: only the exact reading can tell
            if name in routes:
                series = routes[name]
            else:
                series = routes[name] = {} if wanted(normalised(name)) else None
                if series is not None:
                    series_of[name] = series

        if series is None:
            # Read only until one line proves the page is metrics, and where quotes are odd: damaged, or one is escaped.
            if (not any_sample or line.count('"') & 1) and _sample(line) is None:
                bad_lines += 1
            else:
                any_sample = True
            continue

        sample = _usual_sample(rest) or _sample(line)
        if sample is None:
            bad_lines += 1
            damaged.setdefault(normalised(name), []).append(line)
            continue
        any_sample = True
        key = sample.labels.text
        if key in series:
            duplicates += 1
        else:
            series[key] = sample

    if not any_sample:
        raise ExpositionError("not a metrics page: no sample line in it")
    spellings: dict[str, str] = {}
    for name, series in series_of.items():
        if series:
            spellings.setdefault(normalised(name), name)
    samples = {key: tuple(series_of[name].values()) for key, name in spellings.items()}
    hurt = {name: tuple(lines) for name, lines in damaged.items()}
    return Exposition(samples, spellings, frozenset(routes), bad_lines, duplicates, hurt)


def _lines(body: str) -> Iterable[str]:
    """The body's lines, or the reason why it is no body."""
    if not body.strip():
        raise ExpositionError("empty body")
    if body.lstrip("\ufeff \t\r\n").startswith("<"):
        raise ExpositionError("not a metrics page: HTML")
    lines = body.split("\n")
    # OpenMetrics lets the closing "# EOF" go without a line end; no other line may.
    if lines[-1] and lines[-1].strip() != "# EOF":
        raise ExpositionError("body cut: its last line has no end")
    if "\r" in body:
        return [line.removesuffix("\r") for line in lines]
    return lines


# Possessive quantifiers (`++`, `*+`): a broken line must fail in one pass, however long it is.
_NAME: Final = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*+)(?=[ \t{])")
_LINE: Final = re.compile(
    r"[ \t]*[a-zA-Z_:][a-zA-Z0-9_:]*+(?=[ \t{])[ \t]*+"
    r'(?:\{((?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+)\}[ \t]*+)?'  # labels
    r"([^\s#{]+)"  # value
    r"(?:[ \t]++([^\s#]+))?"  # time stamp
    r"(?:[ \t]++#.*)?[ \t]*+"  # exemplar
)
_PAIR: Final = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*=[ \t]*"((?:[^"\\]++|\\.)*+)"[ \t]*(?:,|$)')
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", '"': '"', "\\": "\\"}

# 1e11 s is the year 5138, and 1e11 ms is 1973: below it a time stamp can only be OpenMetrics' seconds.
_LEAST_MILLISECONDS: Final = 1e11


def _usual_sample(rest: str) -> Sample | None:
    """The quick reading of the usual line ``name{labels} value`` from behind the brace; None where only
    :func:`_sample` can tell. It is never wrong: if the text before the first ``} `` reads as labels, it is all of them
    (a ``} `` inside a value would leave its quote open), and a tail that is more than a number fails as a number.
    """
    text, closing, tail = rest.partition("} ")
    if not closing or "_" in tail:
        return None
    labels = _labels(text)
    if labels is None:
        return None
    try:
        return Sample(labels, float(tail), None)
    except ValueError:
        return None


def _sample(line: str) -> Sample | None:
    """The slow and exact reading of one sample line; None if it is none."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    labels = _labels(match[1] or "")
    value = _number(match[2])
    if labels is None or value is None:
        return None
    if match[3] is None:
        return Sample(labels, value, None)
    stamp = _number(match[3])
    if stamp is None or not math.isfinite(stamp):
        return None
    return Sample(labels, value, stamp / 1000 if abs(stamp) >= _LEAST_MILLISECONDS else stamp)


def _number(text: str) -> float | None:
    try:
        # Python reads 1_000 as a number; no exporter writes it.
        return None if "_" in text else float(text)
    except ValueError:
        return None


#: Longer label texts are read anew each time: what is remembered must stay small, whatever an endpoint sends.
_REMEMBERED_CHARACTERS: Final = 2048


def _labels(text: str) -> Labels | None:
    """The labels in the text between the braces; None if it does not read as labels."""
    return _remembered_labels(text) if len(text) <= _REMEMBERED_CHARACTERS else _read_labels(text)


def _read_labels(text: str) -> Labels | None:
    raw: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            if text[position:].isspace():
                break
            return None
        if pair[1] in raw:
            return None
        raw[pair[1]] = pair[2]
        position = pair.end()
    parts = {name: f'{name}="{raw[name]}"' for name in sorted(raw)}
    bound = _number(raw.get("le", "nan"))
    return Labels(
        values={name: _unescaped(value) for name, value in raw.items()},
        text=",".join(parts.values()),
        series=",".join(part for name, part in parts.items() if name != "le"),
        bound=math.nan if bound is None else bound,
    )


_remembered_labels = lru_cache(maxsize=8192)(_read_labels)


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), value)
