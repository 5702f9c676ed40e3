"""What the failure of a connection or a statement means: codes of MySQL, MariaDB and TiDB -> an error of migverify."""

from __future__ import annotations

import re
import struct

import pymysql

from migverify.db import tls
from migverify.errors import (
    EndpointError,
    LoginError,
    PrivilegeError,
    ReadError,
    RetryableReadError,
    TimeLimitError,
    UnreachableError,
)
from migverify.model import Endpoint
from migverify.sql.quoting import quote_name

CONNECT_FAILURES = (pymysql.MySQLError, OSError, struct.error, RuntimeError)
"""What PyMySQL raises while it connects."""
QUERY_FAILURES = (pymysql.MySQLError, OSError, struct.error)
"""What PyMySQL raises while it runs a statement."""

_PAGE = "see docs/privileges.md"
_DENIED = {1044, 1142, 1143, 1227, 1370, 8121}
_TIME_LIMIT = {3024, 1969}
_TIDB_TIME_LIMIT = ("context deadline exceeded", "context canceled")  # its other words for max_execution_time
_FULL = {1040, 1203, 1226}  # no connection left: of the server, of the user, of the user's hour
_GONE_SNAPSHOT = {8055, 9006}  # TiDB's garbage collection is past the snapshot: no retry brings it back
_UNDETERMINED = 8501
_REFUSED = {1045, 1698, 1130, 1049, 3118, 1862, 3159}
# Connection gone, lock waits, kills, time limits; 9001-9013 are TiDB's "region or store is not there right now".
_RETRYABLE = {
    *(1028, 1040, 1053, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1317, 1927, 2003, 2006),
    *(2013, 2014, 2055, 3572, 4031, 8027, 8028, 8175, 8229, *range(9001, 9014)),
}


def query_failure(endpoint: Endpoint, error: Exception, sql: str) -> ReadError | PrivilegeError:
    """Return what the failure of a statement means: a grant is missing, a time limit, worth another attempt, or not."""
    code, text = _code_and_text(error)
    where = f"{endpoint.name} ({endpoint.host}:{endpoint.port})"
    shown = sql if len(sql) <= 2000 else f"{sql[:2000]} ... ({len(sql)} characters)"
    message = f"{where}: {text} [{code}]\n  SQL: {shown}"
    if code in _DENIED:
        return PrivilegeError(message, hint=_grant_hint(code, text, endpoint, sql))
    if code in _TIME_LIMIT or (code in (1105, 1317) and "maximum statement execution time" in text):
        return TimeLimitError(message)
    if code == 1105 and endpoint.query_seconds and any(words in text for words in _TIDB_TIME_LIMIT):
        return TimeLimitError(message)
    if code in _GONE_SNAPSHOT:
        return ReadError(message, hint="The snapshot is older than tidb_gc_life_time; take a new one, or raise it.")
    gone = isinstance(error, OSError | struct.error | pymysql.InterfaceError)
    deadline = code == 1105 and any(w in text for w in ("deadline", "timeout", "Timeout", "try again"))
    if gone or deadline or code in _RETRYABLE:
        return RetryableReadError(message)
    return ReadError(message)


def server_answered(error: ReadError) -> bool:
    """Tell whether the server itself refused or ended a statement: it does not run it any more.

    A lost connection is no answer, and neither is TiDB's "execution result undetermined" (8501).
    """
    cause = error.__cause__
    code, _ = _code_and_text(cause) if isinstance(cause, pymysql.MySQLError) else (0, "")
    return code > 0 and code != _UNDETERMINED and not 2000 <= code < 3000  # the client library's own codes


def connect_failure(endpoint: Endpoint, error: Exception) -> EndpointError:
    """Return what a failed attempt to connect means: nothing answers, or the login or a grant is refused."""
    code, text = _code_and_text(error)
    where = f"{endpoint.name}: {endpoint.user}@{endpoint.host}:{endpoint.port}"
    if code in _DENIED:
        return PrivilegeError(f"{where}: {text} [{code}]", hint=_grant_hint(code, text, endpoint))
    if code in _REFUSED:
        secret = endpoint.password_env or endpoint.password_command
        hint = (
            f"Check the user and the password from {secret}."
            if secret
            else "No password is configured: set password_env."
        )
        return LoginError(f"{where}: the server refuses the user: {text} [{code}]", hint=hint)
    if code in _FULL:
        hint = "Lower `connections`, or raise max_connections or the user's MAX_USER_CONNECTIONS."
        return UnreachableError(f"{where}: no connection is left: {text} [{code}]", hint=hint)
    remedy = tls.remedy(error)
    if remedy is not None:
        refused = LoginError if isinstance(error, tls.CleartextRefusedError) else UnreachableError
        return refused(f"{where}: TLS: {text}", hint=remedy)
    return UnreachableError(
        f"{where}: cannot connect: {text}",
        hint="Check host and port, that the server runs, and firewalls between.",
    )


def _grant_hint(code: int, text: str, endpoint: Endpoint, sql: str = "") -> str:
    account = _account(text, endpoint)
    needed = re.search(r"at least one of\) the (.+?) privilege", text)
    if needed:
        word = needed[1].split(",")[-1].strip()
        return f"Run as an administrator: GRANT {word} ON *.* TO {account} (see docs/privileges.md)."
    if code == 1227:
        return f"Grant what is named above to {account}, or leave out the option that needs it."
    command = re.match(r"(\w+) command denied", text)
    word = command[1].upper() if command else "SELECT"
    database = re.search(r"to database '(.+?)'$", text)
    if database:  # the account is the one that the server matched, as it was granted
        grant = f"GRANT {word} ON {quote_name(database[1])}.* TO {account}"
        return f"{account} lacks {word} on database {database[1]}. Run as an administrator: {grant} ({_PAGE})."
    table = re.search(r"for (?:column '.+?' in )?table ['`](?:.+?`\.`)?(.+?)['`]$", text)
    what = "what it may not read" if table is None else (
        f"{'all columns of ' if 'for column' in text else ''}table {table[1]}")  # fmt: skip
    lacks = f"{account} lacks {word} on {what}."
    where = _qualified(table[1], f"{text} {sql}") if table else ""
    if not where:
        return f"{lacks} Grant {word} on {what} to that user ({_PAGE})."
    # the account's host is the client's here, not the one that was granted
    return f"{lacks} Run as an administrator: GRANT {word} ON {where} TO that user ({_PAGE})."


def _qualified(table: str, text: str) -> str:
    """Return a table with its database where a text names one such table; empty where it names none or several."""
    named = re.findall(
        rf"(?:FROM|JOIN|INTO|UPDATE|TABLE)\s+`?([^\s`'.,()]+)`?\.`?({re.escape(table)})(?![\w$])", text, re.IGNORECASE
    )
    names = {f"{quote_name(database)}.{quote_name(name)}" for database, name in named}
    return names.pop() if len(names) == 1 else ""


def _account(text: str, endpoint: Endpoint) -> str:
    account = re.search(r"'[^']*'@'[^']*'", text)
    return account[0] if account else endpoint.user


def _code_and_text(error: BaseException) -> tuple[int, str]:
    if error.args and isinstance(error.args[0], int):
        return error.args[0], str(error.args[1]) if len(error.args) > 1 else str(error)
    return 0, str(error) or type(error).__name__
