"""The answers of a server in the order of the commands they belong to.

They are followed only as far as an outcome needs: errors, counts of rows, flags of the session.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from migverify.workload import binary
from migverify.workload.binary import MAX_PACKET
from migverify.workload.formats import protocol
from migverify.workload.formats.packets import Packet
from migverify.workload.formats.protocol import PreparedText
from migverify.workload.model import Record

UNANSWERED = "answer not captured"

_DRAINED = frozenset({binary.COM_PREPARE, binary.COM_FETCH, binary.COM_FIELD_LIST, binary.COM_STATISTICS})
# LOAD DATA LOCAL: the client sends the file; another step of the authentication.
_MORE_STEPS = frozenset({(0xFB, binary.COM_QUERY), (0xFE, binary.COM_CHANGE_USER)})
_TEXTS = (binary.COM_QUERY, binary.COM_EXECUTE)


@dataclass(slots=True)
class PacketEntry:
    """One packet of the file until it is known what it holds: records, noise or a reject.

    ``open`` counts what it waits for: answers, and the rest of a command that began in it. ``settled``: it was given
    out, and takes no more records.
    """

    packet: Packet
    open: int = 0
    settled: bool = False
    records: list[Record] = field(default_factory=list)
    asked: list[PendingCommand] = field(default_factory=list)
    reject: str = ""
    noise: str = "packet without a command"


@dataclass(slots=True)
class PendingCommand:
    """A command whose answer is awaited."""

    record: Record
    entry: PacketEntry
    code: int
    sequence: int
    done: bool = False
    rows: int = 0
    affected: int = 0
    results: bool = False


class PendingAnswers:
    """Awaits the answers of one connection's commands.

    Attributes
    ----------
    waiting
        Commands without an answer yet, the oldest first.
    statements
        Prepared statements by the id the server gave them.
    """

    def __init__(self) -> None:
        self.waiting: deque[PendingCommand] = deque()
        self.statements: dict[int, PreparedText] = {}
        self._state = "head"
        self._columns = 0

    @property
    def between(self) -> bool:
        """True when no answer is half read."""
        return self._state == "head"

    def expect(self, asked: PendingCommand) -> None:
        """Await the answer of a command."""
        if not self.waiting:
            self._state = "head"
        self.waiting.append(asked)

    def lose(self) -> None:
        """Give up on all answers that are awaited."""
        while self.waiting:
            give_up(self.waiting.popleft())
        self._state = "head"

    def damaged(self) -> None:
        """Give up on the answer under way: it does not read as one."""
        if self.waiting:
            give_up(self.waiting.popleft())
        self._state = "head"

    def take(self, payload: bytes, sequence: int, entry: PacketEntry) -> None:
        """Take in a packet of the server.

        Raises
        ------
        ProtocolError
            it ends before what it should hold.
        """
        if not self.waiting:
            return
        asked = self.waiting[0]
        if self._state != "head":
            self._result(asked, payload, entry)
        elif sequence == asked.sequence or asked.results:  # else the rest of an answer that nobody reads
            self._head(asked, payload, entry)

    def _head(self, asked: PendingCommand, payload: bytes, entry: PacketEntry) -> None:
        kind = payload[0] if payload else 0xFE
        if asked.code == binary.COM_PREPARE and kind == 0:
            reader = protocol.FieldReader(payload, 1)
            number = reader.integer(4)
            reader.take(2)
            self.statements[number] = PreparedText(asked.record.sql, reader.integer(2))
            asked.record.statement_id = number
            self._end(asked, protocol.AnswerHead(0), entry)
        elif (kind, asked.code) in _MORE_STEPS:
            asked.results = True
        elif kind in (0x00, 0xFF) or (kind == 0xFE and len(payload) < 9):
            answer = protocol.answer(payload)
            asked.affected += answer.affected
            if answer.status & binary.MORE_RESULTS:
                asked.results = True
            else:
                self._end(asked, answer, entry)
        elif asked.code in _DRAINED:
            self._end(asked, protocol.AnswerHead(0), entry)
        elif asked.code == binary.COM_CHANGE_USER:
            asked.results = True
        else:
            self._columns = protocol.FieldReader(payload).counted()
            self._state = "columns"

    def _result(self, asked: PendingCommand, payload: bytes, entry: PacketEntry) -> None:
        kind = payload[0] if payload else 0
        if self._state == "columns":
            if kind == 0xFF:
                self._end(asked, protocol.answer(payload), entry)
                return
            self._columns -= 1
            if not self._columns:
                self._state = "first row"
            return
        closing = kind == 0xFE and len(payload) < MAX_PACKET
        if self._state == "first row":
            self._state = "rows"
            # Without CLIENT_DEPRECATE_EOF the columns end with an EOF of their own; a row is never so short and 0xFE.
            if closing and len(payload) == 5:
                answer = protocol.answer(payload)
                if answer.status & binary.CURSOR_EXISTS:
                    self._end(asked, answer, entry)
                return
        if kind == 0xFF:
            self._end(asked, protocol.answer(payload), entry)
        elif closing:  # a text row may begin with 0xFE only before 16 MiB or more, which fill its packet
            answer = protocol.answer(payload)
            if answer.status & binary.MORE_RESULTS:
                asked.results = True
                self._state = "head"
            else:
                self._end(asked, answer, entry)
        else:
            asked.rows += 1

    def _end(self, asked: PendingCommand, answer: protocol.AnswerHead, entry: PacketEntry) -> None:
        self.waiting.popleft()
        self._state = "head"
        record, end = asked.record, entry.packet.time
        record.end, record.errno, record.insert_id = end, answer.errno, answer.insert_id or None
        record.duration = None if record.start is None else max(0, end - record.start)
        if asked.code in _TEXTS and not answer.errno:
            flag = "1" if answer.status & binary.IN_TRANSACTION else "0"
            record.details |= {"in_transaction": flag, "warnings": str(answer.warnings)}
            record.rows_affected = asked.affected
            if not answer.status & binary.CURSOR_EXISTS:
                record.rows_sent = asked.rows
        finish(asked)


def give_up(asked: PendingCommand) -> None:
    """Let a command go without its answer."""
    if not asked.done:
        asked.record.partial = asked.record.partial or UNANSWERED
        finish(asked)


def finish(asked: PendingCommand) -> None:
    """Hand out the record of a command, whose outcome is known or given up."""
    if asked.done:  # given up before its answer came
        return
    asked.done = True
    asked.entry.open -= 1
    asked.entry.records.append(asked.record)
