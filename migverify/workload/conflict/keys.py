"""TiDB's keys: from hexadecimal, from the log's escapes and from the words of messages -> table, index, values.

A row's key is ``t`` + table id + ``_r`` + handle, an index entry's ``t`` + table id + ``_i`` + index id + values, a
key of the schema begins with ``m``. Ids are eight bytes with the sign bit flipped. Values are coded so that bytes
compare as values do; TiKV codes the whole key once more, in groups of eight bytes and a marker.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace

from migverify.changes.numbers import decimal_bytes, decimal_reader
from migverify.errors import ChangeError

_SIGN = 1 << 63
_GROUP = 8
_NIL, _BYTES, _INT, _UINT, _FLOAT, _DECIMAL, _DURATION, _MAX = 0x00, 0x01, 0x03, 0x04, 0x05, 0x06, 0x07, 0xFA


@dataclass(frozen=True, slots=True)
class TidbKey:
    """One key. ``kind`` is row, index, schema or other; ``values`` the handle or the index values, as text.

    ``table`` is database.table where it is known. ``raw`` are the key's bytes, empty where a message has words only.
    """

    kind: str
    table_id: int | None = None
    index_id: int | None = None
    values: tuple[str, ...] = ()
    table: str = ""
    index: str = ""
    raw: bytes = b""

    def named(self, table: str, index: str = "") -> TidbKey:
        """Return the key with names."""
        return replace(self, table=table or self.table, index=index or self.index)

    def __str__(self) -> str:
        if self.kind == "schema":
            return f"key of the schema {self.values[0] if self.values else ''}".rstrip()
        if self.kind == "other":
            return f"key 0x{self.raw.hex()}" if self.raw else "unknown key"
        owner = self.table or f"table id {self.table_id}"
        values = "(" + ", ".join(self.values) + ")" if self.values else "(not decoded)"
        if self.kind == "row":
            return f"{owner}, row {values}"
        return f"{owner}, index {self.index or self.index_id} {values}"

    def as_json(self) -> dict[str, object]:
        """Return the key as a JSON object."""
        return {
            "kind": self.kind, "table_id": self.table_id, "table": self.table or None, "index_id": self.index_id,
            "index": self.index or None, "values": list(self.values), "hex": self.raw.hex() or None, "text": str(self),
        }  # fmt: skip


def decode(raw: bytes) -> TidbKey:
    """Return what a key's bytes say; bytes of no known form are a key of kind ``other``."""
    plain = _ungrouped(raw)
    if plain[:1] == b"z" and len(plain) > 4 and plain[:1] + plain[4:5] in (b"zt", b"zm"):
        plain = plain[4:]  # TiKV's data prefix is a byte; API v2 adds a keyspace of three
    elif plain[:1] in (b"x", b"r") and plain[4:5] in (b"t", b"m"):
        plain = plain[4:]
    if plain[:1] == b"m":
        return TidbKey("schema", values=(_values(b"\x01" + plain[1:], 1) or (_printable(plain[1:]),))[:1], raw=raw)
    if plain[:1] != b"t" or len(plain) < 11 or plain[9:11] not in (b"_r", b"_i"):
        return TidbKey("other", _id(plain[1:9]) if plain[:1] == b"t" and len(plain) >= 9 else None, raw=raw)
    table = _id(plain[1:9])
    rest = plain[11:]
    if plain[9:11] == b"_r":
        handle = (str(_id(rest)),) if len(rest) == 8 else _values(rest)
        return TidbKey("row", table, values=handle, raw=raw)
    if len(rest) < 8:
        return TidbKey("other", table, raw=raw)
    return TidbKey("index", table, _id(rest[:8]), _values(rest[8:]), raw=raw)


def from_hex(text: str) -> TidbKey | None:
    """Return the key of a hexadecimal text, None where it is none."""
    text = text.strip().strip('"')
    if not text or len(text) % 2 or not re.fullmatch(r"[0-9a-fA-F]+", text):
        return None
    return decode(bytes.fromhex(text))


_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})|\\([0-7]{3})|\\(.)", re.DOTALL)
_LETTERS = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0"}


def from_escapes(text: str) -> TidbKey:
    r"""Return the key of a text with escapes, as ``t\200\000...`` or ``t\x80\x00...`` in logs."""
    raw = bytearray()
    at = 0
    for match in _ESCAPED.finditer(text):
        raw += text[at : match.start()].encode()
        if match[1]:
            raw.append(int(match[1], 16))
        elif match[2]:
            raw.append(int(match[2], 8) & 0xFF)
        else:
            raw += _LETTERS.get(match[3], match[3].encode())
        at = match.end()
    return decode(bytes(raw + text[at:].encode()))


_GO_BYTES = re.compile(r"\[\]byte\{((?:0x[0-9a-fA-F]{1,2}(?:, )?)*)\}")
_TABLE = re.compile(r"tableID=(\d+)")
_NAME = re.compile(r"(?:tableName|table)=([^,}\s]+)")
_INDEX = re.compile(r"indexID=(\d+)")
_HANDLE = re.compile(r"handle=(?:\{([^}]*)\}|([^,}\s]+))")
_META = re.compile(r"metaKey=true, key=([^,}]*)(?:, field=([^}]*))?")


def from_words(text: str, raw: TidbKey | None = None) -> TidbKey | None:
    """Return the key a message spells as ``{tableID=1, indexID=2, indexValues={...}}``; None where it spells none.

    Parameters
    ----------
    raw
        The same key from the message's ``originalKey=``: only it separates values that hold commas.
    """
    go = _GO_BYTES.match(text)
    if go is not None:
        return decode(bytes(int(one, 16) for one in go[1].split(", ") if one)) if go[1] else None
    meta = _META.search(text)
    if meta is not None:
        return TidbKey("schema", values=(f"{meta[1]} {meta[2] or ''}".strip(),))
    table = _TABLE.search(text)
    if table is None:
        return raw
    name = _NAME.search(text)
    named = name[1] if name else ""
    if raw is not None and raw.table_id == int(table[1]) and raw.kind in ("row", "index"):
        return raw.named(named)
    index = _INDEX.search(text)
    if index is not None:
        values, end, _ = text.partition("indexValues={")[2].partition("}")
        parts = values.removesuffix(" ").removesuffix(",").split(", ") if end else ()
        spelled = tuple(part for part in parts if part)
        return TidbKey("index", int(table[1]), int(index[1]), spelled, named)
    handle = _HANDLE.search(text)
    spelled = tuple((handle[1] or handle[2]).split(", ")) if handle else ()
    return TidbKey("row", int(table[1]), values=spelled, table=named)


def _id(raw: bytes) -> int:
    return int.from_bytes(raw, "big") - _SIGN


def _ungrouped(raw: bytes) -> bytes:
    """Undo TiKV's coding of a whole key: groups of eight bytes, each with a marker 0xFF or, last, 0xFF - padding."""
    body = raw[1:] if raw[:2] in (b"zt", b"zm") else raw
    if len(body) < 18 or body[8] != 0xFF:
        return raw[1:] if body is not raw else raw
    parts: list[bytes] = []
    for at in range(0, len(body) - 8, 9):
        group, marker = body[at : at + 8], body[at + 8]
        padding = 0xFF - marker
        if padding > _GROUP or group[_GROUP - padding :] != b"\0" * padding:
            return raw
        parts.append(group[: _GROUP - padding])
        if padding:
            # A version may follow. A plain key whose bytes happen to be markers has another rest.
            return b"".join(parts) if len(body) - at - 9 in (0, _GROUP) else raw
    return raw


def _values(raw: bytes, most: int = 64) -> tuple[str, ...]:
    """Return coded values as text, ``most`` of them; empty where a value's form is not known."""
    found: list[str] = []
    at = 0
    while at < len(raw) and len(found) < most:
        flag = raw[at]
        at += 1
        if flag == _NIL:
            found.append("NULL")
        elif flag == _BYTES:
            text = bytearray()
            while at + 9 <= len(raw):
                padding = 0xFF - raw[at + 8]
                if padding > _GROUP:
                    return ()
                text += raw[at : at + 8 - padding]
                at += 9
                if padding:
                    break
            else:
                return ()
            found.append(_printable(bytes(text)))
        elif flag in (_INT, _UINT, _FLOAT, _DURATION):
            if at + 8 > len(raw):
                return ()
            number = int.from_bytes(raw[at : at + 8], "big")
            found.append(_number(flag, number))
            at += 8
        elif flag == _DECIMAL:
            decimal = _decimal(raw[at:])
            if decimal is None:
                return ()
            found.append(decimal[0])
            at += decimal[1]
        elif flag == _MAX:
            found.append("maximum")
        else:
            return ()
    return tuple(found)


def _number(flag: int, number: int) -> str:
    if flag == _FLOAT:
        bits = number & (_SIGN - 1) if number & _SIGN else ~number & 0xFFFFFFFFFFFFFFFF
        return repr(struct.unpack(">d", bits.to_bytes(8, "big"))[0])
    if flag == _DURATION:
        return f"{(number - _SIGN) / 1e9:.6f} s"
    return str(number if flag == _UINT else number - _SIGN)


def _decimal(raw: bytes) -> tuple[str, int] | None:
    """Decode precision, scale and MySQL's binary decimal; returns the text and the bytes it takes."""
    if len(raw) < 3 or raw[1] > raw[0]:
        return None
    size = decimal_bytes(raw[0], raw[1])
    if not size or len(raw) < 2 + size:
        return None
    try:
        return decimal_reader(raw[0], raw[1])(raw[2 : 2 + size]), 2 + size
    except ChangeError:  # no server has such a type
        return None


def _printable(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + raw.hex()
    return text if text.isprintable() else "0x" + raw.hex()
