"""What a request shows its server: token, password and certificates, read again when their files change.

Secrets of a cluster are mounted as files and rotated there; a scaler that must be restarted for it is forgotten.
"""

from __future__ import annotations

import ssl
from base64 import b64encode
from pathlib import Path

from scaler.policy.prometheus import PrometheusServer, Tls
from scaler.signals.http_body import RefusedError

_Stamp = tuple[int, int, int]


class Credentials:
    """The credentials of one server. Files are looked at once per round, and read only when they changed."""

    def __init__(self, server: PrometheusServer) -> None:
        self._server = server
        self._texts: dict[str, tuple[_Stamp, str]] = {}
        self._context: tuple[tuple[_Stamp, ...], ssl.SSLContext] | None = None

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
        """How the server is verified: True for the system's way. Raises :class:`RefusedError` for unusable files."""
        tls = self._server.tls
        if tls == Tls(server_name=tls.server_name):
            return True
        files = [name for name in (tls.ca_file, tls.cert_file, tls.key_file) if name is not None]
        stamps = tuple(_stamp(name) for name in files)
        if self._context is None or self._context[0] != stamps:
            self._context = (stamps, _context(tls))
        return self._context[1]

    def _text(self, name: str) -> str:
        stamp = _stamp(name)
        known = self._texts.get(name)
        if known is None or known[0] != stamp:
            try:
                text = Path(name).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise RefusedError(_unreadable(name, error)) from error
            if not text.isprintable() or not text:
                raise RefusedError(f"{name} is empty or has more than one line; write the secret alone in it")
            known = self._texts[name] = (stamp, text)
        return known[1]


def _stamp(name: str) -> _Stamp:
    """What changes when a file is written or, as a mounted Secret is, replaced by a swapped link."""
    try:
        status = Path(name).stat()
    except (OSError, ValueError) as error:
        raise RefusedError(_unreadable(name, error)) from error
    return status.st_mtime_ns, status.st_size, status.st_ino


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = ", ".join(name for name in (tls.ca_file, tls.cert_file, tls.key_file) if name is not None)
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise RefusedError(f"the TLS files cannot be used ({files}): {reason}") from error
    if tls.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _unreadable(name: str, error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
    return f"{name} cannot be read: {reason}"
