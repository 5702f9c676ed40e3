"""Encodes changes as TiCDC's Canal-JSON with the TiDB extension.

Written from docs.pingcap.com/tidb/stable/ticdc-canal-json alone, without looking at the decoder: what the two agree on
is what the page says.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from migverify.changes.model import Texts
from migverify_lab.feed.model import BINARIES, DdlEvent, EncodedMessage, Event, FeedColumn, FeedTable, RowEvent
from migverify_lab.feed.values import double_digits, label_number, set_number, single_digits

_SQL_TYPES = {
    "float": 7, "double": 8, "decimal": 3, "char": 1, "varchar": 12, "binary": 2004, "varbinary": 2004,
    "tinytext": 2005, "text": 2005, "mediumtext": 2005, "longtext": 2005, "tinyblob": 2004, "blob": 2004,
    "mediumblob": 2004, "longblob": 2004, "date": 91, "datetime": 93, "timestamp": 93, "time": 92, "year": 12,
    "enum": 4, "set": -7, "bit": -7, "json": 12,
}  # fmt: skip
_INTEGERS = {"tinyint": (-6, 7, 5), "smallint": (5, 15, 4), "mediumint": (4, 23, 4), "int": (4, 31, -5),
             "bigint": (-5, 63, 3)}  # fmt: skip
"""java.sql.Types of an integer, the bits that it holds, and the type of an unsigned value beyond them."""
_KINDS = {1: "QUERY", 2: "QUERY", 3: "CREATE", 4: "ERASE", 7: "CINDEX", 8: "DINDEX", 11: "TRUNCATE", 14: "RENAME"}
_Layout: TypeAlias = tuple[list[str], list[str], list[int]]
_ESCAPED = re.compile("[&<>\u2028\u2029]")
_ESCAPES = str.maketrans({"&": "\\u0026", "<": "\\u003c", ">": "\\u003e", "\u2028": "\\u2028", "\u2029": "\\u2029"})


@dataclass(frozen=True, slots=True)
class CanalEncoder:
    """Encoder of Canal-JSON with ``enable-tidb-extension=true``.

    Attributes
    ----------
    old
        ``all``: an update's ``old`` has all columns, as TiCDC writes it by default; ``changed``: those that changed
        (``only-output-updated-columns``); ``off``: none, which TiCDC never writes in this format.
    full_types
        Whether ``mysqlType`` has the type's parameters (``content-compatible=true``).
    key_only_deletes
        Whether a delete has the key's columns only (``delete-only-output-handle-key-columns``).
    """

    old: str = "all"
    full_types: bool = False
    key_only_deletes: bool = False
    clock: Callable[[], float] = time.time
    _layouts: dict[str, tuple[FeedTable, _Layout]] = field(default_factory=dict, compare=False)

    def batch(self, events: Sequence[Event]) -> list[EncodedMessage]:
        """Return one message for each event."""
        return [
            EncodedMessage(None, self._row(event) if isinstance(event, RowEvent) else self._ddl(event))
            for event in events
        ]

    def resolved(self, timestamp: int) -> EncodedMessage:
        """Return the watermark: every change below it was sent."""
        body = self._body("", "", "TIDB_WATERMARK", timestamp)
        return EncodedMessage(None, _written(body | {"_tidb": {"watermarkTs": timestamp}}))

    def _ddl(self, event: DdlEvent) -> bytes:
        kind = _KINDS.get(event.kind, "ALTER")
        body = self._body(event.database, event.table, kind, event.commit) | {"isDdl": True, "sql": event.sql}
        return _written(body | {"_tidb": {"commitTs": event.commit}})

    def _row(self, event: RowEvent) -> bytes:
        table, before, after = event.table, event.before, event.after
        kind = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
        image = after if after is not None else before or ()
        places: Sequence[int] = range(len(table.columns))
        if after is None and self.key_only_deletes:
            places = table.key
        names, types, codes = self._layout(table)
        body = self._body(table.database, table.table, kind, event.commit)
        body |= {
            "pkNames": [names[place] for place in table.key],
            "sqlType": {
                names[place]: codes[place] or _integer_code(table.columns[place], image[place]) for place in places
            },
            "mysqlType": {names[place]: types[place] for place in places},
            "data": [_data(table, places, image)],
            "_tidb": {"commitTs": event.commit},
        }
        if before is not None and after is not None and self.old != "off":
            changed = [place for place in places if before[place] != after[place]]
            body["old"] = [_data(table, places if self.old == "all" else changed, before)]
        return _written(body)

    def _layout(self, table: FeedTable) -> _Layout:
        """Return names, types and codes of a table's columns; a code of 0 depends on the value."""
        layout = self._layouts.get(table.name)
        if layout is None or layout[0] is not table:
            columns = table.columns
            codes = [0 if column.base in _INTEGERS and column.unsigned else _code(column.base) for column in columns]
            layout = table, ([column.name for column in columns], [self._type(column) for column in columns], codes)
            self._layouts[table.name] = layout
        return layout[1]

    def _type(self, column: FeedColumn) -> str:
        return column.type if self.full_types else f"{column.base} unsigned" if column.unsigned else column.base

    def _body(self, database: str, table: str, kind: str, commit: int) -> dict[str, Any]:
        return {
            "id": 0, "database": database, "table": table, "pkNames": None, "isDdl": False, "type": kind,
            "es": commit >> 18, "ts": int(self.clock() * 1000), "sql": "", "sqlType": None, "mysqlType": None,
            "data": None, "old": None,
        }  # fmt: skip


def _data(table: FeedTable, places: Sequence[int], image: Texts) -> dict[str, str | None]:
    return {table.columns[place].name: _value(table.columns[place], image[place]) for place in places}


def _value(column: FeedColumn, text: str | None) -> str | None:
    write = _VALUES.get(column.base)
    return text if text is None or write is None else write(column, text)


_VALUES: dict[str, Callable[[FeedColumn, str], str]] = {
    **dict.fromkeys(BINARIES, lambda _, text: bytes.fromhex(text[2:]).decode("latin-1")),
    "enum": lambda column, text: str(label_number(column.members, text)),
    "set": lambda column, text: str(set_number(column.members, text)),
    "float": lambda _, text: single_digits(text),
    "double": lambda _, text: double_digits(text),
}


def _code(base: str) -> int:
    return _INTEGERS[base][0] if base in _INTEGERS else _SQL_TYPES[base]


def _integer_code(column: FeedColumn, text: str | None) -> int:
    code, bits, beyond = _INTEGERS[column.base]
    return beyond if text is not None and int(text) >> bits else code


def _written(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    # Outside strings JSON has none of these characters.
    return (text.translate(_ESCAPES) if _ESCAPED.search(text) else text).encode("utf-8")
