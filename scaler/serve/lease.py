"""Leases with fencing: until when this scaler may act for what it owns, and the steps Redis must take as one.

A scaler's lease is its *session*: one entry in ``loadtide:members`` that it renews every :data:`BEAT_SECONDS` and that
ends :data:`LEASE_SECONDS` after the last beat. A session that has ended never comes back (its id is refused, and the
scaler begins another), so "this owner's session has ended" stays true once it is true. One lease per scaler and not
one per workload: two thousand workloads then cost one renewal, not two thousand.

A workload belongs to the session named in its hash, under a *fencing token* that rises with every change of owner. What
an owner writes carries its token and is refused once a higher one is known; that, and not the clock, is what keeps a
frozen and thawed owner from overwriting its successor. The token is at least Redis's time in milliseconds, and more
than any its taker has seen, so that it does not go backwards when Redis comes back empty.

Small Lua scripts, because each of these steps must read and write in one go. No library is used for it: redis-py's
``Lock`` and the Redlock family have neither fencing tokens nor a session shared by many locks. Every script touches
keys of one hash tag only, as a Redis Cluster demands; the connection itself is, so far, to a single primary (a managed
Redis, or Sentinel behind one name).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: A dead scaler's workloads are free this long after its last beat: with a beat of the successor and a tick on top,
#: they have moved in under 5 s. Shorter would take a garbage collection or a busy node for a death.
LEASE_SECONDS = 3.0
BEAT_SECONDS = 0.75
#: Beats while Redis is away: often, because whoever comes back first must not be far ahead of the others.
RETRY_SECONDS = 0.25
#: An owner stops this long before Redis would call its lease ended, for clocks that do not run equally fast.
MARGIN_SECONDS = 0.1
#: How long it is proven that there is no Redis by a refused connection, or by everybody's word that it is silent.
PROVEN_SECONDS = 1.0
#: After the end of its lease, an owner without a Redis waits this long before it acts alone: if Redis were to come back
#: before that with what it had stored, other scalers would still take the old lease for a living one.
ALONE_AFTER_SECONDS = 0.5
#: After Redis started, or came back into our reach, only what was owned before may be taken: its owner, acting alone
#: until now, needs as long to notice.
GRACE_SECONDS = LEASE_SECONDS + 1.0


@dataclass(slots=True)
class Lease:
    """What this scaler knows of its own lease. Times are monotonic seconds; nothing here asks what time it is.

    ``ends_at`` is counted from the moment a beat was *sent*, so it never lies after the end that Redis counts.
    """

    ends_at: float | None = None
    answered_at: float = -math.inf
    no_redis_at: float | None = None
    reached_at: float = -math.inf
    redis_started_at: float = -math.inf
    in_reach: bool = False
    was_away: bool = False

    def beaten(self, sent: float, now: float, uptime_seconds: float) -> None:
        """A beat sent at ``sent`` was answered at ``now`` by a Redis that runs since ``uptime_seconds``."""
        self.ends_at = sent + LEASE_SECONDS - MARGIN_SECONDS
        self.answered_at = now
        self.redis_started_at = now - uptime_seconds
        if not self.in_reach and self.was_away:
            self.reached_at = now
        self.in_reach = True

    def lost(self, now: float) -> None:
        """Redis says that the session has ended. Before its time: Redis has lost what it had, and the others' sessions
        with ours, so they need as long to come back as after a restart.
        """
        if self.held(now):
            self.reached_at = now
        self.ends_at = None

    def missed(self) -> None:
        """A beat, or any other question, was not answered."""
        self.in_reach, self.was_away = False, True

    def refused(self, now: float) -> None:
        """Redis's address refuses connections: it answers nobody."""
        self.missed()
        self.no_redis_at = now

    def silent(self, sent: float) -> None:
        """Every scaler that lives has said, asked at ``sent``, that Redis is as silent to it (:mod:`.peers`)."""
        if not self.in_reach:
            self.no_redis_at = sent

    def held(self, now: float) -> bool:
        """Whether the lease certainly lasts: no other scaler can have taken anything from us."""
        return self.ends_at is not None and now < self.ends_at

    def no_redis(self, now: float) -> bool:
        """Whether there is certainly no Redis that could have given our workloads to somebody else."""
        return not self.in_reach and self.no_redis_at is not None and now - self.no_redis_at <= PROVEN_SECONDS

    def alone(self, now: float) -> bool:
        """Whether we act for what we own without a lease, because nobody can have one."""
        over = self.ends_at is None or now >= self.ends_at + MARGIN_SECONDS + ALONE_AFTER_SECONDS
        return over and self.no_redis(now)

    def acts(self, now: float) -> bool:
        """Whether to go on reading and judging what we own."""
        return self.held(now) or self.no_redis(now)

    def settled(self, now: float) -> bool:
        """Whether workloads of ended sessions may be taken: whoever acted alone has had the time to come back."""
        return self.in_reach and now - max(self.redis_started_at, self.reached_at) >= GRACE_SECONDS


_NOW = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"

#: What cannot be a token counts as none: else one bad key would fail every script that meets it. Lua counts in doubles,
#: so 15 digits are exact.
_TOKEN = """
local function number(text)
  return text and #text <= 15 and string.match(text, '^%d+$') and tonumber(text) or 0
end
"""

#: KEYS one; ARGV the kind that it should be of. → 1 where it was of another kind and is deleted, 0.
MEND = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' or kind == ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""

#: KEYS members; ARGV session, lease in ms, "begin" or "renew", channel.
#: → ["lost"] or [now in ms, session, ...]: everyone whose lease lasts.
BEAT = (
    _NOW
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if ARGV[3] == 'renew' and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return {'lost'} end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PUBLISH', ARGV[4], 'beat ' .. ARGV[1])
local answer = redis.call('ZRANGE', KEYS[1], 0, -1)
table.insert(answer, 1, string.format('%.0f', now))
return answer
"""
)

#: KEYS workload; ARGV session, the session it is taken from ("" for nobody), highest token seen, channel, name.
#: → the new token, or "" where somebody else was faster.
CLAIM = (
    _NOW
    + _TOKEN
    + """
if (redis.call('HGET', KEYS[1], 'owner') or '') ~= ARGV[2] then return '' end
local token = math.max(number(redis.call('HGET', KEYS[1], 'token')), tonumber(ARGV[3]), now) + 1
local text = string.format('%.0f', token)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', text)
redis.call('PUBLISH', ARGV[4], 'owned ' .. ARGV[5] .. ' ' .. ARGV[1])
return text
"""
)

#: KEYS workload; ARGV token, channel, name. The token rises, so that a write of ours still under way is refused.
#: → 1, or 0 where it was no longer ours.
RELEASE = """
if (redis.call('HGET', KEYS[1], 'token') or '') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'owner')
redis.call('HSET', KEYS[1], 'token', string.format('%.0f', ARGV[1] + 1))
redis.call('PUBLISH', ARGV[2], 'released ' .. ARGV[3])
return 1
"""

#: KEYS workload, its demand; ARGV token, session, number of this write, snapshot, memory ("" to keep the stored one),
#: age of both in ms, the time when a replica was ready ("" for none), which answers a wake of before and none that came
#: since, how long to keep it all in ms, channel, name. A token below the stored one is refused. One above it is right
#: too: Redis has come back with older data, or with none. → 1, or 0 where somebody else owns it now.
PUBLISH = (
    _NOW
    + _TOKEN
    + """
if number(redis.call('HGET', KEYS[1], 'token')) > tonumber(ARGV[1]) then return 0 end
local at = string.format('%.0f', now - ARGV[6])
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'owner', ARGV[2], 'version', ARGV[1] .. '.' .. ARGV[3],
  'snapshot', ARGV[4], 'at', at)
if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], 'memory', ARGV[5], 'memory_at', at) end
local wake = string.match(redis.call('HGET', KEYS[2], 'wake') or '', '^%d+')
if ARGV[7] ~= '' and wake and tonumber(wake) <= tonumber(ARGV[7]) then redis.call('HDEL', KEYS[2], 'wake') end
redis.call('PEXPIRE', KEYS[1], ARGV[8])
redis.call('PUBLISH', ARGV[9], 'published ' .. ARGV[10] .. ' ' .. ARGV[2])
return 1
"""
)

#: KEYS what was told; ARGV field, its text, until when an entry counts in ms, most entries, channel, message.
#: → 1, or 0 where there are too many.
TELL = (
    _NOW
    + """
local entries = redis.call('HGETALL', KEYS[1])
local kept = 0
for i = 1, #entries, 2 do
  local at = tonumber(string.match(entries[i + 1], '^%d+') or '0')
  if entries[i] ~= 'wake' and now - at > tonumber(ARGV[3]) then redis.call('HDEL', KEYS[1], entries[i])
  elseif entries[i] ~= 'wake' and entries[i] ~= ARGV[1] then kept = kept + 1 end
end
if ARGV[1] ~= 'wake' and kept >= tonumber(ARGV[4]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[3]), 86400000))
redis.call('PUBLISH', ARGV[5], ARGV[6])
return 1
"""
)
