"""TiCDC Open Protocol: several events in one message, lengths in binary, each event a pair of JSON texts.

Format: docs.pingcap.com/tidb/stable/ticdc-open-protocol. Key: version (8 bytes, big-endian, 1), then per event a
length and JSON; value: per event a length and JSON. A row event has ``u`` (after), ``p`` (before) or ``d`` (deleted);
a changefeed that writes no old values sends an update as ``u`` alone, as an insert.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
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
from migverify.changes.carriers.exact_json import Json, Number
from migverify.changes.carriers.lazy import SEPARATOR, ColumnCut, Convert, LazyTable, is_integer, is_timestamp
from migverify.changes.carriers.recognition import OPEN_PROTOCOL_HEAD
from migverify.changes.model import DecodedTable, Op, Rows
from migverify.model import Flavor

VERSION = 1
_LENGTH = 8
_ROW, _DDL, _RESOLVED = 1, 2, 3
_BINARY, _HANDLE = 0x01, 0x02

_TEMPORALS = {10: "date", 11: "time", 12: "datetime", 14: "date"}
_BASES = {
    1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 7: "timestamp", 8: "bigint", 9: "mediumint",
    13: "year", 16: "bit", 225: "vector", 245: "json", 246: "decimal", 247: "enum", 248: "set", **_TEMPORALS,
}  # fmt: skip
_AS_INTEGERS = frozenset({1, 2, 3, 8, 9, 13, 16, 247, 248})
_STRINGS = frozenset({15, 253, 254})
_BLOBS = frozenset({249, 250, 251, 252})

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\'\"]))|\\", re.DOTALL)
_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "'": 39, '"': 34}


_KEY, _VALUE, _BEFORE = b'{"ts":', b',"v":', b'},"p":{'
_TYPE, _HANDLE_MARK = b'"t":', b'"h":true'
_SHAPES = {b'{"u":': Op.INSERT, b'{"d":': Op.DELETE}
_MOST_TEMPLATES = 10_000
_new = tuple.__new__  # as the call of a named tuple, and three times as fast


class _EventTemplate(NamedTuple):
    """What is equal in all messages of one table: its columns, and how many of them are of the key."""

    table: LazyTable
    pairs: LazyTable
    columns: int
    handles: int


@dataclass(frozen=True, slots=True)
class OpenProtocol(Parser):
    """Parser of the open protocol; the parameters are those of ``CanalJson``."""

    name: ClassVar[str] = "open-protocol"
    types: Types = field(default_factory=dict)
    time_zone: tzinfo | None = None
    keys_only: bool = False
    templates: dict[bytes, _EventTemplate] = field(default_factory=dict, init=False, repr=False, compare=False)

    def decode(self, message: CarrierMessage) -> Iterator[CarriedItem]:
        """Yield everything that the batch of one message holds."""
        keys = split_keys(message.key or b"")
        values = list(split_batch(message.value or b"", "the value"))
        if not values:
            values = [b""] * len(keys)  # a resolved event may come without a value
        if len(keys) != len(values):
            raise UndecodableError(f"{len(keys)} events in the key, {len(values)} in the value")
        heads = [exact_json.mapping(exact_json.load(key), "the key") for key in keys]
        try:
            for index, (head, value) in enumerate(zip(heads, values, strict=True)):
                yield self._event(message, index, head, value)
        except UndecodableError as error:
            error.tables = _tables(heads)
            raise

    def row(
        self, key: bytes | None, value: bytes | None, topic: str, partition: int, offset: int
    ) -> CarriedRow | None:  # fmt: skip
        """Cut the row out of a message of one event that is like a known one; its columns must be as many as there."""
        if not self.templates or key is None or value is None or not key.startswith(_KEY, 16):
            return None
        rest = key.find(b",", 16)
        known = self.templates.get(key[rest:])
        commit = key[16 + len(_KEY) : rest]
        if (
            known is None
            or not is_timestamp(commit)
            or key[:8] != OPEN_PROTOCOL_HEAD
            or _size(key, 8) != len(key) - 16
            or _size(value, 0) != len(value) - 8
            or not value.endswith(b"}}}")
            or b"\n" in value
        ):
            return None
        op = _SHAPES.get(value[8:13])
        if op is None:
            return None
        split = value.find(_BEFORE) if op is Op.INSERT else -1
        if split < 0:
            images, table = value[13:-1], known.table
        else:
            op, table = Op.UPDATE, known.pairs
            images = value[split + len(_BEFORE) - 1 : -1] + SEPARATOR + value[13 : split + 1]
        count = 1 if split < 0 else 2
        if images.count(_TYPE) != known.columns * count or images.count(_HANDLE_MARK) != known.handles * count:
            return None
        if not table.has_keys(images):
            return None
        return _new(CarriedRow, (int(commit), table, op, images, topic, partition, offset))

    def learn(self, message: CarrierMessage, item: Carried) -> bool:
        """Learn the columns of a message of one row; a statement makes all of them unknown."""
        if not self.keys_only:
            return False
        key, value, event = message.key or b"", message.value or b"", item.event
        if not isinstance(event, Rows):
            self.templates.clear()
            return False
        keys, values = split_keys(key), list(split_batch(value, "the value"))
        rest = key.find(b",", 16)
        if len(keys) != 1 or len(values) != 1 or item.key is None or not key.startswith(_KEY, 16) or rest < 0:
            return False
        if list(exact_json.load(keys[0])) != ["ts", "scm", "tbl", "t"]:
            return False
        body = exact_json.load(values[0])
        row, name = body.get("d") or body["u"], event.table.name
        if "p" in row:  # its name would look like the row before
            return False
        cells = {}
        for column, part in row.items():
            spelled = json.dumps(column, ensure_ascii=False).encode() + b":"
            start = values[0].find(spelled + b"{")
            end = values[0].find(_VALUE, start)
            if start < 0 or end < 0:
                return False
            head = values[0][start : end + len(_VALUE)]
            quote = b'"' if isinstance(part.get("v"), str) else b""
            convert = self._convert(part, f"{name}.{column}", self.types.get(name, {}).get(column))
            cells[column] = ColumnCut(spelled + b"{", head + quote, quote or b"}", convert)
        layout = DecodedTable.of(event.table.database, event.table.table, tuple(row), dict(item.key))
        images = values[0][5:-1].partition(_BEFORE)[0]

        def exact(raw: bytes) -> Image:
            return self._image(name, exact_json.mapping(exact_json.load(raw), "the row"))

        if len(self.templates) >= _MOST_TEMPLATES:
            self.templates.clear()
        single, pairs = (LazyTable.lazy(layout, cells, exact, pairs=two) for two in (False, True))
        counts = images.count(_TYPE), images.count(_HANDLE_MARK)
        self.templates[key[rest:]] = _EventTemplate(single, pairs, *counts)
        return True

    def _convert(self, column: dict[str, Json], what: str, declared: str | None) -> Convert:
        """Return how the bytes of a value become its text: of plain integers and of strings."""
        integer = declared is None and _BASES.get(exact_json.integer(column.get("t"), "t")) in texts.INTEGERS
        is_text = isinstance(column.get("v"), str)

        def convert(raw: bytes) -> str | None:
            if integer and is_integer(raw):
                return raw.decode("ascii")
            if not is_text or b"\\" in raw:
                return None
            try:
                return self._text(column | {"v": raw.decode("utf-8")}, what, declared)
            except UnicodeDecodeError as error:
                raise UndecodableError(f"{what} is not UTF-8") from error

        return convert

    def _event(self, message: CarrierMessage, index: int, key: dict[str, Json], value: bytes) -> CarriedItem:
        commit = exact_json.timestamp(key.get("ts"), "ts")
        kind = exact_json.integer(key.get("t"), "t")
        if kind == _RESOLVED:
            return Watermark(commit, message.place)
        if kind not in (_ROW, _DDL):
            raise UndecodableError(f"event type {kind} is not known")
        if key.get("corrupted") is True:
            raise UndecodableError("the changefeed found the row's checksum wrong: the row is not what was written")
        if key.get("ccl"):
            raise UndecodableError("the row is not in the message but in the changefeed's claim-check storage")
        body = exact_json.mapping(exact_json.load(value), "the value")
        database, table = (exact_json.text(key.get(part, ""), part) for part in ("scm", "tbl"))
        head = MessageHead.of_commit(message, database, table, commit)
        if kind == _DDL:
            return head.statement(exact_json.text(body.get("q"), "q"), index=index)
        return self._row(head, index, body, only_key=key.get("ohk") is True)

    def _row(self, head: MessageHead, index: int, body: dict[str, Json], *, only_key: bool) -> Carried:
        if set(body) not in ({"u"}, {"u", "p"}, {"d"}):
            raise UndecodableError(f"a row event with {', '.join(sorted(body)) or 'nothing'} in it")
        if only_key and "d" not in body and not self.keys_only:
            raise UndecodableError("the row was too large for a message: only its handle key was sent")
        part = exact_json.mapping(body["d" if "d" in body else "u"], "the row")
        image = self._image(head.name, part)
        key = [name for name in sorted(image) if _flags(part[name]) & _HANDLE]
        if "d" in body:
            return head.rows(Op.DELETE, image, None, key, index=index)
        if "p" not in body:
            return head.rows(Op.INSERT, None, image, key, index=index)
        before = image | self._image(head.name, exact_json.mapping(body["p"], "p"))
        return head.rows(Op.UPDATE, before, image, key, index=index)

    def _image(self, table: str, row: dict[str, Json]) -> Image:
        declared = self.types.get(table, {})
        return {
            name: self._text(exact_json.mapping(column, name), f"{table}.{name}", declared.get(name))
            for name, column in row.items()
        }

    def _text(self, column: dict[str, Json], what: str, declared: str | None) -> str | None:
        code, value = exact_json.integer(column.get("t"), "t"), column.get("v")
        if value is None:
            return None
        binary = _flags(column) & _BINARY
        kind = None if declared is None else texts.parse_type(declared, Flavor.TIDB)
        if code in _STRINGS:
            text = exact_json.text(value, what)
            return texts.hex_text(unquote(text), kind) if binary else text
        if code in _BLOBS:
            data = exact_json.base64_bytes(value, what)
            return texts.hex_text(data) if binary else _utf8(data, what)
        base = _BASES.get(code)
        if base is None:
            raise UndecodableError(f"the type of {what}, code {code}, is not known")
        # The message says what the value is; only length, labels and the like are taken from what was declared.
        kind = ColumnType(base) if kind is None else replace(kind, base=base)
        raw: str | int
        if base in texts.FLOATS:
            if not isinstance(value, Number):
                raise UndecodableError(f"{what} is no number")
            raw = value.text
        else:
            raw = exact_json.integer(value, what) if code in _AS_INTEGERS else exact_json.text(value, what)
        return texts.value_text(raw, kind, what, Flavor.TIDB, self.time_zone)


def _size(raw: bytes, at: int) -> int:
    return int.from_bytes(raw[at : at + _LENGTH], "big")


def _tables(heads: list[dict[str, Json]]) -> tuple[tuple[str, str], ...]:
    """Return the tables of a batch of rows; none where it holds anything else, which may concern any table."""
    names = [(head.get("scm"), head.get("tbl")) for head in heads if head.get("t") == Number(str(_ROW))]
    texts = [(database, table) for database, table in names if isinstance(database, str) and isinstance(table, str)]
    return tuple(dict.fromkeys(texts)) if len(texts) == len(heads) else ()


def split_keys(raw: bytes) -> list[bytes]:
    """Return the event keys of a message's key; raises UndecodableError for another version or a cut key."""
    if len(raw) < _LENGTH:
        raise UndecodableError("the key is shorter than the protocol's version number")
    version = int.from_bytes(raw[:_LENGTH], "big")
    if version != VERSION:
        raise UndecodableError(f"protocol version {version} is not known (or the message is compressed)")
    return list(split_batch(raw[_LENGTH:], "the key"))


def split_batch(raw: bytes, what: str) -> Iterator[bytes]:
    """Yield the parts of a batch, each after its length."""
    at = 0
    while at < len(raw):
        start = at + _LENGTH
        end = start + int.from_bytes(raw[at:start], "big")
        if start > len(raw) or end > len(raw):
            raise UndecodableError(f"{what} is cut: a part should end at byte {end} of {len(raw)}")
        yield raw[start:end]
        at = end


def unquote(text: str) -> bytes:
    r"""Return the bytes of a binary string: ``\x89PNG\r\n`` with the escapes of Go, everything else UTF-8."""
    out, at = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        out += text[at : match.start()].encode("utf-8")
        at = match.end()
        byte, short, long, simple = match.groups()
        if byte is not None:
            out.append(int(byte, 16))
        elif simple is not None:
            out.append(_SIMPLE[simple])
        elif short is not None or long is not None:
            out += _rune(int(short or long, 16))
        else:
            raise UndecodableError("a binary text holds an unknown escape")
    return bytes(out + text[at:].encode("utf-8"))


def _rune(code: int) -> bytes:
    try:
        return chr(code).encode("utf-8")
    except (ValueError, OverflowError) as error:
        raise UndecodableError("a binary text holds an escape that is no character") from error


def _flags(column: Json) -> int:
    # Without flags, CHAR and BINARY look the same: the changefeed is older than TiCDC 4.0.8.
    found = exact_json.mapping(column, "a column")
    if "f" not in found:
        raise UndecodableError("a column without flags: binary and text look the same")
    return exact_json.integer(found["f"], "f")


def _utf8(raw: bytes, what: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UndecodableError(f"{what} is text and not UTF-8") from error
