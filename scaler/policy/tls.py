"""How an https server is verified, and what it is shown: the words are those of Prometheus' ``tls_config``."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from scaler.policy.group import Group


class Tls(Group):
    """How an https server is verified, and what we show it. Files are read again when they change."""

    ca_file: str | None = None
    """Certificates (PEM) to trust instead of the system's."""
    cert_file: str | None = None
    """Our certificate (PEM), for a server that asks for one."""
    key_file: str | None = None
    """Our private key (PEM), of ``cert_file``."""
    server_name: str | None = None
    """The name in the server's certificate, where it is not the URL's."""
    insecure_skip_verify: bool = False
    """Accept any certificate. Whoever is in between can then make up every signal."""

    @model_validator(mode="after")
    def _a_pair(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together; write both")
        return self
