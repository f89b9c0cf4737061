"""What a request shows its server: token, password and certificates, read again when their files change.

Secrets of a cluster are mounted as files and rotated there; a scaler that must be restarted for it is forgotten.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from pathlib import Path

from scaler.policy.prometheus import PrometheusServer
from scaler.signals.http_body import RefusedError
from scaler.signals.tls import Stamp, TlsFiles, stamp, unreadable


class Credentials:
    """The credentials of one server. Files are looked at once per round, and read only when they changed."""

    def __init__(self, server: PrometheusServer) -> None:
        self._server = server
        self._texts: dict[str, tuple[Stamp, str]] = {}
        self._tls = TlsFiles(server.tls)

    def headers(self) -> dict[str, str]:
        """The operator's headers and ``Authorization``. Raises :class:`RefusedError` naming a file that cannot be
        read; a secret itself is in no error.
        """
        server, headers = self._server, dict(self._server.headers)
        token = server.bearer_token
        if server.bearer_token_file is not None:
            token = self._text(server.bearer_token_file)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if server.basic is not None:
            pair = f"{server.basic.username}:{self._text(server.basic.password_file)}"
            headers["Authorization"] = "Basic " + b64encode(pair.encode()).decode("ascii")
        return headers

    def ssl(self) -> ssl.SSLContext | bool:
        """How the server is verified, as :meth:`TlsFiles.context` says."""
        return self._tls.context()

    def _text(self, name: str) -> str:
        seen = stamp(name)
        known = self._texts.get(name)
        if known is None or known[0] != seen:
            try:
                text = Path(name).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise RefusedError(unreadable(name, error)) from error
            if not text.isprintable() or not text:
                raise RefusedError(f"{name} is empty or has more than one line; write the secret alone in it")
            known = self._texts[name] = (seen, text)
        return known[1]
