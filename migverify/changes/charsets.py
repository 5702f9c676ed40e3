"""Character sets of the server: which collation belongs to which, and bytes to text as the server converts them.

The server's tables differ from Python's codecs of like names: latin1 is cp1252 with its five holes filled, swe7 is
ASCII with Swedish letters, and where a well-formed byte sequence has no character the server gives a question mark.
``data/charsets.json`` (numbers of collations, 256 characters of each single-byte set) and ``data/multi_byte.json`` (a
Python codec, and the sequences that the server reads otherwise) were read from MySQL 9.7.4 by converting every single
byte, every double-byte sequence, and every triple-byte one of the EUC sets. tests/db
reads them again.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from migverify.errors import ChangeError

Decode = Callable[[bytes], str]
"""Bytes of a value -> its text; UnicodeDecodeError where they are not of the character set."""

MOST_REMEMBERED = 100_000
_EUC_JP = rb"\x8f[\xa1-\xfe][\xa1-\xfe]|\x8e[\xa1-\xdf]|[\xa1-\xfe][\xa1-\xfe]"
_SHIFT_JIS = rb"[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]"
_LONG = {
    "big5": rb"[\xa1-\xf9][\x40-\x7e\xa1-\xfe]",
    "cp932": _SHIFT_JIS,
    "eucjpms": _EUC_JP,
    "euckr": rb"[\x81-\xfe][\x41-\x5a\x61-\x7a\x81-\xfe]",
    "gb18030": rb"[\x81-\xfe][\x30-\x39][\x81-\xfe][\x30-\x39]|[\x81-\xfe][\x40-\x7e\x80-\xfe]",
    "gb2312": rb"[\xa1-\xf7][\xa1-\xfe]",
    "gbk": rb"[\x81-\xfe][\x40-\x7e\x80-\xfe]",
    "sjis": _SHIFT_JIS,
    "ujis": _EUC_JP,
}
"""Character set -> what a character of more than one byte looks like."""


@lru_cache
def _data(name: str) -> Mapping[str, Any]:
    text = (resources.files("migverify.changes") / "data" / name).read_text(encoding="utf-8")
    data: Mapping[str, Any] = json.loads(text)
    return data


COLLATIONS: Mapping[str, str] = _data("charsets.json")["collations"]
"""Character set -> numbers of its collations on MySQL 9.7 and MariaDB 10.11, which use no number twice."""
SINGLE_BYTE: Mapping[str, str] = _data("charsets.json")["single_byte"]
"""Character set -> the characters of its 256 bytes."""


def _expand(ranges: str) -> list[int]:
    found: list[int] = []
    for part in ranges.split():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


_CHARSET_OF = {number: charset for charset, ranges in COLLATIONS.items() for number in _expand(ranges)}


def charset_of_collation(number: int) -> str:
    """Return the server's name of a collation's character set; ``collation-N`` where it is not known.

    An unknown collation is refused by ``text_decoder``, when somebody asks for the text, and not before.
    """
    return _CHARSET_OF.get(number, f"collation-{number}")


@lru_cache
def text_decoder(charset: str) -> Decode | None:
    """Return the function that decodes a character set, or None where there is none."""
    if charset in ("utf8mb4", "utf8mb3"):
        return bytes.decode
    if charset in SINGLE_BYTE:
        return _single_byte(SINGLE_BYTE[charset])
    return _FIXED[charset] if charset in _FIXED else _multi_byte(charset)


def _single_byte(mapping: str) -> Decode:
    charmap = codecs.charmap_decode
    if mapping[:128].encode() == bytes(range(128)):
        return lambda data: data.decode("ascii") if data.isascii() else charmap(data, "strict", mapping)[0]
    return lambda data: charmap(data, "strict", mapping)[0]


def _ucs2(data: bytes) -> str:
    """Decode two bytes a character: what UTF-16 reads as a pair of surrogates is no character of the server's."""
    text = data.decode("utf-16-be")
    if 2 * len(text) != len(data):
        raise UnicodeDecodeError("ucs2", data, 0, len(data), "surrogates are no characters of ucs2")
    return text


_FIXED: dict[str, Decode] = {
    "utf16": lambda data: data.decode("utf-16-be"),
    "ucs2": _ucs2,
    "utf16le": lambda data: data.decode("utf-16-le"),
    "utf32": lambda data: data.decode("utf-32-be"),
}


def _multi_byte(charset: str) -> Decode | None:
    table = _data("multi_byte.json").get(charset)
    if table is None:
        return None
    plain = codecs.lookup(table["codec"]).decode
    exceptions = {bytes.fromhex(k): v for k, v in table["unlike"].items()}
    pieces = re.compile(_LONG[charset] + rb"|[\x00-\xff]", re.DOTALL).findall

    @lru_cache(MOST_REMEMBERED)
    def character(piece: bytes) -> str:
        if piece in exceptions:
            return str(exceptions[piece])
        try:
            return plain(piece, "strict")[0]
        except UnicodeDecodeError:
            if len(piece) == 1:  # half of a character: no server stores it
                raise
            return "?"

    return lambda data: data.decode("ascii") if data.isascii() else "".join(map(character, pieces(data)))


def label_text(label: bytes, charset: str) -> str:
    """Return the text of an ENUM or SET label; ``0x`` and hex where the label is binary."""
    if charset == "binary":
        return f"0x{label.hex()}"
    decode = text_decoder(charset)
    if decode is None:
        raise ChangeError(f"labels of an ENUM or SET are in the character set {charset}, which is not known here.")
    return decode(label)
