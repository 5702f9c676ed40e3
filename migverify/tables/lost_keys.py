"""Keys whose newest write is not on the old side, on disk: memory does not grow with the loss."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from migverify.errors import StoreError
from migverify.model import DiffKind, KeyText, LiveState, RowDiff
from migverify.watch.ledger_read import UnprovedKey

_SCHEMA = """
CREATE TABLE unproved (pair INTEGER NOT NULL, key TEXT NOT NULL, since INTEGER NOT NULL, last INTEGER NOT NULL,
  first REAL NOT NULL, origin TEXT NOT NULL);
CREATE INDEX unproved_pair ON unproved (pair);
CREATE TABLE lost (pair INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, source_sum TEXT, target_sum TEXT,
  source_rows INTEGER NOT NULL, target_rows INTEGER NOT NULL, since INTEGER NOT NULL, last INTEGER NOT NULL,
  first REAL NOT NULL, origin TEXT NOT NULL, PRIMARY KEY (pair, key)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class LostKey:
    """One key that differs: how, and by which writes. ``since`` and ``last`` as of ``UnprovedKey``."""

    pair: int
    key: KeyText
    kind: DiffKind
    since: int
    last: int
    first: float
    origin: str


@dataclass(frozen=True, slots=True)
class LossCounts:
    """Lost keys by kind, and their writes.

    ``transactions`` counts distinct commit timestamps of last writes; earlier transactions of the same keys are not
    counted, so it is a lower bound. ``oldest`` is the first commit timestamp of a write that is not proved, None where
    none is known. ``no_write`` counts keys that no write of the target put there. ``order_unknown`` counts those
    of them that have other values on both sides: which side was written later is not known.
    """

    keys: int = 0
    missing_on_source: int = 0
    value_differs: int = 0
    missing_on_target: int = 0
    transactions: int = 0
    oldest: int | None = None
    no_write: int = 0
    order_unknown: int = 0


class LostKeys:
    """The unproved keys of a ledger, and those of them that differ now. Used by one thread; gone when it is closed."""

    def __init__(self) -> None:
        # SQLite keeps a database without a name in a private temporary file, and pages beyond its cache go there.
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("PRAGMA cache_size=-16000")
        self._db.executescript(_SCHEMA)

    def add_unproved(self, keys: Sequence[UnprovedKey]) -> None:
        """Take keys of the ledger."""
        rows = [(k.pair, _text(k.key), k.since, k.last, k.first, k.origin) for k in keys]
        self._write("INSERT INTO unproved VALUES (?,?,?,?,?,?)", rows)

    def count_unproved(self) -> int:
        """Return how many keys the ledger holds."""
        return int(self._read("SELECT count(*) FROM unproved", ())[0][0])

    def pairs(self) -> list[int]:
        """Return the numbers of the pairs with unproved keys."""
        return [int(row[0]) for row in self._read("SELECT DISTINCT pair FROM unproved ORDER BY pair", ())]

    def unproved(self, pair: int, size: int) -> Iterator[list[UnprovedKey]]:
        """Yield the unproved keys of a pair, so many at a time."""
        after = 0
        sql = "SELECT rowid,key,since,last,first,origin FROM unproved WHERE pair=? AND rowid>? ORDER BY rowid LIMIT ?"
        while rows := self._read(sql, (pair, after, size)):
            after = rows[-1][0]
            yield [UnprovedKey(pair, _key(r[1]), r[2], r[3], r[4], r[5]) for r in rows]

    def add_lost(self, rows: Sequence[tuple[UnprovedKey, RowDiff]]) -> None:
        """Take keys that differ now."""
        self._write("INSERT OR REPLACE INTO lost VALUES (?,?,?,?,?,?,?,?,?,?,?)", [
            (k.pair, _text(d.key), d.kind.value, d.source_checksum, d.target_checksum, d.source_count, d.target_count,
             k.since, k.last, k.first, k.origin)
            for k, d in rows
        ])  # fmt: skip

    def counts(self, pair: int | None = None) -> LossCounts:
        """Return what is lost of a pair, or in all."""
        where, values = ("", ()) if pair is None else (" WHERE pair=?", (pair,))
        kinds = ",".join(f"coalesce(sum(kind='{kind.value}'),0)" for kind in _KINDS)
        row = self._read(
            f"SELECT count(*),{kinds},count(DISTINCT CASE WHEN last>0 THEN last END),"  # noqa: S608 - own words
            f"min(CASE WHEN since>0 THEN since END),coalesce(sum(origin<>''),0),"
            f"coalesce(sum(kind='value_differs' AND (origin<>'' OR last=0)),0) FROM lost{where}",
            values,
        )[0]
        return LossCounts(*row)

    def lost(self, limit: int | None = None) -> Iterator[LostKey]:
        """Yield lost keys, the oldest write first and those of no known write last."""
        sql = "SELECT pair,key,kind,since,last,first,origin FROM lost ORDER BY since=0,since,pair,key LIMIT ?"
        with closing(self._db.execute(sql, (-1 if limit is None else limit,))) as cursor:
            for r in cursor:
                yield LostKey(r[0], _key(r[1]), DiffKind(r[2]), *r[3:])

    def diffs(self, pair: str, number: int, size: int) -> Iterator[list[tuple[RowDiff, str]]]:
        """Yield the row diffs of a pair as they were read, each with its origin, so many at a time."""
        after = ""
        sql = (
            "SELECT key,kind,source_sum,target_sum,source_rows,target_rows,origin FROM lost WHERE pair=? AND key>? "
            "ORDER BY key LIMIT ?"
        )
        while rows := self._read(sql, (number, after, size)):
            after = rows[-1][0]
            yield [
                (RowDiff(pair, _key(r[0]), DiffKind(r[1]), LiveState.DIVERGED, source_checksum=r[2],
                         target_checksum=r[3], source_count=r[4], target_count=r[5]), str(r[6]))
                for r in rows
            ]  # fmt: skip

    def close(self) -> None:
        """Remove everything."""
        self._db.close()

    def _read(self, sql: str, values: Sequence[object]) -> list[Any]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise _failure(error) from error

    def _write(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        try:
            self._db.execute("BEGIN")
            self._db.executemany(sql, rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise _failure(error) from error


_KINDS = (DiffKind.MISSING_ON_SOURCE, DiffKind.VALUE_DIFFERS, DiffKind.MISSING_ON_TARGET)


def _failure(error: sqlite3.Error) -> StoreError:
    return StoreError(f"the temporary file of lost keys: {error}", hint="Is the folder of temporary files full?")


def _text(key: KeyText) -> str:
    return json.dumps(key, ensure_ascii=True, separators=(",", ":"))


def _key(text: str) -> KeyText:
    return tuple(json.loads(text))
