"""One session of a probe: a plain client's connection, whose statements run in a thread of their own with time limits.

Nothing is pinned: a probe asks what an application sees under the server's own SQL mode, time zone and character set.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from migverify.db import tls
from migverify.db.failures import connect_failure
from migverify.model import Endpoint
from migverify.workload.catalogue.expected import ProbeOutcome
from migverify.workload.catalogue.versions import KnownServer, server

CONNECT_SECONDS = 10
_FOUND_ROWS = 2  # CLIENT_FOUND_ROWS, as the drivers of most applications set it
_MULTI_RESULTS = 131072
_GONE = {2006, 2013}
# what the protocol calls its types; the rest keeps its number
_TYPES = {
    0: "decimal", 1: "tinyint", 2: "smallint", 3: "int", 4: "float", 5: "double", 6: "null", 7: "timestamp",
    8: "bigint", 9: "mediumint", 10: "date", 11: "time", 12: "datetime", 13: "year", 15: "varchar", 16: "bit",
    245: "json", 246: "newdecimal", 247: "enum", 248: "set", 249: "tinyblob", 250: "mediumblob", 251: "longblob",
    252: "blob", 253: "var_string", 254: "string", 255: "geometry",
}  # fmt: skip
_FLAGS = ((1, "not-null"), (2, "primary"), (4, "unique"), (8, "multiple"), (32, "unsigned"), (64, "zerofill"),
          (128, "binary"), (256, "enum"), (512, "auto-increment"), (2048, "set"))  # fmt: skip


class Pending:
    """The answer of a statement that was sent and may not have ended."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._ended = threading.Event()
        self._outcome: ProbeOutcome | None = None

    def end(self, outcome: ProbeOutcome) -> None:
        """Set the answer; called by the session's thread."""
        self._outcome = outcome
        self._ended.set()

    def wait(self, seconds: float) -> ProbeOutcome | None:
        """Return the answer, None when the time is over."""
        self._ended.wait(seconds)
        return self._outcome


class ProbeSession:
    """One connection and its thread.

    Raises
    ------
    EndpointError
        the server cannot be reached, or refuses the user.
    """

    def __init__(self, endpoint: Endpoint, password: str | None) -> None:
        self._connection = _connect(endpoint, password)
        self.server: KnownServer = server(str(self._connection.get_server_info()))
        self.thread_id = int(self._connection.thread_id())
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    def send(self, sql: str, *, warnings: bool = False) -> Pending:
        """Hand a statement to the session's thread."""
        pending = Pending(sql)
        self._work.put(lambda: pending.end(self._ask(sql, warnings=warnings)))
        return pending

    def run(self, sql: str, seconds: float, *, warnings: bool = False) -> ProbeOutcome:
        """Run a statement; over its time the connection is cut, and the answer says so."""
        pending = self.send(sql, warnings=warnings)
        outcome = pending.wait(seconds)
        if outcome is None:
            self.cut()
            return ProbeOutcome(sql, failed=f"no answer within {seconds:g} s")
        return outcome

    def cut(self) -> None:
        """Cut the connection under the thread: it gets an error at once. The server may go on; see ``KILL``."""
        waiting = self._connection._sock
        if waiting is not None:
            with suppress(OSError):  # closed meanwhile, so nobody waits
                socket.socket.shutdown(waiting, socket.SHUT_RDWR)

    def close(self) -> None:
        """End the thread and the connection; open transactions are rolled back by the server."""
        self.cut()
        self._work.put(None)
        self._thread.join(CONNECT_SECONDS)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
        with suppress(self._connection.Error, OSError):  # cut already: only the socket is left to release
            self._connection.close()

    def _ask(self, sql: str, *, warnings: bool) -> ProbeOutcome:
        connection = self._connection
        try:
            connection.query(sql)
            result = connection._result
            outcome = _outcome(sql, result)
            while connection._result is not None and connection._result.has_next:
                connection.next_result()
            if warnings and result.warning_count:
                connection.query("SHOW WARNINGS")
                outcome = replace(outcome, warnings=tuple(int(row[1]) for row in connection._result.rows))
        except (connection.Error, OSError, struct.error, AttributeError) as error:
            # AttributeError: PyMySQL forgets its socket when another thread cuts it
            return _failure(sql, error)
        return outcome


def _connect(endpoint: Endpoint, password: str | None) -> Any:
    try:
        connection: Any = tls.Connection(
            host=endpoint.host, port=endpoint.port, user=endpoint.user, password=(password or "").encode(),
            charset="utf8mb4", use_unicode=False, autocommit=None, connect_timeout=CONNECT_SECONDS,
            read_timeout=CONNECT_SECONDS, write_timeout=CONNECT_SECONDS, client_flag=_FOUND_ROWS | _MULTI_RESULTS,
            program_name="migverify probe", **tls.options(endpoint.tls),
        )  # fmt: skip
    except (tls.Connection.Error, OSError, struct.error, RuntimeError) as error:
        raise connect_failure(endpoint, error) from error
    connection._read_timeout = None  # limits are kept by who waits: a lock is waited for on purpose
    connection.decoders = {}  # every value stays the server's text
    return connection


def _outcome(sql: str, result: Any) -> ProbeOutcome:
    fields = result.fields or [] if result.description is not None else []
    return ProbeOutcome(
        sql,
        columns=tuple(_column(field) for field in fields),
        rows=tuple(tuple(_text(cell) for cell in row) for row in result.rows or ()),
        affected=int(result.affected_rows or 0) if not fields else 0,
        insert_id=int(result.insert_id or 0),
        info=_text(result.message) or "" if result.message else "",
    )


def _column(field: Any) -> str:
    flags = [name for bit, name in _FLAGS if field.flags & bit]
    name = _text(field.name) if isinstance(field.name, bytes) else str(field.name)
    kind = _TYPES.get(field.type_code, str(field.type_code))
    return " ".join([f"{name}:", f"{kind}({field.length},{field.scale})", *flags, f"charset={field.charsetnr}"])


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return bytes(value).decode("utf-8", "backslashreplace") if isinstance(value, bytes | bytearray) else str(value)


def _failure(sql: str, error: BaseException) -> ProbeOutcome:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    words = str(error.args[1]) if len(error.args) > 1 else str(error)
    if not code or code in _GONE or isinstance(error, OSError):
        return ProbeOutcome(sql, failed=f"the connection is lost: {words}")
    return ProbeOutcome(sql, errno=code, sqlstate=getattr(error, "sqlstate", None) or "", message=words)
