"""SQL text -> tokens, by the rules of MySQL, MariaDB and TiDB under the pinned ``sql_mode``.

What SQL of a user may do (a rule's, a check's, a condition's) is decided on these tokens, so they must be the server's:
sqlglot's own nest comments, skip ``{# ... #}``, and read ``/*! ... */`` as a comment. Where servers, or a server and a
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


_WORD = r"[0-9A-Za-z_$\u0080-\U0010ffff]"
_REFUSED = {
    "executable": (
        r"/\*[A-Za-z]?!|/\*T\[",  # /*!, /*M! of MariaDB, /*T! and /*T[feature] of TiDB
        "a comment that some servers run (/*! ... */)",
        "Write the SQL without it.",
    ),
    "dashes": (
        r"--(?![ \t\n]|\Z)",
        "-- without a space after it is a comment to some servers and not to others",
        "Write a space after --, or between the two minus signs.",
    ),
    "open_string": (r"""['"]""", "the SQL leaves a {} open", ""),
    "open_name": ("`", "the SQL leaves a {} open", ""),
    "open_comment": (r"/\*", "the SQL leaves a comment open", ""),
    "nul": (r"\0", "the SQL holds a NUL character", ""),
}
"""What no text may hold: how it begins, what is wrong with it, and what to do."""

_FORMS = {
    Form.SPACE: r"[ \t\r\n\f\v]+",
    Form.STRING: r"""'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+\"""",
    Form.NAME: r"`(?:[^`]|``)*+`",
    Form.COMMENT: r"#[^\n]*|--(?=[ \t\n]|\Z)[^\n]*|/\*(?![A-Za-z]?!|T\[|\+).*?\*/",
    Form.HINT: r"/\*\+.*?\*/",
    # `::`, `:=` and `a:b` are no parameters; the parser refuses them, as the servers do.
    Form.PARAMETER: rf"(?<!:)(?<!{_WORD}):[A-Za-z_][A-Za-z0-9_]*",
    Form.WORD: f"{_WORD}+",
}
_TOKEN = re.compile(
    "|".join(
        [f"(?P<{form.value}>{text})" for form, text in _FORMS.items()]
        + [f"(?P<{name}>{text})" for name, (text, _, _) in _REFUSED.items()]
        + [f"(?P<{Form.MARK.value}>.)"]
    ),
    re.DOTALL,
)
_NOT_A_NEWLINE = re.compile(r"[^\n]")


def tokens(sql: str) -> Iterator[Token]:
    """Yield the tokens of a text; joined, their texts are the text.

    Raises
    ------
    SqlProblem
        an open quote or comment, a NUL, a comment that a server runs or that servers read differently.
    """
    for found in _TOKEN.finditer(sql):
        kind = str(found.lastgroup)
        if kind in _REFUSED:
            _, problem, hint = _REFUSED[kind]
            raise SqlProblem(problem.format(found[0]), found.start(), hint)
        yield Token(Form(kind), found[0], found.start())


def without_comments(sql: str) -> str:
    """Return the SQL with spaces in the place of comments; every other character keeps its place."""
    return "".join(
        _NOT_A_NEWLINE.sub(" ", token.text) if token.form is Form.COMMENT else token.text for token in tokens(sql)
    )
