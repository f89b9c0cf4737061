"""A shared card in the server: parts are told in an order that never exceeds it, whoever owns its members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from scaler.control.model import Code
from scaler.policy.layers import PolicyFile
from scaler.serve.loop import Loop
from scaler.serve.ownership import SoleOwner, Superseded
from scaler.serve.render import workload_detail
from scaler.serve.snapshot import Snapshot
from scaler.serve.store import MemoryStore, StoredWorkload
from scaler.serve.workloads import Workload, Workloads
from scaler.signals.observation import Demand, Observation
from tests.signals.timeline import UNIX, pod

POLICY = """
defaults:
  engine: {engine}
  push: {{enabled: true}}
  replicas: {{max: 4}}
  batch: {{min: 2, max: 128, batching: continuous}}
workloads:
  card/a: {{scrape: {{urls: ["http://a/metrics"]}}, gpu_group: {{name: gpu-0, share_ratio: 0.5, batch: 32}}}}
  card/b: {{scrape: {{urls: ["http://b/metrics"]}}, gpu_group: {{name: gpu-0, share_ratio: 0.5, batch: 32}}}}
"""


class Owner(SoleOwner):
    """Owns what it is told to own, writes what it is told to write; every published part, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: set[str] = set()
        self.superseded: set[str] = set()
        self.unwritten: set[str] = set()
        self.told: list[tuple[str, int | None, float, float]] = []

    def owns(self, name: str) -> bool:
        return name not in self.foreign

    def at_hand(self, workload: Workload) -> Snapshot | None:
        return None if workload.name in self.unwritten else workload.snapshot

    async def publish(self, workload: Workload, snapshot: Snapshot, stored: Callable[[], StoredWorkload]) -> None:
        if workload.name in self.superseded:
            self.foreign.add(workload.name)
            raise Superseded
        card = snapshot.decision.next_memory.card
        assert card is None or stored().memory.card == card
        if card is not None:
            self.told.append((workload.name, snapshot.decision.targets.batch, card.time, card.memory))


class Rig:
    """Two workloads on one card, judged on pages of the test's own, 5 s apart."""

    def __init__(self, engine: str = "vllm", store: MemoryStore | None = None) -> None:
        self.mono = 100.0
        self.owner = Owner()
        self.workloads = Workloads(
            PolicyFile.parse("policy.yaml", POLICY.format(engine=engine)),
            tick_seconds=5.0,
            mono=lambda: self.mono,
            utc=lambda: datetime.fromtimestamp(UNIX, UTC) + timedelta(seconds=self.mono),
        )
        self.workloads.ownership = self.owner
        self.loop = Loop(self.workloads, store or MemoryStore())
        self.finished = 0

    def of(self, name: str) -> Workload:
        workload = self.workloads.get(f"card/{name}")
        assert workload is not None
        return workload

    def batch(self, name: str) -> int | None:
        snapshot = self.of(name).snapshot
        assert snapshot is not None
        return snapshot.decision.targets.batch

    async def judge(self, name: str, running: float = 0, pending: float = 0, awake: float = 1) -> None:
        """One reading of a workload: so many running; idle ones finish nothing."""
        self.finished += running > 0
        sample = pod(
            running=running, waiting=0, kv_use=0.1, awake_engines=awake,
            finished={name: float(self.finished if running else 0)},
        )  # fmt: skip
        demand = Demand(self.mono, pending, False)
        page = {f"http://{name}/metrics": replace(sample, at=self.mono)}
        await self.loop._judge(self.of(name), Observation(self.mono, page, demand=demand))

    async def ticks(self, count: int = 3, **running: float) -> None:
        for _ in range(count):
            self.mono += 5.0
            for name, value in running.items():
                await self.judge(name, value)

    def never_exceeded(self) -> None:
        """Whatever was published, in the order in which it was."""
        now: dict[str, tuple[float, float]] = {}
        for name, _, time, memory in self.owner.told:
            now[name] = time, memory
            assert sum(each[0] for each in now.values()) <= 1.0 + 1e-9
            assert sum(each[1] for each in now.values()) <= 1.0 + 1e-9


async def test_an_idle_one_lends_and_has_it_back_in_the_tick_of_its_first_request() -> None:
    rig = Rig()
    await rig.ticks(a=30, b=0)
    assert (rig.batch("a"), rig.batch("b")) == (62, 2)
    generation = rig.of("a").generation
    await rig.judge("b", pending=1)
    assert (rig.batch("a"), rig.batch("b")) == (32, 32)
    assert rig.of("a").generation == generation + 1  # told anew, without a reading of its own
    assert [name for name, *_ in rig.owner.told[-2:]] == ["card/a", "card/b"]  # down before up
    rig.never_exceeded()


async def test_why_is_told() -> None:
    rig = Rig()
    await rig.ticks(a=30, b=0)
    for name, code in (("a", Code.CARD_BORROWED), ("b", Code.CARD_LENT)):
        snapshot = rig.of(name).snapshot
        assert snapshot is not None
        assert code in {reason.code for reason in snapshot.decision.reasons}
    sharing = [rig.of("a"), rig.of("b")]
    document = workload_detail(rig.of("b"), rig.mono, current=True, sharing=sharing)["card"]
    part = {"own": 0.5, "time": 0.0312, "memory": 0.5, "batch_size": 2}
    assert document.items() >= {"name": "gpu-0", **part}.items()
    assert document["members"][1] == {"workload": "card/b", "state": "idle", **part}
    assert document["nobodys"] == {"time": 0.0, "memory": 0.0}


async def test_unchanged_parts_are_no_news() -> None:
    rig = Rig()
    await rig.ticks(a=30, b=0)
    generations = rig.of("a").generation, rig.of("b").generation
    await rig.ticks(5, a=30, b=0)
    assert (rig.of("a").generation, rig.of("b").generation) == generations


@pytest.mark.parametrize(("engine", "borrowed"), [("vllm", 62), ("triton", 62)])
async def test_two_of_a_kind_lend_what_that_kind_can(engine: str, borrowed: int) -> None:
    rig = Rig(engine)
    await rig.ticks(a=30, b=0)
    assert rig.batch("a") == borrowed
    memory = rig.of("b").memory.card
    assert memory is not None
    assert memory.memory == (0.5 if engine == "vllm" else 0.03125)


async def test_a_restart_goes_on_from_the_parts_that_were_told() -> None:
    store = MemoryStore()
    before = Rig(store=store)
    await before.ticks(a=30, b=0)
    await before.loop._save()
    after = Rig(store=store)
    after.loop.restore()
    after.mono = before.mono + 20.0
    assert after.of("a").memory.card == before.of("a").memory.card
    await after.judge("b", pending=1)
    assert after.batch("b") == 2  # a runs what it was told before, until it has been decided again
    await after.judge("a", 30)
    await after.judge("b", pending=1)
    assert (after.batch("a"), after.batch("b")) == (32, 32)
    after.owner.told[:0] = before.owner.told
    after.never_exceeded()


async def test_whom_another_scaler_has_taken_gives_nothing_and_nobody_rises_on_it() -> None:
    rig = Rig()
    await rig.ticks(a=30, b=0)
    rig.owner.superseded.add("card/a")
    await rig.judge("b", pending=1)
    assert rig.batch("b") == 2
    rig.never_exceeded()


async def test_what_did_not_get_through_to_the_others_is_not_free_yet() -> None:
    rig = Rig()
    await rig.ticks(a=30, b=0)
    rig.owner.unwritten.add("card/a")
    await rig.judge("b", pending=1)
    assert rig.batch("b") == 2
    rig.owner.unwritten.clear()
    rig.mono += 5.0
    await rig.judge("b", pending=1)
    assert rig.batch("b") == 32
    rig.never_exceeded()


async def test_of_a_member_that_another_scaler_owns_only_what_was_heard_since_counts() -> None:
    rig = Rig()
    await rig.ticks(a=30, b=0)
    rig.owner.foreign.add("card/a")
    rig.mono += 5.0
    await rig.judge("b", pending=1)
    assert rig.batch("b") == 2  # a's copy is of before: it has borrowed, and may have more by now
    copy = rig.of("a").snapshot
    assert copy is not None
    card = copy.decision.next_memory.card
    assert card is not None
    back = replace(copy.decision.next_memory, card=replace(card, time=0.5, bound=32))
    decided = replace(copy.decided_at, mono=rig.mono)
    rig.of("a").snapshot = replace(copy, decided_at=decided, decision=replace(copy.decision, next_memory=back))
    rig.mono += 5.0
    await rig.judge("b", pending=1)
    assert rig.batch("b") == 32


async def test_one_that_leaves_its_card_is_bounded_no_longer() -> None:
    rig = Rig()
    await rig.ticks(a=30, b=0)
    resolved = rig.of("b").resolved
    alone = resolved.policy.model_copy(update={"gpu_group": type(resolved.policy.gpu_group)()})
    rig.of("b").resolved = replace(resolved, policy=alone)
    await rig.ticks(1, a=30, b=0)
    assert rig.batch("b") == 128
    assert rig.of("b").memory.card is None
