"""TiCDC Open Protocol: several events in one message, lengths in binary, each event a pair of JSON texts.

Format: docs.pingcap.com/tidb/stable/ticdc-open-protocol. Key: version (8 bytes, big-endian, 1), then per event a
length and JSON; value: per event a length and JSON. A row event has ``u`` (after), ``p`` (before) or ``d`` (deleted);
a changefeed that writes no old values sends an update as ``u`` alone, as an insert.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from migverify.changes.carriers.exact_json import Json, Number
from migverify.changes.carriers.lazy import SEPARATOR, LazyTable, is_timestamp
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


_KEY, _VALUE = b'{"ts":', b',"v":'
_SHAPES = {b'{"u":': Op.INSERT, b'{"d":': Op.DELETE}
_new = tuple.__new__  # as the call of a named tuple, and three times as fast


class _EventTemplate(NamedTuple):
    """What is equal in all messages of one shape and table, ``known``, and a pattern of their values."""

    match: Callable[[bytes, int], re.Match[bytes] | None]
    table: LazyTable
    pairs: LazyTable
    known: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class OpenProtocol(Parser):
    """Parser of the open protocol; the parameters are those of ``CanalJson``."""

    name: ClassVar[str] = "open-protocol"
    types: Types = field(default_factory=dict)
    time_zone: tzinfo | None = None
    keys_only: bool = False
    templates: lazy.Kinds[tuple[bytes, bytes], _EventTemplate] = field(
        default_factory=lazy.Kinds, init=False, repr=False, compare=False
    )

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
        """Return the row of a message of one event that differs from a known one in its numbers and values only."""
        if not self.templates or key is None or value is None or not key.startswith(_KEY, 16):
            return None
        rest, shape = key.find(b",", 16), value[8:13]
        template = self.templates.get((key[rest:], shape))
        commit = key[16 + len(_KEY) : rest]
        if (
            template is None
            or not is_timestamp(commit)
            or key[:8] != OPEN_PROTOCOL_HEAD
            or _size(key, 8) != len(key) - 16
            or _size(value, 0) != len(value) - 8
        ):
            return None
        match = template.match(value, 8)
        if match is None:
            return None
        op, table, groups = _SHAPES[shape], template.table, match.groups()
        count = len(table.key)
        key_texts, old = groups[1 : count + 1], groups[count + 1] if op is Op.INSERT else None
        images = table.image(groups[0], key_texts)
        if old is not None and images is not None:
            op, table = Op.UPDATE, template.pairs
            old_image = table.old_image(old, groups[count + 2 :], key_texts)
            images = None if old_image is None else old_image + SEPARATOR + images
        if images is None:
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
        rest, shape = key.find(b",", 16), value[8:13]
        if len(keys) != 1 or len(values) != 1 or item.key is None or not key.startswith(_KEY, 16) or rest < 0:
            return False
        if list(exact_json.load(keys[0])) != ["ts", "scm", "tbl", "t"] or shape not in _SHAPES:
            return False
        body = exact_json.load(values[0])
        row = body.get("d") or body["u"]
        heads = _heads(values[0], row)
        known = self.templates.get((key[rest:], shape))
        if not heads or (known is not None and known.known == heads):
            return False  # it is this message that is unusual
        if not self.templates.is_frequent((key[rest:], shape)):
            return False
        layout = DecodedTable.of(event.table.database, event.table.table, tuple(row), dict(item.key))
        self.templates.learn((key[rest:], shape), self._template(layout, row, shape, heads))
        return True

    def _template(
        self, layout: DecodedTable, row: dict[str, Json], shape: bytes, heads: tuple[bytes, ...]
    ) -> _EventTemplate:  # fmt: skip
        keys = {layout.columns[place].name for place in layout.key}
        parts = [
            self._column(layout.name, name, part, head, is_key=name in keys)
            for (name, part), head in zip(row.items(), heads, strict=True)
        ]
        old = rb'(?:,"p":%s)?' % lazy.old_row_pattern(parts) if _SHAPES[shape] is Op.INSERT else b""
        pattern = re.compile(b"%s%s%s%s" % (re.escape(shape), lazy.row_pattern(parts), old, rb"\}\Z"))

        def exact(raw: bytes, wanted: Sequence[str]) -> Image:
            body = exact_json.load(raw)
            return self._image(layout.name, {name: body[name] for name in wanted if name in body})

        converts = [part.convert for part in parts if part.key]
        single, pairs = (LazyTable.lazy(layout, converts, exact, pairs=two) for two in (False, True))
        return _EventTemplate(pattern.match, single, pairs, heads)

    def _column(
        self, table: str, name: str, part: dict[str, Json], head: bytes, *, is_key: bool
    ) -> lazy.MessageColumn:  # fmt: skip
        """Return how a column is written; ``part`` is that of a message that was decoded whole."""
        declared, what = self.types.get(table, {}).get(name), f"{table}.{name}"
        if not is_key:
            return lazy.MessageColumn(head, lazy.VALUE, b"}")
        has_zeros = declared is not None and texts.parse_type(declared, Flavor.TIDB).zerofill
        if not has_zeros and _BASES.get(exact_json.integer(part.get("t"), "t")) in texts.INTEGERS:
            return lazy.MessageColumn(head, lazy.VALUE, b"}", lazy.INTEGER)

        def convert(value: str) -> str | None:
            return self._text(part | {"v": value}, what, declared)

        return lazy.MessageColumn(head, lazy.VALUE, b"}", lazy.PLAIN, convert)

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


def _heads(value: bytes, row: dict[str, Json]) -> tuple[bytes, ...]:
    """Return what is before the value of each column, as it is written; nothing where that is not found."""
    heads, end = [], 0
    for name in row:
        start = value.find(lazy.quoted(name) + b":{", end)
        end = value.find(_VALUE, start) + len(_VALUE)
        if start < 0 or end < start:
            return ()
        heads.append(value[start:end])
    return tuple(heads)


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
