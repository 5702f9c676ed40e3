"""Chinese, Japanese and Korean character sets: a Python codec, and the sequences that the server reads otherwise.

``data/multi_byte.json`` was read from MySQL 9.7.4 by converting every single byte, every double-byte sequence, and
every triple-byte one of the EUC sets.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

_TRIPLE = 0x8F
"""First byte of a three-byte character in the EUC sets."""


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Any]:
    text = (resources.files("migverify.changes") / "data" / "multi_byte.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


def multi_byte_decoder(charset: str) -> Callable[[bytes], str] | None:
    """Return what decodes a multi-byte set; None for a set that is none of them."""
    table = _tables().get(charset)
    if table is None:
        return None
    codec = codecs.lookup(table["codec"])
    unlike = {bytes.fromhex(k): v for k, v in table["unlike"].items()}

    def plain(data: bytes) -> str:
        return codec.decode(data)[0]

    def decode(data: bytes) -> str:
        if data.isascii():
            return plain(data)
        parts, at = [], 0
        while at < len(data):
            piece = _character(charset, data, at)
            parts.append(unlike[piece] if piece in unlike else plain(piece))
            at += len(piece)
        return "".join(parts)

    return decode if unlike else plain


def _character(charset: str, data: bytes, at: int) -> bytes:
    """Return the bytes of the character that begins here."""
    first = data[at]
    if first < 0x80 or (charset == "sjis" and 0xA1 <= first <= 0xDF):  # half-width kana
        return data[at : at + 1]
    if first == _TRIPLE and charset in ("ujis", "eucjpms"):
        return data[at : at + 3]
    if charset == "gb18030" and 0x30 <= data[at + 1] <= 0x39:
        return data[at : at + 4]
    return data[at : at + 2]
