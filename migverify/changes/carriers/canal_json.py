"""Canal-JSON, as TiCDC writes it, with and without the TiDB extension, and as Alibaba Canal writes it.

Format: docs.pingcap.com/tidb/stable/ticdc-canal-json. Every value is a string or null; the bytes of a binary column
stand for characters of ISO 8859-1; ENUM is the label's number and SET its bits; ``old`` of an update holds all
columns (TiCDC) or the changed ones only (Canal, ``content-compatible``, ``only-output-updated-columns``), or is missing
(a changefeed of TiCDC without old values).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import ClassVar

from migverify.changes.carriers import column_text as texts
from migverify.changes.carriers import exact_json
from migverify.changes.carriers.base import (
    CarriedItem,
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
from migverify.changes.model import Op
from migverify.model import Flavor

_ROW_OPS = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}
_STATEMENTS = frozenset(
    {"CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "GTID", "XACOMMIT", "XAROLLBACK"}
)
_INTEGER_SQL_TYPES = frozenset({4, -7, 5, -5, -6})  # java.sql.Types: the value of ENUM and SET is a number then


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
            yield Watermark(exact_json.integer(extension.get("watermarkTs"), "watermarkTs"), message.place)
            return
        commit = exact_json.integer(extension["commitTs"], "commitTs") if "commitTs" in extension else None
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
            image[name] = None if value is None else self._text(exact_json.text(value, name), columns[name])
        return image

    def _text(self, value: str, column: _Column) -> str:
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
