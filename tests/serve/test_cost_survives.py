"""What was learned of the season and spent of the budget goes on after a restart and with a new owner."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from scaler.control.budget import Bill
from scaler.control.model import Memory
from scaler.control.season import Season
from scaler.policy.layers import PolicyFile
from scaler.policy.model import Seasonal
from scaler.serve.loop import Loop
from scaler.serve.store import SqliteStore, StoredWorkload, boot_seconds, read_boot_id
from scaler.serve.succession import inherit, memory_text
from scaler.serve.workloads import Workload, Workloads
from tests.control.test_season import learned, office

NOW = datetime(2026, 6, 1, 8, tzinfo=UTC)
NAME = "chat/llama"
BILL = Bill(NOW, 321.0, 802.5, "2026-06", 61.0, 7, 36.0)


def kept(season: Season) -> StoredWorkload:
    memory = Memory(season=season, bill=BILL)
    return StoredWorkload(memory, None, {}, NOW, read_boot_id(), boot_seconds(), 3)


def begun() -> tuple[Workloads, Workload]:
    workloads = Workloads(PolicyFile.parse("policy.yaml", f"workloads: {{{NAME}: {{}}}}"), tick_seconds=5.0)
    workload = workloads.get(NAME)
    assert workload is not None
    return workloads, workload


def test_a_restart_on_the_same_file_keeps_both(tmp_path: Path) -> None:
    season, path = learned(office, until=NOW), tmp_path / "state.sqlite"
    store = SqliteStore(path)
    store.save({NAME: kept(season)})
    store.close()
    workloads, workload = begun()
    assert workload.memory.season.slots_known == 0
    again = SqliteStore(path)
    Loop(workloads, again).restore()
    again.close()
    assert (workload.memory.season, workload.memory.bill) == (season, BILL)
    nine = Seasonal().slot(NOW.replace(hour=9))
    assert workload.memory.season.usually(nine, "weekly") == season.usually(nine, "weekly") != 0


def test_a_new_owner_goes_on_from_both() -> None:
    season = learned(office, until=NOW)
    _, workload = begun()
    inherit(workload, memory_text(NAME, kept(season)), 2.0, NOW)
    assert (workload.memory.season, workload.memory.bill) == (season, BILL)
