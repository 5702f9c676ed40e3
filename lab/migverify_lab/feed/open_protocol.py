"""Encodes changes as TiCDC's Open Protocol: batches of events, version and lengths in 8 bytes.

Written from docs.pingcap.com/tidb/stable/ticdc-open-protocol alone, without looking at the decoder.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from migverify.changes.model import Texts
from migverify_lab.feed.model import (
    CODES,
    INTEGERS,
    STRINGS,
    DdlEvent,
    EncodedMessage,
    Event,
    FeedColumn,
    FeedTable,
    RowEvent,
)
from migverify_lab.feed.values import label_number, set_number, single

VERSION = (1).to_bytes(8, "big")
BATCH = 16
"""Events of one message at most: TiCDC's ``max-batch-size``."""

_ROW, _DDL, _RESOLVED = 1, 2, 3
_BINARY, _HANDLE, _GENERATED, _PRIMARY, _UNIQUE, _NULLABLE, _UNSIGNED = 1, 2, 4, 8, 16, 64, 128
_BLOBS = frozenset({249, 250, 251, 252})
_SIMPLE = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\", 34: '\\"'}


@dataclass(frozen=True, slots=True)
class OpenEncoder:
    """Encoder of the open protocol.

    Attributes
    ----------
    old
        ``all``: an update has ``u`` and ``p`` with all columns; ``changed``: ``p`` has those that changed; ``off``: an
        update is ``u`` alone, and a delete has the key's columns only.
    batch_events
        Events of one message at most.
    """

    old: str = "all"
    batch_events: int = BATCH

    def batch(self, events: Sequence[Event]) -> list[EncodedMessage]:
        """Return messages that hold the events in their order; a DDL is a message of its own."""
        messages: list[EncodedMessage] = []
        rows: list[tuple[bytes, bytes]] = []
        for event in events:
            if isinstance(event, DdlEvent) or len(rows) == self.batch_events:
                messages += [_message(rows)] if rows else []
                rows = []
            if isinstance(event, DdlEvent):
                messages.append(_message([_ddl(event)]))
            else:
                rows.append(self._row(event))
        return [*messages, _message(rows)] if rows else messages

    def resolved(self, timestamp: int) -> EncodedMessage:
        """Return the resolved event: every change below it was sent. It has no value."""
        return EncodedMessage(VERSION + _part(_json({"ts": timestamp, "t": _RESOLVED})), None)

    def _row(self, event: RowEvent) -> tuple[bytes, bytes]:
        table, before, after = event.table, event.before, event.after
        key = {"ts": event.commit, "scm": table.database, "tbl": table.table, "t": _ROW}
        everything: Sequence[int] = range(len(table.columns))
        if after is None:
            places = table.key if self.old == "off" else everything
            return _json(key), _json({"d": _columns(table, places, before or ())})
        value = {"u": _columns(table, everything, after)}
        if before is not None and self.old != "off":
            changed = [place for place in everything if before[place] != after[place]]
            value["p"] = _columns(table, everything if self.old == "all" else changed, before)
        return _json(key), _json(value)


def events_of(message: EncodedMessage) -> list[tuple[bytes, bytes]]:
    """Return the events of a message for a file: key with its length, value with its length."""
    keys, values = _split((message.key or b"")[8:]), _split(message.value or b"")
    return list(zip(keys, values or [_part(b"")] * len(keys), strict=True))


def _split(raw: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(raw):
        end = at + 8 + int.from_bytes(raw[at : at + 8], "big")
        parts.append(raw[at:end])
        at = end
    return parts


def _ddl(event: DdlEvent) -> tuple[bytes, bytes]:
    key = {"ts": event.commit, "scm": event.database, "tbl": event.table, "t": _DDL}
    return _json(key), _json({"q": event.sql, "t": event.kind})


def _message(events: Sequence[tuple[bytes, bytes]]) -> EncodedMessage:
    keys, values = (b"".join(_part(event[n]) for event in events) for n in (0, 1))
    return EncodedMessage(VERSION + keys, values)


def _part(body: bytes) -> bytes:
    return len(body).to_bytes(8, "big") + body


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _columns(table: FeedTable, places: Sequence[int], image: Texts) -> dict[str, Any]:
    return {table.columns[place].name: _column(table.columns[place], image[place]) for place in places}


def _column(column: FeedColumn, text: str | None) -> dict[str, Any]:
    flags = (
        _BINARY * column.binary | _HANDLE * column.in_key | _GENERATED * column.generated | _PRIMARY * column.primary
        | _UNIQUE * (column.in_key and not column.primary) | _NULLABLE * column.nullable | _UNSIGNED * column.unsigned
    )  # fmt: skip
    handle = {"h": True} if column.in_key else {}
    return {"t": CODES[column.base], **handle, "f": flags, "v": None if text is None else _value(column, text)}


def _value(column: FeedColumn, text: str) -> str | int | float:
    base = column.base
    if CODES[base] in _BLOBS:
        return b64encode(bytes.fromhex(text[2:]) if column.binary else text.encode("utf-8")).decode("ascii")
    if column.binary:
        return escaped(bytes.fromhex(text[2:]))
    if base in STRINGS:
        return text
    if base in INTEGERS or base in ("year", "bit"):
        return int(text)
    if base == "enum":
        return label_number(column.members, text)
    if base == "set":
        return set_number(column.members, text)
    return single(text) if base == "float" else float(text) if base == "double" else text


def escaped(raw: bytes) -> str:
    """Return a byte string with its invisible characters escaped, as Go quotes strings."""
    return "".join(map(_escape, raw.decode("utf-8", "surrogateescape")))


def _escape(character: str) -> str:
    code = ord(character)
    if code in _SIMPLE:
        return _SIMPLE[code]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable():
        return character
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
