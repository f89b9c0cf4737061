"""Ports of the loopback for servers that have to be told theirs before they take it."""

from __future__ import annotations

import random
import socket

#: Below those that Linux gives to whoever asks for any (from 32768): one of these could be a client's by the time the
#: server takes it, or while the server is away, and who connects to it then may even meet itself.
NOBODYS = range(20_000, 32_000)


def free_port() -> int:
    """One that is free at this moment, and that nobody is given who does not name it."""
    for port in random.SystemRandom().sample(NOBODYS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port of 100 between {NOBODYS.start} and {NOBODYS.stop} is free")
