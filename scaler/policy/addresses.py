"""URLs: whether one can be asked, and how it may be told: user, password and query may be secrets, and stay untold."""

from __future__ import annotations

import base64
import re
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

#: What stands behind ://, to the next space or :// (a password that nobody encoded may hold anything else).
_AFTER_SCHEME: Final = re.compile(r"(?<=://)(?:(?!://)\S)+")
#: Where the scheme is forgotten: user:password@host.
_BARE: Final = re.compile(r"(?<![^\s'\"\[(,=])[^\s'\"/@:=]+:[^\s'\"]*@")
_CLOSING: Final = re.compile(r"[?#].*?(['\"\])},.:;]*)$")


def is_http_url(url: str) -> bool:
    """Whether ``url`` can be asked: http or https, a host, a port if one is said, no space."""
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return whole and parts.scheme in ("http", "https") and not any(map(str.isspace, url))


def shown_text(text: str) -> str:
    """``text`` (an error's, a library's) with every URL in it as it may be told."""

    def told(found: re.Match[str]) -> str:
        closing = _CLOSING.search(found[0])
        return _told(found[0]) + (closing[1] if closing else "")

    return _BARE.sub("", _AFTER_SCHEME.sub(told, text))


def shown_url(url: str) -> str:
    """A URL as it may be told. What was typed may be none: all before its last @ is taken for user and password."""
    scheme, there, rest = url.partition("://")
    return scheme + there + _told(rest) if there else _told(url)


def _told(rest: str) -> str:
    """The host and path in what follows a scheme. A ? before an @ may be the password's or begin a query."""
    place, *behind = re.split(r"[?#]", rest, maxsplit=1)
    return "…" if behind and "@" in behind[0] else place.rpartition("@")[2]


def no_url(typed: str, example: str) -> str:
    """What is said of a text that stands where a URL belongs. Where it has a login, that may be what is wrong."""
    escape = "; in a user or a password write / ? # @ as %2F %3F %23 %40" if "@" in typed else ""
    return f"{shown_url(typed)!r} is not a URL; write for example {example}{escape}"


def has_login(url: str) -> bool:
    """Whether the URL has a user or a password in it."""
    return "@" in urlsplit(url).netloc


def without_login(url: str) -> tuple[str, str | None]:
    """The URL without user and password, and the Authorization header that they mean; None: there are none."""
    parts = urlsplit(url)
    login, at, place = parts.netloc.rpartition("@")
    if not at:
        return url, None
    user, _, password = login.partition(":")
    header = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return urlunsplit(parts._replace(netloc=place)), f"Basic {header}"


def to_complete(url: str) -> str:
    """A URL for a file whose owner knows the secrets: words stand in their places."""
    parts = urlsplit(url)
    login, at, place = parts.netloc.rpartition("@")
    words = ("USER:PASSWORD" if ":" in login else "USER") if at else ""
    query = "&".join(f"{name}=VALUE" for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    return urlunsplit((parts.scheme, f"{words}{at}{place}", parts.path, query, ""))
