"""Rows of a change stream as records of a join: of a binlog, an archive or copied files of it, or a changefeed.

A window is complete only when the stream began before it and went on behind it; else the read fails, because a change
that nobody saw is no change that did not happen.
"""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from decimal import Context, Decimal
from itertools import islice
from pathlib import Path

from migverify.changes.carriers.committed import VOID
from migverify.changes.decode import decoder
from migverify.changes.model import (
    AfterImages,
    Begin,
    Commit,
    DecodedTable,
    Idle,
    Op,
    Rows,
    Statement,
    TableMap,
)
from migverify.changes.positions import tso_time
from migverify.db.snapshot import ReadSnapshot
from migverify.errors import CanceledError, ChangeError, ConfigError, IncompleteReadError, ReadError
from migverify.model import ColumnDef, Endpoint
from migverify.recon.change_streams import EPOCH, ChangeStream, micros, open_stream
from migverify.recon.changefeed import Changefeed
from migverify.recon.relation import ChangeRead, Relation
from migverify.recon.rows import Bytes, Record
from migverify.sql.canonical import FAMILIES
from migverify.sql.packed import pack, unpack

BEFORE = "_before."
LATE_SECONDS = 300
"""Transactions are not strictly in the order of their commit times; so long a stream is read on behind a window."""
STATE_ROWS = 1000
STATE_TABLE = "CREATE TABLE state (k BLOB PRIMARY KEY, op TEXT, v BLOB) WITHOUT ROWID"
_EXACT = Context(prec=200)
_DATE_LENGTH = len("2026-01-31")
NO_FEEDS: Mapping[str, Changefeed] = {}


def change_records(
    relation: Relation, read: ChangeRead, number: int, endpoints: Mapping[str, Endpoint],
    secrets: Mapping[str, str], canceled: threading.Event, on_snapshot: Callable[[ReadSnapshot], None] = lambda _: None,
    feeds: Mapping[str, Changefeed] = NO_FEEDS,
) -> Iterator[Record]:  # fmt: skip
    """Yield the rows of a change read as (key, values, 1, number).

    ``number``: The number of the read in its relation. ``on_snapshot``: Called with the snapshot of the stream, at its
    end. ``feeds``: The changefeeds by name of their endpoint.

    Raises ChangeError: the stream cannot be read exactly; IncompleteReadError: it does not cover the window, or the
    table was truncated in it.
    """
    stream = open_stream(read, endpoints, secrets, feeds)
    rows = _rows(relation, read, stream, canceled)
    if read.part.state:
        rows = _last_of_each_key(rows, len(read.key))
    keys = len(read.key)
    for change in rows:
        if change.op.value in read.part.operations:
            yield change.texts[:keys], change.texts[keys:], 1, number
    on_snapshot(stream.snapshot)


@dataclass(frozen=True, slots=True)
class _Change:
    op: Op
    texts: Bytes
    old_key: Bytes | None = None


# --- rows ------------------------------------------------------------------------------------------------


def _rows(relation: Relation, read: ChangeRead, stream: ChangeStream, canceled: threading.Event) -> Iterator[_Change]:
    """Yield the changes of the table in the window, in the order of the stream."""
    bounds = (micros(read.window[0]), micros(read.window[1])) if read.window is not None else None
    takers: dict[int, tuple[TableMap, _Taker]] = {}
    begin: Begin | None = None
    first = last = None
    inside = False
    with closing(stream.items):
        for item in stream.items:
            if isinstance(item, Begin):
                begin, at = item, round(item.time * 1_000_000)
                first = at if first is None else first
                last = at if last is None else max(last, at)
                inside = bounds is None or bounds[0] <= at < bounds[1]
                if canceled.is_set():
                    raise CanceledError("the run was canceled")
                if bounds is not None and at >= bounds[1] + LATE_SECONDS * 1_000_000:
                    break
            elif isinstance(item, Commit):
                stream.end = item.end.gtids or str(item.end)
            elif isinstance(item, Idle):
                stream.end = item.at.gtids or str(item.at)
                if canceled.is_set():
                    raise CanceledError("the run was canceled")
                if stream.has_watermarks:
                    stream.seen_until = round(tso_time(item.at.offset + 1) * 1_000_000)
                    if bounds is not None and stream.seen_until >= bounds[1]:
                        break
            elif isinstance(item, Rows) and inside and begin is not None:
                table = item.table
                if _is_table(read, stream, table.database, table.table):
                    known = takers.get(id(table))
                    if known is None:
                        # The map is kept beside its taker, so that its identity stays its own.
                        known = takers[id(table)] = table, _Taker(relation, read, table)
                    yield from known[1].take(item, begin)
            elif isinstance(item, Statement):
                _refuse_void(stream, item)
                if inside:
                    _refuse_truncate(read, item)
    if bounds is not None:
        _refuse_uncovered(read, stream, bounds, first, last)


def _is_table(read: ChangeRead, stream: ChangeStream, database: str, table: str) -> bool:
    """Whether rows are those of the read's table; TiDB takes names in any case."""
    if stream.has_watermarks:
        return (database.casefold(), table.casefold()) == (read.part.database.casefold(), read.part.table.casefold())
    return (database, table) == (read.part.database, read.part.table)


def _refuse_void(stream: ChangeStream, item: Statement) -> None:
    if stream.has_watermarks and item.sql.startswith(VOID):
        raise IncompleteReadError(
            f"the changefeed of {stream.name}: {item.sql.removeprefix(VOID)}",
            hint="What it changed in the window is not known: compare the table by `migverify tables verify`.",
        )


def _refuse_truncate(read: ChangeRead, item: Statement) -> None:
    ours = not item.tables or any(
        database == read.part.database and table in ("", read.part.table) for database, table in item.tables
    )
    if item.op is Op.TRUNCATE and ours and ("delete" in read.part.operations or read.part.state):
        raise IncompleteReadError(
            f"{read.part.database}.{read.part.table} was truncated at {item.file}:{item.offset}, and no image says "
            "which rows that deleted",
            hint="Begin the window after it.",
        )


def _refuse_uncovered(
    read: ChangeRead, stream: ChangeStream, bounds: tuple[int, int], first: int | None, last: int | None
) -> None:
    if not stream.from_birth and (first is None or first > bounds[0]):
        begins = "holds no transaction" if first is None else f"begins at {_text(first)}"
        raise IncompleteReadError(
            f"the change stream of {stream.name} {begins}, after the window's start {read.window and read.window[0]}",
            hint="Keep binlogs longer, read an archive, or evaluate later windows.",
        )
    seen = stream.seen_until if stream.seen_until is not None else last
    if seen is None or seen < bounds[1]:
        raise IncompleteReadError(
            f"the change stream of {stream.name} was read up to {'nothing' if seen is None else _text(seen)}, before "
            f"the window's end {read.window and read.window[1]}",
            hint="Evaluate the window when the stream is past its end.",
        )


def _text(micros: int) -> str:
    return f"{EPOCH + timedelta(microseconds=micros):%Y-%m-%d %H:%M:%S.%f}"


class _Taker:
    """Turns row images of one layout of the table into texts."""

    def __init__(self, relation: Relation, read: ChangeRead, table: TableMap) -> None:
        self._names = (*read.key, *read.values)
        definitions = (*relation.key, *relation.values)
        self._keys = len(read.key)
        self._changed = read.changed
        named = {table.columns[place].name for place in table.key}
        self._needs_before = (
            bool(read.changed)
            or any(name.startswith(BEFORE) for name in self._names)
            or (read.part.state and not set(read.key) <= named)
        )
        columns = list(dict.fromkeys(
            name.removeprefix(BEFORE).removeprefix("?")
            for name in (*self._names, *([read.changed] if read.changed else [])) if _is_column(name)
        ))  # fmt: skip
        self._decoder = decoder(table, columns)
        self._place = {name: place for place, name in enumerate(columns)}
        charsets = {column.name: column.charset for column in table.columns}
        is_carried = isinstance(table, DecodedTable)
        self._convert = [
            # A carrier's columns have no character set, and bytes are written as 0x in it.
            _converter(definition, binary=is_carried or charsets.get(name.removeprefix(BEFORE)) == "binary")
            for name, definition in zip(self._names, definitions, strict=True)
        ]  # fmt: skip
        self._mapped = {name: dict(values) for name, values in read.mapped}

    def take(self, item: Rows, begin: Begin) -> Iterator[_Change]:
        """Yield the changes of one rows event."""
        images = self._decoder.texts(item.images)
        pairs: Iterator[tuple[Sequence[str | None] | None, Sequence[str | None] | None]]
        after_only = isinstance(item.table, AfterImages)
        if after_only and self._needs_before:
            raise ChangeError(
                f"{item.table.name}: the changefeed sends no old values, and the rule needs the row before.",
                hint="Set output-old-value=true for the changefeed.",
            )
        if after_only:  # an update of the key comes as a delete and an insert
            pairs = zip(images, images, strict=True)
        elif item.op is Op.UPDATE:
            pairs = zip(images[0::2], images[1::2], strict=True)
        elif item.op is Op.INSERT:
            pairs = ((None, image) for image in images)
        else:
            pairs = ((image, None) for image in images)
        fixed = {
            "_op": item.op.value, "_gtid": begin.gtid, "_file": item.file, "_position": str(item.offset),
            "_time": _text(round(begin.time * 1_000_000)),
        }  # fmt: skip
        for before, after in pairs:
            if before is not None and after is not None:
                if self._changed and before[self._place[self._changed]] == after[self._place[self._changed]]:
                    continue
                old = self._key_of(before)
                texts = tuple(self._value(n, before, after, fixed) for n in range(len(self._names)))
                yield _Change(item.op, texts, old if old != texts[: self._keys] else None)
            else:
                texts = tuple(self._value(n, before, after, fixed) for n in range(len(self._names)))
                yield _Change(item.op, texts)

    def _key_of(self, image: Sequence[str | None]) -> Bytes:
        return tuple(self._value(n, image, image, {}) for n in range(self._keys))

    def _value(
        self,
        place: int,
        before: Sequence[str | None] | None,
        after: Sequence[str | None] | None,
        fixed: Mapping[str, str],
    ) -> bytes | None:
        name = self._names[place]
        if name in fixed:
            return fixed[name].encode()
        if name.startswith("="):
            return name[1:].encode()
        image = after if after is not None else before
        if name.startswith(BEFORE):
            # Only an update has two images; an insert begins, and a delete has columns of its own.
            image, name = (before if after is not None else None), name.removeprefix(BEFORE)
        if image is None or not _is_column(name):
            return None
        text = image[self._place[name.removeprefix("?")]]
        if name.startswith("?"):
            return b"0" if text is None else b"1"
        if text is None:
            return None
        made = self._convert[place](text)
        mapped = self._mapped.get(name)
        return (mapped.get(made, made) if mapped else made).encode("utf-8", "surrogateescape")


def _is_column(name: str) -> bool:
    return bool(name) and not name.startswith("=") and name not in ("_op", "_gtid", "_file", "_position", "_time")


def _converter(column: ColumnDef, *, binary: bool) -> Callable[[str], str]:
    """Return the function from the binlog's text (that of SELECT) to the canonical text of a relation's column."""
    family = FAMILIES.get(column.data_type, "text")
    if family in ("integer", "year", "bit"):
        return lambda text: str(int(text, 16) if text.startswith("0x") else int(text))
    if family == "decimal":
        step = Decimal(1).scaleb(-(column.scale or 0))
        return lambda text: format(Decimal(text).quantize(step, context=_EXACT), "f")
    if family in ("datetime", "time"):
        return lambda text: _moment(text, family, column.fsp or 0)
    if family == "binary" and not binary:
        return lambda text: "0x" + text.encode("utf-8", "surrogateescape").hex()
    if family == "float":
        raise ConfigError(
            f"{column.name}: FLOAT and DOUBLE of a change stream have no exact common text",
            hint="Leave the column out of the rule, or compare tables.",
        )
    return lambda text: text


def _moment(text: str, family: str, digits: int) -> str:
    if family == "datetime" and len(text) == _DATE_LENGTH:
        text += " 00:00:00"
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(digits, '0')}" if digits else whole


# --- state -----------------------------------------------------------------------------------------------


def _last_of_each_key(changes: Iterator[_Change], keys: int) -> Iterator[_Change]:
    """Yield the last change of each key that is still there; through a file, so that memory does not grow.

    Raises ReadError: the disk is full or fails.
    """
    with (
        tempfile.TemporaryDirectory(prefix="migverify-recon-") as folder,
        closing(sqlite3.connect(Path(folder, "state"), isolation_level=None)) as state,
    ):
        try:
            # The file ends with the read: nothing has to survive a crash.
            for statement in ("PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF", STATE_TABLE):
                state.execute(statement)
            rows = _states(changes, keys)
            while some := list(islice(rows, STATE_ROWS)):
                state.executemany("INSERT OR REPLACE INTO state VALUES (?,?,?)", some)
            for op, values in state.execute("SELECT op, v FROM state WHERE op <> ?", (Op.DELETE.value,)):
                yield _Change(Op(op), unpack(values))
        except sqlite3.Error as error:
            raise ReadError(
                f"the last change of each key could not be found in {folder}: {error}",
                hint="Free disk space there, or point TMPDIR at a larger disk.",
            ) from error


def _states(changes: Iterator[_Change], keys: int) -> Iterator[tuple[bytes, str, bytes]]:
    for change in changes:
        if change.old_key is not None:
            yield pack(change.old_key), Op.DELETE.value, b""
        yield pack(change.texts[:keys]), change.op.value, pack(change.texts)
