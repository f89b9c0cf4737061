"""What scalers ask each other without Redis: whether Redis answers you, and whether you act for what you own.

Redis is where scalers meet. When it falls silent, one of them alone cannot tell whether it is silent for all or only
for itself (then its workloads have another owner 3 s later). So each keeps a door, an address that is a part of its
name, behind which it says how it stands:

- *An owner in silence* goes on as long as every scaler that it last saw alive says, asked anew all the time, that Redis
  has been silent to it as well since before the owner's lease ended. Nobody can have taken anything then, and the first
  whom Redis answers again takes nothing for :data:`scaler.serve.lease.GRACE_SECONDS`: until long after its next word
  to the owner.
- *Whoever is about to take* the workloads of a scaler whose session has ended asks it before: it may be acting alone,
  because it has never heard of the asker. Now it has, and asks in its turn before it goes on.

Who does not answer is not believed to be silent, nor to be acting; nor does a loopback address lead to a scaler of
another host (a door is there where Redis is, behind a proxy of the scaler's own): what answers or refuses there is
ours. Where scalers cannot reach each other, silence ends every ownership when its lease ends. A door says nothing worth
hiding, and takes in nothing but the asker's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Collection
from ipaddress import ip_address

import structlog

from scaler.serve.lease import RETRY_SECONDS, Lease
from scaler.serve.ownership import member_of
from scaler.value import frozen

log = structlog.get_logger(__name__)

#: Longest that a scaler waits at another's door. On top of a lease, a beat and a tick it is what a dead one costs.
DOOR_SECONDS = 0.4
#: How long it is believed that one whose session has ended does not act.
NOT_ACTING_SECONDS = 5.0
#: More scalers than these are names that somebody makes up.
MOST_LIVING = 200
_LONGEST_WORD = 1024
_SESSION = re.compile(r"[!-~]{1,300}@[!-~]{3,60}:\d{1,5}#\d{1,9}")


@frozen
class Standing:
    """How a scaler stands: its session, whether it acts for what it owns, and for how long Redis has not answered it
    (None: it does).
    """

    session: str
    acts: bool
    silent_seconds: float | None


class Peers:
    """Our door, and questions at those of others. ``lease`` is ours; ``session`` gives our session, ``living`` those of
    all; ``heard`` takes one that has asked us.
    """

    def __init__(
        self,
        lease: Lease,
        mono: Callable[[], float],
        session: Callable[[], str],
        living: Callable[[], Collection[str]],
        heard: Callable[[str], None],
    ) -> None:
        self._lease = lease
        self._mono = mono
        self._session = session
        self._living = living
        self._heard = heard
        self._server: asyncio.Server | None = None
        self._not_acting: dict[str, float] = {}
        #: The sessions that had ended when they were last asked about, and whose scalers acted all the same.
        self.act_alone: frozenset[str] = frozenset()

    async def open(self, name: str, host: str | None, port: int) -> str:
        """Open our door at ``host`` (None: we know no address of ours) and ``port``, 0 for any free one; the name to go
        by, which is ``name`` with the address of the door where it could be opened.
        """
        try:
            if host is None:
                raise OSError("no address of this host is known")
            self._server = await asyncio.start_server(self._answer, host, port, limit=_LONGEST_WORD)
            bound = self._server.sockets[0].getsockname()[1]
        except OSError as error:
            log.warning("other scalers cannot ask this one; when Redis is silent all stop", problem=str(error))
            return name
        return f"{name}@[{host}]:{bound}" if ":" in host else f"{name}@{host}:{bound}"

    async def close(self) -> None:
        """Close the door."""
        if self._server is not None:
            self._server.close()

    def elsewhere(self) -> bool:
        """Whether a scaler of another host lives."""
        return any(_host(member_of(session)) != _host(member_of(self._session())) for session in self._living())

    async def watch(self) -> None:
        """While Redis is silent, find out again and again whether it is for all; until cancelled."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            await self.ask_all()

    async def ask_all(self) -> None:
        """Where Redis does not answer us, ask the others, and tell the lease if it answers none of them."""
        ends_at, sent = self._lease.ends_at, self._mono()
        if self._lease.in_reach or ends_at is None:
            return
        others = {member_of(session) for session in self._living()} - {member_of(self._session())}
        if all(await asyncio.gather(*(self._is_silent(each, ends_at) for each in others))):
            self._lease.silent(sent)

    async def look_at_ended(self, sessions: Collection[str]) -> None:
        """Find out, for :attr:`act_alone`, which of these ended sessions of other scalers act all the same."""
        now = self._mono()
        self._not_acting = {session: at for session, at in self._not_acting.items() if now - at < NOT_ACTING_SECONDS}
        asked = [session for session in sessions if session not in self._not_acting]
        answers = await asyncio.gather(*map(self._acts, asked))
        self.act_alone = frozenset(session for session, acts in zip(asked, answers, strict=True) if acts)
        self._not_acting |= dict.fromkeys(set(asked) - self.act_alone, now)

    async def _is_silent(self, member: str, since: float) -> bool:
        """Whether Redis has not answered ``member`` since ``since``, by our clock; or nobody is behind its door."""
        try:
            standing = await _ask(member, self._session())
        except ConnectionRefusedError:
            return True  # its host is there and its process is not: it owns nothing
        if standing is None or member_of(standing.session) != member or standing.silent_seconds is None:
            return False
        return self._mono() - standing.silent_seconds <= since

    async def _acts(self, session: str) -> bool:
        try:
            standing = await _ask(member_of(session), self._session())
        except ConnectionRefusedError:
            return False
        return standing is not None and standing.session == session and standing.acts

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(DOOR_SECONDS):
                asker = (await reader.readline()).decode("ascii").strip()
            if not self._lease.in_reach and _SESSION.fullmatch(asker) and len(self._living()) < MOST_LIVING:
                self._heard(asker)
        now, lease = self._mono(), self._lease
        silent = None if lease.in_reach else min(now - lease.answered_at, 1e9)
        said = {"session": self._session(), "acts": lease.acts(now), "silent_seconds": silent}
        with contextlib.suppress(OSError):
            writer.write(json.dumps(said).encode() + b"\n")
            writer.close()
            await writer.wait_closed()


def _host(member: str) -> str:
    """The name of the host that a scaler runs on, from its own (:class:`scaler.serve.membership.Membership`)."""
    return member.partition("@")[0].rpartition("-")[0]


def is_loopback(address: str | None) -> bool:
    """Whether it is an address that means another host to each who uses it."""
    with contextlib.suppress(ValueError):
        return ip_address(address or "").is_loopback
    return False


async def _ask(member: str, asker: str) -> Standing | None:
    """What is said behind ``member``'s door; None where nothing is, or nothing that can be meant. Raises
    ConnectionRefusedError: nobody keeps that door.
    """
    _, at, door = member.rpartition("@")
    host, _, port = door.rpartition(":")
    host = host.strip("[]")
    if not at or not port.isdecimal() or (is_loopback(host) and _host(member) != _host(member_of(asker))):
        return None
    try:
        async with asyncio.timeout(DOOR_SECONDS):
            reader, writer = await asyncio.open_connection(host, int(port), limit=_LONGEST_WORD)
            try:
                writer.write(f"{asker}\n".encode())
                said = json.loads(await reader.readline())
            finally:
                writer.close()
        silent = said["silent_seconds"]
        return Standing(str(said["session"]), said["acts"] is True, None if silent is None else float(silent))
    except ConnectionRefusedError:
        raise
    except (OSError, TimeoutError, ValueError, KeyError, TypeError, OverflowError):
        return None
