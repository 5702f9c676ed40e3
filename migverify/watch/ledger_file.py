"""The SQLite file of a ledger: its tables, and one transaction at a time."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from migverify.errors import StoreError
from migverify.model import KeyText

_SCHEMA = """
CREATE TABLE IF NOT EXISTS touched (
  pair INTEGER NOT NULL, key TEXT NOT NULL, source INTEGER NOT NULL, since INTEGER NOT NULL, seq INTEGER NOT NULL,
  touches INTEGER NOT NULL, first REAL NOT NULL, due REAL NOT NULL, state INTEGER NOT NULL DEFAULT 0,
  reads INTEGER NOT NULL DEFAULT 0, source_sum TEXT, target_sum TEXT, head INTEGER NOT NULL DEFAULT 0,
  diverged INTEGER NOT NULL DEFAULT 0, origin TEXT NOT NULL DEFAULT '', there INTEGER NOT NULL DEFAULT 0,
  found INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (pair, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS touched_seq ON touched (state, source, seq);
CREATE INDEX IF NOT EXISTS touched_due ON touched (state, due);
CREATE TABLE IF NOT EXISTS progress (
  source INTEGER PRIMARY KEY, file TEXT NOT NULL, offset INTEGER NOT NULL, gtids TEXT NOT NULL, commits INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS proved (pair INTEGER PRIMARY KEY, keys INTEGER NOT NULL, rows INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS state (kind TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS note (pair INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (pair, kind, text)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS round (pair INTEGER PRIMARY KEY, state TEXT NOT NULL);
"""


_ADDED = {
    column: f"ALTER TABLE touched ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0" for column in ("there", "found")
}
"""For ledgers of watches that began before these columns were there."""


class LedgerFile:
    """An open ledger. Every method raises StoreError when the file cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                # Keys are data: the file is for its owner only, and so are its -wal and -shm, which follow it.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # A power cut may lose the last transactions: the stream is read again from the position they held.
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA cache_size=-16000")
            self._db.executescript(_SCHEMA)
            self._add_columns()
        except (OSError, sqlite3.Error) as error:
            raise self._failure(error) from error

    def _add_columns(self) -> None:
        with self._transaction() as db:
            known = {row[1] for row in db.execute("PRAGMA table_info(touched)")}
            for column in _ADDED.keys() - known:
                db.execute(_ADDED[column])

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def _read(self, sql: str, values: Sequence[object]) -> list[tuple]:  # type: ignore[type-arg]
        try:
            with closing(self._db.execute(sql, values)) as cursor:
                return cursor.fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> StoreError:
        return StoreError(
            f"ledger {self.path}: {error}",
            hint="If the file is damaged, delete it and resume: changes are read again from where the run began.",
        )


def key_text(key: KeyText) -> str:
    """Return a key as a ledger writes it."""
    return json.dumps(key, ensure_ascii=True, separators=(",", ":"))
