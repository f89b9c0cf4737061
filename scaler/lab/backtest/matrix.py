"""The answer to a range selector, read: raw samples of many series, as the server scraped them.

Half a million samples are 13 MB of JSON. Decoded as a whole they would be ten times that in Python's objects, so one
series at a time becomes two arrays of numbers. What is not written as every server writes it is decoded in one go.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from scaler.signals.prometheus.answer import AnswerError
from scaler.value import frozen

Numbers: TypeAlias = "array[float]"

_HEAD: Final = re.compile(
    r'\{"status":"success",(?:"isPartial":(?P<partial>true|false),)?"data":\{"resultType":"matrix","result":\['
)
_ENTRY: Final = re.compile(r'\{"metric":')
_VALUES: Final = re.compile(r',"values":\[\[')
_DECODER: Final = json.JSONDecoder()
_NO_MARKS: Final = {ord(mark): None for mark in '[]" '}


class RawSeries(NamedTuple):
    """One series: its labels (the name is ``__name__``), its samples' times (Unix seconds, rising), their values."""

    labels: dict[str, str]
    times: Numbers
    values: Numbers


@frozen
class Matrix:
    """What one query gave; ``partial`` says why series may be missing ("": it is whole)."""

    series: list[RawSeries]
    partial: str = ""


def read_matrix(body: bytes, after: float, shared: dict[bytes, Numbers] | None = None) -> Matrix:
    """The series of an answer, without samples at or before ``after`` (Unix seconds; servers disagree about whether a
    range holds its own beginning). ``shared``: times that series have in common become one object, found in it.

    Raises :class:`AnswerError` for anything but a matrix. Native histograms, which have no one value, are left out.
    """
    shared = {} if shared is None else shared
    try:
        text = body.decode("utf-8")
        head = _HEAD.match(text)
        entries, partial = _entry_by_entry(text, head) if head is not None else _whole(json.loads(text))
    except AnswerError:
        raise
    except (ValueError, RecursionError) as error:
        html = body.lstrip()[:1] == b"<"
        said = "HTML (a login page?)" if html else "cut, or not JSON" if body.strip() else "empty"
        raise AnswerError(f"the answer is {said}") from error
    return Matrix(_joined(entries, after, shared), partial)


_Entry: TypeAlias = tuple[dict[str, str], Numbers, Numbers]


def _entry_by_entry(text: str, head: re.Match[str]) -> tuple[list[_Entry], str]:
    position, entries = head.end(), []
    while entry := _ENTRY.match(text, position):
        labels, position = _DECODER.raw_decode(text, entry.end())
        values = _VALUES.match(text, position)
        if values is None:  # a native histogram, or a server that orders its keys otherwise
            return _whole(json.loads(text))
        end = text.index("]]", values.end())
        flat = array("d", map(float, text[values.end() : end].translate(_NO_MARKS).split(",")))
        entries.append((labels, flat[::2], flat[1::2]))
        position = end + 2
        if text[position] != "}":
            return _whole(json.loads(text))
        position += 1
        if text[position] == ",":
            position += 1
    rest = json.loads('{"data":{"result":[' + text[position:])
    return entries, _partial({**rest, "isPartial": head["partial"] == "true" or rest.get("isPartial")})


def _whole(document: Any) -> tuple[list[_Entry], str]:
    if not isinstance(document, dict) or document.get("status") not in ("success", "error"):
        raise AnswerError("the answer is JSON, but not of a Prometheus API; is the URL right?")
    if document["status"] == "error":
        raise AnswerError(f"the server reports an error: {document.get('errorType')}: {document.get('error')}")
    data = document.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise AnswerError("the answer is no matrix of samples")
    entries: list[_Entry] = []
    for element in data["result"]:
        if not isinstance(element, dict) or not isinstance(element.get("metric"), dict):
            raise AnswerError("a series of the answer is not of the API's form")
        pairs = element.get("values") or ()
        times, values = array("d", (pair[0] for pair in pairs)), array("d", (float(pair[1]) for pair in pairs))
        entries.append((element["metric"], times, values))
    return entries, _partial(document)


def _joined(entries: Iterable[_Entry], after: float, shared: dict[bytes, Numbers]) -> list[RawSeries]:
    series = []
    for labels, times, values in entries:
        if times and times[0] <= after:
            first = next((index for index, time in enumerate(times) if time > after), len(times))
            times, values = times[first:], values[first:]
        if times:
            series.append(RawSeries(labels, shared.setdefault(times.tobytes(), times), values))
    return series


def _partial(document: dict[str, Any]) -> str:
    warnings = document.get("warnings")
    if isinstance(warnings, list) and warnings:
        return " ".join("; ".join(map(str, warnings)).split())[:200]
    return "some storage nodes did not answer" if document.get("isPartial") is True else ""
