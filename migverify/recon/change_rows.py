"""Rows of a change stream as records of a join: the binlog of a server, an archive of it, or copied files.

A window is complete only when the stream began before it and went on behind it; else the read fails, because a change
that nobody saw is no change that did not happen.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from itertools import islice
from pathlib import Path
from time import time

from migverify.changes.decode import decoder
from migverify.changes.files import file_ranges
from migverify.changes.manifest import read_manifest
from migverify.changes.model import AfterImages, Begin, Commit, Idle, Item, Op, Position, Rows, Statement, TableMap
from migverify.changes.positions import parse_position
from migverify.changes.server import source_state
from migverify.changes.source import read_files, read_range, read_server
from migverify.changes.storage import Storage
from migverify.db.session import open_session
from migverify.db.snapshot import ReadSnapshot
from migverify.errors import CanceledError, ChangeError, ConfigError, IncompleteReadError, ReadError
from migverify.model import ColumnDef, Endpoint, Flavor, Side
from migverify.recon.relation import ChangeRead, Relation
from migverify.recon.rows import Bytes, Record
from migverify.sql.canonical import FAMILIES
from migverify.sql.packed import pack, unpack
from migverify.sql.server import PURGED, UTC_NOW

BEFORE = "_before."
LATE_SECONDS = 300
"""Transactions are not strictly in the order of their commit times; so long a stream is read on behind a window."""
STATE_ROWS = 1000
STATE_TABLE = "CREATE TABLE state (k BLOB PRIMARY KEY, op TEXT, v BLOB) WITHOUT ROWID"
_FILE = re.compile(r".+\.[0-9]{6,}\Z")
_EXACT = Context(prec=200)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_LENGTH = len("2026-01-31")


def change_records(
    relation: Relation, read: ChangeRead, number: int, endpoints: Mapping[str, Endpoint],
    secrets: Mapping[str, str], canceled: threading.Event, on_snapshot: Callable[[ReadSnapshot], None] = lambda _: None,
) -> Iterator[Record]:  # fmt: skip
    """Yield the rows of a change read as (key, values, 1, number).

    ``number``: The number of the read in its relation. ``on_snapshot``: Called with the snapshot of the stream, at its
    end.

    Raises ChangeError: the stream cannot be read exactly; IncompleteReadError: it does not cover the window, or the
    table was truncated in it.
    """
    stream = _stream(read, endpoints, secrets)
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


class _Stream:
    """Items of a change stream, and what they cover. ``from_birth``: nothing was ever written before its begin."""

    def __init__(
        self, items: Generator[Item, None, None], name: str, flavor: str, *, from_birth: bool, seen_until: int | None
    ) -> None:
        self.items = items
        self.name, self.flavor = name, flavor
        self.from_birth, self.seen_until = from_birth, seen_until
        self.end = ""

    @property
    def snapshot(self) -> ReadSnapshot:
        """Up to where it was read."""
        return ReadSnapshot(self.name, self.flavor, "change stream", self.end, self.end, exact=True, at=time())


def _stream(read: ChangeRead, endpoints: Mapping[str, Endpoint], secrets: Mapping[str, str]) -> _Stream:
    part = read.part
    since = parse_position(read.since) if read.since else None
    if part.endpoint:
        endpoint = endpoints.get(part.endpoint)
        if endpoint is None:
            raise ConfigError(f"there is no endpoint {part.endpoint}", hint=f"Known: {', '.join(endpoints)}.")
        return _server(endpoint, secrets.get(endpoint.name), since)
    return _files(part.path, since)


def _server(endpoint: Endpoint, password: str | None, since: Position | None) -> _Stream:
    with open_session(endpoint, password, side=Side.SOURCE) as session:
        # The clock first: what is committed later has a later time, and is after the end that is read next.
        clock = _micros(session.query(UTC_NOW)[0][0] or "")
        state = source_state(session)
        purged = "" if session.flavor is not Flavor.MYSQL else session.query(PURGED)[0][0]
    birth = since is None and state.gtids and not purged and state.first.file.endswith((".000001", ".0000001"))
    items = (item for item in read_server(endpoint, password, since or state.first, follow=False))
    return _Stream(items, endpoint.name, state.flavor.value, from_birth=birth, seen_until=clock)


def _files(path: str, since: Position | None) -> _Stream:
    storage = Storage(path)
    if _FILE.match(path):
        return _Stream((item for item in read_files([path], since)), path, "binlog", from_birth=False, seen_until=None)
    manifest = read_manifest(storage)
    if manifest.files:
        wanted = file_ranges(manifest, since)
        items = (item for one in wanted for item in read_range(storage, one))
        birth = since is None and manifest.files[0].name.endswith(".000001")
        return _Stream(items, path, "binlog", from_birth=birth, seen_until=None)
    names = [name for name in storage.names() if _FILE.match(name)]
    if not names:
        raise ChangeError(f"{path} holds no binlog files.", hint="Give an archive, or a folder of copied binlog files.")
    paths = [f"{path.rstrip('/')}/{name}" for name in names]
    items = (item for item in read_files(paths, since))
    return _Stream(items, path, "binlog", from_birth=since is None and names[0].endswith(".000001"), seen_until=None)


def _micros(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


# --- rows ------------------------------------------------------------------------------------------------


def _rows(relation: Relation, read: ChangeRead, stream: _Stream, canceled: threading.Event) -> Iterator[_Change]:
    """Yield the changes of the table in the window, in the order of the stream."""
    bounds = (_micros(read.window[0]), _micros(read.window[1])) if read.window is not None else None
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
            elif isinstance(item, Rows) and inside and begin is not None:
                table = item.table
                if (table.database, table.table) == (read.part.database, read.part.table):
                    known = takers.get(id(table))
                    if known is None:
                        # The map is kept beside its taker, so that its identity stays its own.
                        known = takers[id(table)] = table, _Taker(relation, read, table)
                    yield from known[1].take(item, begin)
            elif isinstance(item, Statement) and inside:
                _refuse_truncate(read, item)
    if bounds is not None:
        _refuse_uncovered(read, stream, bounds, first, last)


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
    read: ChangeRead, stream: _Stream, bounds: tuple[int, int], first: int | None, last: int | None
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
    return f"{_EPOCH + timedelta(microseconds=micros):%Y-%m-%d %H:%M:%S.%f}"


class _Taker:
    """Turns row images of one layout of the table into texts."""

    def __init__(self, relation: Relation, read: ChangeRead, table: TableMap) -> None:
        self._names = (*read.key, *read.values)
        definitions = (*relation.key, *relation.values)
        self._keys = len(read.key)
        self._changed = read.changed
        columns = list(dict.fromkeys(
            name.removeprefix(BEFORE).removeprefix("?")
            for name in (*self._names, *([read.changed] if read.changed else [])) if _is_column(name)
        ))  # fmt: skip
        self._decoder = decoder(table, columns)
        self._place = {name: place for place, name in enumerate(columns)}
        charsets = {column.name: column.charset for column in table.columns}
        self._convert = [
            _converter(definition, binary=charsets.get(name.removeprefix(BEFORE)) == "binary")
            for name, definition in zip(self._names, definitions, strict=True)
        ]  # fmt: skip
        self._mapped = {name: dict(values) for name, values in read.mapped}

    def take(self, item: Rows, begin: Begin) -> Iterator[_Change]:
        """Yield the changes of one rows event."""
        images = self._decoder.texts(item.images)
        pairs: Iterator[tuple[Sequence[str | None] | None, Sequence[str | None] | None]]
        if isinstance(item.table, AfterImages):
            raise ChangeError(
                f"{item.table.name}: the changefeed sends no old values, and the rule needs the row before.",
                hint="Set output-old-value=true for the changefeed.",
            )
        if item.op is Op.UPDATE:
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
