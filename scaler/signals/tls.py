"""TLS as a policy declares it, as a context for connections; made anew when its files change.

Secrets of a cluster are mounted as files and rotated there; a scaler that must be restarted for it is forgotten.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TypeAlias

from scaler.policy.tls import Tls
from scaler.signals.http_body import RefusedError

Stamp: TypeAlias = tuple[int, int, int]


class TlsFiles:
    """The files of one declaration. They are looked at whenever a context is asked for, and read if they changed."""

    def __init__(self, tls: Tls) -> None:
        self.tls = tls
        self._context: tuple[tuple[Stamp, ...], ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext | bool:
        """How the server is verified: True for the system's way. Raises :class:`RefusedError` for unusable files."""
        tls = self.tls
        if tls == Tls(server_name=tls.server_name):
            return True
        files = [name for name in (tls.ca_file, tls.cert_file, tls.key_file) if name is not None]
        stamps = tuple(stamp(name) for name in files)
        if self._context is None or self._context[0] != stamps:
            self._context = (stamps, _context(tls))
        return self._context[1]


def stamp(name: str) -> Stamp:
    """What changes when a file is written or, as a mounted Secret is, replaced by a swapped link. Raises
    :class:`RefusedError` naming a file that cannot be read.
    """
    try:
        status = Path(name).stat()
    except (OSError, ValueError) as error:
        raise RefusedError(unreadable(name, error)) from error
    return status.st_mtime_ns, status.st_size, status.st_ino


def unreadable(name: str, error: Exception) -> str:
    """Why a file cannot be used, for a person."""
    reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
    return f"{name} cannot be read: {reason}"


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        # From Python 3.13 on strict verification is the default. It refuses authorities without the extensions of RFC
        # 5280, which many a cluster has made for itself; curl, Prometheus and KEDA take them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
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
