"""Where a statement of a log ends, when its literals may hold anything, lines that look like a header too.

A log tells the end of a statement by the header of the next one only. A client can write such a header into a literal
(mysqldump of a table of logs does), and a statement with a syntax error may leave a quote open in front of a true
header. ``end_of`` weighs both readings and says when it cannot tell.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from migverify.sql.lexer import DEFAULT, Modes, Quoting, TokenKind, executed_tokens, first_word, quoting

UNBALANCED = "quote not closed at the next header"
CUT_BY_STREAM = "text cut by the stream"
LOOKS_CUT = "text cut by the audit log: a quote or comment of it is not closed"
LOOKS = frozenset({UNBALANCED, CUT_BY_STREAM, LOOKS_CUT})
"""Reasons that hold only as far as the session reads quotes like the default mode."""
UNCERTAIN = "cannot tell the end of the statement: a literal of it looks like records of the log"

COMMENTS = rb"\s*+(?:/\*(?:[^*]++|\*(?!/))*+\*/\s*+)*+"
"""What may be in front of a statement's first word."""


_DEFAULT = quoting(DEFAULT)
_CLOSED = _DEFAULT.closed
_OTHERS = tuple(
    Modes(ansi_quotes=ansi, no_backslash_escapes=plain, charset=charset)
    for charset in ("", "gbk", "big5", "sjis")
    for ansi, plain in ((False, False), (True, False), (False, True))
)[1:]
"""All other ways to read quotes; gb18030 reads them like gbk, cp932 like sjis."""
_DIVERGES = re.compile(rb"""\\['"]|[\x81-\xfe][\\`]""")
_WIDE = re.compile(rb"[\x81-\xfe][\\`]")
_AHEAD = 1 << 20
"""A literal of another mode is followed so far behind a header."""

_VERBS = frozenset({
    "alter", "analyze", "begin", "call", "change", "commit", "create", "deallocate", "delete", "desc", "describe",
    "do", "drop", "execute", "explain", "flush", "grant", "handler", "insert", "kill", "load", "lock", "optimize",
    "prepare", "rename", "replace", "reset", "revoke", "rollback", "savepoint", "select", "set", "show", "start",
    "table", "truncate", "unlock", "update", "use", "values", "with", "xa",
})  # fmt: skip
_BODIES = frozenset({"create", "alter"})

_EVIDENCE = 3
"""So many statements with closed quotes behind an open one are statements, not the inside of a literal."""
_SECTIONS = 64


def closed(data: bytes, start: int, end: int) -> bool:
    """Are all quotes and comments of a text closed at its end? A comment to the end of its line is."""
    found = _CLOSED.match(data, start, end)
    return found is not None and found.end() == end


def is_plain(data: bytes, start: int, end: int) -> bool:
    """Tell whether a text is closed, and has no quotes that another SQL mode or character set would read otherwise."""
    return closed(data, start, end) and _is_sure(data, start, end)


def _is_sure(data: bytes, start: int, end: int) -> bool:
    if data.find(b"\\", start, end) < 0 and data.find(b"`", start, end) < 0:
        return True
    return _DIVERGES.search(data, start, end) is None


def has_parameters(sql: bytes) -> bool:
    """Tell whether a text has a bare ``?``."""
    return b"?" in sql and any(token.kind is TokenKind.PARAMETER for token in executed_tokens(sql))


class Header(NamedTuple):
    """A header that may begin a record: its first byte, and where the statement before it ends."""

    begin: int
    text_end: int


class Headers(Protocol):
    """Finds headers in the bytes of a log.

    ``unclosed``: bytes in which no comment ends between two places, as ``end_of`` found; ``wide``: bytes in which the
    first half of a wide character behind a place is at another. Both keep the time linear.
    """

    unclosed: tuple[bytes, int, int]
    wide: tuple[bytes, int, int]

    def following(self, data: bytes, start: int) -> Header | None:
        """Return the first header that begins at ``start`` or behind it; None when the bytes show none."""
        ...

    def text_start(self, data: bytes, header: Header) -> int:
        """Return where the text of the record that a header begins starts."""
        ...

    def last_end(self, data: bytes) -> int:
        """Return where the text of a record that goes up to the end of the file ends."""
        ...


class End(NamedTuple):
    """The end of a record: the next one's first byte, the end of the text, and why it is partial."""

    next: int
    text_end: int
    partial: str = ""


def end_of(
    data: bytes, text: int, first: Header, headers: Headers, limit: int, *, eof: bool, modes: Modes = DEFAULT
) -> End | None:
    """Return where the record ends whose text starts at ``text`` and before whose end ``first`` was found.

    ``modes`` are those that the session is known to have set; a session of default modes may have others that the log
    does not show. Where those read on beyond another header, or stop before it, the end is uncertain: the record then
    takes in all up to the first header at which every mode ends a record, so that nothing behind it is made up.
    Returns None when bytes behind the window decide.
    """
    if modes != DEFAULT:
        return _end_of(data, text, first, headers, limit, eof=eof, read=quoting(modes))
    ends = _ends(data, text, first, headers, limit, eof=eof)
    if not ends or all(end.next == ends[0].next for end in ends):
        return ends[0] if ends else None
    bound = text + min(limit, _AHEAD)
    borders = {end.next: end.text_end for end in ends}
    while len(borders) > 1 and (at := min(borders)) < bound:
        del borders[at]
        start = headers.text_start(data, Header(at, at))
        following = headers.following(data, start)
        if following is None:
            if not eof and len(data) < text + limit:
                return None
            borders[len(data)] = headers.last_end(data)
        elif following.text_end <= start:
            borders[following.begin] = following.text_end
        else:
            ends = _ends(data, start, following, headers, limit, eof=eof)
            if not ends:
                return None
            borders.update((end.next, end.text_end) for end in ends)
    last = max(borders)
    return End(last, borders[last], UNCERTAIN)


def _ends(data: bytes, text: int, first: Header, headers: Headers, limit: int, *, eof: bool) -> list[End]:
    """Return where a record may end, as the default mode has it first; none when bytes behind the window decide."""
    found = _end_of(data, text, first, headers, limit, eof=eof, read=_DEFAULT)
    if found is None:
        return []
    is_open = found.partial == UNBALANCED  # what is behind the header decided that: another mode may read it otherwise
    if not is_open and _is_sure(data, text, found.text_end):
        return [found]
    wide = _has_wide(data, text, text + _AHEAD if is_open else found.next, headers)
    others = [quoting(modes) for modes in (_OTHERS if wide else _OTHERS[:2])]
    if found == (first.begin, first.text_end, "") and all(
        _reach(data, text, found.text_end, other.closed) == found.text_end for other in others
    ):
        return [found]
    ends = [found]
    for other in others:
        end = _end_of(data, text, first, headers, min(limit, _AHEAD), eof=eof, read=other._replace(closed=other.valid))
        if end is None:
            return []
        if end.partial != UNBALANCED:
            ends.append(end)
    return ends


def _has_wide(data: bytes, begin: int, end: int, headers: Headers) -> bool:
    known, start, first = headers.wide
    if known is not data or not start <= begin <= first:
        match = _WIDE.search(data, begin)
        first = len(data) if match is None else match.start()
        headers.wide = (data, begin, first)
    return first + 2 <= min(end, len(data))


def _end_of(
    data: bytes, text: int, first: Header, headers: Headers, limit: int, *, eof: bool, read: Quoting
) -> End | None:
    """Return the end as one way to read quotes has it."""
    at = _reach(data, text, first.text_end, read.closed)
    if at == first.text_end:
        return End(first.begin, first.text_end)
    # The quote opened at `at` holds the header. If the literal and the statement close further on, it is forged.
    header, evidence, sections = first, 0, 0
    while True:
        close = _close(data, at, text + limit, headers, read)
        if close is None:
            if not eof and len(data) < text + limit:
                return None
            return End(first.begin, first.text_end, UNBALANCED)
        while header.begin <= close.end():  # what a fresh start at each header would read
            following = headers.following(data, header.begin + 1)
            if following is None and not eof:
                if len(data) < text + limit:
                    return None
                return End(first.begin, first.text_end, UNBALANCED)
            if sections < _SECTIONS:
                sections += 1
                evidence += _speaks(data, headers, header, following, read)
                if evidence >= _EVIDENCE:
                    return End(first.begin, first.text_end, UNBALANCED)
            if following is None:
                break
            header = following
        if data[close.end() : close.end() + 1].isalnum():  # 'it's: the quote opened what it should close
            evidence += 1
        here = header if header.begin > close.end() else None
        stop = max(close.end(), headers.last_end(data) if here is None else here.text_end)
        at = _reach(data, close.end(), stop, read.closed)
        if at == stop:
            return End(len(data) if here is None else here.begin, stop, UNCERTAIN if evidence else "")
        if here is None:
            return End(first.begin, first.text_end, UNBALANCED)


def _close(data: bytes, at: int, stop: int, headers: Headers, read: Quoting) -> re.Match[bytes] | None:
    """Return the quote or comment that opens at a place, up to its end."""
    opened, stop = data[at : at + 1], min(stop, len(data))
    if opened == b"\\":
        return None  # outside of quotes: the mode reads no statement here
    if opened == b"/":  # every record may open one that none closes: it is looked for once
        known, begin, end = headers.unclosed
        if known is data and begin <= at and stop <= end:
            return None
        if data.find(b"*/", at + 2, stop) < 0:
            headers.unclosed = (data, at, len(data) if data.find(b"*/", max(at + 2, stop - 1)) < 0 else stop)
            return None
    return read.opened[opened].match(data, at, stop)


def _speaks(data: bytes, headers: Headers, header: Header, following: Header | None, read: Quoting) -> bool:
    """Tell whether the text behind a header could be a statement of its own, with quotes, all of them closed."""
    start = headers.text_start(data, header)
    end = headers.last_end(data) if following is None else following.text_end
    if start >= end or _reach(data, start, end, read.closed) < end:
        return False
    text = data[start:end]
    verb = first_word(text)
    if verb not in _VERBS or (b"'" not in text and b'"' not in text):
        return False
    found = executed_tokens(text)
    for number, token in enumerate(found):
        raw = text[token.start : token.end]
        if token.kind is TokenKind.STRING and text[token.end : token.end + 1].isalnum():
            return False  # ''x'': quotes doubled inside a literal
        if raw == b"\\":
            return False  # quotes escaped inside a literal
        if raw == b";" and number < len(found) - 1 and verb not in _BODIES:
            return False  # a server logs the statements of one text one by one: a body only has several
    return True


class Skip:
    """Follows the quotes of a record that is too long to be kept, block by block, up to the header behind it."""

    def __init__(self) -> None:
        self._opened = b""

    def take(self, data: bytes, headers: Headers, *, eof: bool) -> tuple[int, bool]:
        """Return how many bytes belong to the record, and whether it ends there."""
        at = 0
        header: Header | None = None
        while True:
            if self._opened:
                close = _CLOSERS[self._opened].match(data, at)
                if close is None:  # what may be half of an escape or of */ is looked at again
                    return (len(data), True) if eof else (max(at, len(data) - 1 - _odd_backslashes(data)), False)
                at, self._opened = close.end(), b""
            if header is None or header.begin < at:
                header = headers.following(data, at)
            stop = max(at, len(data) if header is None else header.text_end)
            reached = _reach(data, at, stop)
            if reached < stop:
                self._opened = data[reached : reached + 1]
                at = reached + (2 if self._opened == b"/" else 1)
            elif header is not None:
                return header.begin, True
            else:  # the last line may be the first half of a header
                return (len(data), True) if eof else (_reach(data, at, max(at, data.rfind(b"\n", at) - 1)), False)


def _reach(data: bytes, start: int, end: int, closed: re.Pattern[bytes] = _CLOSED) -> int:
    """Return where the first quote or comment opens that does not close before ``end``; ``end`` where none does."""
    found = closed.match(data, start, end)
    return start if found is None else found.end()


_CLOSERS = {b"'": re.compile(rb"(?:[^'\\]++|\\.)*+'", re.DOTALL), b'"': re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL),
            b"`": re.compile(rb"[^`]*+`"), b"/": re.compile(rb".*?\*/", re.DOTALL)}  # fmt: skip


def _odd_backslashes(data: bytes) -> int:
    return (len(data) - len(data.rstrip(b"\\"))) % 2
