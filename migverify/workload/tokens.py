"""Words of a statement, as far as what it does to its session needs them.

Byte for byte and in one pass: comments and space are skipped, texts and names stay whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN_PARTS = rb"""(?P<skip>\s+ | /\*M?!\d* | \*/ | /\*(?!M?!).*?(?:\*/|\Z) | --(?=[\s]|\Z)[^\n]* | \#[^\n]*)
      | (?P<text>'(?:[^'\\]|\\.|'')*+(?:'|\Z) | "(?:[^"\\]|\\.|"")*+(?:"|\Z))
      | (?P<name>`(?:[^`]|``)*+(?:`|\Z))
      | (?P<user>@(?!@)(?:[\w$.\x80-\xff]+|`[^`]*`|'[^']*'|"[^"]*"))
      | (?P<word>(?:@@)?[\w$\x80-\xff]+(?:\.[\w$\x80-\xff]+)*)
"""
_TOKEN = re.compile(_TOKEN_PARTS + rb"| (?P<sign>:=|.)", re.VERBOSE | re.DOTALL)
_SEVERAL = re.compile(
    rb"(?:" + re.sub(rb"\?P<\w+>", b"?:", _TOKEN_PARTS) + rb"| [^;])*+;\s*+\S", re.VERBOSE | re.DOTALL
)
FIRST = re.compile(rb"(?:\s++|/\*M?!\d*|/\*(?!M?!).*?(?:\*/|\Z)|--(?=\s)[^\n]*+|\#[^\n]*+|\()*+([A-Za-z]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """One word, name, text, user variable or sign of a statement, without comments and space."""

    kind: str
    raw: bytes
    start: int
    end: int

    @property
    def word(self) -> str:
        """The token in lower case, as text."""
        return text_of(self.raw).lower()


def tokens(sql: bytes) -> list[Token]:
    """Return the tokens of a statement; the content of executable comments (``/*!40101 ... */``) counts as text."""
    return [
        Token(match.lastgroup or "sign", match[0], match.start(), match.end())
        for match in _TOKEN.finditer(sql)
        if match.lastgroup != "skip"
    ]


def first_word(sql: bytes) -> str:
    """Return the first word of a statement in lower case, ``""`` where there is none."""
    match = FIRST.match(sql)
    return match[1].decode().lower() if match else ""


def holds_several(sql: bytes) -> bool:
    """Tell whether a text goes on behind a semicolon that ends a statement."""
    return b";" in sql and _SEVERAL.match(sql) is not None


def statements(sql: bytes) -> Iterator[bytes]:
    """Yield the statements of a text that holds several."""
    start = 0
    for token in tokens(sql):
        if token.raw == b";":
            yield sql[start : token.start]
            start = token.end
    yield sql[start:]


def by_comma(found: list[Token]) -> Iterator[list[Token]]:
    """Yield the parts between commas that stand in no parentheses, up to the end of the statement."""
    part: list[Token] = []
    depth = 0
    for token in found:
        if token.raw == b";" and not depth:
            break
        depth += (token.raw == b"(") - (token.raw == b")")
        if token.raw == b"," and not depth:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def dotted(found: list[Token], at: int) -> tuple[str, int]:
    """Return the name that begins at ``at``, with its database where it has one, and the place behind it."""
    name = name_of(found[at])
    at += 1
    while at + 1 < len(found) and found[at].raw == b".":
        name = f"{name}.{name_of(found[at + 1])}"
        at += 2
    return name, at


def name_of(token: Token) -> str:
    """Return a name without its quotes."""
    raw = token.raw
    if raw[:1] == b"`":
        return text_of(raw[1:-1].replace(b"``", b"`"))
    return text_of(raw)


def user_name(token: Token) -> str:
    """Return the name of a user variable, in lower case."""
    return text_of(token.raw[1:]).strip("`'\"").lower()


def value_of(token: Token) -> str:
    """Return what a text or a name stands for."""
    raw = token.raw
    if token.kind == "text":
        quote = raw[:1]
        body = raw[1:-1].replace(quote + quote, quote)
        return text_of(re.sub(rb"\\(.)", rb"\1", body, flags=re.DOTALL))
    return name_of(token)


def text_of(raw: bytes) -> str:
    """Return bytes as text; what is no UTF-8 becomes an escape."""
    return raw.decode("utf-8", "backslashreplace")
