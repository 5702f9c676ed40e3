"""Literals leave a statement before it is written: what remains has their types and about their lengths.

Masked are strings, numbers, hexadecimal and bit literals, bound values, the values of user variables and all comments
but hints and executable ones. Names of tables and columns stay, and so do the settings of a session (``SET NAMES``,
``SET sql_mode``): without them nothing could be replayed. Where a literal ends depends on the session's sql_mode and
character set, and on which executable comments run: a text that could be read in two ways is masked whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from migverify.sql.lexer import WIDE, Modes, Token, TokenKind, executed, narrowed, tokens
from migverify.workload.model import Command, Parameter
from migverify.workload.sessions import SessionStatement, joined_reasons
from migverify.workload.settings import assignments, variable

MASKED_WHOLE = "masked whole: where its literals end is not certain"

_COMMENT = re.compile(rb"/\*.*?(?:\*/|\Z)|--(?=[\x00-\x20\x7f]|\Z)[^\n]*+|\#[^\n]*+", re.DOTALL)
_DISPUTED = re.compile(rb"--[\x01-\x08\x0e-\x1f\x7f\x85\xa0]")  # a comment for one of MySQL and TiDB only
_HEX_NAME = re.compile(rb"0[xX][0-9a-fA-F]+\Z")  # 0X1F is a name for MySQL, and a number for TiDB
_NARROW = frozenset({"utf8mb4", "utf8mb3", "utf8", "latin1", "ascii", "binary"})
_LEXING = tuple(Modes(ansi_quotes=ansi, no_backslash_escapes=plain) for ansi, plain in product((False, True), repeat=2))
_QUOTES = frozenset({
    TokenKind.STRING, TokenKind.QUOTED, TokenKind.HINT, TokenKind.OPEN, TokenKind.BITS, TokenKind.NUMBER,
    TokenKind.VARIABLE,
})  # fmt: skip

_DATE = re.compile(rb"\d{2,4}-\d{1,2}-\d{1,2}$")
_DATETIME = re.compile(rb"\d{2,4}-\d{1,2}-\d{1,2}[ T]\d{1,2}:\d{1,2}(?::\d{1,2}(?:\.(\d{1,6}))?)?$")
_CLOCK = re.compile(rb"-?\d{1,3}:\d{1,2}(?::\d{1,2}(?:\.(\d{1,6}))?)?$")
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$")
_SETTINGS = frozenset({
    "names", "character", "charset", "collate", "autocommit", "sql_mode", "time_zone", "transaction_isolation",
    "tx_isolation", "transaction_read_only", "tx_read_only", "foreign_key_checks", "unique_checks", "sql_safe_updates",
    "character_set_client", "character_set_connection", "character_set_results", "collation_connection",
    "innodb_lock_wait_timeout", "lock_wait_timeout", "wait_timeout", "interactive_timeout", "net_read_timeout",
    "net_write_timeout", "max_execution_time", "sql_select_limit", "group_concat_max_len", "sql_log_bin", "sql_notes",
    "sql_warnings", "sql_auto_is_null", "sql_big_selects", "optimizer_switch", "lc_time_names", "lc_messages",
    "div_precision_increment", "auto_increment_increment", "auto_increment_offset", "transaction", "timestamp",
})  # fmt: skip


def length_class(size: int) -> int:
    """Return the length a text of this length is given: the power of two below, so that it fits where the text did."""
    return 1 << (size.bit_length() - 1) if size else 0


class _Reading(NamedTuple):
    """A text as one session reads it; ``closed``: all of it could be a statement."""

    modes: Modes
    found: list[Token]
    spans: list[tuple[int, int]]
    closed: bool


def mask_text(sql: bytes, sql_mode: str | None = None, charset: str | None = None) -> bytes:
    """Return a statement without its literals; empty where it is not certain what they are.

    Parameters
    ----------
    sql_mode, charset
        Those of the session; None where they are not known: then every one that there is counts.
    """
    readings = [_read(sql, modes) for modes in _possible(sql, sql_mode, charset)]
    readings = [one for one in readings if one.closed] or readings
    if _DISPUTED.search(sql) or any(one.spans != readings[0].spans for one in readings):
        return b""
    if not all(_stays_without_comments(sql, one) for one in readings):
        return b""
    names = all(one.modes.ansi_quotes for one in readings)
    return b"".join(_masked(sql, readings[0], names=names))


def _possible(sql: bytes, sql_mode: str | None, charset: str | None) -> Iterator[Modes]:
    """Yield the ways in which sessions could read a text."""
    known = sql_mode is not None and sql_mode.upper() != "DEFAULT"
    lexing = (Modes.of(sql_mode),) if known else _LEXING if b"\\" in sql or b'"' in sql else _LEXING[:1]
    name = (charset or "").lower()
    charsets = (name,) if name in WIDE else ("",) if name in _NARROW or sql.isascii() else ("", *WIDE)
    for modes, wide in product(lexing, charsets):
        yield replace(modes, charset=wide)


def _read(sql: bytes, modes: Modes) -> _Reading:
    text = executed(sql, lambda opening: len(opening[0]), modes)
    found = list(tokens(text, "mysql", replace(modes, charset="")))
    spans, behind, closed = [], 0, True
    for token in found:
        spans += _comments(text, behind, token.start)
        behind = token.end
        raw = text[token.start : token.end]
        if token.kind in _QUOTES:
            spans.append((token.start, token.end))
        closed = closed and token.kind != TokenKind.OPEN and (raw != b"\\" or text[token.end : token.end + 1] == b"N")
    spans += _comments(text, behind, len(text))
    return _Reading(modes, found, spans, closed)


def _comments(text: bytes, start: int, end: int) -> list[tuple[int, int]]:
    return [match.span() for match in _COMMENT.finditer(text, start, end)]


def _stays_without_comments(sql: bytes, reading: _Reading) -> bool:
    """Tell whether the literals outside of executable comments are the same where none of these runs."""
    text = executed(sql, lambda _: None, reading.modes)
    if text == narrowed(sql, reading.modes):
        return True
    found = tokens(text, "mysql", replace(reading.modes, charset=""))
    without = [(one.start, one.end) for one in found if one.kind in _QUOTES]
    quoted = [(one.start, one.end) for one in reading.found if one.kind in _QUOTES]
    across = any(b"*/" in sql[start : end - 2] for start, end in quoted)
    return not across and without == [span for span in quoted if text[slice(*span)].strip()]


def _masked(sql: bytes, reading: _Reading, *, names: bool) -> Iterator[bytes]:
    """Yield the parts of a masked text. ``names``: text in double quotes is certainly a name."""
    limit, behind = _settings_end(sql, reading.found), 0
    for token in reading.found:
        yield from _between(sql, reading, behind, token.start)
        behind = token.end
        raw = sql[token.start : token.end]
        literal = token.kind in (TokenKind.STRING, TokenKind.INTEGER, TokenKind.NUMBER) or (
            token.kind == TokenKind.QUOTED and raw[:1] == b'"'
        )
        if literal and (token.end <= limit or (token.kind == TokenKind.QUOTED and names)):
            yield raw
        else:
            yield b"".join(_token(token.kind, raw))
    yield from _between(sql, reading, behind, len(sql))


def _between(sql: bytes, reading: _Reading, start: int, end: int) -> Iterator[bytes]:
    for begin, stop in reading.spans:
        if start <= begin and stop <= end and begin < stop:
            yield sql[start:begin]
            yield b"/**/" if sql[begin : begin + 2] == b"/*" else b""
            start = stop
    yield sql[start:end]


def _token(kind: TokenKind, raw: bytes) -> Iterator[bytes]:
    if kind == TokenKind.OPEN:
        yield b"/**/" if raw[:2] == b"/*" else _string(raw) if raw[:1] in b"'\"" else b""
    elif kind == TokenKind.HINT:
        yield from (b"/*+ */",) if b"\\" in raw else _hint(raw)
    elif kind == TokenKind.BITS or raw[:2].lower() in (b"0x", b"x'"):
        yield _digits(raw) if kind in (TokenKind.BITS, TokenKind.NUMBER) or _HEX_NAME.match(raw) else raw
    elif kind in (TokenKind.INTEGER, TokenKind.NUMBER):
        yield mask_number(raw)
    elif kind == TokenKind.STRING or (kind == TokenKind.QUOTED and raw[:1] == b'"'):
        at = raw[:1] in b"nN"
        yield raw[:at] + _string(raw[at:])
    elif kind == TokenKind.VARIABLE and raw[1:2] in (b"'", b'"'):  # also the host of an account
        yield raw[:1] + _string(raw[1:])
    else:
        yield raw


def _hint(raw: bytes) -> Iterator[bytes]:
    """Hints name indexes and limits; what they quote may be a value (``SET_VAR(x = 'y')``)."""
    for part in re.split(rb"('(?:[^']|'')*'?|\"[^\"]*\"?)", raw):
        yield _string(part) if part[:1] in (b"'", b'"') else part


def _string(raw: bytes) -> bytes:
    quote = raw[:1]
    body = raw[1:-1] if len(raw) > 1 and raw[-1:] == quote else raw[1:]
    return quote + mask_value(body) + quote


def mask_value(body: bytes) -> bytes:
    """Return the content of a text: another of the same kind (date, time, number, JSON, any) and length class."""
    if not body:
        return b""
    if _DATE.match(body):
        return b"2000-01-01"
    if match := _DATETIME.match(body):
        return b"2000-01-01 00:00:00" + (b"." + b"0" * len(match[1]) if match[1] else b"")
    if match := _CLOCK.match(body):
        return b"00:00:00" + (b"." + b"0" * len(match[1]) if match[1] else b"")
    if _NUMBER.match(body):
        return mask_number(body)
    if body[:1] in b"{[" and body[-1:] in b"}]":
        return b"{}" if body[:1] == b"{" else b"[]"
    return b"x" * length_class(len(body))


def mask_number(raw: bytes) -> bytes:
    """Return another number of the same form: digits before and behind the point, and an exponent, stay as many.

    A digit alone becomes 1: small numbers are limits and flags, and hide nobody.
    """
    whole, exponent_sign, _ = re.split(rb"([eE])", raw, maxsplit=1) if re.search(rb"[eE]", raw) else (raw, b"", b"")
    sign = whole[:1] if whole[:1] in (b"+", b"-") else b""
    integer, point, fraction = whole[len(sign) :].partition(b".")
    masked = sign + (b"1" + b"0" * (len(integer) - 1) if integer else b"")
    masked += point + b"0" * len(fraction)
    return masked + (exponent_sign + b"0" if exponent_sign else b"")


def _digits(raw: bytes) -> bytes:
    if raw[:1] == b"0":
        return raw[:2] + b"0" * (len(raw) - 2)
    return raw[:2] + b"0" * (len(raw) - 2 - raw.endswith(b"'")) + b"'"


def _settings_end(sql: bytes, found: Sequence[Token]) -> int:
    """Return up to where a statement only sets what a session is: 0 for other statements."""
    texts = [sql[one.start : one.end] for one in found]
    if not texts or texts[0].upper() != b"SET" or b";" in texts[:-1]:
        return 0
    for scope, start, end in assignments([text.decode("latin-1") for text in texts[1:]]):
        item = found[1 + start : 1 + end]
        if not _is_setting(scope, [sql[one.start : one.end].decode("latin-1") for one in item], item):
            begin = 1 + start - bool(scope)
            return found[begin].start if begin < len(found) else len(sql)
    return len(sql)


_PLAIN_VALUES = frozenset({TokenKind.WORD, TokenKind.STRING, TokenKind.INTEGER, TokenKind.NUMBER, TokenKind.OPERATOR})


def _is_setting(scope: str, texts: list[str], item: Sequence[Token]) -> bool:
    """Tell whether one part of a SET gives a setting of ours one plain value."""
    if not texts or scope == "persist_only" or "(" in texts:
        return False
    return variable(texts[0])[1] in _SETTINGS and all(one.kind in _PLAIN_VALUES for one in item[1:])


def mask_statement(statement: SessionStatement) -> SessionStatement:
    """Return a statement without literals: in its text, its bound values and its details."""
    record, state = statement.record, statement.state
    parameters = record.parameters
    if parameters is not None:
        parameters = tuple(mask_parameter(one) for one in parameters)
    sql = mask_sql(record.sql, record.command, state.sql_mode, state.charset)
    partial = joined_reasons(statement.partial, MASKED_WHOLE) if record.sql and not sql else statement.partial
    masked = replace(record, sql=sql, parameters=parameters, details=mask_details(record.details))
    return replace(statement, record=masked, partial=partial)


def mask_sql(sql: bytes, command: Command, sql_mode: str | None, charset: str | None) -> bytes:
    """Return the text of a command without literals, as its session's mode and character set read it."""
    return sql if command is Command.INIT_DB else mask_text(sql, sql_mode, charset)


def mask_details(details: dict[str, str]) -> dict[str, str]:
    """Return the details that hold no literal."""
    return {name: value for name, value in details.items() if name in _KEPT_DETAILS}


_KEPT_DETAILS = frozenset({"in_transaction", "warnings", "charset", "failed", "command"})
"""What is known to hold no literal; other details are left out when masking."""


def mask_parameter(one: Parameter) -> Parameter:
    """Return another value of the same kind and about the same length."""
    if one.value is None:
        return one
    if one.kind == "bytes":
        return Parameter(one.kind, b"\0" * length_class(len(one.value)))
    return Parameter(one.kind, mask_value(one.value))
