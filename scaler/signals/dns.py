"""Resolves a name to all addresses behind it, without ever holding up the loop, its threads, or the end of the process.

The system's resolver blocks, for as long as its name servers stay silent (half a minute is common). So each lookup has
a thread of its own, which nobody waits for: not the pool that the store writes through, and not the interpreter's end.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from scaler.signals.discovery import Address, Answer, Resolved, ResolveFailure, one_family

#: Lookups under way at once. A silent name server must not gather threads without end.
LOOKUPS_AT_ONCE = 64

#: What the system says of a name that has no address: it does not exist, or it does and none is behind it. Everything
#: else is trouble. (EAI_NODATA and EAI_ADDRFAMILY are missing on some systems.)
_NO_ADDRESS = {
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
}

#: Blocks; gives IP addresses, raises OSError (:class:`socket.gaierror`) or UnicodeError.
Lookup = Callable[[str], Iterable[str]]


def system_lookup(name: str) -> set[str]:
    """Every IPv4 and IPv6 address the system's resolver gives for ``name``. Blocks; raises as ``getaddrinfo`` does."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return {str(address[0]) for family, *_, address in found if family in (socket.AF_INET, socket.AF_INET6)}


class Resolver:
    """Looks names up. Asking for a name whose lookup is still under way waits for that one: none is started twice."""

    def __init__(self, lookup: Lookup = system_lookup) -> None:
        self._lookup = lookup
        self._under_way: dict[str, asyncio.Future[set[str] | ResolveFailure]] = {}

    async def resolve_dns(self, name: str, port: int, *, timeout: float) -> Answer:
        """Every address of ``name``, each with ``port``, within ``timeout`` seconds; of a name with IPv4 and IPv6
        addresses the IPv4 ones. Never raises for a bad name or name server.
        """
        found = self._under_way.get(name)
        if found is None:
            if len(self._under_way) >= LOOKUPS_AT_ONCE:
                return ResolveFailure(f"{LOOKUPS_AT_ONCE} lookups are still unanswered; the name was not asked for")
            found = self._start(name)
        try:
            async with asyncio.timeout(timeout):
                hosts = await asyncio.shield(found)
        except TimeoutError:
            return ResolveFailure(f"no name server answered within {timeout:g} s")
        return hosts if isinstance(hosts, ResolveFailure) else Resolved(one_family({Address(h, port) for h in hosts}))

    def _start(self, name: str) -> asyncio.Future[set[str] | ResolveFailure]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[set[str] | ResolveFailure] = loop.create_future()
        self._under_way[name] = future

        def finish(answer: set[str] | ResolveFailure) -> None:
            del self._under_way[name]
            future.set_result(answer)

        def look_up() -> None:
            answer = _looked_up(self._lookup, name)
            with suppress(RuntimeError):  # the loop has ended meanwhile: nobody waits for the answer any more
                loop.call_soon_threadsafe(finish, answer)

        threading.Thread(target=look_up, name=f"dns {name}", daemon=True).start()
        return future


def _looked_up(lookup: Lookup, name: str) -> set[str] | ResolveFailure:
    try:
        found = set(lookup(name))
        # A cloud hands out its nodes' credentials there, and whoever owns the name may point it anywhere.
        engines = {host for host in found if not ipaddress.ip_address(host.partition("%")[0]).is_link_local}
        if found and not engines:
            return ResolveFailure("the name leads to a link-local address, where no engine is")
        return engines
    except socket.gaierror as error:
        if error.errno in _NO_ADDRESS:
            return set()
        if error.errno == socket.EAI_AGAIN:
            return ResolveFailure("no name server could answer (temporary failure)")
        return ResolveFailure(f"the name could not be resolved: {error.strerror}")
    except (OSError, UnicodeError) as error:
        return ResolveFailure(f"the name could not be resolved: {error}")
