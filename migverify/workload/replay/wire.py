"""One connection of one captured session to one server: sends statements as its client did, reads whole answers.

A wire never waits by itself except in ``run``, ``command`` and ``close``: ``send`` hands the kernel what it takes and
keeps the rest, ``receive`` takes what is there. So one thread drives hundreds of them by a selector::

    wire.send(call)            # watch wire.fileno() for reading; while wire.writing, for writing too
    answer = wire.receive()    # on each event, and when wire.deadline is over
"""

from __future__ import annotations

import re
import select
import ssl
import time
from collections import OrderedDict
from contextlib import suppress
from typing import TypeAlias

from migverify.db.session import Opened, open_session, open_socket
from migverify.errors import EndpointError, ReadError
from migverify.model import Endpoint, Flavor, Side
from migverify.sql.gates import kill_sql
from migverify.sql.lexer import DEFAULT, Modes, TokenKind, tokens
from migverify.workload import binary
from migverify.workload.binary import ProtocolError, execute
from migverify.workload.model import Parameter
from migverify.workload.replay.model import Answer, Call
from migverify.workload.replay.reader import GONE, AnswerReader, Limits, Prepared, failed

__all__ = ["Limits", "ServerWire", "kill_query", "open_wire"]

_CHUNK = 1 << 16
_BIG_CHUNK = 1 << 20
_LOOK_SECONDS = 3600.0
_TURN = 4 << 20  # bytes that one call of ``receive`` takes in
_WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# Unknown handler, needs to be prepared again; TiDB's words for a changed schema.
_NO_LONGER_PREPARED = frozenset({1243, 1615, 8111, 8112, 8113})

_EXACT = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)\Z")
_REAL = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")

# The same text is another statement in another database, and may be in another mode or character set. And MySQL keeps
# the types of the values it was first executed with: `v = ?` asked with 5 and then with '05' compares as numbers.
_Key: TypeAlias = tuple[bytes, str | None, str | None, str | None, tuple[str, ...]]


class ServerWire:
    """One connection of one captured session to one side, over a socket that is connected and authenticated.

    One statement at a time; never shared by threads. Sans-I/O inside, so that one thread drives hundreds of them by a
    selector.

    Attributes
    ----------
    closed
        Why the connection cannot be used any more; empty while it can.
    deadline
        ``time.monotonic()`` at which the statement under way is over its limit; None without one.
    thread_id
        The server's number of the connection, for ``kill_query``.
    """

    def __init__(self, opened: Opened, side: Side, limits: Limits) -> None:
        self.side = side
        self.limits = limits
        self.flavor: Flavor = opened.flavor
        self.version: str = opened.version
        self.thread_id: int = opened.thread_id
        self.closed = ""
        self.deadline: float | None = None
        self._socket = opened.socket
        self._socket.setblocking(False)
        self._fileno = self._socket.fileno()
        self._reader = AnswerReader(limits)
        self._out: bytes | memoryview = b""
        self._asked = False
        self._unsent = ""
        self._prepared: OrderedDict[_Key, Prepared] = OrderedDict()
        self._preparing: tuple[_Key, tuple[Parameter, ...]] | None = None
        self._running: _Key | None = None
        self._closing: list[bytes] = []

    def fileno(self) -> int:
        """Return the socket's number, for a selector; it stays the same after ``close``."""
        return self._fileno

    @property
    def writing(self) -> bool:
        """Whether bytes wait to be sent: watch for writing too then, and call ``receive`` on either event.

        To be looked at behind ``send`` and behind ``receive``, which sends the values once a statement is prepared.
        """
        return bool(self._out)

    def send(self, call: Call, *, prepared: bool = False) -> None:
        """Send a statement.

        Parameters
        ----------
        call
            ``parameters`` are bound when prepared, and written into the text as literals when not.
        prepared
            By COM_STMT_PREPARE (once a text, database and mode) and COM_STMT_EXECUTE. Without parameters of the call
            the text is prepared as it is.
        """
        if not prepared:
            sql = call.sql
            if call.parameters:
                try:
                    sql = inlined(sql, call.parameters, call.state.modes)
                except ValueError as error:
                    self._asked = True
                    self._unsent = f"not sent: {error}"
                    return
            self.ask(sql)
            return
        parameters = call.parameters or ()
        state = call.state
        kinds = tuple([parameter.kind for parameter in parameters])
        key = (call.sql, state.database, state.sql_mode, state.charset, kinds)
        known = self._prepared.get(key)
        if not self._start():
            return
        if known is None:
            self._preparing = key, parameters
            self._reader.begin_prepare()
            self._write(binary.COM_PREPARE, call.sql)
        else:
            self._prepared.move_to_end(key)
            self._execute(key, known, parameters)

    def ask(self, sql: bytes) -> None:
        """Send a statement of the caller's own as a text."""
        if not self._start():
            return
        self._reader.begin()
        self._write(binary.COM_QUERY, sql)

    def _start(self) -> bool:
        if self._asked:
            raise RuntimeError("a wire takes one statement at a time")
        self._asked = True
        self._unsent = self.closed and f"not sent: {self.closed}"
        self._running = None
        seconds = self.limits.seconds
        self.deadline = time.monotonic() + seconds if seconds else None
        return not self._unsent

    def _write(self, command: int, body: bytes) -> None:
        payload = bytes((command,)) + body
        if len(payload) >= binary.MAX_PACKET:  # the answer's number follows that of the last part
            self._reader.sequence = (len(payload) // binary.MAX_PACKET + 1) & 255
        framed = binary.frame(payload)
        if self._closing:
            framed = b"".join((*self._closing, framed))
            self._closing.clear()
        self._out = framed
        self._flush()

    def _execute(self, key: _Key, known: Prepared, parameters: tuple[Parameter, ...]) -> None:
        if known.parameters != len(parameters):
            self._unsent = f"not sent: {len(parameters)} values for {known.parameters} parameters"
            return
        self._running = key
        self._reader.begin(binary=True)
        self._write(binary.COM_EXECUTE, execute(known.number, parameters)[1:])

    def _flush(self) -> None:
        out = self._out
        try:
            sent = self._socket.send(out)
            while sent < len(out):
                self._out = out = memoryview(out)[sent:]  # no copy: it may be many megabytes
                sent = self._socket.send(out)
        except _WAITS:
            return
        except OSError as error:
            # The server may have said why before it closed: what it said is read first.
            self._out = b""
            self._unsent = self._unsent or f"connection lost: {_words(error)}"
            return
        self._out = b""

    def receive(self) -> Answer | None:
        """Take in what the socket holds; the answer when it is whole, None when more must come.

        A lost connection and a time limit are answers too (``unanswered``); the wire is closed then.
        """
        if not self._asked:
            return None
        if self._out:
            self._flush()
        if self._unsent:
            return self._end_unanswered(self._unsent)
        try:
            answer = self._read()
        except ProtocolError as error:
            answer = self._lost(f"connection lost: {error}")
        except OSError as error:
            answer = self._lost(f"connection lost: {_words(error)}")
        if answer is None and self.deadline is not None and time.monotonic() >= self.deadline:
            answer = self._lost(f"time limit: no answer within {self.limits.seconds:g} s")
        if answer is not None:
            self._asked = False
            self.deadline = None
            if self._out and not self.closed:  # the rest would be read as another statement
                self._lost("connection lost: the server answered before it had the whole statement")
        return answer

    def _read(self) -> Answer | None:
        reader = self._reader
        taken = 0
        # A long answer that comes faster than it is read must let the other connections of the thread have their turn.
        # What TLS has decrypted already makes no socket readable, so that is always taken.
        while taken < _TURN or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
            try:
                data = self._socket.recv(_CHUNK if reader.wanted_bytes < _CHUNK else _BIG_CHUNK)
            except _WAITS:
                return None
            if not data:
                return self._lost("connection lost: the server closed it")
            taken += len(data)
            if reader.feed(data):
                answer = self._whole()
                if answer is not None:
                    return answer
            elif reader.wants_refusal:
                reader.wants_refusal = False
                self._out = b"\x00\x00\x00" + bytes(((reader.sequence - 1) & 255,))
                self._flush()
        return None

    def _whole(self) -> Answer | None:
        reader = self._reader
        if reader.farewell:
            self.closed = f"connection lost: {reader.farewell}"
            self._release()
        if self._preparing is None:
            answer = reader.answer
            if answer is not None and self._running is not None and answer.errno in _NO_LONGER_PREPARED:
                self._forget(self._running)
            return answer
        (key, parameters), self._preparing = self._preparing, None
        if reader.prepared is None:
            return reader.answer
        self._prepared[key] = reader.prepared
        while len(self._prepared) > max(1, self.limits.statements):
            self._forget(next(iter(self._prepared)))
        self._execute(key, reader.prepared, parameters)
        return self._end_unanswered(self._unsent) if self._unsent else None

    def _forget(self, key: _Key) -> None:
        """Let go of a prepared statement: the command goes out in front of what is sent next, and has no answer."""
        gone = self._prepared.pop(key, None)
        if gone is not None:
            self._closing.append(binary.frame(bytes((binary.COM_CLOSE,)) + gone.number.to_bytes(4, "little")))

    def _end_unanswered(self, reason: str) -> Answer:
        self._asked = False
        self._unsent = ""
        self.deadline = None
        if reason.startswith("not sent") or self.closed:
            return Answer(unanswered=reason)
        said = self._last_words()
        self._lost(reason)
        return said or Answer(unanswered=reason)

    def _last_words(self) -> Answer | None:
        """Read why the server closed the connection while it was sent a statement (1153, a packet too large).

        Whether a client sees that answer or a broken connection is a race; that the server gave it is certain.
        """
        try:
            data = self._socket.recv(_CHUNK)
        except OSError:
            return None
        if len(data) < 8 or data[4] != 0xFF:
            return None
        answer = failed(data, 4, 4 + int.from_bytes(data[:3], "little"))
        return None if answer.errno in GONE else answer

    def _lost(self, reason: str) -> Answer:
        self.closed = self.closed or reason
        self._release()
        return Answer(unanswered=reason)

    def _release(self) -> None:
        self._out = b""
        self._preparing = None
        self._prepared.clear()
        with suppress(OSError):  # it is gone already
            self._socket.close()

    def run(self, call: Call, *, prepared: bool = False) -> Answer:
        """Send, wait, return the answer."""
        self.send(call, prepared=prepared)
        return self._wait()

    def command(self, sql: bytes) -> Answer:
        """Run a statement of the replay's own (session state, clock, KILL), waiting for its answer."""
        self.ask(sql)
        return self._wait()

    def _wait(self) -> Answer:
        while True:
            answer = self.wait(_LOOK_SECONDS)
            if answer is not None:
                return answer

    def wait(self, seconds: float) -> Answer | None:
        """Wait so long for the answer of what was sent; None where it takes longer and its limit is not over."""
        until = time.monotonic() + seconds
        if self.deadline is not None:
            until = min(until, self.deadline)
        while True:
            answer = self.receive()
            left = until - time.monotonic()
            if answer is not None or left <= 0:
                return answer
            poll = select.poll()
            poll.register(self._fileno, select.POLLIN | (select.POLLOUT if self._out else 0))
            poll.poll(left * 1000 + 1)

    def close(self) -> None:
        """Close; an open transaction is rolled back by the server."""
        if self.closed:
            return
        if not self._asked:
            with suppress(OSError):  # it is gone already
                self._socket.send(binary.frame(bytes((binary.COM_QUIT,))))
        self.closed = "closed"
        self._asked = False
        self._release()


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLEOFError):
        return "the server closed it"
    return error.strerror or type(error).__name__


def open_wire(
    endpoint: Endpoint,
    password: str | None,
    side: Side,
    limits: Limits = Limits(),  # noqa: B008  # frozen
    *,
    found_rows: bool = True,
) -> ServerWire:
    """Connect as a client does.

    Parameters
    ----------
    found_rows
        CLIENT_FOUND_ROWS: an UPDATE tells how many rows it found. Connector/J sets it, so it is on by default.

    Raises EndpointError: nothing answers, or the server refuses the user.
    """
    return ServerWire(open_socket(endpoint, password, found_rows=found_rows), side, limits)


def kill_query(endpoint: Endpoint, password: str | None, thread_id: int) -> str:
    """Stop what another connection of the same user runs; returns why it was not stopped, empty when it was.

    A statement whose client went away runs on until it ends by itself.
    """
    try:
        with open_session(endpoint, password) as session:
            session.execute(kill_sql(session.flavor, thread_id, query=True))
    except (EndpointError, ReadError) as error:
        return error.message
    return ""


def quoted(value: bytes, modes: Modes) -> bytes:
    """Return a text as a literal that a session in these modes reads as it was."""
    if modes.charset and not value.isascii():  # a character of it may hold the byte of a backslash
        return b"_" + modes.charset.encode() + b" x'" + value.hex().encode() + b"'"
    if not modes.no_backslash_escapes:
        value = value.replace(b"\\", b"\\\\").replace(b"\0", b"\\0")
    return b"'" + value.replace(b"'", b"''") + b"'"


def inlined(sql: bytes, parameters: tuple[Parameter, ...], modes: Modes = DEFAULT) -> bytes:
    """Return a statement with its values as literals, as a driver that prepares on its own side writes them.

    Raises ValueError: there are more or fewer values than ``?``.
    """
    places = [token for token in tokens(sql, "mysql", modes) if token.kind == TokenKind.PARAMETER]
    if len(places) != len(parameters):
        raise ValueError(f"{len(parameters)} values for {len(places)} parameters")
    parts: list[bytes] = []
    at = 0
    for place, parameter in zip(places, parameters, strict=True):
        parts += (sql[at : place.start], _literal(parameter, modes))
        at = place.end
    parts.append(sql[at:])
    return b"".join(parts)


def _literal(parameter: Parameter, modes: Modes) -> bytes:
    """Return the literal of a value; a number's text that is no number becomes a string."""
    value = parameter.value
    if value is None:
        return b"NULL"
    match parameter.kind:
        case "integer" | "unsigned" | "decimal" if _EXACT.match(value):
            return value
        case "double" | "float" if _REAL.match(value):
            return value if b"e" in value.lower() else value + b"e0"
        case "bytes":
            return b"x'" + value.hex().encode() + b"'"
        case _:
            return quoted(value, modes)
