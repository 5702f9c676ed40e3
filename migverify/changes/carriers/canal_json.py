"""Canal-JSON, as TiCDC writes it, with and without the TiDB extension, and as Alibaba Canal writes it.

Format: docs.pingcap.com/tidb/stable/ticdc-canal-json. Every value is a string or null; the bytes of a binary column
stand for characters of ISO 8859-1; ENUM is the label's number and SET its bits; ``old`` of an update holds all
columns (TiCDC) or the changed ones only (Canal, ``content-compatible``, ``only-output-updated-columns``), or is missing
(a changefeed of TiCDC without old values).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import ClassVar, NamedTuple

from migverify.changes.carriers import column_text as texts
from migverify.changes.carriers import exact_json
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
from migverify.changes.carriers.lazy import SEPARATOR, ColumnCut, LazyAfterImages, LazyTable, is_integer, is_timestamp
from migverify.changes.model import DecodedTable, Op, Rows
from migverify.model import Flavor

_ROW_OPS = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
_STATEMENTS = frozenset(
    {"CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "GTID", "XACOMMIT", "XAROLLBACK"}
)
_INTEGER_SQL_TYPES = frozenset({4, -7, 5, -5, -6})  # java.sql.Types: the value of ENUM and SET is a number then


_NUMBERS, _BETWEEN, _MIDDLE, _OLD = b'"es":', b',"ts":', b',"sql":', b'"old":'
_NO_OLD, _DATA, _SEVERAL = b'null,"data":[{', b'}],"data":[{', b'},{"'
_END, _DIGITS = b'}],"_tidb":{"commitTs":', b"0123456789"
_REST = b'null,"data":null,"_tidb":null}'
_NAMES = ["id", "database", "table", "pkNames", "isDdl", "type", "es", "ts", "sql", "sqlType", "mysqlType", "old",
          "data", "_tidb"]  # fmt: skip
_USUAL = len('"es":1639633141221,"ts":1639633142960')
_MOST_TEMPLATES = 10_000
_new = tuple.__new__  # as the call of a named tuple, and three times as fast


class _MessageTemplate(NamedTuple):
    """What is equal in all messages of one operation on a table."""

    middle: bytes
    op: Op
    table: LazyTable
    after: LazyTable


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
        The reader wants key columns: others are decoded when their texts are asked for.
    """

    name: ClassVar[str] = "canal-json"
    types: Types = field(default_factory=dict)
    time_zone: tzinfo | None = None
    flavor: Flavor = Flavor.TIDB
    keys_only: bool = False
    templates: dict[bytes, _MessageTemplate] = field(default_factory=dict, init=False, repr=False, compare=False)
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
        """Cut the row out of a message that differs from a known one in its numbers and values only."""
        del key
        if not self.templates or value is None:
            return None
        numbers = value.find(_NUMBERS, self.shortest[0])
        known = self.templates.get(value[:numbers])
        if known is None:
            return None
        middle = numbers + _USUAL
        if not value.startswith(known.middle, middle):
            middle = value.find(_MIDDLE, numbers)
        end = value.rfind(_END)
        commit = value[end + len(_END) : -2]
        if (
            not value.startswith(known.middle, middle)
            or value[numbers + len(_NUMBERS) : middle].translate(None, _DIGITS) != _BETWEEN
            or not value.endswith(b"}}")
            or not is_timestamp(commit)
        ):
            return None
        at, table, rows = middle + len(known.middle), known.table, 1
        if value.startswith(_NO_OLD, at):
            images = value[at + len(_NO_OLD) - 1 : end + 1]
            table = known.after if known.op is Op.UPDATE else table
        else:
            split, rows = value.find(_DATA, at, end), 2
            if known.op is not Op.UPDATE or split < 0 or not value.startswith(b"[{", at):
                return None
            images = value[at + 1 : split + 1] + SEPARATOR + value[split + len(_DATA) - 1 : end + 1]
        if images.count(b"}") != rows and _SEVERAL in images:
            return None
        if images.count(SEPARATOR) != rows - 1 or not table.has_keys(images):
            return None
        return _new(CarriedRow, (int(commit), table, known.op, images, topic, partition, offset))

    def learn(self, message: CarrierMessage, item: Carried) -> bool:
        """Learn what surrounds the numbers and values of a message."""
        value, event = message.value or b"", item.event
        numbers = value.find(_NUMBERS)
        middle = value.find(_MIDDLE, numbers)
        old = value.find(_OLD, middle)
        if not self.keys_only or not isinstance(event, Rows) or min(numbers, middle, old) < 0:
            return False
        head, middle_text = value[:numbers], value[middle : old + len(_OLD)]
        try:
            body = exact_json.load(b"".join((head, _NUMBERS, b"1", _BETWEEN, b"1", middle_text, _REST)))
            columns = self._columns(event.table.name, body)
        except UndecodableError:
            return False
        if list(body) != _NAMES or item.key is None or not set(dict(item.key)) <= set(columns):
            return False
        cells = {name: _cell(name, column, self) for name, column in columns.items()}
        layout = DecodedTable.of(event.table.database, event.table.table, tuple(columns), dict(item.key))

        def exact(row: bytes) -> Image:
            return self._image(exact_json.load(row), columns)

        if len(self.templates) >= _MOST_TEMPLATES:
            self.templates.clear()
        table = LazyTable.lazy(layout, cells, exact, pairs=event.op is Op.UPDATE)
        after = LazyAfterImages.lazy(layout, cells, exact, pairs=False)
        self.shortest[0] = min(len(head), self.shortest[0]) if self.templates else len(head)
        self.templates[head] = _MessageTemplate(middle_text, event.op, table, after)
        return True

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


def _cell(name: str, column: _Column, parser: CanalJson) -> ColumnCut:
    plain = column.kind.base in texts.INTEGERS and not column.kind.zerofill

    def convert(raw: bytes) -> str | None:
        if plain and is_integer(raw):
            return raw.decode("ascii")
        if b"\\" in raw:
            return None
        try:
            return parser.text(raw.decode("utf-8"), column)
        except UnicodeDecodeError as error:
            raise UndecodableError(f"{column.name} is not UTF-8") from error

    spelled = json.dumps(name, ensure_ascii=False).encode()
    return ColumnCut(spelled + b":", spelled + b':"', b'"', convert)


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
