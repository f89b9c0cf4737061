"""What is declared of admission: when requests are to be refused, not only held."""

from __future__ import annotations

from scaler.policy.group import Group, PositiveSeconds


class AdmissionControl(Group):
    """What is published for whoever lets requests in (an engine adapter, a gateway)."""

    shed_after_seconds: PositiveSeconds | None = 30.0
    """A hold that lasts so long, with a queue that can no longer be served within the critical bound, becomes ``shed``:
    refuse new requests. Unset (null): never."""
