"""The body of an instant query's answer, read: rows of labels and a value, or why it is none.

A row at a time: an answer about thousands of replicas is tens of megabytes, and Python's JSON decoder holds everybody
else up until the text it was given is decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from scaler.value import frozen

#: A longer message of a server is cut.
_SHOWN: Final = 200
#: How every server begins that writes compact JSON in the usual order. Others are decoded in one go.
_HEAD: Final = re.compile(
    r'\{"status":"success",(?:"isPartial":(?P<partial>true|false),)?"data":\{"resultType":"vector","result":\['
)
_DECODER: Final = json.JSONDecoder()
#: No server's clock shows a later year than 9999.
_LATEST: Final = 253_402_300_800


class AnswerError(ValueError):
    """An answer that must not be used; the text says why, for a person."""


class Row(NamedTuple):
    """One series of an answer."""

    labels: dict[str, str]
    """The metric's name, where it has one, is ``__name__``."""
    value: float
    """May be NaN or infinite, which whoever uses it must refuse."""


@frozen
class Answer:
    """What one query gave."""

    rows: list[Row]
    """One row without labels for a scalar."""
    unix: float | None = None
    """The server's time of the evaluation; None where there is no row to tell it."""
    partial: str = ""
    """Why the answer may lack series, in the server's words; "" where it is whole."""


def read_answer(body: bytes, take: Callable[[Row], object] | None = None) -> Answer:
    """Read an answer. ``take`` is given each row as it is read, and the answer then has none: hundreds of thousands
    that live at the same time would cost more than reading them.

    Raises :class:`AnswerError` for anything but a vector or a scalar: an error told in JSON, HTML, a matrix, values
    that are no numbers. Some rows may have been taken by then.
    """
    rows: list[Row] = []
    take = rows.append if take is None else take
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise AnswerError("the answer is not UTF-8") from error
    head = _HEAD.match(text)
    try:
        if head is not None:
            unix, partial = _row_by_row(text, head.end(), head["partial"] == "true", take)
            return Answer(rows, unix, partial)
        document = json.loads(text)
    except AnswerError:
        raise
    except (ValueError, RecursionError) as error:
        html = text.lstrip("\ufeff \t\r\n").startswith("<")
        said = "HTML (a login page?)" if html else "cut, or not JSON" if text.strip() else "empty"
        raise AnswerError(f"the answer is {said}") from error
    unix, partial = _whole(document, take)
    return Answer(rows, unix, partial)


def told_error(body: bytes) -> str:
    """What the server says went wrong, if the body says it as the API does; else ""."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(document, dict) or "error" not in document:
        return ""
    kind, text = document.get("errorType"), str(document["error"])
    said = f"{kind}: {text}" if isinstance(kind, str) else text
    return _shown(said)


def _row_by_row(text: str, position: int, partial: bool, take: Callable[[Row], object]) -> tuple[float | None, str]:
    unix = None
    if text[position : position + 1] != "]":
        while True:
            element, position = _DECODER.raw_decode(text, position)
            if (row := _row(element)) is not None:
                take(row)
                unix = element["value"][0]
            if text[position : position + 1] == "]":
                break
            if text[position : position + 1] != ",":
                raise ValueError("neither the next series nor the end")
            position += 1
    rest = json.loads('{"data":{"result":[' + text[position:])
    return _unix(unix), _partial({**rest, "isPartial": partial or rest.get("isPartial")})


def _whole(document: Any, take: Callable[[Row], object]) -> tuple[float | None, str]:
    if not isinstance(document, dict) or document.get("status") not in ("success", "error"):
        raise AnswerError("the answer is JSON, but not of a Prometheus API; is the URL right?")
    if document["status"] == "error":
        said = told_error(json.dumps(document).encode()) or "without saying which"
        raise AnswerError(f"the server reports an error: {said}")
    data = document.get("data")
    kind, result = (data.get("resultType"), data.get("result")) if isinstance(data, dict) else (None, None)
    partial = _partial(document)
    if kind == "vector" and isinstance(result, list):
        unix = None
        for element in result:
            if (row := _row(element)) is not None:
                take(row)
                unix = element["value"][0]
        return _unix(unix), partial
    if kind == "scalar" and isinstance(result, list) and len(result) == 2:
        take(Row({}, _number(result[1])))
        return _unix(result[0]), partial
    raise AnswerError(f"the answer is a {_shown(str(kind))}; a query must give a vector or a number")


def _row(element: Any) -> Row | None:
    """One series; None for a native histogram, which has no one value."""
    if not isinstance(element, dict) or not isinstance(labels := element.get("metric"), dict):
        raise AnswerError("a series of the answer is not of the API's form")
    try:
        "".join(labels.values())  # the quickest way to see that all are text: there are hundreds of thousands of rows
    except TypeError as error:
        raise AnswerError("a label of the answer is no text") from error
    if "value" not in element and "histogram" in element:
        return None
    match element.get("value"):
        case [_, value]:
            return Row(labels, _number(value))
        case _:
            raise AnswerError("a series of the answer has no value")


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise AnswerError(f"a value of the answer is no number: {_shown(str(value))}") from error


def _unix(value: Any) -> float | None:
    """Seconds; None for what is no time, a whole number too large for one among it."""
    return float(value) if isinstance(value, int | float) and -_LATEST < value < _LATEST else None


def _partial(document: dict[str, Any]) -> str:
    """Thanos, and Prometheus with remote reads, warn; a VictoriaMetrics cluster has a flag for it. ``infos`` are about
    the query's style and say nothing about the data.
    """
    warnings = document.get("warnings")
    if isinstance(warnings, list) and warnings:
        return _shown("; ".join(map(str, warnings)))
    return "some storage nodes did not answer" if document.get("isPartial") is True else ""


def _shown(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
