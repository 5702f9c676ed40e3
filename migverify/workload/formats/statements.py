"""What texts of logs lack, and what logs hold beside records."""

from __future__ import annotations

import re

from migverify.sql.lexer import TokenKind, executed_tokens
from migverify.workload.model import Command

COMMANDS = {
    b"Query": Command.QUERY, b"Execute": Command.EXECUTE, b"Prepare": Command.PREPARE, b"Quit": Command.QUIT,
    b"Connect": Command.CONNECT, b"Init DB": Command.INIT_DB, b"Change user": Command.CHANGE_USER,
    b"Close stmt": Command.CLOSE_STATEMENT, b"Reset Connection": Command.RESET_CONNECTION,
}  # fmt: skip
"""Commands by the name that a server logs."""

CUT = "statement cut by the end of the file"
MASKED = "password masked by the server"
LINE_ENDS = "line ends inside a literal were changed with those of the file"
TEXT_LOST = "text of the prepared statement not logged"
NO_RECORD = "bytes that are no record"

_SERVER = rb"[^\n\0,;'\"`]{0,512}?(?:mysqld|mariadbd)[\w.-]{0,32}, Version: [^\n\0]{0,512}started with:\r?\n"
BANNER = re.compile(
    _SERVER + rb"(?:(?:Tcp port|TCP Port): [^\n\0]*\n)?(?:Time +Id +Command +Argument *\r?\n|Time\t[^\n\0]*\n)?"
)
BANNER_LINE = _SERVER
_MASKED = re.compile(
    rb"(?:\b(?:by|as)|password\s*\(|=)\s*(?:\*{5}(?![*/])|<secret>)|\b(?:by|as)\s*'(?:<secret>|\*{5})'", re.IGNORECASE
)
_FROM_LOST = re.compile(rb"\s*PREPARE\s+\S+\s+FROM \.\.\.$")


def lacks(sql: bytes) -> str:
    """Return why a statement's text is not what the client sent, empty when it is."""
    if (b"*****" in sql or b"<secret>" in sql) and _MASKED.search(sql):
        return MASKED
    if sql.endswith(b" FROM ...") and _FROM_LOST.match(sql):
        return TEXT_LOST
    return ""


def windows_lines(head: bytes) -> bool:
    """Tell whether the lines of a file end like those of Windows: no server writes them so, but a copy may."""
    breaks = head.count(b"\n")
    return breaks > 1 and head.count(b"\r\n") == breaks


def changed_lines(sql: bytes) -> str:
    """Return why a text of a file with Windows lines is partial: a line end in a literal is data."""
    if b"\r\n" not in sql:
        return ""
    quoted = {TokenKind.STRING, TokenKind.QUOTED, TokenKind.OPEN}
    literals = (sql[token.start : token.end] for token in executed_tokens(sql) if token.kind in quoted)
    return LINE_ENDS if any(b"\r\n" in literal for literal in literals) else ""
