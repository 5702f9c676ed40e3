"""Canal-JSON, as TiCDC writes it, with and without the TiDB extension, and as Alibaba Canal writes it.

Format: docs.pingcap.com/tidb/stable/ticdc-canal-json. Every value is a string or null; the bytes of a binary column
stand for characters of ISO 8859-1; ENUM is the label's number and SET its bits; ``old`` of an update holds all
columns (TiCDC) or the changed ones only (Canal, ``content-compatible``, ``only-output-updated-columns``), or is missing
(a changefeed of TiCDC without old values).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import ClassVar, NamedTuple

from migverify.changes.carriers import column_text as texts
from migverify.changes.carriers import exact_json, lazy
from migverify.changes.carriers.base import (
    Carried,
    CarriedItem,
    CarriedRow,
    CarrierMessage,
    Image,
    MessageHead,
    Parser,
    Types,
    UndecodableError,
    Watermark,
)
from migverify.changes.carriers.column_text import ColumnType
from migverify.changes.carriers.exact_json import Json
from migverify.changes.carriers.lazy import SEPARATOR, LazyAfterImages, LazyTable
from migverify.changes.model import DecodedTable, Op, Rows
from migverify.model import Flavor

_ROW_OPS = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
_STATEMENTS = frozenset(
    {"CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "GTID", "XACOMMIT", "XAROLLBACK"}
)
_INTEGER_SQL_TYPES = frozenset({4, -7, 5, -5, -6})  # java.sql.Types: the value of ENUM and SET is a number then


_NUMBERS, _MIDDLE = b'"es":', b',"sql":'
_TIMES = rb'"es":%s,"ts":%s' % (lazy.TIMESTAMP, lazy.TIMESTAMP)
_COMMIT = rb',"_tidb":\{"commitTs":(%s)\}\}\Z' % lazy.TIMESTAMP
_NAMES = ["id", "database", "table", "pkNames", "isDdl", "type", "es", "ts", "sql", "sqlType", "mysqlType"]
_new = tuple.__new__  # as the call of a named tuple, and three times as fast


class _MessageTemplate(NamedTuple):
    """What is equal in all messages of one operation on a table.

    ``match`` matches them from ``es`` on; ``row`` and ``old`` are the groups of the row and of the row before, each
    followed by those of its key. ``known`` is what it was made of.
    """

    match: Callable[[bytes, int], re.Match[bytes] | None]
    op: Op
    row: int
    old: int | None
    table: LazyTable
    after: LazyTable
    known: _Surroundings


class _Surroundings(NamedTuple):
    """The text between the numbers and the rows, whether ``old`` comes before ``data``, and the row's columns."""

    middle: bytes
    old_first: bool
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CanalJson(Parser):
    """Parser of Canal-JSON.

    Parameters
    ----------
    types
        Declared column types: needed for ENUM, SET and BIT where ``mysqlType`` comes without its parameters.
    time_zone
        Zone of the TIMESTAMP texts: the changefeed's ``time-zone``, Canal's session. None: every TIMESTAMP is a reject.
    flavor
        The server that the changes were made on.
    keys_only
        The reader wants key columns: others are decoded when their texts are needed.
    """

    name: ClassVar[str] = "canal-json"
    types: Types = field(default_factory=dict)
    time_zone: tzinfo | None = None
    flavor: Flavor = Flavor.TIDB
    keys_only: bool = False
    templates: lazy.Kinds[bytes, _MessageTemplate] = field(
        default_factory=lazy.Kinds, init=False, repr=False, compare=False
    )
    shortest: list[int] = field(default_factory=lambda: [0], init=False, repr=False, compare=False)

    def decode(self, message: CarrierMessage) -> Iterator[CarriedItem]:
        """Yield the rows, the statement or the watermark of one message."""
        if message.value is None:
            raise UndecodableError("the message has no value")
        body = exact_json.mapping(exact_json.load(message.value), "the message")
        extension = exact_json.mapping(body.get("_tidb") or {}, "_tidb")
        if extension.get("claimCheckLocation"):
            raise UndecodableError("the row is not in the message but in the changefeed's claim-check storage")
        kind = exact_json.text(body.get("type"), "type")
        if kind == "TIDB_WATERMARK":
            yield Watermark(exact_json.timestamp(extension.get("watermarkTs"), "watermarkTs"), message.place)
            return
        commit = exact_json.timestamp(extension["commitTs"], "commitTs") if "commitTs" in extension else None
        milliseconds = exact_json.integer(body.get("es"), "es")
        database, table = (exact_json.text(body.get(part), part) for part in ("database", "table"))
        if commit is None:
            head = MessageHead(message, database, table, milliseconds / 1000, "", None)
        else:
            head = MessageHead.of_commit(message, database, table, commit)
        if body.get("isDdl") is True:
            if kind not in _STATEMENTS:
                raise UndecodableError(f"statement type {kind[:40]!r} is not known")
            yield head.statement(exact_json.text(body.get("sql"), "sql"), truncates=kind == "TRUNCATE")
        elif kind in _ROW_OPS:
            if extension.get("onlyHandleKey") is True and kind != "DELETE" and not self.keys_only:
                raise UndecodableError("the row was too large for a message: only its handle key was sent")
            try:
                yield from self._rows(head, _ROW_OPS[kind], body)
            except UndecodableError as error:
                error.tables = ((database, table),)
                raise
        else:
            raise UndecodableError(f"event type {kind[:40]!r} is not known")

    def row(
        self, key: bytes | None, value: bytes | None, topic: str, partition: int, offset: int
    ) -> CarriedRow | None:  # fmt: skip
        """Return the row of a message that differs from a known one in its numbers and values only."""
        del key
        if not self.templates or value is None:
            return None
        numbers = value.find(_NUMBERS, self.shortest[0])
        template = self.templates.get(value[:numbers])
        if template is None:
            return None
        match = template.match(value, numbers)
        if match is None:
            return None
        groups = match.groups()
        table, at = template.table, template.row + 1
        key_texts = groups[at : at + len(table.key)]
        images = table.image(groups[at - 1], key_texts)
        if template.old is not None and images is not None:
            old = groups[template.old]
            if old is None:
                table = template.after
            else:
                old_image = table.old_image(old, groups[template.old + 1 :], key_texts)
                images = None if old_image is None else old_image + SEPARATOR + images
        if images is None:
            return None
        return _new(CarriedRow, (int(groups[-1]), table, template.op, images, topic, partition, offset))

    def learn(self, message: CarrierMessage, item: Carried) -> bool:
        """Learn what surrounds the numbers and values of a message."""
        value, event = message.value or b"", item.event
        numbers = value.find(_NUMBERS)
        middle = value.find(_MIDDLE, numbers)
        ends = {value.find(b'},"old":', middle): True, value.find(b'},"data":', middle): False}
        ends.pop(-1, None)
        if not self.keys_only or not isinstance(event, Rows) or min(numbers, middle) < 0 or not ends:
            return False
        names = tuple(column.name for column in event.table.columns)
        around = _Surroundings(value[middle : min(ends) + 1], ends[min(ends)], names)
        head = value[:numbers]
        known = self.templates.get(head)
        if item.key is None or (known is not None and known.known == around):
            return False  # it is this message that is unusual
        if not self.templates.is_frequent(head):
            return False
        try:
            body = exact_json.load(b"".join((head, b'"es":1,"ts":1', around.middle, b"}")))
            columns = self._columns(event.table.name, body)
        except UndecodableError:
            return False
        if list(body) != _NAMES or not set(names) <= set(columns):
            return False
        self.shortest[0] = min(len(head), self.shortest[0]) if self.templates else len(head)
        layout = DecodedTable.of(event.table.database, event.table.table, names, dict(item.key))
        self.templates.learn(head, self._template(layout, columns, event.op, around))
        return True

    def _template(
        self, layout: DecodedTable, columns: dict[str, _Column], op: Op, around: _Surroundings
    ) -> _MessageTemplate:  # fmt: skip
        keys = {layout.columns[place].name for place in layout.key}
        parts = [_part(name, columns[name], self, is_key=name in keys) for name in around.names]
        pairs = op is Op.UPDATE
        old = rb',"old":(?:null|\[%s\])' % lazy.old_row_pattern(parts) if pairs else rb',"old":null'
        data = rb',"data":\[%s\]' % lazy.row_pattern(parts)
        both = (old, data) if around.old_first else (data, old)
        match = re.compile(b"".join((_TIMES, re.escape(around.middle), *both, _COMMIT))).match
        first, second = 0, 1 + len(keys)
        row_at, old_at = (second, first) if pairs and around.old_first else (first, second)

        def exact(row: bytes, wanted: Sequence[str]) -> Image:
            body = exact_json.load(row)
            return self._image({name: body[name] for name in wanted if name in body}, columns)

        converts = [part.convert for part in parts if part.key]
        return _MessageTemplate(
            match, op, row_at, old_at if pairs else None, LazyTable.lazy(layout, converts, exact, pairs=pairs),
            LazyAfterImages.lazy(layout, converts, exact, pairs=False), around,
        )  # fmt: skip

    def _rows(self, head: MessageHead, op: Op, body: dict[str, Json]) -> Iterator[CarriedItem]:
        columns = self._columns(head.name, body)
        data = exact_json.sequence(body.get("data"), "data")
        old = body.get("old")
        olds = [None] * len(data) if old is None else exact_json.sequence(old, "old")
        if len(olds) != len(data) or not data:
            raise UndecodableError(f"{len(data)} rows in data, {len(olds)} in old")
        names = body.get("pkNames")
        listed = [] if names is None else exact_json.sequence(names, "pkNames")
        key_names = [exact_json.text(name, "pkNames") for name in listed]
        for index, (row, before_row) in enumerate(zip(data, olds, strict=True)):
            image = self._image(row, columns)
            if op is Op.UPDATE and before_row is None and head.order is None:
                raise UndecodableError("an update without old values: its key may have changed")
            before, after = _images(op, image, before_row, lambda part: self._image(part, columns))
            yield head.rows(op, before, after, key_names, index=index)

    def _columns(self, table: str, body: dict[str, Json]) -> dict[str, _Column]:
        declared = self.types.get(table, {})
        sql_types = exact_json.mapping(body.get("sqlType"), "sqlType")
        columns = {}
        for name, written in exact_json.mapping(body.get("mysqlType"), "mysqlType").items():
            kind = texts.parse_type(declared.get(name) or exact_json.text(written, "mysqlType"), self.flavor)
            sql_type = exact_json.integer(sql_types[name], "sqlType") if name in sql_types else None
            columns[name] = _Column(f"{table}.{name}", kind, sql_type)
        return columns

    def _image(self, row: Json, columns: dict[str, _Column]) -> Image:
        image: Image = {}
        for name, value in exact_json.mapping(row, "a row").items():
            if name not in columns:
                raise UndecodableError(f"column {name[:60]!r} has no mysqlType")
            image[name] = None if value is None else self.text(exact_json.text(value, name), columns[name])
        return image

    def text(self, value: str, column: _Column) -> str:
        """Return the text that SELECT gives of a value."""
        kind, what = column.kind, column.name
        raw: str | int | bytes = value
        if kind.base in texts.BINARIES:
            raw = _latin1(value, what)
        elif kind.base in ("enum", "set") and column.sql_type in _INTEGER_SQL_TYPES:
            raw = int(texts.integer_text(value, ColumnType(kind.base)))
        return texts.value_text(raw, kind, what, self.flavor, self.time_zone)


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: ColumnType
    sql_type: int | None


def _part(name: str, column: _Column, parser: CanalJson, *, is_key: bool) -> lazy.MessageColumn:
    """Return how a column is written in a row: every value is a string or null."""
    head = lazy.quoted(name) + b":"
    if not is_key:
        return lazy.MessageColumn(head, lazy.STRING)
    if column.kind.base in texts.INTEGERS and not column.kind.zerofill:
        return lazy.MessageColumn(head, lazy.STRING, key=b'"%s"' % lazy.INTEGER)
    return lazy.MessageColumn(head, lazy.STRING, key=lazy.PLAIN, convert=lambda value: parser.text(value, column))


def _images(
    op: Op, image: Image, before_row: Json, decode: Callable[[Json], Image]
) -> tuple[Image | None, Image | None]:
    if op is Op.INSERT:
        return None, image
    if op is Op.DELETE:
        return image, None
    if before_row is None:  # TiCDC sends an update of the key as a delete and an insert then
        return None, image
    return image | decode(before_row), image


def _latin1(value: str, what: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError as error:
        raise UndecodableError(f"{what} is binary and holds a character beyond ISO 8859-1") from error
