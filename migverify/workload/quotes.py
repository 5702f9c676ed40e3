"""Where a statement of a log ends, when its literals may hold anything, lines that look like a header too.

A log tells the end of a statement by the header of the next one only. A client can write such a header into a literal
(mysqldump of a table of logs does), and a statement with a syntax error may leave a quote open in front of a true
header. ``end_of`` weighs both readings and says when it cannot tell.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

UNBALANCED = "quote not closed at the next header"
UNCERTAIN = "cannot tell the end of the statement: a literal of it looks like records of the log"

_ITEMS = rb"""
    [^'"`\#/-]++
  | '(?:[^'\\]++|\\.)*+'
  | "(?:[^"\\]++|\\.)*+"
  | `[^`]*+`
  | \#[^\n]*+
  | --(?=[\x00-\x20]|\Z)[^\n]*+
  | /\*(?!M?!)(?:[^*]++|\*(?!/))*+\*/
  | /(?!\*(?!M?!))
  | -(?!-(?:[\x00-\x20]|\Z))
"""
_CLOSED = re.compile(rb"(?:" + _ITEMS + rb")*+", re.VERBOSE | re.DOTALL)
_OPENED = {b"'": re.compile(rb"'(?:[^'\\]++|\\.)*+'", re.DOTALL), b'"': re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL),
           b"`": re.compile(rb"`[^`]*+`"), b"/": re.compile(rb"/\*.*?\*/", re.DOTALL)}  # fmt: skip
_LITERALS = re.compile(
    rb"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+"|`[^`]*+`|\#[^\n]*+|--(?=[\x00-\x20]|\Z)[^\n]*+"""
    rb"""|/\*(?!M?!)(?:[^*]++|\*(?!/))*+\*/""",
    re.DOTALL,
)

_VERB = re.compile(
    rb"(?:\s++|/\*.*?\*/|\()*+(?:alter|analyze|begin|call|change|commit|create|deallocate|delete|desc|describe|do|drop|"
    rb"execute|explain|flush|grant|handler|insert|kill|load|lock|optimize|prepare|rename|replace|reset|revoke|"
    rb"rollback|savepoint|select|set|show|start|table|truncate|unlock|update|use|values|with|xa)\b",
    re.IGNORECASE | re.DOTALL,
)
_SEVERAL = re.compile(rb";\s*+\S")
_BODY = re.compile(rb"\s*(?:/\*.*?\*/\s*)*(?:create|alter)\b", re.IGNORECASE | re.DOTALL)

_EVIDENCE = 3
"""So many statements with closed quotes behind an open one are statements, not the inside of a literal."""
_SECTIONS = 64


def closed(data: bytes, start: int, end: int) -> bool:
    """Are all quotes and comments of a text closed at its end? A comment to the end of its line is."""
    found = _CLOSED.match(data, start, end)
    return found is not None and found.end() == end


def outside(sql: bytes) -> bytes:
    """Return a text without its literals, quoted names and comments."""
    return _LITERALS.sub(b" ", sql)


def literals(sql: bytes) -> list[bytes]:
    """Return the literals, quoted names and comments of a text."""
    return _LITERALS.findall(sql)


class Header(NamedTuple):
    """A header that may begin a record: its first byte, and where the statement before it ends."""

    begin: int
    text_end: int


class Headers(Protocol):
    """Finds headers in the bytes of a log."""

    def following(self, data: bytes, start: int, *, eof: bool) -> Header | None:
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


def end_of(data: bytes, text: int, first: Header, headers: Headers, limit: int, *, eof: bool) -> End | None:
    """Return where the record ends whose text starts at ``text`` and before whose end ``first`` was found.

    Returns None when bytes behind the window decide.
    """
    at = _reach(data, text, first.text_end)
    if at == first.text_end:
        return End(first.begin, first.text_end)
    # The quote opened at `at` holds the header. If the literal and the statement close further on, it is forged.
    header, evidence, sections = first, 0, 0
    while True:
        close = _OPENED[data[at : at + 1]].match(data, at, text + limit)
        if close is None:
            if not eof and len(data) < text + limit:
                return None
            return End(first.begin, first.text_end, UNBALANCED)
        while header.begin <= close.end():  # what a fresh start at each header would read
            following = headers.following(data, header.begin + 1, eof=eof)
            if following is None and not eof:
                if len(data) < text + limit:
                    return None
                return End(first.begin, first.text_end, UNBALANCED)
            if sections < _SECTIONS:
                sections += 1
                evidence += _speaks(data, headers, header, following)
                if evidence >= _EVIDENCE:
                    return End(first.begin, first.text_end, UNBALANCED)
            if following is None:
                break
            header = following
        if data[close.end() : close.end() + 1].isalnum():  # 'it's: the quote opened what it should close
            evidence += 1
        here = header if header.begin > close.end() else None
        stop = max(close.end(), headers.last_end(data) if here is None else here.text_end)
        at = _reach(data, close.end(), stop)
        if at == stop:
            return End(len(data) if here is None else here.begin, stop, UNCERTAIN if evidence else "")
        if here is None:
            return End(first.begin, first.text_end, UNBALANCED)


def _speaks(data: bytes, headers: Headers, header: Header, following: Header | None) -> bool:
    """Tell whether the text behind a header could be a statement of its own, with quotes, all of them closed."""
    start = headers.text_start(data, header)
    end = headers.last_end(data) if following is None else following.text_end
    if start >= end or _VERB.match(data, start, end) is None or not closed(data, start, end):
        return False
    text = data[start:end]
    if b"'" not in text and b'"' not in text:
        return False
    if any(
        found[0][:1] in b"'\"" and text[found.end() : found.end() + 1].isalnum() for found in _LITERALS.finditer(text)
    ):
        return False  # ''x'': quotes doubled inside a literal
    bare = outside(text)
    if b"\\" in bare:
        return False  # quotes escaped inside a literal
    # a server logs the statements of one text one by one: a body only has several
    return _SEVERAL.search(bare) is None or _BODY.match(text) is not None


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
                header = headers.following(data, at, eof=eof)
            stop = max(at, len(data) if header is None else header.text_end)
            reached = _reach(data, at, stop)
            if reached < stop:
                self._opened = data[reached : reached + 1]
                at = reached + (2 if self._opened == b"/" else 1)
            elif header is not None:
                return header.begin, True
            else:  # the last line may be the first half of a header
                return (len(data), True) if eof else (_reach(data, at, max(at, data.rfind(b"\n", at) - 1)), False)


def _reach(data: bytes, start: int, end: int) -> int:
    """Return where the first quote or comment opens that does not close before ``end``; ``end`` where none does."""
    found = _CLOSED.match(data, start, end)
    return start if found is None else found.end()


_CLOSERS = {b"'": re.compile(rb"(?:[^'\\]++|\\.)*+'", re.DOTALL), b'"': re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL),
            b"`": re.compile(rb"[^`]*+`"), b"/": re.compile(rb".*?\*/", re.DOTALL)}  # fmt: skip


def _odd_backslashes(data: bytes) -> int:
    return (len(data) - len(data.rstrip(b"\\"))) % 2
