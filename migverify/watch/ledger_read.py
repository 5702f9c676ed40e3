"""A watch's ledger as another process reads it: one snapshot of it, while the watch goes on writing.

The file is opened read-only. SQLite's write-ahead log lets one process read while another writes, so the watch never
waits for this; the snapshot is copied at once, so that the log is not held back for longer than that.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from migverify.changes.model import Position
from migverify.errors import StoreError
from migverify.model import KeyText
from migverify.watch.ledger import STREAM_REASONS

AT_ONCE = 5000
BUSY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class UnprovedKey:
    """One key of the ledger, neither proved nor forgotten.

    ``since`` is the ordinal of its first write that is not proved and ``last`` that of the last one; 0 where no write
    put it there, and ``origin`` says what did. ``first`` is the Unix time of its first touch.
    """

    pair: int
    key: KeyText
    since: int
    last: int
    first: float
    origin: str


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What a ledger says beside its keys, of the same moment as they.

    ``read`` holds the position that each source was read to. ``written`` is the Unix time at which the watch wrote the
    file last. ``notes`` are (pair, kind, text).
    ``reasons`` say why the last status of the watch was no MATCH beyond its tables. ``rounds`` says per pair how far
    a sweep is, for ``sweep.rounds_of``.
    """

    read: dict[int, Position]
    notes: tuple[tuple[int, str, str], ...]
    written: float
    rounds: dict[int, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


def read_ledger(path: Path, take: Callable[[Sequence[UnprovedKey]], None]) -> LedgerState:
    """Pass the unproved keys of a ledger to ``take``, some thousand at a time, and return the rest of what it says.

    Raises
    ------
    StoreError
        there is no such file, or it cannot be read.
    """
    if not path.is_file():
        raise StoreError(
            f"the ledger {path} does not exist",
            hint="Run this beside the watch: on its machine, with the configuration file of the same folder.",
        )
    written = _written(path)
    try:
        uri = f"file:{quote(str(path.resolve()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)) as db:
            db.execute("BEGIN")  # position, notes and keys of one moment
            read = _progress(db)
            notes = tuple((int(p), str(k), str(t)) for p, k, t in db.execute("SELECT pair,kind,text FROM note"))
            rounds = {int(pair): str(text) for pair, text in db.execute("SELECT pair,state FROM round")}
            reasons = [str(r[0]) for r in db.execute("SELECT text FROM state WHERE kind=?", (STREAM_REASONS,))]
            cursor = db.execute("SELECT pair,key,since,seq,first,origin FROM touched ORDER BY pair,key")
            while rows := cursor.fetchmany(AT_ONCE):
                take([UnprovedKey(int(r[0]), tuple(json.loads(r[1])), int(r[2]), int(r[3]), float(r[4]), str(r[5]))
                      for r in rows])  # fmt: skip
            db.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"ledger {path}: {error}", hint="Is this the ledger of a watch of this release?") from error
    return LedgerState(read, notes, written, rounds, reasons=tuple(json.loads(reasons[0])) if reasons else ())


def has_read(path: Path) -> bool:
    """Whether a ledger holds a position that a source was read to; False where no ledger can be read."""
    return bool(read_positions(path))


def read_positions(path: Path) -> dict[int, Position]:
    """Return the position that each source was read to, by its place; none where no ledger can be read."""
    if not path.is_file():
        return {}
    try:
        uri = f"file:{quote(str(path.resolve()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as db:
            return _progress(db)
    except (OSError, sqlite3.Error):
        return {}


def _progress(db: sqlite3.Connection) -> dict[int, Position]:
    rows = db.execute("SELECT source,file,offset,gtids FROM progress")
    return {int(source): Position(str(file), int(offset), str(gtids)) for source, file, offset, gtids in rows}


def read_state(path: Path, kind: str) -> str | None:
    """Return what a watch keeps of itself under a kind (``Ledger.keep``); None where no ledger can be read."""
    if not path.is_file():
        return None
    try:
        uri = f"file:{quote(str(path.resolve()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as db:
            row = db.execute("SELECT text FROM state WHERE kind=?", (kind,)).fetchone()
    except (OSError, sqlite3.Error):
        return None
    return None if row is None else str(row[0])


def _written(path: Path) -> float:
    """Return when the file was written last; what is not in it yet is in its log, which an idle reader leaves empty."""
    log = path.with_name(path.name + "-wal")
    times = [path.stat().st_mtime]
    if log.exists() and (facts := log.stat()).st_size:
        times.append(facts.st_mtime)
    return max(times)
