"""SQL that a user wrote -> tokens as ``migverify.sql.lexer`` reads them under the pinned ``sql_mode``, or a refusal.

What SQL of a user may do (a rule's, a check's, a condition's) is decided on these tokens, so they must be the server's:
sqlglot's own nest comments, skip ``{# ... #}``, and read ``/*! ... */`` as a comment. Where servers, or a server and a
parser, read a text in two ways, it is refused: a comment that some servers run, ``--`` without a space after it (a
comment to some, two minus signs to MySQL), an open quote or comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from migverify.sql.lexer import TokenKind, fine_tokens


@dataclass(frozen=True, slots=True)
class SqlToken:
    """One token: its text as written, and its offset in the SQL (characters, from 0).

    Numbers are words; an operator is one character.
    """

    kind: TokenKind
    text: str
    start: int

    @property
    def name(self) -> str:
        """The name in a quoted name, a word or a parameter."""
        if self.kind is TokenKind.QUOTED:
            return self.text[1:-1].replace("``", "`")
        return self.text[1:] if self.kind is TokenKind.NAMED else self.text


class SqlProblem(ValueError):  # noqa: N818  (turned into a ConfigError where file and line are known)
    """The SQL is not what a rule may hold; ``start`` is the offset of the place."""

    def __init__(self, problem: str, start: int = 0, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.start = start
        self.hint = hint


# `::`, `:=` and `a:b` are no parameters; the parser refuses them, as the servers do.
_PARAMETER = re.compile(rb"(?<![:0-9A-Za-z_$\x80-\xff]):[A-Za-z_][A-Za-z0-9_]*")
_BETWEEN = re.compile(rb"[ \t\r\n\f\v]++|#[^\n]*+|--[^\n]*+|/\*.*?\*/", re.DOTALL)
_EXECUTABLE = re.compile(rb"/\*[A-Za-z]?!|/\*T\[")  # /*!, /*M! of MariaDB, /*T! and /*T[feature] of TiDB
_AMBIGUOUS_DASHES = re.compile(rb"--(?![ \t\n]|\Z)")
_NOT_A_NEWLINE = re.compile(r"[^\n]")


def tokens(sql: str) -> Iterator[SqlToken]:
    """Yield the tokens of a text; joined, their texts are the text.

    Raises
    ------
    SqlProblem
        an open quote or comment, a NUL, a comment that a server runs or that servers read differently.
    """
    data = sql.encode("utf-8", "surrogatepass")
    start = 0
    for kind, begin, end in _read(data):
        text = data[begin:end].decode("utf-8", "surrogatepass")
        yield SqlToken(kind, text, start)
        start += len(text)


def _read(data: bytes) -> Iterator[tuple[TokenKind, int, int]]:
    """Yield kinds and byte offsets."""
    at = 0
    for kind, begin, end in fine_tokens(data):
        yield from _between(data, at, begin)
        if end <= at:  # of a parameter
            continue
        begin = max(at, begin)
        _check(data, begin, end, kind)
        parameter = _PARAMETER.match(data, begin)
        at = end if parameter is None else parameter.end()
        yield kind if parameter is None else TokenKind.NAMED, begin, at
    yield from _between(data, at, len(data))


def _between(data: bytes, begin: int, end: int) -> Iterator[tuple[TokenKind, int, int]]:
    for found in _BETWEEN.finditer(data, begin, max(begin, end)):
        _check(data, *found.span(), None)
        yield TokenKind.SPACE if found[0][:1].isspace() else TokenKind.COMMENT, *found.span()


def _check(data: bytes, begin: int, end: int, kind: TokenKind | None) -> None:
    """Refuse what begins at a place, where servers read it differently, or where it has no end."""
    problem, hint = "", ""
    raw = data[begin:end]
    if _EXECUTABLE.match(raw):
        problem, hint = "a comment that some servers run (/*! ... */)", "Write the SQL without it."
    elif _AMBIGUOUS_DASHES.match(data, begin):
        problem = "-- without a space after it is a comment to some servers and not to others"
        hint = "Write a space after --, or between the two minus signs."
    elif kind is TokenKind.OPEN:
        problem = f"the SQL leaves a {'comment' if raw[:1] == b'/' else raw[:1].decode()} open"
    elif raw[:1] == b"\0":
        problem = "the SQL holds a NUL character"
    if problem:
        raise SqlProblem(problem, len(data[:begin].decode("utf-8", "surrogatepass")), hint)


def without_comments(sql: str) -> str:
    """Return the SQL with spaces in the place of comments; every other character keeps its place."""
    return "".join(
        _NOT_A_NEWLINE.sub(" ", token.text) if token.kind is TokenKind.COMMENT else token.text for token in tokens(sql)
    )
