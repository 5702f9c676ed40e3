"""Debezium JSON messages: of its MySQL connector, and of TiCDC in Debezium's form.

Format: debezium.io/documentation/reference/stable/connectors/mysql.html (change events, data type mappings) and
docs.pingcap.com/tidb/stable/ticdc-debezium. A message says how a value was encoded, not what SELECT gives, and says
it only when it carries its schema. What both leave open must be stated as column types. Even so, a zero DATE, DATETIME
or TIMESTAMP in a nullable column arrives as NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from migverify.changes.carriers import exact_json
from migverify.changes.carriers.base import (
    Carried,
    CarriedItem,
    CarrierMessage,
    Image,
    MessageHead,
    MessagePosition,
    Parser,
    SkippedMessage,
    SourceOrder,
    Types,
    UndecodableError,
    Watermark,
)
from migverify.changes.carriers.debezium_text import Encoding, value_text
from migverify.changes.carriers.exact_json import Json
from migverify.changes.model import Op
from migverify.model import Flavor

_ROW_OPS = {"c": Op.INSERT, "r": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE}
_FLAVORS = {"mysql": Flavor.MYSQL, "mariadb": Flavor.MARIADB, "ticdc": Flavor.TIDB}


@dataclass(frozen=True, slots=True)
class Debezium(Parser):
    """Parser of Debezium JSON, with or without schema.

    Parameters
    ----------
    types
        Declared column types. Without the message's schema every column needs one; with it, DATETIME and TIME (their
        fraction), negative BIGINT (``bigint.unsigned.handling.mode=long`` writes large unsigned ones so), booleans and
        DOUBLE of decimals do, unless the connector propagates source types (``column.propagate.source.type``).
    binary
        The connector's ``binary.handling.mode``: bytes, base64, base64-url-safe or hex. Bytes are base64 in JSON.
    """

    name: ClassVar[str] = "debezium"
    types: Types = field(default_factory=dict)
    binary: str = "bytes"

    def decode(self, message: CarrierMessage) -> Iterator[CarriedItem]:
        """Yield the change, the statement or the watermark of one message."""
        if message.value is None:
            yield SkippedMessage("tombstone", message.place)
            return
        body = exact_json.mapping(exact_json.load(message.value), "the message")
        schema = None
        if set(body) == {"schema", "payload"}:
            schema = None if body["schema"] is None else exact_json.mapping(body["schema"], "schema")
            if body["payload"] is None:
                yield SkippedMessage("tombstone", message.place)
                return
            body = exact_json.mapping(body["payload"], "payload")
        if "source" not in body:
            yield self._without_source(body, message.place)
            return
        source = _Source.read(exact_json.mapping(body["source"], "source"), message)
        if "ddl" in body or "tableChanges" in body:
            yield self._statement(source, body)
            return
        op = exact_json.text(body.get("op"), "op")
        if op == "m":
            if source.commit is None:
                yield SkippedMessage("logical message", message.place)
            else:
                yield Watermark(source.commit, message.place)
        elif op == "t":
            yield source.head.statement("", truncates=True)
        elif op in _ROW_OPS:
            yield self._row(source, op, body, schema)
        else:
            raise UndecodableError(f"op {op[:20]!r} is not known")

    def _without_source(self, body: dict[str, Json], place: MessagePosition) -> CarriedItem:
        if "status" in body and "id" in body and "event_count" in body:
            return SkippedMessage("transaction boundary", place)
        if set(body) == {"ts_ms"}:
            return SkippedMessage("heartbeat", place)
        raise UndecodableError("no envelope with source and op: was it unwrapped by a transform?")

    def _row(self, source: _Source, op: str, body: dict[str, Json], schema: dict[str, Json] | None) -> Carried:
        images = {}
        for side in ("before", "after"):
            row = body.get(side)
            fields = {} if schema is None else _fields(schema, side)
            images[side] = None if row is None else self._image(source, exact_json.mapping(row, side), fields)
        before, after = images["before"], images["after"]
        kind = _ROW_OPS[op]
        if (after is None) is not (kind is Op.DELETE) or (kind is Op.INSERT and before is not None):
            raise UndecodableError(f"op {op} with the wrong images")
        if before is None and kind is not Op.INSERT:
            raise UndecodableError(f"op {op} without the row before it: binlog_row_image was not FULL")
        snapshot = op == "r" or source.snapshot
        return source.head.rows(kind, before, after, _key_names(source.head.message.key), snapshot=snapshot)

    def _image(self, source: _Source, row: dict[str, Json], fields: dict[str, Json]) -> Image:
        declared = self.types.get(source.head.name, {})
        image: Image = {}
        for name, value in row.items():
            encoding = Encoding.of(
                f"{source.head.name}.{name}", fields.get(name), declared.get(name), self.binary, source.flavor
            )
            image[name] = value_text(value, encoding)
        return image

    def _statement(self, source: _Source, body: dict[str, Json]) -> Carried:
        sql = exact_json.text(body.get("ddl") or "", "ddl")
        return source.head.statement(sql, snapshot=source.snapshot)


@dataclass(frozen=True, slots=True)
class _Source:
    """The ``source`` block of an envelope."""

    head: MessageHead
    flavor: Flavor
    commit: int | None
    snapshot: bool

    @classmethod
    def read(cls, source: dict[str, Json], message: CarrierMessage) -> _Source:
        connector = exact_json.text(source.get("connector"), "source.connector").lower()
        flavor = _FLAVORS.get(connector)
        if flavor is None:
            raise UndecodableError(f"connector {connector[:40]!r} is not known")
        commit = exact_json.timestamp(source.get("commit_ts"), "commit_ts") if flavor is Flavor.TIDB else None
        milliseconds = exact_json.integer(source.get("ts_ms"), "source.ts_ms")
        database, table = (exact_json.text(source.get(part) or "", f"source.{part}") for part in ("db", "table"))
        if commit is None:
            gtid = exact_json.text(source.get("gtid") or "", "source.gtid")
            head = MessageHead(message, database, table, milliseconds / 1000, gtid, _order(source))
        else:
            head = MessageHead.of_commit(message, database, table, commit)
        return cls(head, flavor, commit, source.get("snapshot") not in (None, False, "false"))


def _key_names(key: bytes | None) -> Iterable[str]:
    """Return the columns of a message key."""
    body = {} if key is None else exact_json.mapping(exact_json.load(key), "the key")
    return exact_json.mapping(body.get("payload", body) or {}, "the key")


def _order(source: dict[str, Json]) -> SourceOrder | None:
    file = exact_json.text(source.get("file") or "", "source.file")
    if not file:
        return None
    # Binlog positions of two servers do not compare: after a failover the order starts anew.
    offset, row = (_integer_or_0(source, part) for part in ("pos", "row"))
    return SourceOrder.in_binlog(file, offset, exact_json.integer(source.get("server_id"), "source.server_id"), row)


def _integer_or_0(source: dict[str, Json], part: str) -> int:
    return 0 if source.get(part) is None else exact_json.integer(source[part], f"source.{part}")


def _fields(schema: dict[str, Json], side: str) -> dict[str, Json]:
    for part in exact_json.sequence(schema.get("fields"), "schema.fields"):
        found = exact_json.mapping(part, "a field")
        if found.get("field") == side:
            columns = exact_json.sequence(found.get("fields"), f"schema of {side}")
            return {exact_json.text(exact_json.mapping(c, "a field").get("field"), "field"): c for c in columns}
    raise UndecodableError(f"the schema has no field {side}")
