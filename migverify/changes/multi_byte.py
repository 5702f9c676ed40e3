"""Chinese, Japanese and Korean character sets: a Python codec, and the sequences that the server reads otherwise.

``data/multi_byte.json`` was read from MySQL 9.7.4 by converting every single byte, every double-byte sequence, and
every triple-byte one of the EUC sets; MariaDB 10.11 gives the same. A well-formed sequence without a character is a
question mark, as the server gives it.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

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


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Any]:
    text = (resources.files("migverify.changes") / "data" / "multi_byte.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


class _Characters(dict[bytes, str]):
    """Bytes of one character -> the character; made when first asked for, bounded."""

    def __init__(self, codec: str, unlike: Mapping[bytes, str]) -> None:
        super().__init__()
        self._decode = codecs.lookup(codec).decode
        self._unlike = unlike

    def __missing__(self, piece: bytes) -> str:
        if len(self) >= MOST_REMEMBERED:
            self.clear()
        found = self[piece] = self._unlike[piece] if piece in self._unlike else self._plain(piece)
        return found

    def _plain(self, piece: bytes) -> str:
        try:
            return self._decode(piece, "strict")[0]
        except UnicodeDecodeError:
            if len(piece) == 1:  # half of a character: no server stores it
                raise
            return "?"


def multi_byte_decoder(charset: str) -> Callable[[bytes], str] | None:
    """Return what decodes a multi-byte set; None for a set that is none of them."""
    table = _tables().get(charset)
    if table is None:
        return None
    characters = _Characters(table["codec"], {bytes.fromhex(k): v for k, v in table["unlike"].items()})
    pieces = re.compile(_LONG[charset] + rb"|[\x00-\xff]", re.DOTALL).findall

    def decode(data: bytes) -> str:
        return data.decode("ascii") if data.isascii() else "".join(map(characters.__getitem__, pieces(data)))

    return decode
