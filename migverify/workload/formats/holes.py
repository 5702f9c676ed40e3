"""Holes of NUL bytes, as a crash or a truncation leaves them in a log, and NULs that a client sent.

A server writes the bytes of a statement as they came, and a driver may send a NUL raw inside of a string. A hole is
NULs where no statement has them: in a header, many in a row, or beside what is left of a header outside of a string.
"""

from __future__ import annotations

import re

from migverify.sql.lexer import TokenKind, executed_tokens

HOLE = "zero bytes: the log has a hole here"
GLUED = "a damaged header: two records in one"
_RUN = 8
"""So many NULs in a row are a hole, in a string too; fewer are taken as bytes of the statement."""
_HOLE = re.compile(rb"\0{%d}" % _RUN)
_NULS = re.compile(rb"\0+")


def damage_at(data: bytes, at: int, text: int, end: int, header_part: re.Pattern[bytes], *, whole: bool) -> int | None:
    """Return the first NUL of the record in ``[at, end)`` if it is a hole's; the record's text starts at ``text``.

    Without ``whole`` the record goes on behind ``end``: only what does not depend on that is a hole.
    """
    first = data.find(b"\0", at, end)
    if first < 0:
        return None
    if first < text or _HOLE.search(data, first, end):
        return first
    if not whole:
        return None
    # A few NULs are bytes that a client sent, unless they cut a header and so joined two records.
    return first if is_glued(data[text:end], header_part) else None


def is_glued(sql: bytes, header_part: re.Pattern[bytes]) -> bool:
    """Tell whether a statement holds what is left of a header outside of a string: it is two records."""
    parts = [part.start() for part in header_part.finditer(sql)]
    if not parts:
        return False
    strings = [(one.start, one.end) for one in executed_tokens(sql) if one.kind is TokenKind.STRING]
    return not all(any(start < part < stop for start, stop in strings) for part in parts)


def hole_end(data: bytes, at: int) -> int:
    """Return where the NULs that begin at a place end."""
    found = _NULS.match(data, at)
    return at if found is None else found.end()
