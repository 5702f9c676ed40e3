"""TiDB's normalized text of a statement: words in lower case, literals to ``?``, lists of them to ``...``.

The rules are those of TiDB's digester (pkg/parser, digester.go and lexer.go), written anew and checked against
``TIDB_ENCODE_SQL_DIGEST`` of TiDB 8.5 on a corpus.

It reads tokens only, so a text that no parser takes has a digest too. It knows no modes: ``"..."`` is
a string and a backslash escapes, independent of the session.
"""

from __future__ import annotations

import codecs
import json
from functools import lru_cache
from importlib import resources

from migverify.sql.lexer import TokenKind, executed, pattern, tidb_runs

_NUMBERS = frozenset({TokenKind.INTEGER, TokenKind.NUMBER})
_BEFORE_SIGN = frozenset({"(", ",", "+", "-", ">=", "is", "<=", "=", "<", ">", "select"})
_STRAIGHT = "straight_join"
_VALUE, _LIST = "?\x00", "...\x00"  # the mark tells them from a `?` or `...` of the text
_CHARSET = "(_charset)"
_HINTING = ("force", "use", "ignore")
_ARROWS = frozenset({b"->", b"->>"})


@lru_cache(maxsize=1)
def words() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return TiDB's keywords, its keywords before ``(`` only, and its character sets, all in lower case."""
    data = json.loads(resources.files("migverify.workload").joinpath("data/tidb-8.5.json").read_text())
    return frozenset(data["words"]), frozenset(data["functions"]), frozenset(data["charsets"])


def _byte_by_byte(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("migverify.byte_by_byte", _byte_by_byte)


def _lower(raw: bytes) -> str:
    if raw.isascii():
        return raw.decode("ascii").lower()
    # one character for one, as TiDB does: no final sigma, no dotted i of two characters
    text = raw.decode("utf-8", "migverify.byte_by_byte")
    return "".join("i" if one == "\u0130" else one.lower() for one in text)


def normalized(sql: bytes) -> str:
    """Return TiDB's digest text of a statement."""
    keywords, functions, charsets = words()
    text = executed(sql, tidb_runs)
    out: list[str] = []
    push = out.append
    end_of_all = len(text) - 1
    skip_hint = 0
    behind = 0
    for match in pattern("tidb").finditer(text):
        kind = match.lastindex
        if kind is None:
            break
        raw = match[kind]
        start = match.start(kind)
        if skip_hint:  # ... index ( a, b ): gone to its first closing parenthesis
            if raw == b")":
                skip_hint = 0
            behind = match.end()
            continue
        if kind == TokenKind.WORD:
            word = _lower(raw)
            if word == "null":
                _literal(out, kind, raw)
            elif word in keywords or (word in functions and text[match.end() : match.end() + 1] == b"("):
                if out and out[-1] == "." and not text[behind:start].strip(b" "):
                    push("`join`" if word == _STRAIGHT else f"`{word}`")
                elif word == "index" and out and out[-1] in _HINTING:
                    _hinted(out, word, text, match.end())
                    skip_hint = 1
                else:
                    push("join" if word == _STRAIGHT else word)
            elif (word[0] == "_" and word[1:] in charsets) or (
                word == "n" and text[match.end() : match.end() + 1] == b"'"
            ):
                push(_CHARSET)
            else:
                push(f"`{word}`")
        elif kind == TokenKind.NAMES:
            for number, name in enumerate(_lower(raw).split(".")):
                if number:
                    push(".")
                if name == "null":
                    _literal(out, kind, raw)
                else:
                    push("`join`" if name == _STRAIGHT else f"`{name}`")
        elif kind == TokenKind.OPERATOR:
            if raw == b"*":
                push(_VALUE if out and out[-1] == "(" else "*")
            elif raw == b";" and start == end_of_all:
                break
            elif raw == b"\\N":
                _literal(out, kind, raw)
            elif raw in _ARROWS:
                push("")  # TiDB leaves the arrow out and keeps its two spaces
            elif raw < b"\x20" or raw.isalpha():  # x'.. or b'.. that is no literal ends all
                break
            else:
                push(raw.decode("latin-1"))
        elif kind == TokenKind.STRING and raw[1:-1] in (b"*", b"\\*"):
            push(_VALUE if out and out[-1] == "(" else "*")
        elif kind in (TokenKind.INTEGER, TokenKind.NUMBER, TokenKind.STRING, TokenKind.BITS, TokenKind.PARAMETER):
            _literal(out, kind, raw)
        elif kind == TokenKind.QUOTED:
            word = _lower(raw[1:-1].replace(b"``", b"`"))
            if word == "index" and out and out[-1] in _HINTING:
                _hinted(out, "`index`", text, match.end())
                skip_hint = 1
            else:
                push("`join`" if word == _STRAIGHT else f"`{word}`")
        elif kind == TokenKind.VARIABLE:
            push(_variable(raw))
            if raw in (b"@", b"@@") and text[match.end() : match.end() + 1] in (b"'", b'"', b"`"):
                out.pop()  # a name in quotes without an end
                break
        elif kind == TokenKind.OPEN:
            if raw.startswith(b"/*"):
                push("")
            break
        behind = match.end()
    return " ".join(out).replace("\x00", "")


def _hinted(out: list[str], word: str, text: bytes, end: int) -> None:
    """Take USE, FORCE or IGNORE away before INDEX (...); without a closing parenthesis only the rest goes."""
    if text.find(b")", end) >= 0:
        out.pop()
    else:
        out.append(word)


def _literal(out: list[str], kind: int, raw: bytes) -> None:
    if (
        kind in _NUMBERS and out and (out[-1] == "-" or out[-1] == "+")
        and (len(out) < 2 or out[-2] in _BEFORE_SIGN)
    ):  # fmt: skip
        out.pop()
    last = out[-1] if out else ""
    if last == ",":
        before = out[-2] if len(out) > 1 else ""
        if before in (_VALUE, _LIST):
            out[-2:] = [_LIST]
            return
    elif last == _CHARSET:
        if len(out) > 3 and out[-2] == "," and out[-3] in (_VALUE, _LIST):
            out[(-4 if out[-4] == _CHARSET else -3) :] = [_LIST]
            return
    elif last == "(" and len(out) > 3 and out[-2] == "," and out[-3] == ")" and out[-4] in (_VALUE, _LIST):
        out[-4:] = [_LIST]
        return
    if kind == TokenKind.INTEGER and last in ("by", ",", "(") and _in_by(out):
        out.append(raw.decode("ascii"))
        return
    out.append(_VALUE)


def _in_by(out: list[str]) -> bool:
    """Tell whether only plain items with commas stand between here and ORDER BY or GROUP BY."""
    at = len(out)
    while at >= 2 and out[at - 1] == ",":
        at -= 2
    if at >= 2 and out[at - 1] == "(":
        at -= 1
    return at >= 2 and out[at - 1] == "by" and out[at - 2] in ("order", "group")


def _variable(raw: bytes) -> str:
    marks = 2 if raw.startswith(b"@@") else 1
    name = raw[marks:]
    prefix = ""
    if marks == 2:
        for scope in (b"global.", b"session.", b"local."):
            if name[: len(scope)].lower() == scope:
                prefix = scope.decode()
                name = name[len(scope) :]
                break
        if not name:
            return ""
    quote = name[:1]
    if quote == b"`":
        name = name[1:-1].replace(b"``", b"`")
    elif quote in (b"'", b'"'):
        name = name[1:-1].replace(quote + quote, quote)
    text = _lower(name)
    return "@" * marks + prefix + ("join" if marks == 1 and text == _STRAIGHT else text)
