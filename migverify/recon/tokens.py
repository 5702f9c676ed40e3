"""SQL text -> tokens, by the rules of MySQL, MariaDB and TiDB under the pinned ``sql_mode``.

What a rule's SQL may do is decided on these tokens, so they must be the server's. Where servers, or a server and a
parser, read a text in two ways, it is refused: a comment that some servers run, ``--`` without a space after it (a
comment to some, two minus signs to MySQL), an open quote or comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Form(Enum):
    """What a token is."""

    SPACE = "space"
    COMMENT = "comment"
    HINT = "hint"  # /*+ ... */
    STRING = "string"  # '...' or "..."
    NAME = "name"  # `...`
    WORD = "word"  # an unquoted name or keyword, or a number
    PARAMETER = "parameter"  # :name
    MARK = "mark"  # one other character


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its text as written, and its offset in the SQL (characters, from 0)."""

    form: Form
    text: str
    start: int

    @property
    def name(self) -> str:
        """The name in a quoted name, a word or a parameter."""
        if self.form is Form.NAME:
            return self.text[1:-1].replace("``", "`")
        return self.text[1:] if self.form is Form.PARAMETER else self.text


class SqlProblem(ValueError):  # noqa: N818  (turned into a ConfigError where file and line are known)
    """The SQL is not what a rule may hold; ``start`` is the offset of the place."""

    def __init__(self, problem: str, start: int = 0, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.start = start
        self.hint = hint


_SPACE = re.compile(r"[ \t\r\n\f\v]+")
_WORD = re.compile(r"[0-9A-Za-z_$\u0080-\U0010ffff]+")
_PARAMETER = re.compile(r":[A-Za-z_][A-Za-z0-9_]*")
_NOT_A_NEWLINE = re.compile(r"[^\n]")
_EXECUTABLE = re.compile(r"/\*[A-Za-z]?!|/\*T\[")  # /*!, /*M! of MariaDB, /*T! and /*T[feature] of TiDB


def tokens(sql: str) -> Iterator[Token]:
    """Yield the tokens of a text; joined, their texts are the text.

    Raises
    ------
    SqlProblem
        an open quote or comment, a NUL, a comment that a server runs or that servers read differently.
    """
    position = 0
    before = ""  # the character before, to tell `a::b` and `x:=1` from a parameter
    while position < len(sql):
        token = _next(sql, position, before)
        yield token
        position += len(token.text)
        before = sql[position - 1]


def _next(sql: str, position: int, before: str) -> Token:
    first = sql[position]
    if found := _SPACE.match(sql, position):
        return Token(Form.SPACE, found[0], position)
    if first in "'\"":
        return Token(Form.STRING, sql[position : _string_end(sql, position)], position)
    if first == "`":
        return Token(Form.NAME, sql[position : _name_end(sql, position)], position)
    if first == "#" or sql.startswith("--", position):
        return _line_comment(sql, position)
    if sql.startswith("/*", position):
        return _block_comment(sql, position)
    if first == "\0":
        raise SqlProblem("the SQL holds a NUL character", position)
    if first == ":" and before != ":" and not _WORD.fullmatch(before or " "):
        # `::`, `:=` and `a:b` are no parameters; the parser refuses them, as the servers do.
        if found := _PARAMETER.match(sql, position):
            return Token(Form.PARAMETER, found[0], position)
    elif found := _WORD.match(sql, position):
        return Token(Form.WORD, found[0], position)
    return Token(Form.MARK, first, position)


def _string_end(sql: str, start: int) -> int:
    mark, position = sql[start], start + 1
    while position < len(sql):
        if sql[position] == "\\":
            position += 2
        elif sql[position] != mark:
            position += 1
        elif sql[position + 1 : position + 2] == mark:
            position += 2
        else:
            return position + 1
    raise SqlProblem(f"the SQL leaves a {mark} open", start)


def _name_end(sql: str, start: int) -> int:
    position = start + 1
    while (position := sql.find("`", position)) >= 0:
        if sql[position + 1 : position + 2] != "`":
            return position + 1
        position += 2
    raise SqlProblem("the SQL leaves a ` open", start)


def _line_comment(sql: str, start: int) -> Token:
    if sql[start] == "-" and sql[start + 2 : start + 3] not in ("", " ", "\t", "\n"):
        raise SqlProblem(
            "-- without a space after it is a comment to some servers and not to others", start,
            "Write a space after --, or between the two minus signs.",
        )  # fmt: skip
    end = sql.find("\n", start)
    return Token(Form.COMMENT, sql[start : len(sql) if end < 0 else end], start)


def _block_comment(sql: str, start: int) -> Token:
    if _EXECUTABLE.match(sql, start):
        raise SqlProblem("a comment that some servers run (/*! ... */)", start, "Write the SQL without it.")
    end = sql.find("*/", start + 2)
    if end < 0:
        raise SqlProblem("the SQL leaves a comment open", start)
    form = Form.HINT if sql.startswith("/*+", start) else Form.COMMENT
    return Token(form, sql[start : end + 2], start)


def without_comments(sql: str) -> str:
    """Return the SQL with spaces in the place of comments; every other character keeps its place."""
    return "".join(
        _NOT_A_NEWLINE.sub(" ", token.text) if token.form is Form.COMMENT else token.text for token in tokens(sql)
    )
