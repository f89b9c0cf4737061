"""Resolves the hosts of URLs, and leaves out addresses that no engine has.

A name in its own namespace is the ScaledObject author's to point anywhere (a Service of type ExternalName). The one
place that must not be reached so is the link-local network: there a cloud hands out its nodes' credentials.
"""

from __future__ import annotations

import ipaddress
import socket

from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver


class EngineResolver(ThreadedResolver):
    """The system's resolver, without link-local addresses. An address written out in a URL is not looked up at all;
    metadata may not write one (:mod:`scaler.policy.tenancy`).
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        allowed = [each for each in found if not ipaddress.ip_address(each["host"].partition("%")[0]).is_link_local]
        if found and not allowed:
            raise OSError("its name leads to a link-local address, where no engine is")
        return allowed
