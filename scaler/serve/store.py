"""Memory that survives a restart: what was last known of each workload, in a file or (for tests and labs) in a dict.

Trouble with the state file never stops the scaler: it then runs on what is in memory, says so, and a restart is just
"active" instead of resuming its timers.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import structlog
from pydantic import AwareDatetime, TypeAdapter, ValidationError

from scaler.control.model import Memory
from scaler.value import frozen

log = structlog.get_logger(__name__)

#: Written into the file's header, so that another program's database is not taken for ours ("ltde").
APPLICATION_ID = 0x6C746465
#: The layout of the file; rises when an older loadtide could not read it.
SCHEMA_VERSION = 1
#: How long a save waits for another process (the one being replaced in a rollout) to finish its own, seconds.
BUSY_SECONDS = 1.0

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@frozen
class StoredWorkload:
    """One workload as it was when saved.

    ``watermark`` is whatever the loop needs to tell that nothing happened meanwhile (counters, process start times),
    as JSON values. ``boot_mono`` is the boot clock in seconds; it compares only under the same ``boot_id``.
    ``wake_age_seconds`` is how old a wake was that no replica had answered yet; None: there was none.
    ``metadata`` is the ScaledObject's, without what came from the environment
    (:func:`scaler.policy.metadata.storable`); None for a workload of the policy file. A stored memory has no
    ``tick_mono``.
    """

    memory: Memory
    metadata: dict[str, str] | None
    watermark: dict[str, Any]
    saved_utc: AwareDatetime
    boot_id: str
    boot_mono: float
    generation: int
    wake_age_seconds: float | None = None


class Store(Protocol):
    """Where workloads are kept. A name is the workload's ``namespace/name``."""

    #: What is wrong with it now, in words; None while all is well.
    trouble: str | None

    def load(self) -> dict[str, StoredWorkload]:
        """Everything kept. An entry that cannot be read is left out, with a warning."""

    def save(self, items: Mapping[str, StoredWorkload]) -> None:
        """Keep ``items``, all or none of them; other names stay as they are."""

    def forget(self, names: Iterable[str]) -> None:
        """Drop these names; unknown ones are no error."""

    def close(self) -> None:
        """Let go of the file. The store is not used afterwards."""


class MemoryStore:
    """A store that lasts as long as its process."""

    trouble: str | None = None

    def __init__(self) -> None:
        self._items: dict[str, StoredWorkload] = {}

    def load(self) -> dict[str, StoredWorkload]:
        return dict(self._items)

    def save(self, items: Mapping[str, StoredWorkload]) -> None:
        self._items |= {name: _at_rest(item) for name, item in items.items()}

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._items.pop(name, None)

    def close(self) -> None:
        pass


class SqliteStore:
    """A store in one SQLite file, safe to be called from one thread at a time, whichever that is.

    Write-ahead log with ``synchronous=NORMAL``: a killed process loses nothing that was committed; a power cut may
    lose the last ticks but never the file. A file that is damaged, another program's, or of a newer loadtide is moved
    aside to ``<path>.corrupt-<utc>`` and an empty one begun. Methods raise no SQLite error; :attr:`trouble` tells.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        #: What is wrong with the file now, in words; None while all is well.
        self.trouble: str | None = None
        with self._lock:
            self._attempt(lambda _: None)

    def load(self) -> dict[str, StoredWorkload]:
        with self._lock:
            rows: list[tuple[str, str]] = []
            self._attempt(lambda connection: rows.extend(connection.execute("SELECT name, body FROM workload")))
        items = {}
        for name, body in rows:
            try:
                items[name] = from_json(body)
            except ValidationError as error:
                log.warning("stored workload unreadable, it starts anew", workload=name, problem=str(error))
        return items

    def save(self, items: Mapping[str, StoredWorkload]) -> None:
        rows = []
        for name, item in items.items():
            try:
                rows.append((name, to_json(item)))
            except ValueError as error:  # the last good one stays
                log.warning("workload not stored, it holds a number JSON cannot say", workload=name, problem=str(error))
        upsert = "INSERT INTO workload (name, body) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET body = excluded.body"
        with self._lock:
            self._attempt(lambda connection: connection.executemany(upsert, rows))

    def forget(self, names: Iterable[str]) -> None:
        rows = [(name,) for name in names]
        with self._lock:
            self._attempt(lambda connection: connection.executemany("DELETE FROM workload WHERE name = ?", rows))

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _attempt(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Do ``work(connection)`` in one transaction, opening the file where it is not open.

        Damage: move the file aside and do it on a new one. Other trouble (locked, full, read-only): say it once, and
        the next call tries again.
        """
        for again in (True, False):
            try:
                if self._connection is None:
                    self._connection = _open(self._path)
                with self._connection:
                    self._connection.execute("BEGIN")
                    work(self._connection)
            except (sqlite3.Error, _NotOurs, OSError) as error:
                self._disconnect()
                if again and _is_damage(error) and self._move_aside(error):
                    continue
                self._say(f"{self._path}: {error}")
            else:
                self._say(None)
            return

    def _move_aside(self, cause: Exception) -> bool:
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        aside = Path(f"{self._path}.corrupt-{stamp}")
        try:
            os.replace(self._path, aside)
            for suffix in ("-wal", "-shm"):  # they belong to the old file, and would damage the new one
                if os.path.exists(f"{self._path}{suffix}"):
                    os.replace(f"{self._path}{suffix}", f"{aside}{suffix}")
        except OSError as error:
            log.warning("state file unusable and not movable", path=str(self._path), problem=str(error))
            return False
        log.warning(
            "state file unusable, moved aside; starting with an empty one",
            path=str(self._path),
            moved_to=str(aside),
            problem=str(cause),
        )
        return True

    def _say(self, trouble: str | None) -> None:
        if trouble is not None and self.trouble is None:
            log.warning("state is not being stored; a restart would not resume its timers", problem=trouble)
        elif trouble is None and self.trouble is not None:
            log.info("state is being stored again", path=str(self._path))
        self.trouble = trouble

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_HEADER = b"SQLite format 3\0"


class _NotOurs(Exception):  # noqa: N818 -- it names what the file is
    """A file that is damaged, or that another program or a newer loadtide wrote."""


def _open(path: Path) -> sqlite3.Connection:
    """The file, checked and with our layout. Raises sqlite3.Error, OSError or _NotOurs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.touch(mode=0o600)  # metadata is nobody else's to read, though no secret of ``...FromEnv`` is in it
    with path.open("rb") as file:
        # SQLite takes a file shorter than its own header for an empty one, and would write over somebody's notes.
        if file.read(len(_HEADER)) not in (b"", _HEADER):
            raise _NotOurs("it is no SQLite file")
    # isolation_level None: transactions are begun by hand, and the pragmas run outside of any.
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")  # a bad byte must cost one entry, not all

    def ask(question: str) -> Any:
        return connection.execute(question).fetchone()[0]

    try:
        if (damage := ask("PRAGMA quick_check(1)")) != "ok":
            raise _NotOurs(f"damaged: {damage}")
        # In this order: another process may lay out the file between two of these questions.
        empty = ask("SELECT count(*) FROM sqlite_master") == 0
        if not empty and ask("PRAGMA application_id") != APPLICATION_ID:
            raise _NotOurs("it is another program's database")
        if (version := ask("PRAGMA user_version")) > SCHEMA_VERSION:
            raise _NotOurs(f"its layout is {version}, of a newer loadtide; this one reads up to {SCHEMA_VERSION}")
        ask("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if empty:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                connection.execute("CREATE TABLE IF NOT EXISTS workload (name TEXT PRIMARY KEY, body TEXT NOT NULL)")
    except BaseException:
        connection.close()
        raise
    return connection


#: SQLITE_ERROR is "no such table" and the like: the stamp is ours and the layout is not.
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def _is_damage(error: Exception) -> bool:
    """Whether only a new file helps. Locked, full, read-only and missing permission pass by themselves."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, _NotOurs) or primary in _DAMAGE


_STORED = TypeAdapter(StoredWorkload)


def _at_rest(item: StoredWorkload) -> StoredWorkload:
    """Without the last tick's monotonic time, which means nothing to another process."""
    return replace(item, memory=replace(item.memory, tick_mono=None))


def to_json(item: StoredWorkload) -> str:
    """One entry as JSON text. Raises ValueError for NaN or an infinity, which JSON cannot say."""
    return json.dumps(_STORED.dump_python(_at_rest(item), mode="json"), allow_nan=False, separators=(",", ":"))


def from_json(body: str) -> StoredWorkload:
    """The entry in JSON text. Raises pydantic.ValidationError; fields of a newer loadtide are ignored."""
    return _STORED.validate_json(body)


def away_seconds(stored: StoredWorkload, now_utc: datetime, boot_id: str, boot_mono: float) -> float:
    """How long ago ``stored`` was saved, seconds, never negative.

    Within one boot the boot clock tells, which nobody can set; across boots only the wall clock can, and one that was
    set back in between counts as no time at all.
    """
    if boot_id and stored.boot_id == boot_id and boot_mono >= stored.boot_mono:
        return boot_mono - stored.boot_mono
    return max((now_utc - stored.saved_utc).total_seconds(), 0.0)


def read_boot_id(path: Path = _BOOT_ID) -> str:
    """An identifier of this boot of the kernel; "" where the system gives none, which never equals another boot's."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def boot_seconds() -> float:
    """Seconds on the boot clock, which also runs while the machine sleeps; the monotonic clock where there is none."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
