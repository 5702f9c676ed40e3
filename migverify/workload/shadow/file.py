"""The shadow file: one SQLite database with everything that a shadow replay knows, so that it survives ``kill -9``.

The position in the log, the state of its sessions, the counts by digest and hour, and the differences that are asked
again change in one transaction. What was asked and not committed is asked again, and counted once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from migverify.errors import PlanError, StoreError
from migverify.workload.private import private, private_folder

SHADOW_FILE = "shadow.sqlite"
VERSION = 1
EARLIER = 0
"""The hour under which those are summed up that are older than what is kept hour by hour."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
    server TEXT NOT NULL, id INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (server, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tallies (
    hour INTEGER NOT NULL, digest TEXT NOT NULL, cell TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (hour, digest));
CREATE TABLE IF NOT EXISTS hours (hour INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pending (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS own (thread INTEGER NOT NULL, opened REAL NOT NULL, closed REAL);
"""


@dataclass(slots=True)
class ShadowChanges:
    """What one turn changes. ``tallies`` are by hour and digest: the cell and the tally; None removes."""

    facts: dict[str, Any] = field(default_factory=dict)
    sessions: list[tuple[tuple[str, int], str | None]] = field(default_factory=list)
    tallies: dict[tuple[int, str], tuple[str, str]] = field(default_factory=dict)
    hours: dict[int, str] = field(default_factory=dict)
    dropped_hours: list[int] = field(default_factory=list)
    pending: dict[int, str | None] = field(default_factory=dict)


class ShadowFile:
    """The shadow file of a folder.

    Raises PlanError: it cannot be read, or another version wrote it.
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder, path = folder, folder / SHADOW_FILE
        if create:
            private_folder(folder, exist_ok=True)
            open(path, "ab", opener=private).close()
        elif not path.is_file():
            raise PlanError(f"{folder} holds no shadow replay", hint="Start a new one.")
        self._lock = Lock()
        try:
            self._db = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
            for pragma in ("trusted_schema = OFF", "journal_mode = WAL", "synchronous = NORMAL"):
                self._db.execute(f"PRAGMA {pragma}")
            if create:
                self._db.executescript(_SCHEMA)
                self._db.execute("INSERT OR IGNORE INTO facts VALUES ('version', ?)", (str(VERSION),))
            version = self.fact("version")
        except sqlite3.DatabaseError as error:
            raise PlanError(f"{path} cannot be read: {error}", hint="Start a new shadow replay.") from error
        if version != VERSION:
            raise PlanError(f"{path} is of version {version}, not {VERSION}", hint="Start a new shadow replay.")

    def fact(self, name: str) -> Any:
        """Return a JSON value by its name; None where there is none."""
        row = self._db.execute("SELECT body FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def commit(self, changes: ShadowChanges) -> None:
        """Keep what a turn changed: all of it or nothing."""
        with self._writing() as db:
            db.executemany(
                "INSERT OR REPLACE INTO facts VALUES (?, ?)",
                [(name, json.dumps(value)) for name, value in changes.facts.items()],
            )  # fmt: skip
            for (server, number), body in changes.sessions:
                if body is None:
                    db.execute("DELETE FROM sessions WHERE server = ? AND id = ?", (server, number))
                else:
                    db.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", (server, number, body))
            db.executemany(
                "INSERT OR REPLACE INTO tallies VALUES (?, ?, ?, ?)",
                [(hour, digest, *bodies) for (hour, digest), bodies in changes.tallies.items()],
            )  # fmt: skip
            db.executemany("INSERT OR REPLACE INTO hours VALUES (?, ?)", changes.hours.items())
            for table in ("tallies", "hours"):
                db.executemany(
                    f"DELETE FROM {table} WHERE hour = ?",  # noqa: S608 - our own names
                    [(hour,) for hour in changes.dropped_hours],
                )  # fmt: skip
            for number, text in changes.pending.items():
                if text is None:
                    db.execute("DELETE FROM pending WHERE number = ?", (number,))
                else:
                    db.execute("INSERT OR REPLACE INTO pending VALUES (?, ?)", (number, text))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise StoreError(
                    f"{self.folder / SHADOW_FILE} cannot be written: {error}", hint="Is the disk full?"
                ) from error
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    # --- what is there -----------------------------------------------------------------------------------

    def sessions(self) -> Iterable[tuple[tuple[str, int], str]]:
        """Return the kept states of sessions."""
        rows = self._db.execute("SELECT server, id, body FROM sessions").fetchall()
        return [((server, number), body) for server, number, body in rows]

    def cells(self) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        """Yield hour, digest and cell of everything that was counted."""
        for hour, digest, body in self._db.execute("SELECT hour, digest, cell FROM tallies ORDER BY hour, digest"):
            yield hour, digest, json.loads(body)

    def tally(self, hour: int, digest: str) -> Mapping[str, Any] | None:
        """Return the tally of a digest in an hour as JSON."""
        sql = "SELECT body FROM tallies WHERE hour = ? AND digest = ?"
        row = self._db.execute(sql, (hour, digest)).fetchone()
        return None if row is None else json.loads(row[0])

    def hours(self) -> dict[int, Mapping[str, Any]]:
        """Return what was counted of each hour beside its digests."""
        return {hour: json.loads(body) for hour, body in self._db.execute("SELECT hour, body FROM hours")}

    def pending(self) -> dict[int, Mapping[str, Any]]:
        """Return the differences that are asked again, by number."""
        return {number: json.loads(body) for number, body in self._db.execute("SELECT number, body FROM pending")}

    # --- connections of the replay itself ----------------------------------------------------------------

    def opened(self, thread: int, now: float) -> None:
        """Note a connection of this process to the source, before anything is sent over it."""
        with self._writing() as db:
            db.execute("INSERT INTO own VALUES (?, ?, NULL)", (thread, now))

    def closed(self, now: float, thread: int | None = None) -> None:
        """Note that a connection, or every one, is closed; those closed for a week are forgotten."""
        with self._writing() as db:
            sql = "UPDATE own SET closed = ? WHERE closed IS NULL AND thread = coalesce(?, thread)"
            db.execute(sql, (now, thread))
            db.execute("DELETE FROM own WHERE closed < ?", (now - 7 * 86_400,))

    def own(self) -> list[tuple[int, float, float | None]]:
        """Return the connections of this replay to the source: id, when it was opened, and closed."""
        return self._db.execute("SELECT thread, opened, closed FROM own").fetchall()

    def close(self) -> None:
        """Close the file."""
        self._db.close()
