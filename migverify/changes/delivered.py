"""What the rows of a range must look like once it was delivered: the last image per key, rebuilt from the binlog.

Deleted keys are remembered, because they must be gone. Everything lies in a temporary SQLite database (on disk, gone
with the process), so memory does not grow with the range. A schema change that does more than add leaves the images of
a table without a meaning on the target: the table is void then, with the reason.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from migverify.changes.decode import Decoder, decoder
from migverify.changes.model import Begin, Item, Op, Rows, Statement, TableMap, Texts
from migverify.changes.statements import tokens
from migverify.errors import ChangeError

ROWS_AT_ONCE = 10_000
CACHE_KIB = 16_384
_MISSING_KEY = "its key columns are not in the binlog's layout of the table"

Name = tuple[str, str]
"""Database and table."""

_SCHEMA = """
CREATE TABLE keys (
    t INTEGER NOT NULL, k TEXT NOT NULL, here INTEGER NOT NULL, layout INTEGER NOT NULL, image TEXT,
    seq INTEGER NOT NULL, at TEXT NOT NULL, doubt INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (t, k)
) WITHOUT ROWID
"""
_PUT = (
    "INSERT INTO keys (t, k, here, layout, image, seq, at) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (t, k) DO UPDATE SET here = excluded.here, layout = excluded.layout, image = excluded.image,"
    " seq = excluded.seq, at = excluded.at"
)


@dataclass(frozen=True, slots=True)
class LastImage:
    """What a range leaves of one key.

    ``image`` is the whole row in the order of ``layout.columns``, None where the row must be gone. ``seq`` counts
    transactions of the range, ``at`` names the last one that touched the key: its GTID, or file and offset.
    """

    key: Texts
    image: Texts | None
    layout: TableMap | None
    seq: int
    at: str


@dataclass(frozen=True, slots=True)
class TableCounts:
    """Keys of one table: rows that must be there, keys that must be gone.

    ``emptied`` is the last transaction of the range that truncated the table, by its place in the range; 0 for none.
    """

    here: int
    gone: int
    emptied: int = 0


@dataclass(slots=True)
class _Table:
    number: int
    names: tuple[str, ...]
    rebuilt: bool
    layout: TableMap | None = None
    layout_number: int = 0
    decode: Decoder | None = None
    places: tuple[int, ...] = ()
    void: str = ""
    emptied: int = 0
    changed: int = 0


class LastImages:
    """Takes the items of a stream, whole transactions only, and keeps what they leave.

    Parameters
    ----------
    keys
        (database, table) of the tables to follow -> names of the columns that tell rows apart; None follows no rows
        and notes only whether the table was changed.
    """

    def __init__(self, keys: Mapping[Name, tuple[str, ...] | None]) -> None:
        self._tables = {
            name: _Table(n, columns or (), rebuilt=columns is not None)
            for n, (name, columns) in enumerate(keys.items())
        }
        self._layouts: list[TableMap] = []
        self._waiting: dict[tuple[int, str], tuple[int, int, str | None, int, str]] = {}
        self._seq = 0
        self._at = ""
        self._base = sqlite3.connect("")  # the empty name: a temporary file that SQLite itself removes
        self._base.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._base.execute("PRAGMA journal_mode = OFF")
        self._base.execute(_SCHEMA)

    # --- the stream ----------------------------------------------------------------------------------------

    def take(self, item: Item) -> None:
        """Fold one item in.

        Raises
        ------
        ChangeError
            row images that cannot be decoded.
        """
        if isinstance(item, Rows):
            table = self._tables.get((item.table.database, item.table.table))
            if table is not None:
                table.changed += 1
                if table.rebuilt and not table.void:
                    self._rows(table, item)
        elif isinstance(item, Begin):
            self._seq += 1
            self._at = item.gtid or str(item.start)
        elif isinstance(item, Statement):
            self._statement(item)

    def _rows(self, table: _Table, rows: Rows) -> None:
        if table.layout is not rows.table and not self._follow(table, rows.table):
            return
        if table.decode is None:
            raise ChangeError(f"{rows.table.name}: no decoder was made for its layout")
        images = table.decode.texts(rows.images)
        places, number, seq, at = table.places, table.number, self._seq, self._at
        step = 2 if rows.op is Op.UPDATE else 1
        if len(images) % step:
            raise ChangeError(f"{rows.file}:{rows.offset}: an update of {rows.table.name} lacks an after image.")
        for index in range(0, len(images), step):
            key = json.dumps([images[index][place] for place in places])
            if rows.op is Op.DELETE:
                self._put(number, key, (0, table.layout_number, None, seq, at))
                continue
            after = images[index + step - 1]
            new = json.dumps([after[place] for place in places])
            if step == 2 and new != key:
                self._put(number, key, (0, table.layout_number, None, seq, at))
            self._put(number, new, (1, table.layout_number, json.dumps(after), seq, at))
        if len(self._waiting) >= ROWS_AT_ONCE:
            self._flush()

    def _put(self, table: int, key: str, state: tuple[int, int, str | None, int, str]) -> None:
        self._waiting[(table, key)] = state

    def _flush(self) -> None:
        self._base.executemany(_PUT, ((*place, *state) for place, state in self._waiting.items()))
        self._waiting.clear()

    def _follow(self, table: _Table, layout: TableMap) -> bool:
        """Take over a layout that the stream goes on with; voids the table where old images lose their meaning."""
        if table.layout != layout:
            names = [column.name for column in layout.columns]
            if any(name not in names for name in table.names):
                return self._void(table, _MISSING_KEY)
            if table.layout is not None:
                fresh = {column.name: column for column in layout.columns}
                changed = [c.name for c in table.layout.columns if fresh.get(c.name) != c]
                if changed:
                    return self._void(table, f"columns changed within the range: {', '.join(changed)}")
            table.places = tuple(names.index(name) for name in table.names)
            table.layout_number = len(self._layouts)
            self._layouts.append(layout)
            table.decode = decoder(layout, exact=True)
        table.layout = layout
        return True

    def _void(self, table: _Table, reason: str) -> bool:
        self._flush()
        self._base.execute("DELETE FROM keys WHERE t = ?", (table.number,))
        table.void = reason
        return False

    def _statement(self, item: Statement) -> None:
        reason = what_it_breaks(item)
        for name, table in self._tables.items():
            named = not item.tables or name in item.tables or (name[0], "") in item.tables
            if not named or table.void:
                continue
            if item.op is Op.TRUNCATE:
                self._truncate(table)
            elif reason:
                self._void(table, f"{reason} at {item.file}:{item.offset}")
                table.changed += 1

    def _truncate(self, table: _Table) -> None:
        self._flush()
        self._base.execute(
            "UPDATE keys SET here = 0, image = NULL, seq = ?, at = ? WHERE t = ?", (self._seq, self._at, table.number)
        )
        table.emptied = self._seq
        table.changed += 1

    # --- what it leaves --------------------------------------------------------------------------------------

    def void(self, name: Name) -> str:
        """Return why nothing can be said of a table, empty if something can."""
        return self._tables[name].void

    def changed(self, name: Name) -> bool:
        """Whether the range changed the table at all."""
        return self._tables[name].changed > 0

    def counts(self, name: Name) -> TableCounts:
        """Count the keys of a table."""
        self._flush()
        table = self._tables[name]
        found = dict(
            self._base.execute("SELECT here, COUNT(*) FROM keys WHERE t = ? GROUP BY here", (table.number,)).fetchall()
        )
        return TableCounts(found.get(1, 0), found.get(0, 0), table.emptied)

    def batches(self, name: Name, size: int, *, doubtful: bool = False) -> Iterator[list[LastImage]]:
        """Yield the keys of a table in batches; with ``doubtful`` only those that ``doubt`` marked."""
        self._flush()
        number, after = self._tables[name].number, ""
        extra = " AND doubt = 1" if doubtful else ""
        while True:
            rows = self._base.execute(
                f"SELECT k, here, layout, image, seq, at FROM keys WHERE t = ? AND k > ?{extra} ORDER BY k LIMIT ?",  # noqa: S608 - one of two constants
                (number, after, size),
            ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            yield [self._image(*row) for row in rows]

    def _image(self, key: str, here: int, layout: int, image: str | None, seq: int, at: str) -> LastImage:
        texts = tuple(json.loads(image)) if here and image is not None else None
        return LastImage(tuple(json.loads(key)), texts, self._layouts[layout] if texts is not None else None, seq, at)

    def doubt(self, name: Name, keys: list[Texts]) -> None:
        """Mark keys to be read again."""
        self._flush()
        number = self._tables[name].number
        self._base.executemany(
            "UPDATE keys SET doubt = 1 WHERE t = ? AND k = ?", ((number, json.dumps(list(key))) for key in keys)
        )

    def close(self) -> None:
        """Forget everything."""
        self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# --- schema changes ----------------------------------------------------------------------------------------------

_ADDS = frozenset({
    "ADD", "COMMENT", "ENGINE", "AUTO_INCREMENT", "ROW_FORMAT", "KEY_BLOCK_SIZE", "ALGORITHM", "LOCK", "FORCE",
    "ENABLE", "DISABLE", "STATS_PERSISTENT", "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "COMPRESSION", "AVG_ROW_LENGTH",
    "MAX_ROWS", "MIN_ROWS", "WITH", "WITHOUT", "NOWAIT", "WAIT", "ANALYZE", "OPTIMIZE", "CHECK", "REBUILD",
})  # fmt: skip
_INDEX_CHANGES = {
    "DROP": frozenset({"INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK"}),
    "ALTER": frozenset({"INDEX", "CHECK", "CONSTRAINT"}),
    "RENAME": frozenset({"INDEX", "KEY"}),
}
_OTHER_OBJECTS = frozenset({"INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "VIEW", "OR", "SEQUENCE", "ONLINE", "OFFLINE"})


def what_it_breaks(statement: Statement) -> str:
    """Say how a schema change takes the meaning from images before it; empty where it only adds.

    Added columns, indexes and options leave the images alone: a column that an image lacks is not judged for it. A new
    primary key is seen by the layout that follows. All else is taken for breaking, known or not.
    """
    if statement.op is not Op.DDL:
        return ""
    words = [t.quoted or t.word() for t in tokens(statement.sql)]
    verb, thing = words[0] if words else "", words[1] if len(words) > 1 else ""
    if verb == "CREATE" and thing == "TABLE":
        return ""
    if verb in ("CREATE", "ALTER") and thing in ("DATABASE", "SCHEMA"):
        return ""
    if verb in ("CREATE", "DROP") and thing in _OTHER_OBJECTS:
        return ""
    if (verb, thing) == ("ALTER", "TABLE") and all(map(_only_adds, _clauses(words[2:]))):
        return ""
    return f"{verb} {thing}".strip() + " within the range"


def _only_adds(clause: list[str]) -> bool:
    if not clause:
        return False
    first, second = clause[0], clause[1] if len(clause) > 1 else ""
    return first in _ADDS or second in _INDEX_CHANGES.get(first, ())


def _clauses(words: list[str]) -> list[list[str]]:
    """Cut what follows ALTER TABLE into its clauses; the table's name is left out."""
    place = 1
    if words[1:2] == ["."]:
        place = 3
    depth = 0
    found: list[list[str]] = [[]]
    for word in words[place:]:
        depth += (word == "(") - (word == ")")
        if word == "," and depth == 0:
            found.append([])
        else:
            found[-1].append(word)
    return found
