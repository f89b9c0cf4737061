"""TLS from files that change under us: a renewed certificate, a swapped Secret. Nobody restarts anything for that.

Each new connection looks whether the files have changed since the last one (three ``stat`` calls). A pair that does
not belong together, as half-written files are, is refused and said once, and the one before stays in force.
Connections that are open keep what they were made with.
"""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import grpc
import structlog

from scaler.value import frozen

log = structlog.get_logger(__name__)


@frozen
class TlsFiles:
    """PEM files: the certificate with its chain, its key, and, where clients must show a certificate too (mTLS), the
    authorities that may have signed theirs.
    """

    certificate: Path
    key: Path
    client_authorities: Path | None = None

    def paths(self) -> tuple[Path, ...]:
        """Every file there is to watch."""
        named = (self.certificate, self.key, self.client_authorities)
        return tuple(path for path in named if path is not None)


@frozen
class TlsMaterial:
    """What the files held, as PEM bytes."""

    certificate: bytes
    key: bytes
    client_authorities: bytes | None

    def for_grpc(self) -> grpc.ServerCertificateConfiguration:
        """As gRPC takes it."""
        return grpc.ssl_server_certificate_configuration(
            [(self.key, self.certificate)], root_certificates=self.client_authorities
        )


class WatchedTlsFiles:
    """``files`` as they are and as they change. Safe to ask from any thread: gRPC asks from its own."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises OSError (of which ssl.SSLError is one), naming the file, where they cannot be used as they stand."""
        self.files = files
        self._lock = threading.Lock()
        self._seen = _stamp(files)
        self.material = _read(files)

    def changed(self) -> TlsMaterial | None:
        """The new material where the files have changed and can be used; None otherwise."""
        with self._lock:
            stamp = _stamp(self.files)
            if stamp == self._seen:
                return None
            self._seen = stamp
            try:
                self.material = _read(self.files)
            except OSError as error:
                log.error("TLS files refused, those before stay in force", problem=str(error))
                return None
            log.info("TLS files read again", certificate=str(self.files.certificate))
            return self.material


def grpc_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Server credentials that follow ``files``. Raises OSError as :class:`WatchedTlsFiles` does."""
    watched = WatchedTlsFiles(files)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        material = watched.changed()
        return None if material is None else material.for_grpc()

    return grpc.dynamic_ssl_server_credentials(
        watched.material.for_grpc(),
        fetch,  # type: ignore[arg-type]  # None is "as before"; the published stubs do not know it
        require_client_authentication=files.client_authorities is not None,
    )


def http_context(files: TlsFiles) -> ssl.SSLContext:
    """A server context that follows ``files``. Raises OSError as :class:`WatchedTlsFiles` does."""
    watched = WatchedTlsFiles(files)
    current = _context(files)

    def hello(connection: ssl.SSLObject, _name: str | None, _context_asked: ssl.SSLContext) -> None:
        nonlocal current
        if watched.changed() is not None:
            current = _context(files)
        connection.context = current

    entrance = _context(files)
    entrance.sni_callback = hello  # called at every handshake, with or without a server name
    return entrance


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as in scaler/signals/tls.py
    try:
        # The answer to "which passphrase": without it the terminal would be asked, and the scaler would hang there.
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except ssl.SSLError as error:
        text = f"{files.certificate} and {files.key} are no certificate with its unencrypted key: {error}"
        raise ssl.SSLError(error.errno, text) from error
    if files.client_authorities is not None:
        try:
            context.load_verify_locations(files.client_authorities)
        except ssl.SSLError as error:
            text = f"{files.client_authorities} holds no certificate authority: {error}"
            raise ssl.SSLError(error.errno, text) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _read(files: TlsFiles) -> TlsMaterial:
    """The files' content, found to be usable. Raises OSError."""
    for path in files.paths():
        path.read_bytes()  # for its error, which names the file; the context's does not
    _context(files)
    authorities = files.client_authorities
    return TlsMaterial(
        files.certificate.read_bytes(), files.key.read_bytes(), authorities.read_bytes() if authorities else None
    )


def _stamp(files: TlsFiles) -> tuple[tuple[int, int, int] | None, ...]:
    """What tells one state of the files from another; None for one that is not there."""
    return tuple(_state(path) for path in files.paths())


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
