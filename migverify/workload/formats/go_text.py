"""Texts in Go's quotes, as TiDB and TiProxy write them."""

from __future__ import annotations

import re
import sys

_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))", re.DOTALL)
_PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v",
          b"\\": b"\\", b'"': b'"', b"'": b"'"}  # fmt: skip


def unescape(text: bytes) -> bytes:
    """Return what Go's escapes stand for.

    Raises
    ------
    ValueError
        an escape is unknown or cut.
    """

    def plain(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return bytes([int(match[1], 16)])
        if match[2] or match[3]:
            code = int(match[2] or match[3], 16)
            if code > sys.maxunicode:
                raise ValueError("a character that does not exist")
            return chr(code).encode("utf-8", "surrogatepass")
        if match[4]:
            return bytes([int(match[4], 8) & 255])
        found = _PLAIN.get(match[5])
        if found is None:
            raise ValueError("an escape that Go does not know")
        return found

    if text.endswith(b"\\") and (len(text) - len(text.rstrip(b"\\"))) % 2:
        raise ValueError("a cut escape")
    return _ESCAPE.sub(plain, text) if b"\\" in text else text


def unquote(text: bytes) -> bytes:
    """Return a text without its quotes, escapes resolved; a text without quotes stays as it is.

    Raises
    ------
    ValueError
        a quote is not closed, or an escape is unknown.
    """
    if not text.startswith(b'"'):
        return text
    if len(text) < 2 or not text.endswith(b'"'):
        raise ValueError("a quote that is not closed")
    return unescape(text[1:-1])
