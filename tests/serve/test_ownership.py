"""Who ticks what, by pure rules: leases by the clock, the plan of claims and hand-overs, what a successor inherits."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from scaler.control.model import LoadState, Memory
from scaler.policy.layers import PolicyFile
from scaler.serve.holding import Held
from scaler.serve.lease import (
    ALONE_AFTER_SECONDS,
    BEAT_SECONDS,
    GRACE_SECONDS,
    LEASE_SECONDS,
    MARGIN_SECONDS,
    PROVEN_SECONDS,
    RETRY_SECONDS,
    Lease,
)
from scaler.serve.owner_metrics import OwnerCollector
from scaler.serve.ownership import Plan, SoleOwner, member_of, plan, preferred, put
from scaler.serve.redis_link import RedisLink
from scaler.serve.store import StoredWorkload, boot_seconds, read_boot_id, to_json
from scaler.serve.succession import inherit
from scaler.serve.workloads import Workload, Workloads
from tests.ports import free_port
from tests.serve.tide import snapshot

names = st.lists(st.text("abc/-", min_size=1, max_size=6), unique=True, max_size=40)
members = st.sets(st.sampled_from(["red", "green", "blue", "white", "black"]), min_size=1)


class TestLease:
    def beaten(self, sent: float = 100.0, answered: float = 100.2, uptime: float = 9999.0) -> Lease:
        lease = Lease()
        lease.beaten(sent, answered, uptime)
        return lease

    def test_without_a_beat_nothing_is_ours(self) -> None:
        assert not Lease().held(0.0)
        assert not Lease().acts(0.0)
        assert not Lease().settled(0.0)

    def test_it_counts_from_when_the_beat_was_sent(self) -> None:
        """Redis counts from when it came: later, so nobody takes over while we still act."""
        lease = self.beaten(sent=100.0, answered=102.0)
        assert lease.held(100.0 + LEASE_SECONDS - MARGIN_SECONDS - 0.01)
        assert not lease.held(100.0 + LEASE_SECONDS - MARGIN_SECONDS)

    def test_silence_ends_it(self) -> None:
        """We may be the only one who hears nothing."""
        lease = self.beaten()
        lease.missed()
        assert lease.acts(101.0)
        for later in (103.5, 110.0, 1000.0):
            assert not lease.acts(later)
            assert not lease.alone(later)

    def test_a_refusal_proves_that_there_is_no_redis_for_as_long_as_it_is_fresh(self) -> None:
        lease = self.beaten()
        for at in range(101, 200):
            lease.refused(float(at))
            assert lease.acts(at + 0.9)
        assert not lease.acts(199.0 + PROVEN_SECONDS + 0.01)

    def test_so_does_everybodys_word_that_it_is_silent(self) -> None:
        lease = self.beaten()
        lease.missed()
        for at in range(101, 200):
            lease.silent(float(at))
            assert lease.acts(at + 0.9)
        assert not lease.acts(199.0 + PROVEN_SECONDS + 0.01)

    def test_nobodys_word_counts_against_an_answer(self) -> None:
        lease = self.beaten()
        lease.silent(101.0)
        assert not lease.no_redis(101.0)

    def test_alone_begins_only_after_redis_too_would_call_the_lease_ended(self) -> None:
        lease = self.beaten(sent=100.0)
        lease.refused(102.95)
        assert lease.acts(102.95)
        assert not lease.alone(100.0 + LEASE_SECONDS + ALONE_AFTER_SECONDS - 0.01)
        assert lease.alone(100.0 + LEASE_SECONDS + ALONE_AFTER_SECONDS + 0.01)

    def test_an_answer_ends_being_alone(self) -> None:
        lease = self.beaten()
        lease.refused(110.0)
        assert lease.alone(110.1)
        lease.beaten(110.2, 110.3, 0.0)
        assert not lease.alone(110.3)
        assert lease.held(110.3)

    def test_a_thawed_process_holds_nothing_before_it_has_asked(self) -> None:
        lease = self.beaten(sent=100.0)
        lease.refused(101.0)
        assert not lease.acts(160.0)

    def test_the_dead_are_inherited_at_once_where_redis_was_never_away(self) -> None:
        assert self.beaten(uptime=9999.0).settled(100.3)

    def test_a_redis_that_has_just_started_leaves_time_to_whoever_acted_alone(self) -> None:
        lease = self.beaten(answered=100.2, uptime=1.0)
        assert not lease.settled(100.2 + GRACE_SECONDS - 1.1)
        assert lease.settled(100.2 + GRACE_SECONDS - 0.9)

    def test_so_does_one_that_has_just_come_back_into_reach(self) -> None:
        lease = self.beaten()
        lease.missed()
        assert not lease.settled(100.5)
        lease.beaten(101.0, 101.0, 9999.0)
        lease.beaten(102.0, 102.0, 9999.0)
        assert not lease.settled(101.0 + GRACE_SECONDS - 0.1)
        assert lease.settled(101.0 + GRACE_SECONDS)

    def test_and_one_that_has_lost_what_it_had(self) -> None:
        lease = self.beaten()
        lease.lost(101.0)
        assert not lease.held(101.0)
        lease.beaten(101.0, 101.0, 9999.0)
        assert not lease.settled(101.0 + GRACE_SECONDS - 0.1)
        assert lease.settled(101.0 + GRACE_SECONDS)

    def test_a_lease_that_ended_in_its_time_tells_nothing_about_the_others(self) -> None:
        lease = self.beaten()
        lease.lost(110.0)
        lease.beaten(110.0, 110.0, 9999.0)
        assert lease.settled(110.0)

    def test_whoever_acts_alone_has_noticed_before_anybody_may_take_over(self) -> None:
        """The inequality behind it: what a refusal is worth, and a look, pass before the grace ends."""
        assert PROVEN_SECONDS + RETRY_SECONDS < GRACE_SECONDS
        assert LEASE_SECONDS + 2 * BEAT_SECONDS < 5.0


class TestPreference:
    @given(names, members)
    def test_it_is_one_of_the_members_and_the_same_for_everyone(self, workloads: list[str], those: set[str]) -> None:
        for name in workloads:
            assert preferred(name, sorted(those)) == preferred(name, sorted(those, reverse=True))
            assert preferred(name, those) in those

    @given(names, members, st.sampled_from(["red", "green", "blue"]))
    def test_who_leaves_moves_only_its_own(self, workloads: list[str], those: set[str], leaving: str) -> None:
        rest = those - {leaving}
        for name in workloads:
            before = preferred(name, those)
            assert before == leaving or preferred(name, rest) == before

    def test_shares_are_fair_enough(self) -> None:
        shares = [preferred(f"prod/m-{n}", ("red", "green", "blue")) for n in range(3000)]
        assert all(850 < shares.count(each) < 1150 for each in ("red", "green", "blue"))

    def test_nobody_is_preferred_among_none(self) -> None:
        assert preferred("prod/m", ()) is None


RED, GREEN = "red#1", "green#4"
#: One workload that prefers each.
OF_RED = next(name for name in (f"prod/m-{n}" for n in range(99)) if preferred(name, ("red", "green")) == "red")
OF_GREEN = next(name for name in (f"prod/m-{n}" for n in range(99)) if preferred(name, ("red", "green")) == "green")
BOTH = frozenset((RED, GREEN))


def red_should(
    owners: dict[str, str | None],
    held: frozenset[str] = frozenset(),
    living: frozenset[str] = BOTH,
    steady: frozenset[str] = BOTH,
    settled: bool = True,
    patience_over: frozenset[str] = frozenset(),
) -> Plan:
    return plan(RED, owners, held=held, living=living, steady=steady, settled=settled, patience_over=patience_over)


class TestPlan:
    def test_what_nobody_owns_goes_to_whom_it_prefers(self) -> None:
        assert red_should({OF_RED: None, OF_GREEN: None}) == Plan(claim=(OF_RED,))

    def test_the_workloads_of_one_card_prefer_one_scaler(self) -> None:
        names = {f"prod/m-{number}": None for number in range(9)}
        card = next(name for name in (f"gpu-{n}" for n in range(99)) if preferred(name, ("red", "green")) == "red")
        together = dict.fromkeys(names, card)
        all_of_them = plan(RED, names, held=frozenset(), living=BOTH, steady=BOTH, settled=True, together=together)
        assert set(all_of_them.claim) == set(names)
        theirs = plan(GREEN, names, held=frozenset(names), living=BOTH, steady=BOTH, settled=True, together=together)
        assert set(theirs.hand_over) == set(names)
        assert 0 < len(red_should(names).claim) < len(names)

    def test_what_the_living_own_is_left(self) -> None:
        assert red_should({OF_RED: GREEN}) == Plan()

    def test_what_the_dead_owned_is_taken(self) -> None:
        assert red_should({OF_RED: "blue#1"}) == Plan(claim=(OF_RED,))

    def test_an_ended_session_of_a_living_scaler_is_dead(self) -> None:
        assert red_should({OF_RED: "green#3"}) == Plan(claim=(OF_RED,))

    def test_the_only_one_left_takes_everything(self) -> None:
        only = frozenset((RED,))
        assert red_should({OF_RED: None, OF_GREEN: GREEN}, living=only) == Plan(claim=(OF_RED, OF_GREEN))

    def test_nothing_is_taken_in_the_time_of_grace(self) -> None:
        assert red_should({OF_RED: None, OF_GREEN: "blue#1"}, settled=False) == Plan()

    def test_what_waits_too_long_for_its_preferred_is_taken_by_anyone(self) -> None:
        assert red_should({OF_GREEN: None}, patience_over=frozenset((OF_GREEN,))) == Plan(claim=(OF_GREEN,))

    def test_ours_without_the_token_is_claimed_again(self) -> None:
        """The answer to the claim was lost."""
        assert red_should({OF_RED: RED}) == Plan(claim=(OF_RED,))

    def test_ours_is_kept(self) -> None:
        assert red_should({OF_RED: RED}, held=frozenset((OF_RED,))) == Plan()

    def test_what_prefers_another_is_handed_over_once_that_one_has_lived_for_a_while(self) -> None:
        held = frozenset((OF_GREEN,))
        assert red_should({OF_GREEN: RED}, held=held) == Plan(hand_over=(OF_GREEN,))
        assert red_should({OF_GREEN: RED}, held=held, steady=frozenset((RED,))) == Plan()

    def test_nothing_is_handed_to_the_dead(self) -> None:
        """Steady is what it was until it died."""
        assert red_should({OF_GREEN: RED}, held=frozenset((OF_GREEN,)), living=frozenset((RED,))) == Plan()

    @given(names, st.sets(st.sampled_from(["red#1", "green#1", "blue#1"]), min_size=1), st.data())
    def test_everyone_together_takes_all_that_is_free_and_nothing_twice(
        self, workloads: list[str], living: set[str], data: st.DataObject
    ) -> None:
        owners = {
            name: data.draw(st.sampled_from(["red#1", "green#1", "blue#1", "grey#1", None])) for name in workloads
        }
        taken: list[str] = []
        for session in living:
            mine = frozenset(name for name, owner in owners.items() if owner == session)
            todo = plan(session, owners, held=mine, living=frozenset(living), steady=frozenset(living), settled=True)
            assert set(todo.hand_over) <= mine
            taken += todo.claim
        assert sorted(taken) == sorted(name for name, owner in owners.items() if owner not in living)

    def test_a_session_has_its_members_name(self) -> None:
        assert member_of("pod-7f#2-9ab#12") == "pod-7f#2-9ab"


class TestHeld:
    """What may be said while Redis has not confirmed it."""

    stored = StoredWorkload(Memory(), None, {}, datetime(2026, 1, 5, tzinfo=UTC), "", 0.0, 0)
    active = snapshot()
    idle = snapshot(targets=replace(active.decision.targets, active=False, replicas=0))

    def test_the_first_decision_of_all_contradicts_nobody(self) -> None:
        held = Held(7, None, 1)
        held.decided(self.active, self.stored)
        assert not held.contradicts()

    def test_a_successor_may_not_contradict_before_its_word_is_written(self) -> None:
        held = Held(7, self.active, 1)
        held.decided(self.idle, self.stored)
        assert held.contradicts()
        held.confirm(self.idle, restarts=1)
        assert not held.contradicts()
        assert held.confirmed_at == 1

    def test_to_and_fro_contradicts_too(self) -> None:
        """One of the writes in between may have arrived."""
        held = Held(7, self.active, 1)
        held.decided(self.idle, self.stored)
        held.decided(self.active, self.stored)
        assert held.contradicts()

    def test_a_late_confirmation_of_an_older_word_confirms_nothing(self) -> None:
        held = Held(7, self.active, 1)
        held.decided(self.active, self.stored)
        held.decided(self.idle, self.stored)
        held.confirm(self.active, restarts=1)
        assert held.contradicts()
        assert held.confirmed_at is None

    def test_what_is_being_written_is_not_told_yet(self) -> None:
        held = Held(7, self.active, 1)
        assert held.told(self.active)
        held.decided(self.idle, self.stored)
        assert not held.told(self.active)
        assert held.told(self.idle)

    def test_versions_rise(self) -> None:
        first, other = Held(7, None, 1), Held(8, None, 1)
        assert first.next_version() < first.next_version() < other.next_version()


class TestSuccession:
    memory = Memory(state=LoadState.IDLE, idle_seconds=100.0)

    def workload(self) -> Workload:
        return Workloads(PolicyFile.empty(), tick_seconds=5).register("prod/m", {})

    def text(self, saved: datetime, boot_id: str = "another host's", boot_mono: float = 0.0) -> str:
        return to_json(StoredWorkload(self.memory, {}, {"http://a": [1.0, 2.0]}, saved, boot_id, boot_mono, 5))

    @pytest.mark.parametrize(
        ("by_redis", "by_hosts", "credited"), [(4.0, 4.0, 4.0), (4.0, 60.0, 4.0), (60.0, 4.0, 4.0), (4.0, -60.0, 0.0)]
    )
    def test_the_time_away_is_the_lesser_of_what_the_clocks_say(
        self, by_redis: float, by_hosts: float, credited: float
    ) -> None:
        workload, now = self.workload(), datetime(2026, 1, 5, 12, tzinfo=UTC)
        inherit(workload, self.text(now - timedelta(seconds=by_hosts)), by_redis, now)
        assert workload.away_seconds == pytest.approx(credited)
        assert (workload.memory, workload.generation) == (self.memory, 5)
        assert workload.watermark == {"http://a": [1.0, 2.0]}

    def test_on_one_host_its_boot_clock_tells(self) -> None:
        workload, now = self.workload(), datetime(2026, 1, 5, 12, tzinfo=UTC)
        if not read_boot_id():
            pytest.skip("this system tells no boot id")
        inherit(workload, self.text(now - timedelta(days=9), read_boot_id(), boot_seconds() - 3.0), 60.0, now)
        assert workload.away_seconds == pytest.approx(3.0, abs=1.0)

    @pytest.mark.parametrize("text", [None, "", "{}", "not JSON"])
    def test_without_a_memory_it_starts_anew(self, text: str | None) -> None:
        """Also where this scaler had owned it before: what it remembers of then is older than what was lost."""
        workload = self.workload()
        workload.memory, workload.generation = self.memory, 3
        inherit(workload, text, 4.0, datetime(2026, 1, 5, tzinfo=UTC))
        assert (workload.memory, workload.generation, workload.watermark) == (Memory(), 0, None)


class TestSoleOwner:
    async def test_it_owns_answers_and_hears_everything_itself(self) -> None:
        workloads = Workloads(PolicyFile.empty(), tick_seconds=5)
        workload = workloads.register("prod/m", {"pushEnabled": "true"})
        owner = SoleOwner()
        assert owner.owns("prod/m")
        assert await owner.answer(workload) is None
        await owner.tell(workload, None)
        demand = workload.inbox.read(workloads.mono(), workload.resolved.policy.push)
        assert demand is not None
        assert demand.wake_requested

    def test_a_report_is_put_into_the_inbox(self) -> None:
        from scaler.serve.demand_body import DemandReport

        workloads = Workloads(PolicyFile.empty(), tick_seconds=5)
        workload = workloads.register("prod/m", {"pushEnabled": "true"})
        put(workload, DemandReport(3.0, 1.5, "gateway"))
        demand = workload.inbox.read(workloads.mono(), workload.resolved.policy.push)
        assert demand is not None
        assert (demand.pending, demand.arrivals_per_second) == (3.0, 1.5)


class TestMetrics:
    def test_who_owns_and_whether_it_is_stored(self) -> None:
        class Half(SoleOwner):
            def owns(self, name: str) -> bool:
                return name == "prod/ours"

        workloads, said = Workloads(PolicyFile.empty(), tick_seconds=5), ["disk full"]
        for name in ("prod/ours", "prod/theirs"):
            workloads.register(name, {})
        registry = CollectorRegistry()
        registry.register(OwnerCollector(workloads, Half(), lambda: said[0] if said else None))

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(name, labels)

        assert value("loadtide_owner", namespace="prod", workload="ours") == 1
        assert value("loadtide_owner", namespace="prod", workload="theirs") == 0
        assert value("loadtide_store_up") == 0
        said.clear()
        assert value("loadtide_store_up") == 1


class TestWhetherThereIsARedis:
    """Only a refusal is proof that there is none."""

    async def test_a_port_that_refuses_has_none(self) -> None:
        with socket.create_server(("127.0.0.1", free_port())) as listening:
            port = listening.getsockname()[1]
            assert not await RedisLink(f"redis://127.0.0.1:{port}").refuses()  # silent, but there
        assert await RedisLink(f"redis://127.0.0.1:{port}").refuses()

    @pytest.mark.parametrize(
        ("error", "proof"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False), (socket.EAI_FAIL, False)]
    )
    async def test_a_name_without_address_has_none_and_a_silent_name_server_proves_nothing(
        self, monkeypatch: pytest.MonkeyPatch, error: int, proof: bool
    ) -> None:
        async def getaddrinfo(*_: object, **__: object) -> None:
            raise socket.gaierror(error, "as the name server says")

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        assert await RedisLink("redis://redis:6379").refuses() is proof

    async def test_no_route_and_a_time_limit_prove_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for problem in (OSError(errno.EHOSTUNREACH, "no route"), TimeoutError()):

            async def connect(*_: object, problem: Exception = problem) -> None:
                raise problem

            monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
            assert not await RedisLink("redis://127.0.0.1:6379").refuses()


class TestUrl:
    def test_a_password_is_not_shown(self) -> None:
        assert RedisLink("redis://user:secret@redis:6380/2").where == "redis:6380"

    @pytest.mark.parametrize(
        "url",
        [
            *("memcached://redis:6379", "redis://", "redis:///0", "http://u:secret@redis"),
            *("redis://u:secret/1@redis:6379", "redis://:secret/1@redis:6379"),
        ],
    )
    def test_another_kind_of_url_is_refused_without_its_secret(self, url: str) -> None:
        with pytest.raises(ValueError, match="for example redis://") as refusal:
            RedisLink(url)
        assert "secret" not in str(refusal.value)

    @pytest.mark.parametrize("password", ["sec/ret", "sec#ret", "sec?ret", "sec[ret", "/secret", "6/secret"])
    def test_a_password_with_a_sign_that_ends_it_is_refused_in_words_that_do_not_hold_it(self, password: str) -> None:
        with pytest.raises(ValueError, match="%2F") as refusal:
            RedisLink(f"redis://:{password}@redis:6379/0")
        assert "sec" not in str(refusal.value)
        assert "ret" not in str(refusal.value)

    def test_a_database_that_is_no_number_is_refused(self) -> None:
        """redis-py takes it for 0, where another loadtide may be."""
        with pytest.raises(ValueError, match="NUMBER"):
            RedisLink("redis://redis:6379/team-a")

    @pytest.mark.parametrize("query", ["timeout=5", "ssl_ca_certs=/ca.pem", "socket_timeout=soon"])
    def test_an_option_that_is_none_is_refused(self, query: str) -> None:
        with pytest.raises(ValueError, match="redis:6379 has an option"):
            RedisLink(f"redis://:secret@redis:6379/0?{query}")
