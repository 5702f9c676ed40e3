"""Literals leave a statement before it is written: what remains has their types and about their lengths.

Masked are strings, numbers, hexadecimal and bit literals, bound values, the values of user variables and all comments
but hints and executable ones. Names of tables and columns stay, and so do the settings of a session (``SET NAMES``,
``SET sql_mode``): without them nothing could be replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from migverify.workload.model import Command, Parameter
from migverify.workload.sessions import Statement
from migverify.workload.tokens import first_word, tokens

_PIECE = re.compile(
    rb"""(?P<comment>/\*(?![!+]|M!).*?(?:\*/|\Z) | --(?=[\s]|\Z)[^\n]* | \#[^\n]*)
      | (?P<hint>/\*\+.*?(?:\*/|\Z))
      | (?P<mark>/\*M?!\d*)
      | (?P<hex>[xX]'[^']*(?:'|\Z) | 0x[0-9a-fA-F]+(?![\w$]))
      | (?P<bits>[bB]'[^']*(?:'|\Z) | 0b[01]+(?![\w$]))
      | (?P<single>'(?:[^'\\]|\\.|'')*+(?:'|\Z))
      | (?P<double>"(?:[^"\\]|\\.|"")*+(?:"|\Z))
      | (?P<name>`(?:[^`]|``)*+(?:`|\Z) | @{1,2}(?:[\w$.\x80-\xff]+|`[^`]*`)?)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w$\x80-\xff]))
      | (?P<word>[\w$\x80-\xff]+)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN = {
    "single": re.compile(rb"'(?:[^']|'')*+(?:'|\Z)"), "double": re.compile(rb'"(?:[^"]|"")*+(?:"|\Z)'),
}  # fmt: skip

_DATE = re.compile(rb"\d{2,4}-\d{1,2}-\d{1,2}$")
_DATETIME = re.compile(rb"\d{2,4}-\d{1,2}-\d{1,2}[ T]\d{1,2}:\d{1,2}(?::\d{1,2}(?:\.(\d{1,6}))?)?$")
_CLOCK = re.compile(rb"-?\d{1,3}:\d{1,2}(?::\d{1,2}(?:\.(\d{1,6}))?)?$")
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$")
_WIDE = frozenset({"gbk", "gb18030", "big5", "sjis", "cp932"})
_PAIR = re.compile(rb"([\x81-\xfe])([\\`])|[\x81-\xfe].", re.DOTALL)
_SETTINGS = frozenset({
    "names", "character", "charset", "collate", "autocommit", "sql_mode", "time_zone", "transaction_isolation",
    "tx_isolation", "transaction_read_only", "tx_read_only", "foreign_key_checks", "unique_checks", "sql_safe_updates",
    "character_set_client", "character_set_connection", "character_set_results", "collation_connection",
    "innodb_lock_wait_timeout", "lock_wait_timeout", "wait_timeout", "interactive_timeout", "net_read_timeout",
    "net_write_timeout", "max_execution_time", "sql_select_limit", "group_concat_max_len", "sql_log_bin", "sql_notes",
    "sql_warnings", "sql_auto_is_null", "sql_big_selects", "optimizer_switch", "lc_time_names", "lc_messages",
    "div_precision_increment", "auto_increment_increment", "auto_increment_offset", "transaction", "timestamp",
})  # fmt: skip
_SCOPES = frozenset({"session", "local", "global", "persist"})


def length_class(size: int) -> int:
    """Return the length a text of this length is given: the power of two below, so that it fits where the text did."""
    return 1 << (size.bit_length() - 1) if size else 0


def mask_text(sql: bytes, *, ansi_quotes: bool = False, backslash: bool = True, wide: bool = False) -> bytes:
    """Return a statement without its literals.

    Parameters
    ----------
    ansi_quotes
        The session's sql_mode has ANSI_QUOTES: ``"..."`` is a name and stays.
    backslash
        A backslash escapes in texts: not with NO_BACKSLASH_ESCAPES.
    wide
        The text is in a character set whose characters may end with the byte of a backslash (GBK, Shift-JIS ...).
    """
    if wide:
        sql = _PAIR.sub(lambda pair: b"xx" if pair[1] else pair[0], sql)
    return b"".join(_masked(sql, ansi_quotes=ansi_quotes, backslash=backslash))


def _masked(sql: bytes, *, ansi_quotes: bool, backslash: bool) -> Iterator[bytes]:
    at, limit_of_setting = 0, _settings_end(sql)
    while at < len(sql):
        match = _PIECE.match(sql, at)
        if match is None:  # cannot be: the last alternative takes any byte
            return
        kind, raw = match.lastgroup, match[0]
        if kind in _PLAIN and not backslash and (whole := _PLAIN[kind].match(sql, at)):
            raw = whole[0]
        at += len(raw)
        if at <= limit_of_setting and kind in ("single", "double", "number"):
            yield raw
        elif kind == "comment":
            yield b"/**/" if raw[:2] == b"/*" else b""
        elif kind == "hint":
            yield b"".join(_hint(raw))
        elif kind in ("hex", "bits"):
            yield _digits(raw)
        elif kind == "single" or (kind == "double" and not ansi_quotes):
            yield _string(raw)
        elif kind == "number":
            yield mask_number(raw)
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


def _settings_end(sql: bytes) -> int:
    """Return up to where a statement only sets what a session is: 0 for other statements."""
    if first_word(sql) != "set":
        return 0
    expects_name, scoped = True, False
    for token in tokens(sql)[1:]:
        if token.raw == b",":
            expects_name, scoped = True, False
        elif expects_name:
            word = token.word.removeprefix("@@")
            scope, dot, rest = word.partition(".")
            if dot and scope in _SCOPES:
                word = rest
            if word in _SCOPES and not scoped:
                scoped = True
                continue
            if token.kind == "user" or word not in _SETTINGS:
                return token.start
            expects_name = False
    return len(sql)


def mask_statement(statement: Statement) -> Statement:
    """Return a statement without literals: in its text, its bound values and what its format told beside them."""
    record, state = statement.record, statement.state
    parameters = record.parameters
    if parameters is not None:
        parameters = tuple(mask_parameter(one) for one in parameters)
    sql = mask_sql(record.sql, record.command, state.sql_mode, state.charset)
    return replace(
        statement, record=replace(record, sql=sql, parameters=parameters, details=mask_details(record.details))
    )


def mask_sql(sql: bytes, command: Command, sql_mode: str | None, charset: str | None) -> bytes:
    """Return the text of a command without literals, as its session's mode and character set read it."""
    if command is Command.INIT_DB:
        return sql
    mode = (sql_mode or "").upper()
    return mask_text(
        sql, ansi_quotes="ANSI" in mode, backslash="NO_BACKSLASH_ESCAPES" not in mode, wide=charset in _WIDE
    )


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
