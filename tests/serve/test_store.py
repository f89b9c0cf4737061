"""Memory that survives a restart, a kill in the middle, and a state file gone bad."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.control.model import Admission, LoadState, Memory, Targets
from scaler.control.season import Season, Skill
from scaler.serve.store import (
    MemoryStore,
    SqliteStore,
    Store,
    StoredWorkload,
    away_seconds,
    boot_seconds,
    from_json,
    read_boot_id,
    to_json,
)

ROOT = Path(__file__).resolve().parents[2]
NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)

MEMORY = Memory(
    targets=Targets(replicas=3, active=True, batch=48, token_budget=None, admission=Admission.HOLD),
    state=LoadState.HIGH,
    state_seconds=12.5,
    idle_seconds=0.1 + 0.2,
    failed_loads=1,
    needs=((0.0, 3), (41.5, 7)),
    jump_seconds=None,
    waiting=17.0,
    season=Season(
        zone="Europe/Berlin",
        period="weekly",
        slot=71_017_776,
        requests=12.0,
        seconds=600.0,
        levels="0A.." * 1344,
        slots_known=1344,
        weekly=Skill(96.0, 1.0, 10.0, 50.0),
        course=(0.25, None, 0.5),
        slot_foretold=0.5,
        today=Skill(3.0, 0.5, 1.0, 9.0),
    ),
)


def stored(memory: Memory = MEMORY, **changes: object) -> StoredWorkload:
    whole = StoredWorkload(
        memory=memory,
        metadata={"floor": "1"},
        watermark={"http://vllm:8000/metrics": {"started": 1.7e9, "requests": 123.0}},
        saved_utc=NOON,
        boot_id="boot-a",
        boot_mono=1000.0,
        generation=7,
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "loadtide.sqlite"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(path)
    yield made
    made.close()


def reopened(path: Path) -> dict[str, StoredWorkload]:
    store = SqliteStore(path)
    items = store.load()
    store.close()
    return items


class TestKeeping:
    def test_an_empty_store_knows_nothing(self, store: Store) -> None:
        assert store.load() == {}

    def test_what_was_saved_is_loaded(self, store: Store) -> None:
        items = {"prod/a": stored(), "prod/b": stored(Memory(), metadata=None, generation=0)}
        store.save(items)
        assert store.load() == items

    def test_only_what_is_passed_is_replaced(self, store: Store) -> None:
        store.save({"prod/a": stored(generation=1), "prod/b": stored(generation=1)})
        store.save({"prod/b": stored(generation=2)})
        assert {name: item.generation for name, item in store.load().items()} == {"prod/a": 1, "prod/b": 2}

    def test_forgotten_is_gone_and_unknown_is_no_error(self, store: Store) -> None:
        store.save({"prod/a": stored(), "prod/b": stored()})
        store.forget(["prod/a", "prod/never"])
        assert set(store.load()) == {"prod/b"}

    def test_the_clock_of_the_last_tick_is_not_kept(self, store: Store) -> None:
        store.save({"prod/a": stored(replace(MEMORY, tick_mono=5000.0))})
        assert store.load()["prod/a"].memory == MEMORY

    def test_it_is_there_after_a_restart(self, path: Path) -> None:
        first = SqliteStore(path)
        first.save({"prod/a": stored()})
        first.close()
        assert reopened(path) == {"prod/a": stored()}

    async def test_another_thread_may_save(self, path: Path) -> None:
        store = SqliteStore(path)
        await asyncio.gather(*(asyncio.to_thread(store.save, {f"prod/{n}": stored()}) for n in range(20)))
        assert len(store.load()) == 20
        assert store.trouble is None
        store.close()

    def test_only_the_owner_may_read_the_file(self, path: Path) -> None:
        """Metadata may hold secrets that KEDA resolved."""
        store = SqliteStore(path)
        store.save({"prod/a": stored()})
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        store.close()


def drawn(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, whatever fields the memory has by now; floats finite, as ``decide`` keeps them."""
    arguments = get_args(hint)
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if is_dataclass(hint):
        return st.builds(hint, **{name: drawn(kind) for name, kind in get_type_hints(hint).items()})
    if get_origin(hint) is UnionType:
        return st.one_of(*map(drawn, arguments))
    if get_origin(hint) is tuple:
        return st.lists(drawn(arguments[0])).map(tuple) if ... in arguments else st.tuples(*map(drawn, arguments))
    return st.from_type(hint)


class TestText:
    @given(drawn(Memory), st.dictionaries(st.text(), st.text()) | st.none())
    def test_every_memory_survives_json(self, memory: Memory, metadata: dict[str, str] | None) -> None:
        item = stored(memory, metadata=metadata)
        assert from_json(to_json(item)) == replace(item, memory=replace(memory, tick_mono=None))

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    def test_a_number_json_cannot_say_keeps_the_last_good_entry(self, path: Path, number: float) -> None:
        store = SqliteStore(path)
        store.save({"prod/a": stored(generation=1)})
        bad = stored(replace(MEMORY, waiting=number), generation=2)
        store.save({"prod/a": bad, "prod/b": stored(generation=2)})
        assert {name: item.generation for name, item in store.load().items()} == {"prod/a": 1, "prod/b": 2}
        store.close()

    def test_a_field_of_a_newer_loadtide_is_ignored_and_a_missing_one_has_its_default(self) -> None:
        body = json.loads(to_json(stored()))
        body["memory"]["invented_later"] = 1
        del body["memory"]["waiting"]
        assert from_json(json.dumps(body)).memory == replace(MEMORY, waiting=None)


#: Saves generation 1, 2, 3, ... of two workloads, each pair in one transaction, saying each once it is kept.
WRITER = """
import sys
from pathlib import Path
from tests.serve.test_store import SqliteStore, stored
store = SqliteStore(Path(sys.argv[1]))
generation = 0
while True:
    generation += 1
    store.save({"prod/a": stored(generation=generation), "prod/b": stored(generation=generation)})
    print(generation, flush=True)
"""


@pytest.mark.parametrize("enough", [1, 40, 333])
def test_a_kill_in_the_middle_loses_nothing_that_was_kept(path: Path, enough: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        kept = 0
        for line in writer.stdout:
            kept = int(line)
            if kept >= enough:
                break
        writer.send_signal(signal.SIGKILL)
        kept = max([kept, *(int(line) for line in writer.stdout.read().split("\n")[:-1] if line)])
    items = reopened(path)
    assert set(items) == {"prod/a", "prod/b"}
    assert items["prod/a"].generation == items["prod/b"].generation
    assert kept <= items["prod/a"].generation <= kept + 1
    assert list(path.parent.glob("*.corrupt-*")) == []


class TestTrouble:
    """Nothing here raises: a scaler with a bad state file is a scaler that forgets at its next restart."""

    def aside(self, path: Path) -> list[Path]:
        return sorted(path.parent.glob(f"{path.name}.corrupt-*Z"))

    def check_it_works(self, path: Path) -> None:
        store = SqliteStore(path)
        assert store.load() == {}
        assert store.trouble is None
        store.save({"prod/a": stored()})
        store.close()
        assert set(reopened(path)) == {"prod/a"}

    @pytest.mark.parametrize("content", [b"not a database at all, but long enough to have a header" * 100, b"x"])
    def test_a_file_that_is_no_database_is_moved_aside(self, path: Path, content: bytes) -> None:
        path.parent.mkdir()
        path.write_bytes(content)
        self.check_it_works(path)
        (moved,) = self.aside(path)
        assert moved.read_bytes() == content

    def test_an_empty_file_is_a_new_one(self, path: Path) -> None:
        path.parent.mkdir()
        path.touch()
        self.check_it_works(path)
        assert self.aside(path) == []

    def test_a_damaged_file_is_moved_aside(self, path: Path) -> None:
        store = SqliteStore(path)
        store.save({f"prod/{number}": stored() for number in range(200)})
        store.close()
        content = bytearray(path.read_bytes())
        content[8192:20480] = bytes(12288)
        path.write_bytes(content)
        self.check_it_works(path)
        assert len(self.aside(path)) == 1

    def test_damage_while_running_costs_the_past_but_not_the_tick(self, path: Path) -> None:
        store = SqliteStore(path)
        store.save({f"prod/{number}": stored() for number in range(200)})
        store.close()
        store = SqliteStore(path)
        other = sqlite3.connect(path)
        other.execute("DELETE FROM workload WHERE name = 'prod/7'")
        other.commit()  # so that the store must read the file again
        with path.open("r+b") as file:
            file.write(b"\xff" * path.stat().st_size)
        store.save({"prod/a": stored()})
        assert store.trouble is None
        assert store.load() == {"prod/a": stored()}
        assert len(self.aside(path)) == 1
        other.close()
        store.close()

    @pytest.mark.parametrize(
        "script",
        [
            "CREATE TABLE theirs (x)",
            "CREATE TABLE workload (name, body); PRAGMA application_id = 1",
            "CREATE TABLE theirs (x); PRAGMA application_id = 0x6C746465; PRAGMA user_version = 1",
            "CREATE TABLE workload (name, body); PRAGMA application_id = 0x6C746465; PRAGMA user_version = 99",
        ],
    )
    def test_another_programs_or_a_newer_loadtides_file_is_moved_aside(self, path: Path, script: str) -> None:
        path.parent.mkdir()
        theirs = sqlite3.connect(path)
        theirs.executescript(script)
        theirs.close()
        self.check_it_works(path)
        assert len(self.aside(path)) == 1

    @pytest.mark.parametrize("body", ["{", "{}", "null", '{"memory": {"state": "invented"}}', b"\xff\xfe", ""])
    def test_an_entry_that_does_not_parse_loses_only_itself(self, path: Path, body: str | bytes) -> None:
        store = SqliteStore(path)
        store.save({"prod/a": stored(), "prod/b": stored()})
        store.close()
        by_hand = sqlite3.connect(path)
        by_hand.execute("UPDATE workload SET body = CAST(? AS TEXT) WHERE name = 'prod/b'", (body,))
        by_hand.commit()
        by_hand.close()
        assert set(reopened(path)) == {"prod/a"}
        assert self.aside(path) == []

    def test_a_locked_file_is_told_and_the_next_save_is_kept(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scaler.serve.store.BUSY_SECONDS", 0.05)
        store = SqliteStore(path)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        store.save({"prod/a": stored()})
        assert store.trouble is not None
        assert "locked" in store.trouble
        other.execute("COMMIT")
        other.close()
        store.save({"prod/b": stored()})
        assert store.trouble is None
        assert set(store.load()) == {"prod/b"}
        store.close()
        assert self.aside(path) == []

    def test_a_path_that_cannot_be_a_file_is_told(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path)
        assert store.trouble is not None
        assert str(tmp_path) in store.trouble
        store.save({"prod/a": stored()})
        store.forget(["prod/a"])
        assert store.load() == {}
        store.close()
        assert tmp_path.is_dir()


class TestTimeAway:
    def test_within_one_boot_the_boot_clock_tells(self) -> None:
        an_hour_set_back = NOON - timedelta(hours=1)
        assert away_seconds(stored(), an_hour_set_back, "boot-a", 1042.5) == 42.5

    @pytest.mark.parametrize("boot_id", ["boot-b", ""])
    def test_across_boots_the_wall_clock_tells(self, boot_id: str) -> None:
        assert away_seconds(stored(), NOON + timedelta(seconds=90), boot_id, 5.0) == 90.0

    def test_a_wall_clock_set_back_counts_as_no_time(self) -> None:
        assert away_seconds(stored(), NOON - timedelta(seconds=90), "boot-b", 5.0) == 0.0

    def test_two_systems_without_boot_ids_are_not_one_boot(self) -> None:
        assert away_seconds(stored(boot_id=""), NOON + timedelta(seconds=3), "", 2000.0) == 3.0

    def test_a_boot_clock_that_ran_backwards_is_not_believed(self) -> None:
        assert away_seconds(stored(), NOON + timedelta(seconds=3), "boot-a", 999.0) == 3.0

    def test_the_boot_id_is_stable_and_absent_is_empty(self, tmp_path: Path) -> None:
        assert read_boot_id() == read_boot_id()
        assert read_boot_id(tmp_path / "absent") == ""

    def test_the_boot_clock_runs(self) -> None:
        before = boot_seconds()
        time.sleep(0.01)
        assert boot_seconds() > before
